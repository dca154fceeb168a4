// @ts-check
// The entry point: session, routing and pages.

import { ApiError, loadSession, onSignedOut, session } from "./api.js";
import { h, replace } from "./dom.js";
import { errorBox, loading } from "./parts.js";
import { remembered } from "./preferences.js";
import { hashOf, parseHash } from "./routes.js";
import { Shell } from "./shell.js";
import signInPage from "./pages/signin.js";

/** @typedef {import("./routes.js").Route} Route */

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
/** @type {Shell | null} */
let shell = null;
let turn = 0; // of the newest navigation: a page that was slow to come is not shown over a newer one

async function start() {
  onSignedOut(showSignIn);
  window.addEventListener("hashchange", () => void route());
  replace(app, loading());
  const { page } = parseHash(location.hash);
  if (page) void import(`./pages/${page}.js`).catch(console.warn); // it comes while the server is asked who this is
  try {
    await loadSession();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) showSignIn();
    else replace(app, h("div", { class: "alone" }, errorBox(error)));
    return;
  }
  await route();
}

function showSignIn() {
  turn += 1;
  shell?.remove();
  shell = null;
  document.title = "Sign in · Trainshed";
  for (const open of document.querySelectorAll("dialog")) open.close();
  replace(app, signInPage({ onDone: () => void route() }));
}

async function route() {
  const who = session();
  if (who === null) return;
  const found = parseHash(location.hash);
  if (found.project === "") {
    history.replaceState(null, "", hashOf(home(who), ""));
    void route();
    return;
  }
  const mine = ++turn;
  const page = await build(found, who);
  if (mine !== turn || session() === null) return;
  const first = shell === null;
  const current = shell ?? frame(who);
  document.title = titleOf(found);
  current.show(found, page);
  scrollTo(0, 0);
  if (!first && document.activeElement === document.body) current.main.focus({ preventScroll: true });
}

/** The initial project: that of the last visit if it still exists. @param {Api.Session} session */
function home({ projects }) {
  const last = remembered("project");
  return last !== null && projects.includes(last) ? last : projects[0];
}

/** @param {Api.Session} who */
function frame(who) {
  shell = new Shell(who);
  replace(app, shell.element);
  return shell;
}

/** @param {Route} found @param {Api.Session} who @returns {Promise<Node>} */
async function build(found, who) {
  if (found.page === "") {
    return notice("There is no such page", "The address leads nowhere. The navigation shows what there is.");
  }
  /** @type {{default: (ctx: import("./routes.js").Context) => Node}} */
  let module;
  try {
    module = await import(`./pages/${found.page}.js`);
  } catch (error) {
    console.warn(error);
    return notice(
      found.title,
      "This page could not be loaded. Load the console again; if that does not help, the server's log may say why.",
    );
  }
  try {
    return module.default(context(found, who));
  } catch (error) {
    console.error(error);
    return h("div", { class: "page" }, h("h1", null, found.title), errorBox(error));
  }
}

/** @param {Route} found @param {Api.Session} who @returns {import("./routes.js").Context} */
function context(found, who) {
  const here = () => location.hash.split("?")[0];
  return {
    project: found.project,
    params: found.params,
    query: found.query,
    session: who,
    go: (path, query) => void (location.hash = hashOf(found.project, path, query)),
    href: (path, query) => hashOf(found.project, path, query),
    setQuery: (query) => history.replaceState(null, "", withQuery(here(), query)),
    setTitle: (title) => void (document.title = `${title} · Trainshed`),
  };
}

/** @param {string} hash @param {import("./routes.js").Query} query */
function withQuery(hash, query) {
  const params = hashOf("x", "", query).split("?")[1];
  return params === undefined ? hash : `${hash}?${params}`;
}

/** @param {Route} found */
function titleOf(found) {
  const thing = found.params.filter((each) => each !== "").at(-1);
  return `${thing === undefined ? found.title : `${thing} · ${found.title}`} · ${found.project} · Trainshed`;
}

/** @param {string} title @param {string} text */
function notice(title, text) {
  return h("div", { class: "page", dataset: { testid: "notice" } }, h("h1", null, title), h("p", null, text));
}

void start();
