// Match nodes by hand: two panes of rows, what is picked in them, what a match would change, and what others decide
// meanwhile.

import { listenForKeys } from "../lib/keys.js";
import { copy, say, toast } from "../lib/notice.js";
import { around, element, isForBrowser } from "../lib/parts.js";
import { ROW } from "../lib/virtual_rows.js";
import { apply, make, watch } from "./changes.js";
import { listenToMouse } from "./mouse.js";
import { current, panes } from "./panes.js";
import { showPicked } from "./preview.js";
import { SIDES, changed, complain, field, find, form, namesOf, otherOf, page, pick, pickNothing, viewForm, write } from "./state.js";
import { nextSuggestion, take } from "./suggestions.js";

/** @typedef {import("./panes.js").Pane} Pane */

const WAIT = 160; // ms without another letter

const help = () => /** @type {HTMLDialogElement} */ (element("help")).showModal();

/** @param {(pane: Pane) => number} by so many rows */
const move = (by) => async (/** @type {KeyboardEvent} */ event) => {
  const { pane } = current;
  await pane.goTo(pane.state.place + by(pane));
  if (event.shiftKey) pane.pickRange();
  else pane.state.anchor = pane.state.place;
};

/** @param {Pane} pane */
const screenful = (pane) => Math.max(1, Math.floor(pane.body.clientHeight / ROW) - 1);

/** @param {string} name */
const change = (name) => () => void make(name);

async function nextUnmatched() {
  const { pane } = current;
  pane.focus();
  if (!(await pane.jump({ next: pane.state.place }))) toast(say("Nothing is unmatched here"));
  pane.state.anchor = pane.state.place;
}

const KEYS = {
  ArrowDown: move(() => 1),
  ArrowUp: move(() => -1),
  PageDown: move(screenful),
  PageUp: move((pane) => -screenful(pane)),
  Home: move((pane) => -pane.state.place),
  End: move((pane) => pane.state.total - 1 - pane.state.place),
  ArrowLeft: () => panes.golden.body.focus(),
  ArrowRight: () => panes.target.body.focus(),
  " ": () => {
    const row = current.pane.active();
    if (row) pick(current.pane.side, namesOf(row), { add: true });
  },
  m: () => void apply(),
  Enter: () => void apply(),
  s: () => void nextSuggestion(1),
  S: () => void nextSuggestion(-1),
  u: nextUnmatched,
  x: () => {
    page.kind = page.doing === "unmatch" ? "match" : "unmatch";
    showPicked();
  },
  d: () => {
    page.descendants = !page.descendants;
    changed();
  },
  z: change("undo"),
  y: change("redo"),
  Escape: pickNothing,
  "/": () => find(current.pane.side).focus(),
  "?": help,
  c: () => copy(location.href),
};

// Each key acts on what the one before it led to; only what may take long is not waited for.
let moved = Promise.resolve();
/** @param {() => unknown} action */
const inTurn = (action) => void (moved = moved.then(action).then(() => {}, complain));

/** @param {EventTarget | null} target */
const paneAt = (target) => Object.values(panes).find((pane) => pane.body === target);

listenForKeys(document, KEYS, {
  isLeaving: (event) => event.key === "Enter" && /** @type {HTMLInputElement} */ (event.target).form === viewForm,
  leave: () => current.pane.focus(),
  // Links, buttons and boxes keep what activates and moves them.
  isFor: ({ key, target }) => {
    if (paneAt(target) || !(target instanceof Element)) return true;
    const isActivating = key === "Enter" || key === " " || (key.startsWith("Arrow") && target.matches("input"));
    if (isActivating && target.closest("a, button, summary, input, label")) return false;
    return key.length === 1 || target === document.body || ["Escape", "Enter"].includes(key);
  },
  act: (action, event) => inTurn(() => action(event)),
});

form.addEventListener("focusin", (event) => {
  current.pane = paneAt(event.target) ?? current.pane;
});
for (const side of SIDES) find(side).addEventListener("focus", () => (current.pane = panes[side]));

listenToMouse();

form.addEventListener("click", (event) => {
  const button = around(event, "button, a");
  if (!button || around(event, ".node-row")) return;
  const { drop, name, change: wanted } = button.dataset;
  if (button.matches(".suggestion")) {
    if (isForBrowser(event)) return;
    event.preventDefault();
    take(button);
  } else if (drop) pick(/** @type {import("./state.js").Side} */ (drop), [name ?? ""], { add: true });
  else if ("clear" in button.dataset) pickNothing();
  else if ("apply" in button.dataset) {
    event.preventDefault();
    apply();
  } else if (wanted) {
    event.preventDefault();
    make(wanted);
  }
});

document.addEventListener("click", (event) => {
  if (around(event, "[data-help]")) help();
  if (around(event, "[data-close]")) element("problem").hidden = true;
  if (around(event, '[data-key="u"]')) inTurn(nextUnmatched);
});

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  const { name, checked, value } = /** @type {HTMLInputElement} */ (event.target);
  if (name === "descendants") {
    page.descendants = checked;
    changed();
  } else if (name === "kind") {
    page.kind = value;
    showPicked();
  }
});

let typing = 0;
/** @param {import("./state.js").Side[]} sides */
function filter(sides) {
  write();
  for (const side of sides) panes[side].reload({ top: true });
}
document.addEventListener("input", (event) => {
  const typed = /** @type {HTMLInputElement} */ (event.target);
  if (typed.form !== viewForm) return;
  clearTimeout(typing);
  const side = SIDES.find((one) => find(one) === typed);
  typing = window.setTimeout(() => filter(side ? [side] : SIDES), side ? WAIT : 0);
});
document.addEventListener("submit", (event) => {
  const sent = /** @type {HTMLFormElement} */ (event.target);
  if (sent === viewForm) {
    event.preventDefault();
    filter(SIDES);
  } else if (sent.closest("#match-tools")) sendPicksWith(sent);
});

/** @param {HTMLFormElement} sent what was picked since the page was rendered goes along */
function sendPicksWith(sent) {
  for (const input of sent.querySelectorAll('[name="golden"], [name="target"]')) input.remove();
  for (const side of SIDES) {
    for (const value of page.picks[side]) {
      sent.append(Object.assign(document.createElement("input"), { type: "hidden", name: side, value }));
    }
  }
}

document.addEventListener("change", async (event) => {
  const changedField = /** @type {HTMLInputElement} */ (event.target);
  if ("goto" in changedField.dataset) location.assign(changedField.value);
  const file = changedField.id === "import-file" && changedField.files?.[0];
  if (!file) return;
  const most = Number(changedField.dataset.most);
  if (file.size > most) {
    changedField.value = "";
    const given = { name: file.name, most: most / 2 ** 20 };
    return complain(new Error(say("{name} is no mapping file: it is larger than {most} MiB", given)));
  }
  const given = /** @type {HTMLFormElement} */ (element("import"));
  field(given, "name").value = file.name;
  field(given, "text").value = await file.text();
});

// Begin with what the server rendered.
const first = page.source ? otherOf(page.source) : "golden";
// A side without rows has nothing to begin with.
const begun = [first, otherOf(first)].find((side) => panes[side].state.total);
if (begun && document.activeElement === document.body) panes[begun].focus();
changed();
watch();
