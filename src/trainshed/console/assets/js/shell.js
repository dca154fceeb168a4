// @ts-check
// The frame of every page: header, navigation, keys.

import { signOut } from "./api.js";
import { dialog } from "./dialogs.js";
import { h, replace } from "./dom.js";
import { icon, mark } from "./icons.js";
import { busyWhile } from "./parts.js";
import { remember, setTheme, theme } from "./preferences.js";
import { hashOf, PLACES } from "./routes.js";

/** @type {["light" | "dark" | "system", string, string][]} */
const THEMES = [
  ["light", "Light", "sun"],
  ["dark", "Dark", "moon"],
  ["system", "As the system", "system"],
];

/** The frame. `show(route, page)` shows a page in it. */
export class Shell {
  /** @param {Api.Session} session */
  constructor(session) {
    this.session = session;
    this.project = "";
    this.waiting = -Infinity; // when `g` was pressed
    this.main = h("main", { class: "main", id: "main", tabIndex: -1 });
    this.nav = h("nav", { class: "nav", id: "nav", "aria-label": "Console" });
    this.picker = h("div", { class: "picker" });
    this.search = h("input", {
      class: "search-input",
      type: "search",
      placeholder: "Search jobs",
      "aria-label": "Search jobs",
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: false,
      dataset: { testid: "search" },
    });
    this.menu = h(
      "button",
      {
        class: "icon-button menu-button",
        type: "button",
        "aria-label": "Menu",
        "aria-controls": "nav",
        "aria-expanded": "false",
        dataset: { testid: "menu" },
        on: { click: () => this.openNav() },
      },
      icon("menu"),
    );
    this.element = h(
      "div",
      { class: "shell" },
      h("a", { class: "skip", href: "#main", on: { click: (e) => this.skip(e) } }, "Skip to the page"),
      this.header(),
      this.nav,
      h("div", { class: "nav-shade", on: { click: () => this.closeNav() } }),
      this.main,
    );
    this.keys = (/** @type {KeyboardEvent} */ event) => this.key(event);
    document.addEventListener("keydown", this.keys);
  }

  header() {
    const find = (/** @type {Event} */ event) => {
      event.preventDefault();
      location.hash = hashOf(this.project, "/jobs", { search: this.search.value.trim() });
    };
    return h(
      "header",
      { class: "header" },
      this.menu,
      h("a", { class: "brand", href: "#/" }, mark(), h("span", { class: "brand-name" }, "Trainshed")),
      this.picker,
      h(
        "form",
        { class: "search", role: "search", on: { submit: find } },
        icon("search"),
        this.search,
        h("kbd", { "aria-hidden": "true" }, "/"),
      ),
      h(
        "div",
        { class: "header-end" },
        h(
          "button",
          {
            class: "icon-button header-help",
            type: "button",
            title: "Keys (?)",
            "aria-label": "Keys",
            on: { click: showKeys },
          },
          icon("help"),
        ),
        themeMenu(),
        this.userMenu(),
      ),
    );
  }

  userMenu() {
    const { user, role, project, version } = this.session;
    const scope = project === "*" ? "in every project" : `in ${project}`;
    const out = h(
      "button",
      {
        class: "menu-item",
        type: "button",
        dataset: { testid: "sign-out" },
        on: { click: () => void busyWhile(out, signOut) },
      },
      "Sign out",
    );
    return menu(
      "user",
      `Signed in as ${user}`,
      h(
        "div",
        { class: "menu-head" },
        h("b", null, user),
        h("span", null, `${role} ${scope}`),
        h("span", { class: "muted" }, `Trainshed ${version}`),
      ),
      out,
    );
  }

  /** @param {import("./routes.js").Route} route @param {Node} page */
  show(route, page) {
    this.closeNav();
    if (route.project !== this.project || this.nav.childElementCount === 0) this.setProject(route.project);
    for (const item of this.nav.querySelectorAll("a")) {
      const place = route.place === "compare" ? "jobs" : route.place;
      if (item.dataset.place === place) item.setAttribute("aria-current", "page");
      else item.removeAttribute("aria-current");
    }
    this.search.value = route.page === "jobs" ? (route.query.get("search") ?? "") : "";
    replace(this.main, page);
  }

