// @ts-check
/**
 * A drawing as lines, in units of the pad: 0 to 1 from left to right and from top to bottom.
 * @typedef {{points: [number, number][]}} Stroke
 */

/**
 * Draw lines with round ends, smoothed between the recorded points.
 * @param {CanvasRenderingContext2D} context
 * @param {Stroke[]} strokes
 * @param {{scale: number, left?: number, top?: number, width: number, colour: string}} how `left` and `top` are in
 *   units of the pad and come to lie at 0; `width` is in pixels
 */
export function draw(context, strokes, { scale, left = 0, top = 0, width, colour }) {
  context.lineCap = "round";
  context.lineJoin = "round";
  context.lineWidth = width;
  context.strokeStyle = colour;
  for (const { points } of strokes) {
    trace(
      context,
      points.map(([x, y]) => [(x - left) * scale, (y - top) * scale]),
    );
  }
}

/** @param {CanvasRenderingContext2D} context @param {number[][]} points */
function trace(context, points) {
  const [first, last] = [points[0], points[points.length - 1]];
  context.beginPath();
  context.moveTo(first[0], first[1]);
  for (let at = 1; at < points.length - 1; at += 1) {
    const [x, y] = points[at];
    const [nextX, nextY] = points[at + 1];
    context.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
  }
  context.lineTo(last[0] + 0.01, last[1]); // a line of no length would draw no dot
  context.stroke();
}

/**
 * The smallest box around the middle of the lines; null if there are none.
 * @param {Stroke[]} strokes
 */
export function bounds(strokes) {
  const points = strokes.flatMap((stroke) => stroke.points);
  if (!points.length) return null;
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
}
