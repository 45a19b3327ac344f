// The map of layers on a canvas. Where there are more cells than pixels, each pixel shows the worst of its cells.

import { colour, ramp, word } from "../lib/plot.js";
import { ABSENT, UNKNOWN, bins, sizeAt, worst } from "./heat_cells.js";
import { drawn, labelOf } from "./heat_state.js";

const BOTTOM = 36; // px below the cells, for labels
const LONGEST = 100; // characters of a label, at most: of a name without end, no more is looked at than may fit
const LEAST = 7; // px of an outline, so that it is seen however small the cells are

/** @typedef {import("./heat_cells.js").Cell} Cell */

/** What was painted of the cells, and in which colours: what moves is drawn over it. */
const painted = {
  /** @type {OffscreenCanvas | null} */
  cells: null,
  left: 0,
  palette: new Uint32Array(),
  /** @type {Record<string, string>} */
  shades: {},
};

/** Look up the colours, which may have changed, and paint the cells anew. */
export function lookUpColours() {
  painted.palette = new Uint32Array(ramp(["heat-equal", "heat-nan", "line"]).buffer);
  painted.shades = Object.fromEntries(["text", "muted", "accent", "surface"].map((name) => [name, colour(name)]));
  painted.cells = null;
}

/**
 * Say where the cells are, in pixels of the page.
 * @param {HTMLCanvasElement} canvas
 */
export function geometry(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  return { left: painted.left, width: width - painted.left - 6, height: height - BOTTOM };
}

/** @param {Cell} cell */
function shade([row, column]) {
  const cells = drawn();
  const size = sizeAt(cells, row, column);
  if (size === 0) return painted.palette[256];
  if (size === Infinity) return painted.palette[257];
  if (size === UNKNOWN) return painted.palette[258];
  if (size === ABSENT) return 0;
  return painted.palette[Math.round(255 * cells.shades[row * cells.columns + column])];
}

/** @param {OffscreenCanvas} canvas */
const contextOf = (canvas) => /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));

/** @param {HTMLCanvasElement} canvas @param {number} scale */
function paintCells(canvas, scale) {
  const cells = drawn();
  const context = contextOf(new OffscreenCanvas(canvas.width, canvas.height));
  context.font = `${12 * scale}px ${getComputedStyle(document.body).fontFamily}`;
  const every = Math.max(1, Math.ceil(cells.rows / 60));
  const named = Array.from({ length: Math.ceil(cells.data.rows.length / every) }, (_, i) => labelOf(i * every));
  const widths = named.map((label) => context.measureText(label).width / scale);
  painted.left = Math.min(190, Math.max(40, ...widths) + 12);
  const { left, width, height } = geometry(canvas);
  const [across, down] = [bins(cells.columns, width * scale), bins(cells.rows, height * scale)];
  const small = new OffscreenCanvas(across.length, down.length);
  const image = new ImageData(across.length, down.length);
  const pixels = new Uint32Array(image.data.buffer);
  down.forEach((rows, y) => across.forEach((columns, x) => {
    pixels[y * across.length + x] = shade(worst(cells, rows, columns));
  }));
  contextOf(small).putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left * scale, 0, width * scale, height * scale);
  paintGrid(context, canvas, scale);
  paintLabels(context, canvas, scale);
  return context.canvas;
}

/** @param {OffscreenCanvasRenderingContext2D} context @param {HTMLCanvasElement} canvas @param {number} scale */
function paintGrid(context, canvas, scale) {
  const { rows, columns } = drawn();
  const { left, width, height } = geometry(canvas);
  if (width / columns <= 5 || height / rows <= 5) return;
  context.fillStyle = painted.shades.surface;
  for (let column = 1; column < columns; column++) {
    context.fillRect(Math.round((left + (column * width) / columns) * scale), 0, scale, height * scale);
  }
  for (let row = 1; row < rows; row++) {
    context.fillRect(left * scale, Math.round(((row * height) / rows) * scale), width * scale, scale);
  }
}

/**
 * Give the next of 1, 2, 5, 10, 20, 50, ... labels are written at.
 * @param {number} step
 */
function round(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * /** @type {number} */ ([1, 2, 5, 10].find((digit) => digit * power >= step));
}

/**
 * Cut a name to what fits: names are told apart by their ends.
 * @param {OffscreenCanvasRenderingContext2D} context
 * @param {string} name
 * @param {number} most
 */
function fitting(context, name, most) {
  let kept = [...name.slice(-2 * LONGEST)].slice(-LONGEST);
  let cut = name.length > kept.join("").length ? "…" : "";
  for (; kept.length > 1 && context.measureText(cut + kept.join("")).width > most; cut = "…") kept = kept.slice(1);
  return cut + kept.join("");
}

