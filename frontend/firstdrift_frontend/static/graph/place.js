// Where boxes lie whose structure is known: they may have any size, for what is open is as large as what it holds.

import { MADE } from "./structure.js";

/**
 * @typedef {{x: number, y: number}} Point
 * @typedef {{w: number, h: number}} Size
 *
 * @typedef {object} Places
 * @property {Map<number, Point>} boxes upper left corners of boxes by their places; of the ends of a module the middle
 * @property {Map<number, {x: number, y: number, h: number}[]>} passing where each link passes between boxes
 * @property {number} w
 * @property {number} h
 */

export const GAP = { x: 22, y: 30 };
const THIN = 12;

/**
 * Put the boxes of a structure where they lie, whatever sizes they have: the widest of a row stays in the middle of where
 * dagre has it, and moves the others away.
 * @param {import("./structure.js").Structure} structure
 * @param {Size[]} sizes
 * @returns {Places}
 */
export function place(structure, sizes) {
  /** @type {Places["boxes"]} */
  const boxes = new Map();
  /** @type {Places["passing"]} */
  const passing = new Map();
  let y = 0;
  let least = Infinity;
  let most = -Infinity;
  for (const items of structure) {
    const widths = items.map(({ box }) => (box >= 0 ? sizes[box].w : THIN));
    const h = Math.max(...items.map(({ box }) => (box >= 0 ? sizes[box].h : 4)));
    const middles = spread(items.map(({ x }) => x), widths);
    items.forEach(({ box, link }, index) => {
      const x = middles[index] - widths[index] / 2;
      least = Math.min(least, x);
      most = Math.max(most, x + widths[index]);
      if (box === -1) passing.set(link, [...(passing.get(link) ?? []), { x: middles[index], y, h }]);
      else boxes.set(box, { x: box >= 0 ? x : middles[index], y: box === MADE ? y + h : y });
    });
    y += h + GAP.y;
  }
  const by = Number.isFinite(least) ? -least : 0;
  for (const one of boxes.values()) one.x += by;
  for (const some of passing.values()) for (const one of some) one.x += by;
  return { boxes, passing, w: Math.max(0, most - least), h: Math.max(0, y - GAP.y) };
}

/**
 * Move what would overlap away from the widest.
 * @param {number[]} middles from left to right
 * @param {number[]} widths
 */
export function spread(middles, widths) {
  const found = [...middles];
  const anchor = widths.indexOf(Math.max(...widths));
  const room = (/** @type {number} */ a, /** @type {number} */ b) => (widths[a] + widths[b]) / 2 + GAP.x;
  for (let i = anchor + 1; i < found.length; i += 1) found[i] = Math.max(found[i], found[i - 1] + room(i - 1, i));
  for (let i = anchor - 1; i >= 0; i -= 1) found[i] = Math.min(found[i], found[i + 1] - room(i, i + 1));
  return found;
}

/**
 * List the points of a line from box to box.
 * @param {Places} at @param {Size[]} sizes @param {number} from @param {number} to @param {number} link
 * @returns {Point[]}
 */
export function through(at, sizes, from, to, link) {
  const [start, end] = [foot(at, sizes, from), top(at, sizes, to)];
  const between = (at.passing.get(link) ?? []).flatMap(({ x, y, h }) => [{ x, y }, { x, y: y + h }]);
  return [start, ...(start.y > end.y ? between.reverse() : between), end];
}

/** @param {Places} at @param {Size[]} sizes @param {number} box @returns {Point} */
export function foot(at, sizes, box) {
  const { x, y } = at.boxes.get(box) ?? { x: 0, y: 0 };
  return box >= 0 ? { x: x + sizes[box].w / 2, y: y + sizes[box].h } : { x, y };
}

/** @param {Places} at @param {Size[]} sizes @param {number} box @returns {Point} */
export function top(at, sizes, box) {
  const { x, y } = at.boxes.get(box) ?? { x: 0, y: 0 };
  return box >= 0 ? { x: x + sizes[box].w / 2, y } : { x, y };
}
