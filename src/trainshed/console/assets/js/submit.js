// @ts-check
// How to submit a job: the console shows the command.

import { dialog } from "./dialogs.js";
import { h } from "./dom.js";
import { codeBlock } from "./parts.js";

/** The command that submits a user's own trainer. @param {string} project */
export function submitCommand(project) {
  return [
    "trainshed jobs submit training my_job \\",
    `  --project ${project} \\`,
    "  --package-path trainer --module-name trainer.task \\",
    "  --staging-bucket gs://BUCKET --job-dir gs://BUCKET/my_job \\",
    "  --runtime-version 2.21 -- --train_steps 1000",
  ].join("\n");
}

/** @param {string} project */
export function showSubmitHelp(project) {
  dialog({
    title: "Submit a job",
    wide: true,
    body: [
      h("p", null, "From a terminal, in the folder that holds your trainer's package:"),
      codeBlock(submitCommand(project)),
      h("p", null, "No trainer yet? Begin with a sample; its README has the line that trains it."),
      codeBlock("trainshed samples copy mnist_async my-digits"),
      h("p", { class: "muted" }, "Clone a job from its page to run it again with other arguments."),
    ],
  });
}
