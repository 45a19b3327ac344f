// The cells of the map of layers: how large the error of each is, and which of many is the worst.

import { shadeOf } from "../lib/limit_shades.js";

export const ABSENT = -2;
export const UNKNOWN = -1;

/**
 * @typedef {[number, number]} Cell row and column
 * @typedef {object} Cells
 * @property {any} data as the server gave them
 * @property {number} rows
 * @property {number} columns
 * @property {Float64Array} sizes of errors, row by row; or ABSENT, or UNKNOWN
 * @property {number | null} limit above which an error is a fault's; null: the rules have none
 * @property {[number, number] | null} limits the least and the largest that decided of a cell
 * @property {Float64Array} shades from 0, the lightest, to 1; what has no size, or none that is finite, has none
 * @property {string[]} layers by their shortest names
 */

/** @param {unknown} error @param {unknown} verdict */
function sizeOf(error, verdict) {
  if (verdict === null) return ABSENT;
  if (error === null) return UNKNOWN;
  return typeof error === "number" ? error : Infinity;
}

/**
 * Work out from the data what is drawn of them.
 * @param {any} data
 * @returns {Cells}
 */
export function prepare(data) {
  const [rows, columns] = [Math.max(data.rows.length, data.expected), data.layers.length];
  const sizes = new Float64Array(rows * columns).fill(ABSENT);
  data.errors.forEach((/** @type {unknown[]} */ row, /** @type {number} */ r) => row.forEach((error, c) => {
    sizes[r * columns + c] = sizeOf(error, data.verdicts[r][c]);
  }));
  const { limit = null } = data;
  const shades = sizes.map((size, i) => {
    const verdict = data.verdicts[Math.floor(i / columns)]?.[i % columns] ?? null;
    const own = data.limits?.[Math.floor(i / columns)]?.[i % columns] ?? limit;
    return size > 0 && size < Infinity ? shadeOf(size, own, verdict === null ? "" : data.verdict_names[verdict]) : 0;
  });
  /** @type {[number, number] | null} */
  let limits = null;
  for (const one of (data.limits ?? []).flat()) {
    if (typeof one === "number") limits = limits ? [Math.min(limits[0], one), Math.max(limits[1], one)] : [one, one];
  }
  return { data, rows, columns, sizes, limit, limits, shades, layers: data.labels };
}

/**
 * Give the size of a cell.
 * @param {Cells} cells
 * @param {number} row
 * @param {number} column
 */
export const sizeAt = (cells, row, column) => cells.sizes[row * cells.columns + column];

/**
 * Cut cells into as many bins as there are pixels for, at most: the first of each, and the one behind its last.
 * @param {number} count
 * @param {number} pixels
 * @returns {[number, number][]}
 */
export function bins(count, pixels) {
  const many = Math.max(1, Math.min(count, Math.floor(pixels)));
  return Array.from({ length: many }, (_, i) => [Math.floor((i * count) / many), Math.floor(((i + 1) * count) / many)]);
}

/**
 * Find the worst of some cells.
 * @param {Cells} cells
 * @param {[number, number]} rows first, and behind the last
 * @param {[number, number]} columns
 * @returns {Cell}
 */
export function worst(cells, [firstRow, behindRows], [firstColumn, behindColumns]) {
  let [row, column] = [firstRow, firstColumn];
  for (let r = firstRow; r < behindRows; r++) {
    for (let c = firstColumn; c < behindColumns; c++) {
      if (sizeAt(cells, r, c) > sizeAt(cells, row, column)) [row, column] = [r, c];
    }
  }
  return [row, column];
}

/**
 * Give the rows and columns that are looked at from near: those between two cells, or those around one.
 * @param {Cells} cells
 * @param {Cell | null} cursor
 * @param {Cell | null} anchor
 * @returns {[number, number, number, number]} first and last row, first and last column
 */
export function selection(cells, cursor, anchor) {
  if (anchor && cursor) {
    const [rows, columns] = [0, 1].map((side) => [anchor[side], cursor[side]]);
    return [Math.min(...rows), Math.max(...rows), Math.min(...columns), Math.max(...columns)];
  }
  const { first } = cells.data;
  const [row, column] = cursor ?? (first ? [first.row, first.layer] : [0, 0]);
  const [lastRow, lastColumn] = [cells.data.rows.length - 1, cells.columns - 1];
  return [Math.max(0, row - 8), Math.min(lastRow, row + 8), Math.max(0, column - 12), Math.min(lastColumn, column + 12)];
}
