// The map of layers as it is now: what is drawn, and where somebody points.

import { say } from "../lib/notice.js";
import { error as written, sources, word } from "../lib/plot.js";

/** @typedef {import("./heat_cells.js").Cell} Cell */

const COORDINATES = ["step", "rank", "ranks", "token", "micro_step"];

export const state = {
  /** @type {import("./heat_cells.js").Cells | null} */
  cells: null,
  /** @type {Cell | null} that is pointed at */
  cursor: null,
  /** @type {Cell | null} where a selection began */
  anchor: null,
  /** @type {{cell: Cell, x: number, y: number} | null} where the button went down */
  pressed: null,
};

/** Give what is drawn, once something is. */
export const drawn = () => /** @type {import("./heat_cells.js").Cells} */ (state.cells);

/** Give the cell to begin with: that of the first bad node. */
export function firstCell() {
  const { first } = drawn().data;
  return /** @type {Cell} */ (first ? [first.row, first.layer] : [0, 0]);
}

/**
 * Name a row.
 * @param {number} row
 */
export function labelOf(row) {
  const found = drawn().data.rows[row];
  if (!found) return say("not done yet");
  const named = COORDINATES.filter((name) => found[name] !== undefined && found[name] !== null);
  return named.map((name) => `${word(name)} ${[found[name]].flat().join("+")}`).join(", ") || word("the only slice");
}

/**
 * Say where a cell leads to.
 * @param {Cell} cell
 * @returns {string | null}
 */
export function addressOf([row, column]) {
  const { data } = drawn();
  const slice = data.slices[row]?.[column] ?? null;
  return slice === null ? null : `${sources().page}/s/${slice}/tree?row=${data.nodes[row][column]}`;
}

/** @param {unknown} error @param {string} from what it comes from */
function describeError(error, from) {
  if (error === null) return say("error unknown");
  if (from === "digest") return error === 0 ? say("equal") : say("differs");
  const shown = { error: written(error) };
  return from === "statistics" && error !== 0 ? say("output error at least {error}", shown) : say("output error {error}", shown);
}

/**
 * Describe a cell, line by line.
 * @param {Cell} cell
 */
export function describe([row, column]) {
  const { data } = drawn();
  const verdict = data.verdicts[row]?.[column] ?? null;
  const where = `${labelOf(row)}, ${data.layers[column]}`;
  if (verdict === null) return [where, row < data.rows.length ? say("not there") : say("not done yet")];
  const limit = data.limits[row]?.[column] ?? null;
  const isFirst = data.first?.row === row && data.first?.layer === column;
  // Classes are of our rules: beside the verdict of others they would contradict it.
  const classed = data.rules === "firstdrift" ? `, ${word(data.shown_names[data.shown[row][column]])}` : "";
  const judged = `${word(data.verdict_names[verdict])}${classed}`;
  const isInside = isFirst && data.verdict_names[verdict] === "pass";
  return [
    where,
    describeError(data.errors[row]?.[column], data.kinds[row]?.[column] || sources().from),
    ...(limit === null ? [] : [say("limit {value}", { value: written(limit) })]),
    ...(isInside ? [] : [judged]),
    ...(isInside ? [say("the first bad node is inside; the output of the whole is within its limit")] : []),
    ...(isFirst && !isInside ? [say("the first bad node is here")] : []),
    ...(data.rows[row].states.includes("input differs") ? [say("its input already differs")] : []),
  ];
}
