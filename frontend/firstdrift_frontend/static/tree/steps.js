// Steps: what changes which rows are visible, or which of them is selected, and the node that is shown beside them.

import { lastOf, request } from "../lib/http.js";
import { explain, say, toast } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { ROW } from "../lib/virtual_rows.js";
import { ask, body, focusSelected, known, list, lookAhead, mark, panel, revealing, rows, select, setHeight, shownRow, splice, view, write } from "./view.js";

/** @type {(() => unknown)[]} */
const waiting = [];
const turns = { isBusy: false };

/** Tell whether an answer is waited for. */
export const isBusy = () => turns.isBusy;

/**
 * Do something once its turn comes: what somebody does while an answer is waited for is meant for what is seen then.
 * @param {() => unknown} action
 */
export async function inTurn(action) {
  waiting.push(action);
  if (turns.isBusy) return;
  turns.isBusy = true;
  for (let next = waiting.shift(); next; next = waiting.shift()) {
    try {
      await next();
    } catch (error) {
      explain(error);
    }
  }
  turns.isBusy = false;
}

/**
 * Take a step.
 * @param {string} step as part of an address
 * @param {object} [how]
 * @param {string} [how.query] what is seen, if not what is seen now
 * @param {boolean} [how.keepScroll]
 * @param {boolean} [how.focus] the selected row afterwards
 * @param {(error: any) => unknown} [how.refused] is told why it cannot be taken
 * @returns whether it was taken
 */
export async function take(step, { query = view.query, keepScroll = false, focus = true, refused = explain } = {}) {
  let found;
  try {
    found = await (known(step, query) ?? ask(step, query));
  } catch (error) {
    refused(error);
    return false;
  }
  const moved = found.selected !== view.selected;
  const grown = found.total - view.total;
  const { total, selected, place, has_bad: hasBad } = found;
  Object.assign(view, { query: found.query, total, selected, place, hasBad });
  const { top, height } = list.screen(); // somebody may have scrolled meanwhile
  const scrolled = keepScroll ? top : revealing(top, height);
  show(step, found, grown, scrolled, height);
  if (scrolled !== top) body.scrollTop = scrolled;
  count(found);
  write(true);
  if (moved) showNode();
  else lookAhead();
  if (focus) focusSelected();
  list.fillAfter(list.places(scrolled, scrolled + height));
  return true;
}

/**
 * Show the rows that a step led to.
 * @param {string} step
 * @param {any} found the answer to it
 * @param {number} grown by so many rows
 * @param {number} top how far will be scrolled
 * @param {number} height of what is seen
 */
function show(step, found, grown, top, height) {
  if (found.same_rows) return list.pieces().forEach(mark);
  setHeight();
  const seen = list.places(top, top + height);
  if (step.startsWith("toggle=") && splice(found.pieces[0], grown, seen)) list.turn();
  else list.replace(found.pieces, seen);
}

/** @param {any} found */
function count(found) {
  const line = element("tree-count");
  /** @param {unknown} number */
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ","); // a locale takes 30 ms to load
  const numbers = { shown: grouped(found.total), matching: grouped(found.matching), all: grouped(line.dataset.all) };
  Object.assign(line.dataset, { shown: found.total, matching: found.matching });
  line.textContent = found.total === 1
    ? say("{shown} row shown; {matching} of {all} nodes match the filters", numbers)
    : say("{shown} rows shown; {matching} of {all} nodes match the filters", numbers);
  element("no-rows").hidden = found.total > 0;
}

/**
 * Say the step that opens or closes a row. It changes that row and what is seen below it: with as much of that as fits
 * the screen, it is all that is asked for.
 * @param {HTMLElement} row
 */
export const toggling = (row) => `toggle=${row.dataset.row}&most=${Math.ceil(body.clientHeight / ROW)}`;

/** @param {HTMLElement} row */
export const toggle = (row) => take(toggling(row), { keepScroll: true });

/** Open the selected row and all that it holds; where the view stays, what is on the screen is all that is waited for. */
export function unfold() {
  if (view.selected === null) return;
  const { top, height } = list.screen();
  const seen = `${Math.floor(top / ROW)}-${Math.ceil((top + height) / ROW)}`;
  return take(`unfold=${view.selected}&rows=${seen}`, { keepScroll: true });
}

/**
 * Go to another row, and say so if there is none.
 * @param {string} step
 * @param {object} [how] as for `take`
 */
export async function jump(step, how) {
  const before = view.selected;
  if ((await take(step, how)) && view.selected === before) toast(say("No other such node"));
}

/**
 * Go to a place among the visible rows.
 * @param {number} target
 */
export async function goTo(target) {
  const row = await list.reach(Math.max(0, Math.min(view.total - 1, target)));
  if (row) choose(row);
}

/**
 * Select a row, and show its node.
 * @param {HTMLElement} row
 */
export function choose(row) {
  select(row);
  write(false);
  showNode();
}

/**
 * Do something with a row in its turn, by which it may be another element, or gone.
 * @param {HTMLElement} row
 * @param {(row: HTMLElement) => unknown} action
 */
export const onRow = (row, action) => inTurn(() => {
  const now = shownRow(row.dataset.row);
  return now && action(now);
});

const HELD = 150; // ms between the steps of a key that is held down, at most
const REST = 90; // ms

const held = { timer: 0, last: -Infinity };

/** Show the node that is selected; while a key is held down, only the one where it stops is fetched. */
function showNode() {
  clearTimeout(held.timer);
  const isHeld = performance.now() - held.last < HELD;
  held.last = performance.now();
  if (isHeld) held.timer = window.setTimeout(fetchNode, REST);
  else fetchNode();
}

const fetchNode = lastOf(async (signal) => {
  if (view.selected === null) return panel.replaceChildren();
  try {
    const address = `${rows.dataset.panel}${view.selected}?panel=true`;
    const answer = await request(address, { signal, headers: { accept: "text/html" } });
    if (!answer.ok) return panel.replaceChildren();
    const text = await answer.text();
    const scrolled = panel.scrollTop;
    panel.innerHTML = text;
    panel.scrollTop = Math.min(scrolled, panel.scrollHeight);
    lookAhead();
  } catch (error) {
    if (signal.aborted) return;
    // What is shown is of another node than the one that is picked.
    panel.replaceChildren();
    explain(error);
  }
});