/** @param {OffscreenCanvasRenderingContext2D} context @param {HTMLCanvasElement} canvas @param {number} scale */
function paintLabels(context, canvas, scale) {
  const { data, rows, columns, layers } = drawn();
  const { left, width, height } = geometry(canvas);
  const longest = Math.max(...layers.map((name) => context.measureText(name).width)) / scale;
  const across = round(Math.ceil(Math.min(longest + 8, 90) / (width / columns)));
  const down = round(Math.ceil(14 / (height / rows)));
  context.fillStyle = painted.shades.muted;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let row = 0; row < data.rows.length; row += down) {
    const text = fitting(context, labelOf(row), (left - 8) * scale);
    context.fillText(text, (left - 6) * scale, Math.max(7, ((row + 0.5) * height) / rows) * scale);
  }
  context.textAlign = "center";
  for (let column = 0; column < columns; column += across) {
    const text = fitting(context, layers[column], 90 * scale);
    context.fillText(text, (left + ((column + 0.5) * width) / columns) * scale, (height + 10) * scale);
  }
  context.fillText(word("layer"), (left + width / 2) * scale, (height + 27) * scale);
}

/**
 * Outline the cells from one to another.
 * @param {HTMLCanvasElement} canvas
 * @param {Cell} one
 * @param {Cell} other
 * @param {{stroke: string, thick: number, around?: string}} look
 */
function outline(canvas, one, other, { stroke, thick, around }) {
  const scale = devicePixelRatio || 1;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const { rows, columns } = drawn();
  const { left, width, height } = geometry(canvas);
  const [cell, row] = [(width / columns) * scale, (height / rows) * scale];
  let [x, y] = [left * scale + Math.min(one[1], other[1]) * cell, Math.min(one[0], other[0]) * row];
  let [w, h] = [(Math.abs(one[1] - other[1]) + 1) * cell, (Math.abs(one[0] - other[0]) + 1) * row];
  const least = LEAST * scale;
  if (w < least) [x, w] = [x - (least - w) / 2, least];
  if (h < least) [y, h] = [Math.max(1, y - (least - h) / 2), least];
  /** @param {string} tone @param {number} width */
  const frame = (tone, width) => {
    context.strokeStyle = painted.shades[tone];
    context.lineWidth = width * scale;
    context.strokeRect(x, y, w - 1, h - 1);
  };
  if (around) frame(around, thick + 2);
  frame(stroke, thick);
}

/**
 * Paint the map, what is selected in it, and where somebody points.
 * @param {HTMLCanvasElement} canvas
 * @param {{cursor: Cell | null, anchor: Cell | null}} pointed
 * @param {boolean} isPointing
 */
export function paint(canvas, { cursor, anchor }, isPointing) {
  if (!canvas.clientWidth) return;
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale].map(Math.round);
  if (canvas.width !== width || canvas.height !== height || !painted.cells) {
    Object.assign(canvas, { width, height });
    painted.cells = paintCells(canvas, scale);
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.clearRect(0, 0, width, height);
  context.drawImage(painted.cells, 0, 0);
  const { first } = drawn().data;
  /** @type {Cell | null} */
  const bad = first && [first.row, first.layer];
  if (bad) outline(canvas, bad, bad, { stroke: "text", thick: 2, around: "surface" });
  if (anchor && cursor) outline(canvas, anchor, cursor, { stroke: "accent", thick: 1.5 });
  if (cursor && isPointing) outline(canvas, cursor, cursor, { stroke: "accent", thick: 2 });
}

/**
 * Find the cell under the pointer; of several under one pixel, the worst.
 * @param {HTMLCanvasElement} canvas
 * @param {MouseEvent} event
 */
export function cellUnder(canvas, event) {
  const cells = drawn();
  const box = canvas.getBoundingClientRect();
  const { left, width, height } = geometry(canvas);
  /** @param {number} at @param {number} size @param {number} count @returns {[number, number]} */
  const place = (at, size, count) => {
    const from = Math.floor((at / size) * count);
    const behind = Math.max(from + 1, Math.floor(((at + 1) / size) * count));
    return [Math.min(count, Math.max(0, from)), Math.min(count, Math.max(0, behind))];
  };
  const [x, y] = [event.clientX - box.left - left, event.clientY - box.top];
  if (x < 0 || y < 0 || x >= width || y >= height) return null;
  return worst(cells, place(Math.floor(y), height, cells.rows), place(Math.floor(x), width, cells.columns));
}
