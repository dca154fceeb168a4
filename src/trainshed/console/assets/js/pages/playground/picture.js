// @ts-check
// The tab that takes a picture from a file: chosen, dropped or pasted.

import { h, replace } from "../../dom.js";
import { errorBox } from "../../parts.js";
import { fromInk } from "./digits.js";
import { inkOfFile } from "./photos.js";

/**
 * @param {{read: (pixels: Float32Array | null) => void}} reader
 * @returns {HTMLElement}
 */
export function picture(reader) {
  const shown = h("div", { class: "picture-shown" });
  let address = "";

  const take = async (/** @type {File | undefined} */ file) => {
    if (!file) return;
    URL.revokeObjectURL(address);
    address = URL.createObjectURL(file);
    try {
      const pixels = fromInk(await inkOfFile(file));
      if (!pixels) throw new Error("There is nothing in this picture but paper: all of it has one colour.");
      replace(shown, h("img", { class: "picture", src: address, alt: file.name, dataset: { testid: "picture" } }));
      reader.read(pixels);
    } catch (error) {
      reader.read(null);
      replace(shown, errorBox(error));
    }
  };

  const input = h("input", {
    type: "file",
    accept: "image/*",
    class: "file-input",
    "aria-label": "A picture of a digit",
    dataset: { testid: "picture-file" },
    on: { change: () => void take(input.files?.[0]) },
  });
  const place = h(
    "label",
    { class: "drop-place", tabIndex: -1 },
    input,
    h("strong", null, "Choose a picture of one digit"),
    h("span", { class: "muted" }, "or drop it here, or paste it"),
  );
  const element = h(
    "div",
    {
      class: "picture-tab",
      on: {
        dragover: (event) => {
          event.preventDefault();
          place.classList.add("drop-over");
        },
        dragleave: () => place.classList.remove("drop-over"),
        drop: (event) => {
          event.preventDefault();
          place.classList.remove("drop-over");
          void take(event.dataTransfer?.files[0]);
        },
        paste: (event) => void take(event.clipboardData?.files[0]),
      },
    },
    place,
    shown,
    h(
      "p",
      { class: "muted small" },
      "The digit is cut out, made white on black if the paper is light, scaled to 20 × 20 and centred by its mass, ",
      "as the pictures of MNIST are. A picture of 28 × 28 keeps its size and place.",
    ),
  );
  return element;
}
