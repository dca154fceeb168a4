// @ts-check
// The sign-in page.

import { signIn, signInWays } from "../api.js";
import { h, replace } from "../dom.js";
import { mark } from "../icons.js";
import { busyWhile, button, codeBlock, errorBox, field } from "../parts.js";

/**
 * @param {{onDone: () => void}} options
 * @returns {Node}
 */
export default function page({ onDone }) {
  const token = h("input", {
    class: "input",
    type: "password",
    autocomplete: "current-password",
    spellcheck: false,
    required: true,
    autofocus: true,
    dataset: { testid: "token" },
  });
  const problem = h("div", { class: "signin-problem" });
  const enter = button("Sign in", { kind: "primary", type: "submit", testid: "sign-in" });
  const submit = async () => {
    replace(problem);
    try {
      await signIn(token.value.trim());
    } catch (error) {
      replace(problem, errorBox(error));
      token.select();
      token.focus();
      return;
    }
    onDone();
  };
  const form = h(
    "form",
    {
      class: "signin-form",
      on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), void busyWhile(enter, submit)) },
    },
    field({ label: "Access token", input: token }),
    problem,
    enter,
  );
  setTimeout(() => token.focus(), 0);
  const provider = h("div", { class: "signin-provider" });
  void signInWays().then(({ openId }) => {
    if (openId)
      replace(
        provider,
        h(
          "a",
          { class: "button primary", href: "/console/oidc/start", dataset: { testid: "open-id" } },
          "Sign in with OpenID Connect",
        ),
        h("p", { class: "muted" }, "Or with a token:"),
      );
  });
  return h(
    "main",
    { class: "signin" },
    h(
      "div",
      { class: "signin-card" },
      h("div", { class: "signin-brand" }, mark(), h("h1", null, "Trainshed")),
      h("p", { class: "muted" }, "Sign in to the console of this server."),
      provider,
      form,
      h(
        "div",
        { class: "signin-help" },
        h("p", null, "Your token, on the machine where the server runs:"),
        codeBlock("trainshed auth print-access-token"),
        h("p", null, "Or let it open your browser, signed in:"),
        codeBlock("trainshed console"),
      ),
    ),
  );
}
