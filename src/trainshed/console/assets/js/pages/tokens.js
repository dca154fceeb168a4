// @ts-check
// Tokens: list, create, revoke. A token is shown once.

import { get, post } from "../api.js";
import { confirm, dialog } from "../dialogs.js";
import { h, replace } from "../dom.js";
import { ago, when } from "../format.js";
import { live } from "../live.js";
import { button, codeBlock, errorBox, field, loading, timeAgo } from "../parts.js";
import { path } from "../paths.js";
import { table } from "../table.js";

const TOKENS = "/trainshed/v1/tokens";
const DAY_S = 86_400;
/** @type {[string, number][]} */
const LIVES = [
  ["a day", DAY_S],
  ["a week", 7 * DAY_S],
  ["30 days", 30 * DAY_S],
  ["a year", 365 * DAY_S],
  ["for ever", 0],
];
/** @type {Record<string, string>} */
const ROLES = {
  viewer: "sees everything and asks models",
  editor: "also submits jobs, deploys, writes to buckets",
  owner: "also makes and revokes tokens",
};
/** Roles of jobs' own tokens, which users can't create. @type {Record<string, string>} */
const ROLES_OF_JOBS = {
  "artifact-reader": "fetches the packages of one job for the machine that runs it",
  job: "reads and writes objects, reads its own job and asks models",
};

/** @param {import("../routes.js").Context} ctx @returns {HTMLElement} */
export default function page(ctx) {
  const body = h("div", { class: "stack" }, loading());
  const owner = ctx.session.role === "owner";
  const make = button("Create a token", {
    kind: "primary",
    onClick: () => create(ctx, () => poll.now()),
    testid: "create-token",
  });
  const node = h(
    "div",
    { class: "page tokens" },
    h(
      "div",
      { class: "page-head" },
      h("h1", null, "Tokens and users"),
      h("div", { class: "page-actions" }, owner ? make : null),
    ),
    h(
      "p",
      { class: "muted" },
      "A user is identified by a token. A token is valid for one project, or for all, with the rights of its role.",
    ),
    body,
  );
  if (!owner) {
    replace(
      body,
      errorBox(
        new Error(
          `Only an owner may see and manage tokens; you are ${article(ctx.session.role)} ${ctx.session.role}. ` +
            "Ask an owner for a token with more rights.",
        ),
      ),
    );
    return node;
  }
  /** @type {ReturnType<typeof tokenTable> | null} */
  let shown = null;
  let withOld = false;
  const old = h("input", {
    type: "checkbox",
    dataset: { testid: "show-revoked" },
    on: {
      change: () => {
        withOld = old.checked;
        void poll.now();
      },
    },
  });
  const poll = live(
    node,
    10,
    () => get(TOKENS),
    (/** @type {Api.Tokens} */ { tokens }) => {
      const rows = tokens.filter((token) => withOld || stateOf(token) === "good");
      if (shown) shown.update(rows);
      else
        replace(
          body,
          h("label", { class: "check" }, old, " Show revoked and expired ones"),
          (shown = tokenTable(rows, () => poll.now())),
        );
    },
  );
  return node;
}

/** @param {Api.Token} token */
function stateOf(token) {
  if (token.revokeTime) return "revoked";
  return token.expireTime && Date.parse(token.expireTime) <= Date.now() ? "expired" : "good";
}

/** @param {Api.Token[]} rows @param {() => Promise<void>} refresh */
function tokenTable(rows, refresh) {
  return table({
    testid: "tokens",
    columns: [
      { title: "User", cell: (row) => h("b", null, row.user), sort: (row) => row.user },
      {
        title: "Project",
        cell: (row) => (row.project === "*" ? h("span", { class: "muted" }, "every project") : row.project),
        sort: (row) => row.project,
      },
      {
        title: "Role",
        cell: (row) => h("span", { class: "tag", title: ROLES[row.role] ?? ROLES_OF_JOBS[row.role] }, row.role),
        sort: (row) => row.role,
      },
      { title: "Label", cell: (row) => row.label, class: "clip", sort: (row) => row.label },
      { title: "Made", cell: (row) => timeAgo(row.createTime), sort: (row) => row.createTime },
      { title: "Expires", cell: (row) => ending(row), sort: (row) => row.expireTime ?? "9" },
      {
        title: "",
        label: "Actions",
        class: "cell-actions",
        cell: (row) => (stateOf(row) === "good" ? revokeButton(row, refresh) : null),
      },
    ],
    key: (row) => row.id,
    rows,
    empty: "There are no tokens that are still good.",
  });
}

