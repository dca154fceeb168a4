// @ts-check
// Creates elements. User text only becomes text nodes and properties, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Properties that elements do not have under this name, or have but cannot be written. */
const ATTRIBUTES = new Set(["role", "list", "form", "colspan", "rowspan", "scope", "inputmode"]);

/**
 * An HTML element. `props`: `class`, `on: {click: f}`, `dataset`, `style` (an object), `for`, `aria-*` and other names
 * with a hyphen as attributes, anything else as a property. Null and undefined are omitted.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Dom.Props<HTMLElementTagNameMap[Tag]> | null} [props]
 * @param {...Dom.Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  append(element, children);
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  return element;
}

/**
 * An SVG element. All props are attributes.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Dom.SvgProps} props
 * @param {...Dom.Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function s(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  append(element, children);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, String(value));
  return element;
}

let ids = 0;

/** A unique id. @param {string} stem */
export function newId(stem) {
  ids += 1;
  return `${stem}-${ids}`;
}

/**
 * Remove all children of a node.
 * @param {Node} node
 */
export function clear(node) {
  node.textContent = "";
}

/**
 * Change the content of a node. The focus stays on the element with the same `data-testid`.
 * @param {Element} node
 * @param {() => void} change
 */
export function keepFocus(node, change) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const name = /** @type {HTMLElement | null} */ (focused)?.dataset.testid;
  change();
  if (name) /** @type {HTMLElement | null} */ (node.querySelector(`[data-testid="${CSS.escape(name)}"]`))?.focus();
}

/**
 * Replace the children of a node.
 * @param {Element | DocumentFragment} node
 * @param {...Dom.Child} children
 */
export function replace(node, ...children) {
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  node.replaceChildren(fragment);
}

/** @param {Node} node @param {readonly Dom.Child[]} children */
function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.appendChild(child);
    else if (typeof child === "object") append(node, child);
    else node.appendChild(document.createTextNode(String(child)));
  }
}

/**
 * Set a property or an attribute. Untyped: `Props` has the types.
 * @param {any} element
 * @param {string} name
 * @param {any} value
 */
function set(element, name, value) {
  if (value === null || value === undefined) return;
  if (name === "class") element.setAttribute("class", value);
  else if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "style") {
    for (const [property, text] of Object.entries(value)) element.style.setProperty(property, String(text));
  } else if (name === "for") element.htmlFor = value;
  else if (name.includes("-") || ATTRIBUTES.has(name)) element.setAttribute(name, String(value));
  else element[name] = value;
}
