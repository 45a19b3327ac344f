// Where the boxes of a graph lie: each module is laid out by itself, from the inside out, and both sides alike.

import { joined } from "./model.js";
import { GAP, foot, place, through, top } from "./place.js";
import { FAR, GIVEN, MADE, MANY, WIDTH, structureOf } from "./structure.js";

/**
 * @typedef {import("./model.js").Box} Box
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./model.js").Layer} Layer
 * @typedef {import("./model.js").Joined} Joined
 * @typedef {import("./place.js").Point} Point
 * @typedef {import("./place.js").Places} Places
 * @typedef {import("./place.js").Size} Size
 *
 * @typedef {object} Placed a box, or what stands for boxes that are not seen (`more`)
 * @property {string} key
 * @property {Box | null} box
 * @property {{row: number | null, piece: number, count: number} | null} more
 * @property {number} level how deep it lies, from 1
 * @property {boolean} isOpen
 * @property {number} x
 * @property {number} y
 * @property {number} w
 * @property {number} h
 *
 * @typedef {object} Line an edge on one or both sides
 * @property {string} key
 * @property {number | null} module
 * @property {Joined} edge
 * @property {Point[]} points
 * @property {"start" | "end" | null} end which of its ends it is, of an edge of which the ends alone are drawn
 * @property {boolean} isNamed the shapes stand beside it: once for each box that hands them on
 * @property {{left: number, top: number, width: number, height: number}} around
 *
 * @typedef {object} Picture
 * @property {Placed[]} boxes those that contain others first
 * @property {Line[]} lines
 * @property {number} w of one side
 * @property {number} h
 *
 * @typedef {{w: number, h: number, boxes: Placed[], lines: Line[]}} Inside
 */

export const HEIGHT = 40;
export const HEAD = 28;
const PAD = 14;
const STUB = { x: 9, y: 13 };
const CHARACTER = 6.7; // px, of names
const SMALL = 6.1; // px, of what stands below them
const TEXT = { w: 5.5, h: 10 }; // of shapes: a character, and a row
const BESIDE = 46; // px: the mark, and the edges

/** How wide a box is: name, what it holds, and below its class or type and its error. @param {Box} box */
export function widthOf(box) {
  const held = box.holds ? 4 + String(box.holds).length : 0;
  const error = box.own ? box.shown.output.length + 2 : 0;
  const second = box.own && box.node_class !== "clean" ? Math.max(12, box.node_class.length) : box.type_name.length;
  const longest = Math.max((box.label.length + held) * CHARACTER, (second + error) * SMALL);
  return Math.round(Math.min(250, Math.max(130, longest + BESIDE)));
}

/** Lay out all that is open. @param {Model} model @returns {Picture} */
export function picture(model) {
  const { w, h, boxes, lines } = inside(model, null, 1);
  const named = new Set();
  /** @type {Map<number, {left: number, right: number}[]>} */
  const texts = new Map();
  for (const line of lines) {
    line.around = around(line.points);
    const { edge, module, end } = line;
    const shapes = Object.values(edge.of).map((side) => side.shapes.join(" "));
    const key = `${module}:${edge.source}:${shapes.join()}`;
    line.isNamed = end === null && !named.has(key) && hasRoom(texts, textPlace(line.points), Math.max(...shapes.map(({ length }) => length)));
    if (line.isNamed) named.add(key);
  }
  return { boxes, lines, w, h };
}

/** Where the shapes of a line stand: beside the middle of its first part. @param {Point[]} points @returns {Point} */
export function textPlace([from, to]) {
  return { x: (from.x + to.x) / 2 + 4, y: (from.y + to.y) / 2 + 3 };
}

/**
 * Tell whether a text covers none of those that are there, and keep its place if so.
 * @param {Map<number, {left: number, right: number}[]>} texts by the row in which they stand
 * @param {Point} at @param {number} characters
 */
function hasRoom(texts, { x, y }, characters) {
  const [row, left, right] = [Math.round(y / TEXT.h), x, x + characters * TEXT.w];
  const near = [row - 1, row, row + 1].flatMap((one) => texts.get(one) ?? []);
  if (near.some((other) => left < other.right && other.left < right)) return false;
  texts.set(row, [...(texts.get(row) ?? []), { left, right }]);
  return true;
}

