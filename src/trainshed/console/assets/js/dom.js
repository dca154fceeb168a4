// @ts-check
// Making elements. User text only ever becomes a text node or a property: there is no way in for markup.

const SVG = "http://www.w3.org/2000/svg";

/** Properties that elements do not have under this name, or have but cannot be written. */
const ATTRIBUTES = new Set(["role", "list", "form", "colspan", "rowspan", "scope", "inputmode"]);

/**
 * An HTML element. `props`: `class`, `on: {click: f}`, `dataset`, `style` (an object), `for`, `aria-*` and other names
 * with a hyphen as attributes, anything else as a property. Null and undefined are left out.
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

/** An id that no other element has. @param {string} stem */
export function newId(stem) {
  ids += 1;
  return `${stem}-${ids}`;
}

/**
 * Take everything out of a node.
 * @param {Node} node
 */
export function clear(node) {
  node.textContent = "";
}

/**
 * Change what a node holds; what had the focus has it after that too, if there is one of the same `data-testid`.
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
 * Put these children into a node, in the place of what it holds.
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
 * The one place where types end: `Props` says which values belong to which names.
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
