// The map of |golden - target|: a plane of the pair on a canvas, and the cell of it that is pointed at.

import { listenForKeys } from "../lib/keys.js";
import { scaleOf } from "../lib/limit_legend.js";
import { shadeOf } from "../lib/limit_shades.js";
import { say } from "../lib/notice.js";
import { colour, ramp, short } from "../lib/plot.js";
import { ask, indexWith, part, plane, shown } from "./pair.js";

/**
 * @typedef {[number, number]} Cell row and column
 * @typedef {object} Plane
 * @property {number[][]} cells
 * @property {[number, number]} block elements of a cell, down and across
 * @property {[number, number]} every so many of them were looked at
 * @property {[number, number]} size of the plane
 * @property {number | null} limit of relative errors, above which they are a fault's; null: the rules have none
 * @property {number} unit the difference that is a relative error of 1: how large a golden element is
 * @property {string} verdict of the pair
 */

const SPECIAL = ["heat-equal", "heat-nan"];
const SHADES = 256;

/** @type {Record<string, Cell>} */
const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-9, 0],
  PageDown: [9, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

const state = {
  /** @type {Plane | null} */
  map: null,
  /** @type {Cell | null} */
  cell: null,
};

/** Forget what is drawn: another pair is shown. */
export const forgetMap = () => Object.assign(state, { map: null, cell: null });

/** Draw the plane that is shown now. */
export async function drawMap() {
  const asked = plane();
  try {
    const { map } = await ask("map");
    if (asked !== plane()) return;
    const cells = map.cells.map((/** @type {unknown[]} */ row) => row.map((value) => (value === "Infinity" ? Infinity : value)));
    state.map = { ...map, cells };
    paint();
  } catch (error) {
    part("cell").textContent = /** @type {Error} */ (error).message;
  }
}

/**
 * Say how dark a difference is. Of a pair that passes all are calm: other reasons than the limit excuse it.
 * @param {Plane} map
 * @param {number} difference
 */
function shade({ limit, unit, verdict }, difference) {
  if (difference === 0) return SHADES;
  if (!Number.isFinite(difference)) return SHADES + 1;
  return Math.round((SHADES - 1) * shadeOf(difference / unit, limit, verdict === "pass" ? verdict : ""));
}

/** @param {Plane} map @param {Uint8ClampedArray} colours */
function pictureOf(map, colours) {
  const image = new ImageData(map.cells[0].length, map.cells.length);
  map.cells.flat().forEach((difference, place) => {
    const at = 4 * shade(map, difference);
    image.data.set(colours.subarray(at, at + 4), 4 * place);
  });
  return onCanvas(image);
}

/** @param {ImageData} image */
function onCanvas(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** Paint the map, the element that is shown, and the cell that is pointed at. */
export function paint() {
  const canvas = /** @type {HTMLCanvasElement | null} */ (document.getElementById("closeup-map"));
  const { map, cell } = state;
  if (!map?.cells[0]?.length || !canvas) return;
  const [rows, columns] = [map.cells.length, map.cells[0].length];
  canvas.parentElement?.style.setProperty("--rows", String(rows));
  const scale = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [canvas.clientWidth * scale, canvas.clientHeight * scale].map(Math.round);
  const colours = ramp(SPECIAL);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingEnabled = false;
  context.drawImage(pictureOf(map, colours), 0, 0, canvas.width, canvas.height);
  const [x, y] = [canvas.width / columns, canvas.height / rows];
  /** @param {Cell} place @param {string} tone */
  const frame = ([row, column], tone) => {
    context.strokeStyle = colour(tone);
    context.lineWidth = 2 * scale;
    context.strokeRect(column * x - 1, row * y - 1, Math.max(x, 3) + 2, Math.max(y, 3) + 2);
  };
  const here = placeOf(map, shown().at);
  if (here) frame(here, "text");
  if (cell) frame(cell, "accent");
  part("scale").replaceChildren(...scaleOf(map.limit, (value) => say("limit for one element {value}", { value }), (size) => short(size * map.unit)));
  sayCell(map);
}

/** @param {Plane} map @param {number[]} at @returns {Cell | null} the cell that an element lies in */
function placeOf(map, at) {
  if (!at.length) return null;
  const { down, across } = shown();
  return [Math.floor((down === null ? 0 : at[down]) / map.block[0]), Math.floor(at[across] / map.block[1])];
}

/** @param {Plane} map @param {Cell} cell @returns the first and last element of a cell, down and across */
function ranges(map, cell) {
  return cell.map((place, side) => [
    place * map.block[side],
    Math.min((place + 1) * map.block[side], map.size[side]) - 1,
  ]);
}

/** @param {Plane} map */
function sayCell(map) {
  const { cell } = state;
  const output = part("cell");
  const every = map.every[0] * map.every[1];
  if (!cell) {
    output.textContent = every > 1 ? say("One element in {every} of each cell was read", { every }) : "";
    return;
  }
  const [down, across] = ranges(map, cell).map(([first, last]) => (
    first === last ? `${first}` : say("{first} to {last}", { first, last })
  ));
  const value = map.cells[cell[0]][cell[1]];
  const index = indexWith(/** @type {string | number} */ (down), across).join(", ");
  output.textContent = Number.isFinite(value)
    ? say("[{index}]: at most {value}", { index, value: short(value) })
    : say("[{index}]: NaN or infinity on one side", { index });
}

/** @param {Plane} map @param {Cell} next */
function point(map, next) {
  /** @param {number} at @param {number} count */
  const within = (at, count) => Math.max(0, Math.min(count - 1, at));
  state.cell = [within(next[0], map.cells.length), within(next[1], map.cells[0].length)];
  paint();
}

/**
 * Have a map pointed at by mouse and keyboard.
 * @param {HTMLElement} canvas
 * @param {(at: number[]) => void} enter shows the values around an element
 */
export function listenToMap(canvas, enter) {
  // The values of a cell are shown around its first element.
  const open = () => {
    if (!state.map || !state.cell) return;
    const [[row], [column]] = ranges(state.map, state.cell);
    enter(indexWith(row, column));
  };
  canvas.addEventListener("pointermove", (event) => {
    const { map } = state;
    if (!map) return;
    const box = canvas.getBoundingClientRect();
    const [y, x] = [event.clientY - box.top - canvas.clientTop, event.clientX - box.left - canvas.clientLeft];
    const [down, across] = [y / canvas.clientHeight, x / canvas.clientWidth];
    point(map, [Math.floor(down * map.cells.length), Math.floor(across * map.cells[0].length)]);
  });
  canvas.addEventListener("pointerleave", () => {
    state.cell = null;
    paint();
  });
  canvas.addEventListener("click", open);
  /** @param {Cell} by @returns {() => void} */
  const step = ([rows, columns]) => () => {
    if (!state.map) return;
    const from = state.cell ?? placeOf(state.map, shown().at) ?? [0, 0];
    point(state.map, [from[0] + rows, from[1] + columns]);
  };
  const steps = Object.fromEntries(Object.entries(STEPS).map(([key, by]) => [key, step(by)]));
  listenForKeys(canvas, { ...steps, Enter: open, " ": open });
}