  /** @param {string} project */
  setProject(project) {
    this.project = project;
    remember("project", project);
    replace(
      this.nav,
      PLACES.map((place) =>
        h(
          "a",
          {
            class: "nav-item",
            href: hashOf(project, place.name === "" ? "" : `/${place.name}`),
            "aria-keyshortcuts": `g ${place.key}`,
            dataset: { place: place.name },
            on: { click: () => this.closeNav() },
          },
          icon(place.icon),
          place.title,
        ),
      ),
    );
    replace(this.picker, this.projectPicker(project));
  }

  /** @param {string} project */
  projectPicker(project) {
    const known = [...new Set([...this.session.projects, project])];
    const select = h(
      "select",
      {
        class: "project-select",
        "aria-label": "Project",
        value: project,
        dataset: { testid: "project" },
        on: { change: () => (location.hash = hashOf(select.value, "")) },
      },
      known.map((each) => h("option", { value: each }, each)),
    );
    return select;
  }

  openNav() {
    const open = this.element.classList.toggle("nav-open");
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) this.nav.querySelector("a")?.focus();
  }

  closeNav() {
    this.element.classList.remove("nav-open");
    this.menu.setAttribute("aria-expanded", "false");
  }

  /** @param {Event} event */
  skip(event) {
    event.preventDefault(); // the hash is the address of the page
    this.main.focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = event.target instanceof Element ? event.target : document.body;
    if (event.key === "Escape" && this.element.classList.contains("nav-open")) {
      this.closeNav();
      this.menu.focus();
    }
    const typing =
      target.matches("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (performance.now() - this.waiting < 1500) {
      this.waiting = -Infinity;
      const place = PLACES.find((each) => each.key === event.key);
      if (place) {
        event.preventDefault();
        location.hash = hashOf(this.project, place.name === "" ? "" : `/${place.name}`);
      }
    } else if (event.key === "g") this.waiting = performance.now();
    else if (event.key === "?") showKeys();
    else if (event.key === "/") {
      event.preventDefault();
      /** @type {HTMLElement | null} */
      const own = this.main.querySelector("input[type=search]");
      (own ?? this.search).focus();
    }
  }

  /** Remove it, with its listeners. */
  remove() {
    document.removeEventListener("keydown", this.keys);
    this.element.remove();
  }
}

function themeMenu() {
  const items = THEMES.map(([name, title, drawing]) => {
    const pick = () => {
      setTheme(name);
      for (const item of items) item.setAttribute("aria-pressed", String(item === button));
    };
    const pressed = String(theme() === name);
    const button = h(
      "button",
      {
        class: "menu-item",
        type: "button",
        "aria-pressed": pressed,
        dataset: { testid: `theme-${name}` },
        on: { click: pick },
      },
      icon(drawing),
      title,
    );
    return button;
  });
  return menu("sun", "Theme", ...items);
}

/**
 * A button that opens a small window below it.
 * @param {string} drawing
 * @param {string} title
 * @param {...Node} content
 */
function menu(drawing, title, ...content) {
  const panel = h("div", { class: "menu-panel", popover: "auto" }, content);
  const opener = h(
    "button",
    {
      class: "icon-button",
      type: "button",
      title,
      "aria-label": title,
      "aria-expanded": "false",
      popoverTargetElement: panel,
      dataset: { testid: `menu-${drawing}` },
    },
    icon(drawing),
  );
  panel.addEventListener("beforetoggle", () => {
    const place = opener.getBoundingClientRect();
    panel.style.top = `${place.bottom + 6}px`;
    panel.style.right = `${document.documentElement.clientWidth - place.right}px`;
  });
  panel.addEventListener("toggle", (event) => {
    opener.setAttribute("aria-expanded", String(event.newState === "open"));
  });
  return h("div", { class: "menu" }, opener, panel);
}

function showKeys() {
  /** @type {[pressed: string[], text: string][]} */
  const keys = [
    ...PLACES.map((place) => /** @type {[string[], string]} */ ([["g", place.key], place.title])),
    [["/"], "Search"],
    [["↑", "↓"], "From row to row in a table"],
    [["←", "→"], "Between tabs, and along a chart"],
    [["Esc"], "Close a window"],
    [["?"], "These keys"],
  ];
  dialog({
    title: "Keys",
    body: h(
      "dl",
      { class: "keys" },
      keys.map(([pressed, text]) => [
        h(
          "dt",
          null,
          pressed.map((key) => h("kbd", null, key)),
        ),
        h("dd", null, text),
      ]),
    ),
  });
}
