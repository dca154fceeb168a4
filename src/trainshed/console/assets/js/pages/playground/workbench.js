// @ts-check
// The selection of a model and a version, and the inputs for it. Kept up to date while others deploy.

import { get } from "../../api.js";
import { h, replace } from "../../dom.js";
import { messageOf } from "../../format.js";
import { live } from "../../live.js";
import { emptyState, errorBox, field, loading, tabs } from "../../parts.js";
import { lastPart, path } from "../../paths.js";
import { drawing } from "./drawing.js";
import { editor } from "./editor.js";
import { pictureInput } from "./inputs.js";
import { picture } from "./picture.js";
import { reading } from "./reading.js";

const SERVING = new Set(["READY", "UPDATING"]);

export class Workbench {
  /** @param {import("../../routes.js").Context} ctx @param {string[]} models */
  constructor(ctx, models) {
    this.ctx = ctx;
    this.wanted = ctx.query.get("version") ?? ""; // until the versions are known
    this.shown = ""; // which version of which model the tabs are about
    this.standard = ""; // the name of the default version
    this.draft = { text: "", model: "" };
    this.model = h("select", { class: "select", dataset: { testid: "model" }, on: { change: () => this.chosen() } });
    this.version = h("select", { class: "select", dataset: { testid: "version" }, on: { change: () => this.open() } });
    this.place = h("div", { class: "playground-body" }, loading());
    const choice = [field({ label: "Model", input: this.model }), field({ label: "Version", input: this.version })];
    this.element = h("div", null, h("div", { class: "playground-choice" }, choice), this.place);
    this.setModels(models, ctx.query.get("model") ?? "");
    this.poll = live(
      this.element,
      5,
      () => this.load(),
      (found) => this.offer(found),
    );
  }

  /** @param {string[]} names @param {string} [wanted] */
  setModels(names, wanted = this.model.value) {
    if (
      !setOptions(
        this.model,
        names.map((name) => [name, name]),
      )
    )
      return;
    this.model.value = names.includes(wanted) ? wanted : names[0];
  }

  chosen() {
    this.wanted = "";
    replace(this.place, loading());
    this.shown = "";
    void this.poll.now();
  }

  async load() {
    const model = this.model.value;
    /** @type {Api.Versions} */
    const answer = await get(path`/v1/projects/${this.ctx.project}/models/${model}/versions`, { pageSize: 100 });
    return { model, versions: answer.versions ?? [] };
  }

  /** @param {{model: string, versions: Api.Version[]}} found */
  offer({ model, versions }) {
    if (model !== this.model.value) return;
    const serving = versions.filter((each) => SERVING.has(each.state));
    const names = serving.map((each) => lastPart(each.name));
    const standard = serving.find((each) => each.isDefault);
    this.standard = standard ? lastPart(standard.name) : "";
    const options = names.map((name) => [name, name]);
    const kept = this.shown ? this.version.value : this.wanted;
    setOptions(this.version, standard ? [["", `default (${this.standard})`], ...options] : options);
    this.version.value = names.includes(kept) || (kept === "" && standard) ? kept : standard ? "" : (names[0] ?? "");
    if (this.shown !== this.key()) this.open();
  }

  /** What the choice stands for now. */
  key() {
    return `${this.model.value}/${this.version.value || this.standard}`;
  }

  open() {
    this.shown = this.key();
    this.ctx.setQuery({ model: this.model.value, version: this.version.value });
    const target = { project: this.ctx.project, model: this.model.value, version: this.version.value };
    const name = this.version.value || this.standard;
    if (!name) {
      replace(this.place, emptyState({ title: "No version of this model answers now" }));
      return;
    }
    const address = path`/trainshed/v1/projects/${target.project}/models/${target.model}/versions/${name}`;
    const mine = this.shown;
    void get(address).then(
      (/** @type {Api.VersionDetails} */ details) => {
        if (mine !== this.shown) return;
        const chosen = { target, sample: details.sample ?? null, signatures: details.signatures ?? {} };
        replace(
          this.place,
          ways(() => chosen, this.draft),
        );
      },
      (error) => replace(this.place, errorBox(error)),
    );
  }
}

/**
 * Other options for a select; false if they are what it has.
 * @param {HTMLSelectElement} select @param {string[][]} options values and texts
 */
function setOptions(select, options) {
  const before = [...select.options].map((each) => [each.value, each.text]);
  if (JSON.stringify(before) === JSON.stringify(options)) return false;
  const value = select.value;
  replace(
    select,
    options.map(([name, text]) => h("option", { value: name }, text)),
  );
  select.value = value;
  return true;
}

/**
 * The tabs of one version. It begins with those about pictures if it takes pictures.
 * @param {() => import("./requests.js").Chosen} chosen
 * @param {{text: string, model: string}} draft
 */
function ways(chosen, draft) {
  let refusal = "";
  try {
    pictureInput(chosen().sample, chosen().signatures);
  } catch (error) {
    refusal = messageOf(error);
  }
  const pictured =
    (/** @type {(reader: ReturnType<typeof reading>) => HTMLElement} */ make, /** @type {string} */ hint) => () => {
      if (refusal) return emptyState({ title: "Not a model of pictures of digits", text: refusal });
      const reader = reading(chosen, hint);
      return h("div", { class: "pictured" }, make(reader), reader);
    };
  return tabs(
    [
      { id: "draw", title: "Draw", show: pictured(drawing, "Draw a digit: it is read while you draw.") },
      { id: "image", title: "Picture", show: pictured(picture, "Choose a picture, and it is read.") },
      { id: "json", title: "JSON", show: () => editor(chosen, draft) },
    ],
    refusal ? "json" : "draw",
  );
}
