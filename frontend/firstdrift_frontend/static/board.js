// The board by keyboard: arrows go from link to link of the table, / to the search.

import { listenForKeys } from "./lib/keys.js";
import { around } from "./lib/parts.js";

const CELL = "#board-table td, #board-table th";

/** @param {Element | null | undefined} cell @returns {HTMLElement | null | undefined} what can be focused in it */
const stop = (cell) => cell?.querySelector("a");

/** @param {HTMLTableCellElement} cell */
const cellsBeside = (cell) => [...(cell.parentElement?.children ?? [])];

/**
 * Go from a cell to the next one in a direction that can be focused.
 * @param {(cell: HTMLTableCellElement) => Element | null | undefined} next
 * @returns {(cell: HTMLTableCellElement) => HTMLElement | null | undefined}
 */
const step = (next) => (cell) => {
  for (let at = next(cell); at; at = next(/** @type {HTMLTableCellElement} */ (at))) if (stop(at)) return stop(at);
};

/** @param {"nextElementSibling" | "previousElementSibling"} way @returns {(cell: HTMLTableCellElement) => Element | undefined} */
const acrossRows = (way) => (cell) => cell.parentElement?.[way]?.children[cell.cellIndex];

/** @type {Record<string, (cell: HTMLTableCellElement) => HTMLElement | null | undefined>} */
const MOVES = {
  ArrowRight: step((cell) => cell.nextElementSibling),
  ArrowLeft: step((cell) => cell.previousElementSibling),
  ArrowDown: step(acrossRows("nextElementSibling")),
  ArrowUp: step(acrossRows("previousElementSibling")),
  Home: (cell) => stop(cellsBeside(cell)[0]),
  End: (cell) => stop(cellsBeside(cell).filter(stop).at(-1)),
};

/** @param {KeyboardEvent} event */
function move(event) {
  const cell = /** @type {HTMLTableCellElement | null} */ (around(event, CELL));
  const next = cell ? MOVES[event.key](cell) : stop(document.querySelector("#board-table tbody tr:has(a)"));
  next?.focus();
  next?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

const toSearch = () => /** @type {HTMLElement | null} */ (document.querySelector("#board [name=q]"))?.focus();
const keys = Object.fromEntries(Object.keys(MOVES).map((key) => [key, move]));

listenForKeys(document, { ...keys, "/": toSearch }, {
  fields: "input, select",
  isFor: (event) => {
    if (event.key === "/") return true;
    return Boolean(document.getElementById("board-table") && (around(event, CELL) || !around(event, "a, button")));
  },
});
