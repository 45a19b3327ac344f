// Nodes picked by mouse, and one dragged onto the other.

import { around } from "../lib/parts.js";
import { panes } from "./panes.js";
import { form, namesOf, otherOf, page, pick, pickBoth } from "./state.js";

/**
 * @typedef {import("./panes.js").Pane} Pane
 * @typedef {import("./state.js").Side} Side
 */

/** What the pointer is doing. */
const pointer = {
  /** @type {{row: HTMLElement, pane: Pane} | null} */
  pressed: null,
  /** @type {{side: Side, names: string[]} | null} */
  dragged: null,
};

/** @param {Element} row @returns {Pane} */
function paneOf(row) {
  const body = /** @type {HTMLElement} */ (row.closest(".pane"));
  return panes[/** @type {Side} */ (body.dataset.side)];
}

/**
 * Pick a row: alone, besides others, or with all up to it.
 * @param {Pane} pane
 * @param {HTMLElement} row
 * @param {MouseEvent} event
 */
function pickRow(pane, row, event) {
  pane.focus();
  pane.state.place = Number(row.dataset.place);
  if (event.shiftKey) return pane.pickRange();
  pane.state.anchor = pane.state.place;
  pick(pane.side, namesOf(row), { add: event.ctrlKey || event.metaKey });
}

/** @param {Event} event */
function droppedOn(event) {
  const row = pointer.dragged && around(event, ".node-row");
  return row && paneOf(row).side !== pointer.dragged?.side ? row : null;
}

/** @param {Element | null} row that what is dragged would fall on */
function markBelow(row) {
  for (const other of form.querySelectorAll(".is-over")) if (other !== row) other.classList.remove("is-over");
  row?.classList.add("is-over");
}

/** Have rows picked by mouse. */
export function listenToMouse() {
  // Where rows are made anew while the button is down, browsers say of no click: the row that was pressed is meant.
  form.addEventListener("mousedown", (event) => {
    const row = around(event, ".node-row");
    pointer.pressed = row && { row, pane: paneOf(row) };
    if (row && event.shiftKey) event.preventDefault();
  });
  form.addEventListener("mouseup", (event) => {
    const { pressed } = pointer;
    if (!pressed || pressed.row.isConnected || event.button) return;
    if (pressed.pane.body.contains(/** @type {Node} */ (event.target))) pickRow(pressed.pane, pressed.row, event);
  });
  form.addEventListener("click", (event) => {
    const row = around(event, ".node-row");
    if (row) pickRow(paneOf(row), row, event);
  });

  form.addEventListener("dragstart", (event) => {
    const row = around(event, ".node-row");
    if (!row || !event.dataTransfer) return;
    const { side } = paneOf(row);
    const names = namesOf(row);
    const isPicked = names.some((name) => page.picks[side].includes(name));
    pointer.dragged = { side, names: isPicked ? page.picks[side] : names };
    event.dataTransfer.setData("text/plain", pointer.dragged.names.join("\n"));
    event.dataTransfer.effectAllowed = "link";
  });
  form.addEventListener("dragover", (event) => {
    const row = droppedOn(event);
    markBelow(row);
    if (row) event.preventDefault();
  });
  form.addEventListener("drop", (event) => {
    const row = droppedOn(event);
    if (!row || !pointer.dragged) return;
    event.preventDefault();
    const { side, names } = pointer.dragged;
    const picks = { golden: names, target: names, [otherOf(side)]: namesOf(row) };
    pickBoth(picks, side);
  });
  form.addEventListener("dragend", () => {
    pointer.dragged = null;
    markBelow(null);
  });
}