/** @param {Point[]} points */
function around(points) {
  const xs = points.map(({ x }) => x);
  const ys = points.map(({ y }) => y);
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { left, top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
}

/** @param {Model} model @param {number | null} row @param {number} level @returns {Inside} */
function inside(model, row, level) {
  const pieces = model.pieces(row);
  const parts = [];
  let next = 0;
  for (const layer of pieces) {
    parts.push(...unseen(row, next, layer.piece, layer, level), laid(model, layer, level));
    next = layer.piece + 1;
  }
  const last = pieces.at(-1);
  if (last) parts.push(...unseen(row, next, last.pieces, last, level));
  return stacked(parts);
}

/** @param {Inside[]} parts @returns {Inside} */
function stacked(parts) {
  const w = Math.max(WIDTH, ...parts.map((part) => part.w));
  const all = { w, h: 0, boxes: /** @type {Placed[]} */ ([]), lines: /** @type {Line[]} */ ([]) };
  parts.forEach((part, place) => {
    if (place) all.h += GAP.y;
    shift(part, (w - part.w) / 2, all.h);
    all.boxes.push(...part.boxes);
    all.lines.push(...part.lines);
    all.h += part.h;
  });
  return all;
}

/**
 * Stand in for the pieces between two that are seen.
 * @param {number | null} row @param {number} from @param {number} to @param {Layer} layer @param {number} level
 * @returns {Inside[]}
 */
function unseen(row, from, to, layer, level) {
  if (from >= to) return [];
  const count = Math.min(layer.total, to * layer.size) - from * layer.size;
  const piece = to === layer.pieces ? from : to - 1;
  const more = { row, piece, count };
  const box = { key: `more${row}:${piece}`, box: null, more, level, isOpen: false, x: 0, y: 0, w: WIDTH, h: 26 };
  return [{ w: WIDTH, h: 26, boxes: [box], lines: [] }];
}

/** Lay out a piece of a module. @param {Model} model @param {Layer} layer @param {number} level @returns {Inside} */
function laid(model, layer, level) {
  const inner = layer.boxes.map((box) => (model.open.has(box.row) ? inside(model, box.row, level + 1) : null));
  const sizes = layer.boxes.map((box, place) => sizeOf(box, inner[place]));
  const { near, far } = told(layer);
  const links = near.map(([, link]) => link);
  const structure = structureOf(layer.boxes.length, links);
  const at = place(structure, sizes);
  /** @type {Inside} */
  const all = { w: at.w, h: at.h, boxes: [], lines: [] };
  layer.boxes.forEach((box, index) => {
    const { x, y } = at.boxes.get(index) ?? { x: 0, y: 0 };
    const { w, h } = sizes[index];
    const held = inner[index];
    all.boxes.push({ key: String(box.row), box, more: null, level, isOpen: held !== null, x, y, w, h });
    if (!held) return;
    shift(held, x + (w - held.w) / 2, y + HEAD + PAD / 2);
    all.boxes.push(...held.boxes);
    all.lines.push(...held.lines);
  });
  near.forEach(([edge, [from, to]], link) => all.lines.push(lineOf(layer, edge, through(at, sizes, from, to, link))));
  all.lines.push(...ends(layer, far, at, sizes));
  return all;
}

/** @param {Layer} layer @param {Joined} edge @param {Point[]} points @param {Line["end"]} [end] @returns {Line} */
function lineOf(layer, edge, points, end = null) {
  const key = `${edge.source}>${edge.goal}:${layer.row}:${layer.piece}:${end}`;
  return { key, module: layer.row, edge, points, end, isNamed: false, around: { left: 0, top: 0, width: 0, height: 0 } };
}

/**
 * Draw the ends of edges between boxes that are far from each other, side by side at the left of each box.
 * @param {Layer} layer @param {[Joined, number, number][]} far @param {Places} at @param {Size[]} sizes
 */
function ends(layer, far, at, sizes) {
  /** @type {Map<string, number>} */
  const taken = new Map();
  /** @param {number} box @param {"start" | "end"} end @param {Point} middle */
  const beside = (box, end, { x, y }) => {
    const count = taken.get(`${box}${end}`) ?? 0;
    taken.set(`${box}${end}`, count + 1);
    const left = x - sizes[box].w / 2 + STUB.x + (count * STUB.x) % (sizes[box].w / 2 - 2 * STUB.x);
    return end === "end" ? [{ x: left, y: y - STUB.y }, { x: left, y }] : [{ x: left, y }, { x: left, y: y + STUB.y }];
  };
  return far.flatMap(([edge, from, to]) => [
    ...(from >= 0 ? [lineOf(layer, edge, beside(from, "start", foot(at, sizes, from)), "start")] : []),
    ...(to >= 0 ? [lineOf(layer, edge, beside(to, "end", top(at, sizes, to)), "end")] : []),
  ]);
}

/** Move what was laid out. @param {Inside} part @param {number} dx @param {number} dy */
function shift(part, dx, dy) {
  for (const box of part.boxes) {
    box.x += dx;
    box.y += dy;
  }
  for (const { points } of part.lines) {
    for (const point of points) {
      point.x += dx;
      point.y += dy;
    }
  }
}

/** @param {Box} box @param {Inside | null} held */
function sizeOf(box, held) {
  const w = widthOf(box);
  return held ? { w: Math.max(w, held.w + 2 * PAD), h: HEAD + held.h + 1.5 * PAD } : { w, h: HEIGHT };
}

/**
 * Tell the edges of a piece that are laid out as lines from those of which the ends alone are drawn.
 * @param {Layer} layer
 * @returns {{near: [Joined, [number, number]][], far: [Joined, number, number][]}}
 */
function told(layer) {
  const places = new Map(layer.boxes.map((box, place) => [box.row, place]));
  const isFirst = layer.piece === 0;
  const isLast = layer.piece === layer.pieces - 1;
  /** @type {[Joined, [number, number]][]} */
  const near = [];
  /** @type {[Joined, number, number][]} */
  const far = [];
  const edges = joined([layer]);
  /** @type {Map<number | null, number>} */
  const goals = new Map();
  for (const { source } of edges) goals.set(source, (goals.get(source) ?? 0) + 1);
  for (const edge of edges) {
    const most = (goals.get(edge.source) ?? 0) > MANY.goals ? MANY.far : FAR;
    const from = edge.source === null ? GIVEN : places.get(edge.source);
    const to = edge.goal === null ? MADE : places.get(edge.goal);
    const start = from === GIVEN ? (isFirst ? -1 : -Infinity) : from;
    const end = to === MADE ? (isLast ? layer.boxes.length : Infinity) : to;
    if (start !== undefined && end !== undefined && Math.abs(end - start) <= most) near.push([edge, [Number(from), Number(to)]]);
    else if (from !== GIVEN || to !== MADE) far.push([edge, from ?? -1, to ?? -1]);
  }
  return { near, far };
}
