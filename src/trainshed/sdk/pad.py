"""A drawing pad for digits, in a cell of a notebook. Needs anywidget, which the notebook's environment has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from trainshed.sdk.drawing import THREE, Stroke, raster

_ESM = """
const SIZE = 280;

function paint(canvas, strokes) {
  const pen = canvas.getContext("2d");
  pen.fillStyle = "black";
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.strokeStyle = "white";
  pen.lineWidth = 20;
  pen.lineCap = "round";
  pen.lineJoin = "round";
  for (const stroke of strokes) {
    pen.beginPath();
    stroke.forEach(([x, y], at) => (at ? pen.lineTo(x * SIZE, y * SIZE) : pen.moveTo(x * SIZE, y * SIZE)));
    if (stroke.length === 1) pen.lineTo(stroke[0][0] * SIZE, stroke[0][1] * SIZE);
    pen.stroke();
  }
}

function render({ model, el }) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  canvas.style.cssText = "touch-action: none; cursor: crosshair; border-radius: 6px; display: block";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "A pad to draw a digit on");
  canvas.className = "trainshed-pad";
  const clear = document.createElement("button");
  clear.textContent = "Clear";
  clear.style.cssText = "margin-top: 6px";
  let strokes = model.get("strokes");
  let drawing = false;

  function send() {
    model.set("strokes", strokes);
    model.set("touched", true);
    model.save_changes();
  }
  function spot(event) {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drawing = true;
    strokes = [...(model.get("touched") ? strokes : []), [spot(event)]];
    paint(canvas, strokes);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drawing) return;
    strokes[strokes.length - 1].push(spot(event));
    paint(canvas, strokes);
  });
  const end = () => {
    if (drawing) send();
    drawing = false;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  clear.addEventListener("click", () => {
    strokes = [];
    send();
    paint(canvas, strokes);
  });
  model.on("change:strokes", () => {
    if (drawing) return;
    strokes = model.get("strokes");
    paint(canvas, strokes);
  });
  paint(canvas, strokes);
  el.append(canvas, clear);
}

export default { render };
"""


class DrawingPad(anywidget.AnyWidget):  # type: ignore[misc]  # its package has no types here
    """A drawing pad. `pixels` is the drawing as an image of MNIST: 784 numbers from 0 to 1, row by row.

    It shows a three until somebody draws.
    """

    _esm = _ESM
    strokes = traitlets.List(default_value=[]).tag(sync=True)
    touched = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(self, strokes: Sequence[Stroke] = THREE, **rest: Any) -> None:
        super().__init__(strokes=[[list(spot) for spot in stroke] for stroke in strokes], **rest)

    @property
    def pixels(self) -> list[float]:
        """The current drawing."""
        return raster(self.strokes)
