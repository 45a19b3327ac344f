// The pair of tensors that is looked at from near: which one, and where in it. The address says it too.

import { fetchData } from "../lib/http.js";
import { element } from "../lib/parts.js";

/**
 * @typedef {object} Shown
 * @property {string} address of the page
 * @property {string} source of the data
 * @property {string} tensor
 * @property {number[]} shape
 * @property {number | null} down the dimension that runs down the map; null: there is none
 * @property {number} across the dimension that runs across it
 * @property {number[]} at the index that is shown
 * @property {string} [heads]
 * @property {string[]} dimensions by name
 */

export const pair = {
  /** @type {Shown | null} */
  shown: null,
};

/** Give what is shown, once something is. */
export const shown = () => /** @type {Shown} */ (pair.shown);

export const section = () => document.getElementById("closeup");

/** @param {string} name */
export const part = (name) => element(`closeup-${name}`);

/**
 * Read what is shown from the page; not every pair has data.
 * @returns {Shown | null}
 */
export function read() {
  const { address, source, tensor = "", shape, down, across, at, heads, dimensions } = section()?.dataset ?? {};
  if (!source || !address) return null;
  return {
    address,
    source,
    tensor,
    shape: JSON.parse(shape ?? "[]"),
    down: down ? Number(down) : null,
    across: Number(across),
    at: at ? at.split(",").map(Number) : [],
    heads,
    dimensions: JSON.parse(dimensions ?? "{}"),
  };
}

/**
 * Write what is shown as the part of an address after the question mark.
 * @param {Record<string, string>} [extra]
 */
export function query(extra = {}) {
  const { tensor, down, across, at, heads } = shown();
  const asked = new URLSearchParams({ tensor });
  if (down !== null) asked.set("down", String(down));
  asked.set("across", String(across));
  asked.set("at", at.join(","));
  if (heads) asked.set("heads", heads);
  for (const [name, value] of Object.entries(extra)) asked.set(name, value);
  return asked;
}

/**
 * Ask for data; of some pairs there is a reason why there are none.
 * @param {string} parts
 */
export async function ask(parts) {
  const asked = query({ parts });
  asked.delete("tensor");
  const found = await fetchData(`${shown().source}?${asked}`);
  if (found.reason) throw new Error(found.reason.text ?? found.reason);
  return found;
}

/** Name the plane that the map shows. */
export function plane() {
  const { down, across, at } = shown();
  return JSON.stringify([down, across, at.filter((_, axis) => axis !== down && axis !== across)]);
}

/**
 * Give the index with other places in the plane of the map.
 * @template Place
 * @param {Place} row
 * @param {Place} column
 */
export function indexWith(row, column) {
  const { down, across, at } = shown();
  return at.map((index, axis) => (axis === down ? row : axis === across ? column : index));
}
