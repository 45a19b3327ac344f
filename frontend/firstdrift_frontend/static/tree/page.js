// The page of a tree, by keyboard and mouse.

import { listenForKeys } from "../lib/keys.js";
import { copy, say, toast } from "../lib/notice.js";
import { around, element, isForBrowser } from "../lib/parts.js";
import { ROW, between } from "../lib/virtual_rows.js";
import { listenToFilters, selectFirst, withNode } from "./filters.js";
import { choose, goTo, inTurn, isBusy, jump, onRow, take, toggle, toggling, unfold } from "./steps.js";
import { NEXT_BAD, askAhead, body, focusSelected, list, lookAhead, panel, revealing, rows, search, setHeight, shownRow, view, write } from "./view.js";

const REST = 40; // ms that the pointer rests on what opens a row before what it holds is fetched

const help = () => /** @type {HTMLDialogElement} */ (element("help")).showModal();
const selectedRow = () => shownRow(view.selected);
const screenful = () => Math.floor(body.clientHeight / ROW) - 1;

const AT_ONCE = {
  "/": () => search.select(),
  "?": help,
};

const KEYS = {
  ...AT_ONCE,
  ArrowDown: () => goTo(view.place + 1),
  ArrowUp: () => goTo(view.place - 1),
  j: () => goTo(view.place + 1),
  k: () => goTo(view.place - 1),
  PageDown: () => goTo(view.place + screenful()),
  PageUp: () => goTo(view.place - screenful()),
  Home: () => goTo(0),
  End: () => goTo(view.total - 1),
  ArrowRight: () => {
    const row = selectedRow();
    if (row?.getAttribute("aria-expanded") === "false") return toggle(row);
    if (row?.hasAttribute("aria-expanded")) return goTo(view.place + 1);
  },
  ArrowLeft: () => {
    const row = selectedRow();
    if (row?.getAttribute("aria-expanded") === "true") return toggle(row);
    if (row?.dataset.parent) return take(`go=${row.dataset.parent}`);
  },
  " ": () => {
    const row = selectedRow();
    return row?.hasAttribute("aria-expanded") && toggle(row);
  },
  Enter: () => view.selected !== null && location.assign(`${rows.dataset.panel}${view.selected}`),
  n: () => jump(NEXT_BAD),
  p: () => jump("previous=bad"),
  N: () => jump("next=origin"),
  P: () => jump("previous=origin"),
  u: () => jump("next=unmatched"),
  U: () => jump("previous=unmatched"),
  "*": unfold,
  c: () => copy(location.href),
  m: () => /** @type {HTMLElement | null} */ (panel.querySelector("[data-copy-markdown]"))?.click(),
  "[": () => toSlice("prev"),
  "]": () => toSlice("next"),
};

/** @param {"prev" | "next"} way */
function toSlice(way) {
  const link = /** @type {HTMLElement | null} */ (document.querySelector(`a[rel="${way}"]`));
  if (link) location.assign(withNode(/** @type {HTMLAnchorElement} */ (link).href));
  else toast(way === "prev" ? say("No earlier slice") : say("No later slice"));
}

listenForKeys(document, KEYS, {
  fields: "input:not([type=checkbox]), select, textarea",
  isLeaving: (event) => event.key === "Enter" && event.target === search,
  leave: (event) => (event.key === "Enter" ? selectFirst() : focusSelected()),
  // Links and buttons keep what activates them, and the panel what scrolls it.
  isFor: (event) => {
    const target = /** @type {Node} */ (event.target);
    const isActivating = event.key === "Enter" || event.key === " ";
    if (isActivating && !rows.contains(target) && around(event, "a, button, summary, input")) return false;
    return event.key.length === 1 || !panel.contains(target);
  },
  // A key that is held down goes as fast as answers come.
  act: (action, event) => {
    if (event.key in AT_ONCE) action(event);
    else if (!event.repeat || !isBusy()) inTurn(() => action(event));
  },
});

rows.addEventListener("click", (event) => {
  const row = around(event, "[data-row]");
  if (!row || isForBrowser(event) || around(event, "[data-leave]")) return;
  event.preventDefault();
  onRow(row, around(event, ".twist") && row.hasAttribute("aria-expanded") ? toggle : choose);
});

rows.addEventListener("dblclick", (event) => {
  const row = around(event, "[data-row][aria-expanded]");
  if (row && !around(event, ".twist")) onRow(row, toggle);
});

// What a row holds is fetched while the pointer rests on what opens it, or else when that is pressed.
/** @param {Event} event */
const openedBy = (event) => /** @type {HTMLElement | null} */ (around(event, "a.twist")?.closest("[aria-expanded]"));
let resting = 0;
rows.addEventListener("pointerover", (event) => {
  clearTimeout(resting);
  const row = openedBy(event);
  if (row?.getAttribute("aria-expanded") === "false") resting = window.setTimeout(() => askAhead(toggling(row)), REST);
});
rows.addEventListener("pointerdown", (event) => {
  clearTimeout(resting);
  const row = openedBy(event);
  if (row && !event.button) askAhead(toggling(row));
  refresh(/** @type {HTMLAnchorElement | null} */ (around(event, "a.twist, a.label")));
});

/**
 * Rows outlive steps: where a link leads from here is said when it is about to be followed, in a new tab for one.
 * @param {HTMLAnchorElement | null} link
 */
function refresh(link) {
  const row = /** @type {HTMLElement | null | undefined} */ (link?.closest("[data-row]"));
  if (!link || !row) return;
  const step = link.matches(".twist") ? "toggle" : "go";
  link.search = [view.query, `${step}=${row.dataset.row}`].filter(Boolean).join("&");
}

// The selected row keeps the focus.
rows.addEventListener("mousedown", (event) => {
  if (openedBy(event)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const other = /** @type {HTMLAnchorElement | null} */ (around(event, "a[rel=prev], a[rel=next]"));
  if (other) other.href = withNode(other.href);
  const step = around(event, "[data-step]")?.dataset.step;
  if (step) {
    event.preventDefault();
    inTurn(() => jump(step, { focus: false }));
  } else if (around(event, "[data-help]")) help();
});

listenToFilters();

// Back and forward: the address says all there is to know.
addEventListener("popstate", () => location.reload());

// What the server rendered is put in its place. Asking how high the tree is would have all rows laid out: it is
// hardly higher than the whole screen.
const likely = revealing(0, window.screen.availHeight);
const near = between(likely, likely + window.screen.availHeight, view.total);
for (const piece of list.pieces()) list.lay(piece, near);
rows.classList.add("is-placed");
setHeight();
body.scrollTop = revealing(0, body.clientHeight);
write(false);
if (document.activeElement === document.body) focusSelected();
list.fillAfter(list.places(body.scrollTop, body.scrollTop + body.clientHeight));
// What may be asked for next can wait until this page is seen.
if ("requestIdleCallback" in window) requestIdleCallback(lookAhead, { timeout: 500 });
else setTimeout(lookAhead, 500);