/** @param {Api.Token} row */
function ending(row) {
  if (row.revokeTime) return h("span", { class: "bad" }, `revoked ${ago(row.revokeTime)}`);
  if (!row.expireTime) return h("span", { class: "muted" }, "never");
  return h("time", { dateTime: row.expireTime, class: stateOf(row) === "expired" ? "bad" : "" }, when(row.expireTime));
}

/** @param {Api.Token} row @param {() => Promise<void>} refresh */
function revokeButton(row, refresh) {
  return button("Revoke…", {
    testid: "revoke",
    onClick: async () => {
      const sure = await confirm({
        title: `Revoke the token of ${row.user}?`,
        text: `“${row.label || row.id}” opens nothing from then on. That can't be undone.`,
        action: "Revoke",
        danger: true,
      });
      if (!sure) return;
      await post(`${path`/trainshed/v1/tokens/${row.id}`}:revoke`);
      await refresh();
    },
  });
}

/** @param {import("../routes.js").Context} ctx @param {() => Promise<void>} refresh */
function create(ctx, refresh) {
  const everywhere = ctx.session.project === "*";
  const user = h("input", {
    class: "input",
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    placeholder: "ada",
    dataset: { testid: "token-user" },
  });
  const project = h(
    "select",
    { class: "select" },
    h("option", { value: ctx.project }, ctx.project),
    everywhere ? h("option", { value: "*" }, "every project") : null,
  );
  const role = h(
    "select",
    { class: "select", dataset: { testid: "token-role" } },
    Object.entries(ROLES).map(([name, text]) =>
      h("option", { value: name, selected: name === "editor" }, `${name}: ${text}`),
    ),
  );
  const label = h("input", {
    class: "input",
    type: "text",
    autocomplete: "off",
    maxLength: 200,
    placeholder: "notebook on my laptop",
    dataset: { testid: "token-label" },
  });
  const life = h(
    "select",
    { class: "select" },
    LIVES.map(([text, seconds]) => h("option", { value: String(seconds), selected: seconds === 30 * DAY_S }, text)),
  );
  const run = async () => {
    const body = {
      user: user.value.trim(),
      project: project.value,
      role: role.value,
      label: label.value,
      ...(Number(life.value) && { ttlSeconds: Number(life.value) }),
    };
    /** @type {Api.NewToken} */
    const made = await post(TOKENS, body);
    await refresh();
    showSecret(made);
  };
  dialog({
    title: "Create a token",
    body: [
      field({ label: "User", input: user, hint: "A name of your choice: letters, digits and . _ @ + -" }),
      field({ label: "Project", input: project }),
      field({ label: "Role", input: role }),
      field({ label: "Label", input: label, hint: "What it is for, so that it can be told from others." }),
      field({ label: "Good for", input: life }),
    ],
    actions: [{ text: "Cancel" }, { text: "Create", kind: "primary", run, testid: "token-go" }],
  });
}

/** @param {Api.NewToken} made */
function showSecret(made) {
  const secret = codeBlock(made.token);
  secret.dataset.testid = "secret";
  dialog({
    title: `The token of ${made.user}`,
    body: [
      h("p", null, "Copy it now: it is shown this once, and kept nowhere."),
      secret,
      h("p", { class: "muted" }, "It signs in to this console, and works as a bearer token for every client."),
    ],
    actions: [{ text: "Done", kind: "primary" }],
  });
}

/** @param {string} word */
function article(word) {
  return /^[aeiou]/.test(word) ? "an" : "a";
}
