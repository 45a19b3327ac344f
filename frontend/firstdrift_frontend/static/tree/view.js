// What is seen of a tree: the server works out which rows are visible, and the address says all of it. Which of them
// are there, and which one is selected.

import { fetchData } from "../lib/http.js";
import { explain } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { followRow } from "../lib/tabs.js";
import { ROW, nearest, placeOf, rowsIn, virtualRows } from "../lib/virtual_rows.js";

export const body = element("tree-body");
export const rows = element("rows");
export const panel = element("panel");
export const tools = /** @type {HTMLFormElement} */ (element("tools"));
export const search = /** @type {HTMLInputElement} */ (tools.elements.namedItem("q"));
export const chunk = Number(rows.dataset.chunk);

export const NEXT_BAD = "next=bad";
const PATIENCE = 60_000; // ms

/** What the server said of it last. */
export const view = {
  query: rows.dataset.query ?? "",
  total: Number(rows.dataset.total),
  selected: rows.dataset.selected ? Number(rows.dataset.selected) : null,
  place: Number(rows.dataset.place),
  hasBad: "hasBad" in rows.dataset,
};

/**
 * Ask for rows.
 * @param {string} step what changes which rows are visible, as part of an address
 * @param {string} [query] what is seen now
 */
export function ask(step, query = view.query) {
  const joined = [query, step].filter(Boolean).join("&");
  return fetchData(`${rows.dataset.address}/rows?${joined}`, { signal: AbortSignal.timeout(PATIENCE) });
}

/**
 * Answers that are fetched before they are asked for, by the step that they are the answer to.
 * @type {Map<string, {query: string, at: number, answer: Promise<any>}>}
 */
const ahead = new Map();

/**
 * Give the answer to a step if it was asked for ahead.
 * @param {string} step
 * @param {string} query
 */
export function known(step, query) {
  const found = ahead.get(step);
  return found?.query === query && performance.now() - found.at < PATIENCE ? found.answer : null;
}

/**
 * Ask for what a step will lead to.
 * @param {string} step
 */
export function askAhead(step) {
  if (known(step, view.query)) return;
  const mine = { query: view.query, at: performance.now(), answer: ask(step) };
  mine.answer.catch(() => ahead.delete(step)); // then it is asked for again when it is wanted
  ahead.set(step, mine);
}

/** Ask for the next bad row, which is what is asked for most. */
export function lookAhead() {
  for (const [step, found] of ahead) if (found.query !== view.query) ahead.delete(step);
  if (view.hasBad) askAhead(NEXT_BAD);
}

/**
 * Write what is seen into the address.
 * @param {boolean} push as a place to come back to
 */
export function write(push) {
  const parameters = new URLSearchParams(view.query);
  if (view.selected !== null) parameters.set("row", String(view.selected));
  view.query = parameters.toString();
  const address = `${rows.dataset.address}?${view.query}`;
  if (location.search !== `?${view.query}`) {
    if (push) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
  const data = /** @type {HTMLAnchorElement | null} */ (document.querySelector("[data-json]"));
  if (view.selected !== null) followRow(view.selected);
  if (data) data.href = `${rows.dataset.address}.json?${view.query}`;
}

const HEAD = 30; // px, as in the style: the heading stays at the upper edge and covers what is below it
const KEPT = 4; // pieces
const MOST_IN_A_PIECE = 64; // rows

export const list = virtualRows({
  body,
  rows,
  total: view.total,
  chunk,
  kept: KEPT,
  role: "rowgroup",
  ask: async (stretches) => (await ask(`rows=${stretches.map(([first, end]) => `${first}-${end - 1}`).join(".")}`)).pieces,
  mark,
  arrived: () => {
    if (document.activeElement === document.body || rows.contains(document.activeElement)) focusSelected();
  },
  failed: explain,
});

/**
 * Find a row if it is there.
 * @param {number | string | null | undefined} index
 * @returns {HTMLElement | null}
 */
export const shownRow = (index) => rows.querySelector(`[data-row="${index}"]`);

/**
 * Mark what is selected: rows are rendered for whoever had selected something else at that time.
 * @param {HTMLElement} piece
 */
export function mark(piece) {
  for (const row of piece.querySelectorAll('[aria-selected="true"]')) markRow(/** @type {HTMLElement} */ (row), false);
  const row = /** @type {HTMLElement | null} */ (piece.querySelector(`[data-row="${view.selected}"]`));
  if (row) markRow(row, true);
}

/** @param {HTMLElement} row @param {boolean} isSelected */
function markRow(row, isSelected) {
  row.setAttribute("aria-selected", String(isSelected));
  row.tabIndex = isSelected ? 0 : -1;
}

/** Make room for all rows of the view. */
export function setHeight() {
  list.resize(view.total);
  body.setAttribute("aria-rowcount", String(view.total + 1));
}

/** Give the selected row the focus. */
export function focusSelected() {
  const row = shownRow(view.selected);
  if (row !== document.activeElement) row?.focus({ preventScroll: true }); // focusing lays out the page
}

/**
 * Select a row that is there, and scroll to where it is seen.
 * @param {HTMLElement} row
 */
export function select(row) {
  const before = shownRow(view.selected);
  if (before) markRow(before, false);
  view.selected = Number(row.dataset.row);
  view.place = placeOf(row);
  markRow(row, true);
  const scrolled = nearest(view.place, body.scrollTop, body.clientHeight - HEAD);
  if (scrolled !== body.scrollTop) body.scrollTop = scrolled;
  row.focus({ preventScroll: true });
}

/**
 * Give how far to scroll for the selected row to be seen, and some rows around it.
 * @param {number} top how far is scrolled
 * @param {number} height of what is seen
 */
export function revealing(top, height) {
  const row = view.place * ROW;
  const seen = height - HEAD;
  if (row < top + ROW) return Math.max(0, row - seen / 3);
  if (row > top + seen - 3 * ROW) return Math.min(row - (2 * seen) / 3, view.total * ROW - seen);
  return top;
}

/**
 * Show a row anew and, below it, what it holds; what follows stays as it is and moves.
 * @param {string} html the row, and as many of those in it as are asked for
 * @param {number} grown by so many rows the tree is longer now
 * @param {[number, number]} seen
 * @returns whether the row was there
 */
export function splice(html, grown, seen) {
  const [row, ...opened] = rowsIn(html);
  const before = shownRow(row.dataset.row);
  const home = before?.parentElement;
  if (!before || !home) return false; // scrolled away meanwhile
  for (const piece of list.pieces()) for (const other of [...piece.children]) move(other, placeOf(row), grown);
  const fits = opened.length >= grown && home.childElementCount + opened.length <= MOST_IN_A_PIECE;
  if (!fits) while (before.nextElementSibling) before.nextElementSibling.remove();
  before.replaceWith(row, ...(fits ? opened : []));
  if (!fits) list.keep(opened, seen);
  mark(home);
  for (const piece of list.pieces()) {
    if (piece.childElementCount) list.lay(piece, seen);
    else piece.remove();
  }
  return true;
}

/**
 * A row below one that was opened or closed moves by so many places; one that was below a closed row goes.
 * @param {Element} row
 * @param {number} opened
 * @param {number} by
 */
function move(row, opened, by) {
  const place = placeOf(row);
  if (place <= opened) return;
  if (place <= opened - by) return row.remove();
  row.setAttribute("data-place", String(place + by));
  row.setAttribute("aria-rowindex", String(place + by + 2));
}
