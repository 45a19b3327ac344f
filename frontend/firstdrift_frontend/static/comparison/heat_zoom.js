// A part of the map of layers from near, with its values; the address says which.

import { element } from "../lib/parts.js";
import { STOPS, axis, colour, errorFrom, plain, react, word } from "../lib/plot.js";
import { UNKNOWN, sizeAt } from "./heat_cells.js";
import { addressOf, describe, drawn, labelOf } from "./heat_state.js";

const MOST_ROWS = 120;
const [MOST_NAMED, MOST_COLUMNS_NAMED] = [500, 24]; // cells, and columns of cells, with their values written in

const box = () => element("heat-zoom");

/** @param {number[] | null} part first and last row, first and last column */
function remember(part) {
  const here = new URL(location.href);
  if (part) here.searchParams.set("zoom", part.join("."));
  else here.searchParams.delete("zoom");
  history.replaceState(null, "", here);
}

/** @returns {number[] | null} the part that the address names */
export function remembered() {
  const part = new URL(location.href).searchParams.get("zoom")?.split(".").map(Number);
  return part?.length === 4 && part.every(Number.isInteger) ? part : null;
}

/** @param {number} first @param {number} last */
const range = (first, last) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

/**
 * Draw a part from near.
 * @param {number[]} part first and last row, first and last column
 */
export async function zoom(part) {
  const cells = drawn();
  const { data, shades } = cells;
  const [r0, c0, c1] = [Math.max(0, part[0]), Math.max(0, part[2]), Math.min(part[3], cells.columns - 1)];
  const r1 = Math.min(part[1], data.rows.length - 1, r0 + MOST_ROWS - 1);
  if (!(r1 >= r0 && c1 >= c0)) return;
  const [rows, columns] = [range(r0, r1), range(c0, c1)];
  const target = /** @type {HTMLElement} */ (box().querySelector("figure"));
  box().hidden = false;
  target.style.setProperty("--rows", String(rows.length));
  remember([r0, r1, c0, c1]);

  /** @template Value @param {(row: number, column: number) => Value} of */
  const each = (of) => rows.map((r) => columns.map((c) => of(r, c)));
  const hasRoom = rows.length * columns.length <= MOST_NAMED && columns.length <= MOST_COLUMNS_NAMED;
  const shared = {
    type: "heatmap",
    x: columns.map((c) => cells.layers[c]),
    y: rows.map((r) => plain(labelOf(r))),
    customdata: each((r, c) => [addressOf([r, c]), describe([r, c]).map((text) => plain(text)).join("<br>")]),
    texttemplate: hasRoom ? "%{text}" : "",
    hovertemplate: "%{customdata[1]}<extra></extra>",
    hoverongaps: false,
    xgap: 1,
    ygap: 1,
    showscale: false,
  };
  /**
   * Plotly writes the text of cells without a value, too; each layer names its own only.
   * @param {(size: number) => boolean} isMine
   */
  const named = (isMine) => each((r, c) => (isMine(sizeAt(cells, r, c)) ? errorFrom(data.errors[r]?.[c], data.kinds[r]?.[c]) : ""));
  /** @param {number} size @param {string} tone */
  const special = (size, tone) => ({
    ...shared,
    text: named((other) => other === size),
    z: each((r, c) => (sizeAt(cells, r, c) === size ? 1 : null)),
    colorscale: [[0, colour(tone)], [1, colour(tone)]],
    zmin: 0,
    zmax: 1,
  });
  /** @param {number} size */
  const isScaled = (size) => size > 0 && size < Infinity;
  const scaled = {
    ...shared,
    text: named(isScaled),
    z: each((r, c) => (isScaled(sizeAt(cells, r, c)) ? shades[r * cells.columns + c] : null)),
    zmin: 0,
    zmax: 1,
    colorscale: range(0, STOPS - 1).map((stop) => [stop / (STOPS - 1), colour(`heat-${stop}`)]),
  };
  await react(target, [special(UNKNOWN, "line"), special(0, "heat-equal"), special(Infinity, "heat-nan"), scaled], {
    xaxis: axis(word("layer"), { type: "category", showgrid: false }),
    yaxis: axis("", { type: "category", showgrid: false, autorange: "reversed" }),
  }, ([place]) => place && location.assign(place));
}

/** Bring what is shown from near into view: below a long map it is not. */
export const showZoom = () => box().scrollIntoView({ block: "nearest" });

/**
 * Close what is shown from near.
 * @param {HTMLElement} focused what has the focus if it was there
 * @returns whether there was something
 */
export function closeZoom(focused) {
  if (box().hidden) return false;
  if (box().contains(document.activeElement)) focused.focus();
  box().hidden = true;
  remember(null);
  return true;
}
