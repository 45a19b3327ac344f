// How the boxes of a module lie to each other: in which row of the picture each is, and what is left of what. dagre finds
// that out, once for all modules that are built alike: layers of a model mostly are.

import { Graph, layout } from "../vendor/dagre/dagre.esm.js";

/**
 * @typedef {object} Item a box in a row of the picture, or an edge that passes through it
 * @property {number} box its place in the module; -1 for an edge; the ends of a module are GIVEN and MADE
 * @property {number} link place of the edge among the links
 * @property {number} x its middle, if all boxes had the same width
 *
 * @typedef {Item[][]} Structure rows of items, from left to right
 *
 * @typedef {[number, number]} Link from the box at a place to the one at another
 */

export const GIVEN = -2;
export const MADE = -3;

/** What lies further apart is not laid out as a line: two short ends stand for it. */
export const FAR = 20;

/** What is handed on to more than so many is laid out as lines to the next of them only, so far. */
export const MANY = { goals: 4, far: 3 };

export const WIDTH = 170;
const HEIGHT = 40;
const THIN = 12;

/** @type {Map<string, Structure>} */
const known = new Map();
const MOST = 400;

/**
 * Find the structure of boxes that are linked.
 * @param {number} count of the boxes
 * @param {Link[]} links
 * @returns {Structure}
 */
export function structureOf(count, links) {
  const key = `${count};${links.join(";")}`;
  const found = known.get(key) ?? arrange(count, links);
  known.set(key, found);
  if (known.size > MOST) known.delete(/** @type {string} */ (known.keys().next().value));
  return found;
}

/** @param {number} count @param {Link[]} links @returns {Structure} */
function arrange(count, links) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 14, ranksep: 24, ranker: "tight-tree" });
  for (let place = 0; place < count; place += 1) graph.setNode(String(place), { width: WIDTH, height: HEIGHT });
  for (const end of [GIVEN, MADE]) {
    if (links.some((link) => link.includes(end))) graph.setNode(String(end), { width: THIN, height: HEIGHT });
  }
  for (const [from, to] of links) graph.setEdge(String(from), String(to), { weight: from + 1 === to ? 2 : 1 });
  layout(graph);
  /** @type {Map<number, Item[]>} */
  const rows = new Map();
  /** @param {number} y @param {Item} item */
  const put = (y, item) => rows.set(Math.round(y), [...(rows.get(Math.round(y)) ?? []), item]);
  const ends = [GIVEN, MADE].filter((end) => graph.node(String(end)));
  for (const box of [...Array(count).keys(), ...ends]) {
    const { x, y } = graph.node(String(box));
    put(y, { box, link: -1, x });
  }
  links.forEach(([from, to], link) => {
    const [low, high] = [graph.node(String(from)).y, graph.node(String(to)).y].sort((a, b) => a - b);
    for (const { x, y } of graph.edge(String(from), String(to))?.points ?? []) {
      if (y > low + HEIGHT / 2 + 1 && y < high - HEIGHT / 2 - 1) put(y, { box: -1, link, x });
    }
  });
  return inRows(rows);
}

/**
 * Lines pass through the rows of boxes; where a line bends between two rows is not kept.
 * @param {Map<number, Item[]>} rows
 * @returns {Structure}
 */
function inRows(rows) {
  return [...rows]
    .filter(([, items]) => items.some(({ box }) => box !== -1))
    .sort(([a], [b]) => a - b)
    .map(([, items]) => items.sort((a, b) => a.x - b.x));
}
