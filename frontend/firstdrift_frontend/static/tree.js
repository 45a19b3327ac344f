// The tree: the server works out which rows are visible and renders them in pieces; this module keeps the
// pieces around the screen, moves the selection, and writes every change into the address.

import { copy, explain, fetchPage, request, say, toast } from "./app.js";

const ROW = 28; // px, as in the style; likewise
const HEAD = 30; // the heading, which stays at the upper edge and covers what is below it
const NEXT_BAD = "next=bad";
const PATIENCE = 60_000; // ms
const KEPT = 4; // pieces beyond the screen that are kept on either side
const MOST_IN_A_PIECE = 64; // rows

const body = document.getElementById("tree-body");
const rows = document.getElementById("rows");
const panel = document.getElementById("panel");
const tools = document.getElementById("tools");
const chunk = Number(rows.dataset.chunk);

const view = {
  query: rows.dataset.query,
  total: Number(rows.dataset.total),
  selected: rows.dataset.selected === "" ? null : Number(rows.dataset.selected),
  place: Number(rows.dataset.place),
  hasBad: "hasBad" in rows.dataset,
  version: 0,
};

// ---- pieces: rows that lie one below the other

const placeOf = (row) => Number(row.dataset.place);

// The place of the first row of a piece, and the one after its last.
function stretchOf(piece) {
  const first = placeOf(piece.firstElementChild);
  return [first, first + piece.childElementCount];
}

const overlap = ([first, end], [otherFirst, otherEnd]) => first < otherEnd && otherFirst < end;

// Pieces off the screen are not laid out (content-visibility in the style). Of one that is put on the screen this
// is said at once: the browser itself sees it only after a layout without the piece, and does a second one.
function lay(piece, seen) {
  const [first, end] = stretchOf(piece);
  if (overlap([first, end], seen)) piece.style.contentVisibility = "visible";
  piece.style.top = `${first * ROW}px`;
  piece.style.height = `${(end - first) * ROW}px`;
}

const UNSEEN = [0, 0];

function keep(content, seen = UNSEEN) {
  if (!content.length) return;
  const piece = document.createElement("div");
  piece.className = "piece";
  piece.setAttribute("role", "rowgroup");
  piece.append(...content);
  lay(piece, seen);
  mark(piece);
  rows.append(piece);
}

function rowsIn(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

// Rows are rendered for whoever had selected something else at that time.
function mark(piece) {
  for (const row of piece.querySelectorAll('[aria-selected="true"]')) select(row, false);
  const row = piece.querySelector(`[data-row="${view.selected}"]`);
  if (row) select(row, true);
}

function select(row, on) {
  row.setAttribute("aria-selected", on);
  row.tabIndex = on ? 0 : -1;
}

function setHeight() {
  rows.style.height = `${view.total * ROW}px`;
  body.setAttribute("aria-rowcount", view.total + 1);
}

// What is seen of the tree: whoever asks has the browser lay out what has changed.
const screen = () => ({ top: body.scrollTop, height: body.clientHeight });

// The places of the rows in a stretch of the tree, and the one after them.
function between(top, bottom) {
  return [Math.max(0, Math.floor(top / ROW)), Math.min(view.total, Math.ceil(bottom / ROW))];
}

// The stretches without rows among those that pieces on a grid would have.
function missing([from, end]) {
  const there = [...rows.children].map(stretchOf).sort(([one], [other]) => one - other);
  const found = [];
  for (let start = from - (from % chunk); start < end; start += chunk) {
    const stop = Math.min(start + chunk, view.total);
    let next = start;
    for (const stretch of there.filter((stretch) => overlap(stretch, [start, stop]))) {
      if (stretch[0] > next) found.push([next, stretch[0]]);
      next = stretch[1];
    }
    if (next < stop) found.push([next, stop]);
  }
  return found;
}

// What is beside the screen can wait for what is asked for now: scrolling there fetches it at once.
let later = 0;
function fillAfter(seen) {
  clearTimeout(later);
  if (!missing(seen).length) later = setTimeout(fill, 250);
  else fill();
}

// One request at a time: whoever scrolls fast is past the pieces in between when their turn comes.
let scrolling = 0;
let filling = false;
async function fill() {
  const { top, height } = screen();
  const kept = between(top - height - KEPT * chunk * ROW, top + 2 * height + KEPT * chunk * ROW);
  for (const piece of [...rows.children]) if (!overlap(stretchOf(piece), kept)) piece.remove();
  const wanted = missing(between(top - height, top + 2 * height));
  if (filling || !wanted.length) return;
  filling = true;
  try {
    if (!(await load(wanted))) return;
  } catch (error) {
    return toast(error.message);
  } finally {
    filling = false;
  }
  fill();
}

// Fetch rows; tell whether there were any, or the view has changed meanwhile.
async function load(stretches) {
  const version = view.version;
  const found = await ask(`rows=${stretches.map(([first, end]) => `${first}-${end - 1}`).join(".")}`);
  if (version !== view.version) return true;
  const there = [...rows.children].map(stretchOf);
  found.pieces.forEach((html, index) => {
    if (!there.some((stretch) => overlap(stretch, stretches[index]))) keep(rowsIn(html));
  });
  if (document.activeElement === document.body || rows.contains(document.activeElement)) focusSelected();
  return found.pieces.some((html) => html.trim());
}

async function ask(step, query = view.query) {
  const joined = [query, step].filter(Boolean).join("&");
  const answer = await request(`${rows.dataset.address}/rows?${joined}`, {
    headers: { accept: "application/json" },
    signal: AbortSignal.timeout(PATIENCE),
  });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { status: answer.status });
  return found;
}

// ---- steps: what changes which rows are visible

// What somebody does while an answer is waited for has its turn after it: it is meant for what is seen then.
const waiting = [];
let isBusy = false;
async function inTurn(action) {
  waiting.push(action);
  if (isBusy) return;
  isBusy = true;
  while (waiting.length) {
    try {
      await waiting.shift()();
    } catch (error) {
      toast(error.message);
    }
  }
  isBusy = false;
}

async function take(change, { query = view.query, keepScroll = false, focus = true, refused = (error) => toast(error.message) } = {}) {
  let found;
  try {
    found = await (known(change, query) ?? ask(change, query));
  } catch (error) {
    return void refused(error);
  }
  const moved = found.selected !== view.selected;
  const grown = found.total - view.total;
  Object.assign(view, { query: found.query, total: found.total, selected: found.selected, place: found.place, hasBad: found.has_bad });
  const { top, height } = screen(); // somebody may have scrolled meanwhile
  const scrolled = keepScroll ? top : revealing(top, height);
  const seen = between(scrolled, scrolled + height);
  if (found.same_rows) [...rows.children].forEach(mark);
  else {
    view.version += 1;
    setHeight();
    if (!isToggling(change) || !splice(found.pieces[0], grown, seen)) {
      rows.replaceChildren();
      for (const html of found.pieces) keep(rowsIn(html), seen);
    }
  }
  if (scrolled !== top) body.scrollTop = scrolled;
  count(found);
  write(true);
  if (moved) showNode();
  else lookAhead();
  if (focus) focusSelected();
  fillAfter(seen);
  return true;
}

// Opening or closing a row changes that row and what is seen below it: with as much of that as fits the screen, it
// is all that is asked for. What follows stays as it is and moves.
const toggling = (row) => `toggle=${row.dataset.row}&most=${Math.ceil(body.clientHeight / ROW)}`;
const isToggling = (change) => change.startsWith("toggle=");
const toggle = (row) => take(toggling(row), { keepScroll: true });

function splice(html, grown, seen) {
  const [row, ...opened] = rowsIn(html);
  const before = shownRow(row.dataset.row);
  if (!before) return false; // scrolled away meanwhile
  const home = before.parentElement;
  for (const piece of [...rows.children]) for (const other of [...piece.children]) move(other, placeOf(row), grown);
  const fits = opened.length >= grown && home.childElementCount + opened.length <= MOST_IN_A_PIECE;
  if (!fits) while (before.nextElementSibling) before.nextElementSibling.remove();
  before.replaceWith(row, ...(fits ? opened : []));
  if (!fits) keep(opened, seen);
  mark(home);
  for (const piece of [...rows.children]) {
    if (piece.childElementCount) lay(piece, seen);
    else piece.remove();
  }
  return true;
}

// A row below one that was opened or closed moves by so many places; one that was below a closed row goes.
function move(row, opened, by) {
  const place = placeOf(row);
  if (place <= opened) return;
  if (place <= opened - by) return row.remove();
  row.dataset.place = place + by;
  row.setAttribute("aria-rowindex", place + by + 2);
}

// Where the view stays, what is on the screen is all that is waited for.
function inPlace(change) {
  const { top, height } = screen();
  return `${change}&rows=${Math.floor(top / ROW)}-${Math.ceil((top + height) / ROW)}`;
}

// Answers that are fetched before they are asked for: what a step leads to, by the step.
const ahead = new Map();
function known(change, query) {
  const found = ahead.get(change);
  return found?.query === query && performance.now() - found.at < PATIENCE ? found.answer : null;
}

function askAhead(change) {
  if (known(change, view.query)) return;
  const mine = { query: view.query, at: performance.now(), answer: ask(change) };
  mine.answer.catch(() => ahead.delete(change)); // then it is asked for again when it is wanted
  ahead.set(change, mine);
}

// What is asked for most is the next bad row.
function lookAhead() {
  for (const [change, found] of ahead) if (found.query !== view.query) ahead.delete(change);
  if (view.hasBad) askAhead(NEXT_BAD);
}

function count(found) {
  const line = document.getElementById("tree-count");
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ","); // a locale takes 30 ms to load
  const numbers = { shown: grouped(found.total), matching: grouped(found.matching), all: grouped(line.dataset.all) };
  line.textContent = found.total === 1
    ? say("{shown} row shown, {matching} of {all} match", numbers)
    : say("{shown} rows shown, {matching} of {all} match", numbers);
  document.getElementById("no-rows").hidden = found.total > 0;
}

function write(push) {
  const parameters = new URLSearchParams(view.query);
  if (view.selected !== null) parameters.set("row", view.selected);
  view.query = parameters.toString();
  const address = `${rows.dataset.address}?${view.query}`;
  if (location.search !== `?${view.query}`) {
    if (push) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
  const data = document.querySelector("[data-json]");
  if (data) data.href = `${rows.dataset.address}.json?${view.query}`;
}

// ---- selection

const shownRow = (index) => rows.querySelector(`[data-row="${index}"]`);

// How far to scroll for the selected row to be seen, and some rows around it.
function revealing(top, height) {
  const row = view.place * ROW;
  const seen = height - HEAD;
  if (row < top + ROW) return Math.max(0, row - seen / 3);
  if (row > top + seen - 3 * ROW) return Math.min(row - (2 * seen) / 3, view.total * ROW - seen);
  return top;
}

function focusSelected() {
  const row = shownRow(view.selected);
  if (row !== document.activeElement) row?.focus({ preventScroll: true }); // focusing lays out the page
}

// Go to a place among the visible rows; its piece may have to be fetched first.
async function goTo(target) {
  const wanted = Math.max(0, Math.min(view.total - 1, target));
  const there = () => rows.querySelector(`[data-place="${wanted}"]`);
  if (!there()) await load(missing([wanted, wanted + 1]));
  const row = there();
  if (row) choose(row);
}

function choose(row) {
  const before = shownRow(view.selected);
  if (before) select(before, false);
  view.selected = Number(row.dataset.row);
  view.place = Number(row.dataset.place);
  select(row, true);
  const top = view.place * ROW;
  const seen = body.clientHeight - HEAD;
  if (top < body.scrollTop) body.scrollTop = top;
  else if (top + ROW > body.scrollTop + seen) body.scrollTop = top + ROW - seen;
  row.focus({ preventScroll: true });
  write(false);
  showNode();
}

// A single step shows its node at once; while a key is held down, only the node where it stops is fetched.
let nodeTimer = 0;
let nodeRequest = null;
let steppedAt = -Infinity;
function showNode() {
  clearTimeout(nodeTimer);
  const isHeld = performance.now() - steppedAt < 150;
  steppedAt = performance.now();
  if (isHeld) nodeTimer = setTimeout(fetchNode, 90);
  else fetchNode();
}

async function fetchNode() {
  nodeRequest?.abort();
  nodeRequest = new AbortController();
  if (view.selected === null) return panel.replaceChildren();
  try {
    const answer = await request(`${rows.dataset.panel}${view.selected}?panel=true`, { signal: nodeRequest.signal, headers: { accept: "text/html" } });
    if (!answer.ok) return panel.replaceChildren();
    const text = await answer.text();
    const scrolled = panel.scrollTop;
    panel.innerHTML = text;
    panel.scrollTop = Math.min(scrolled, panel.scrollHeight);
    lookAhead();
  } catch (error) {
    if (error.name === "AbortError") return;
    // What is shown is of another node than the one that is picked.
    panel.replaceChildren();
    explain(error);
  }
}

// ---- keys

const KEYS = {
  ArrowDown: () => goTo(view.place + 1),
  ArrowUp: () => goTo(view.place - 1),
  PageDown: () => goTo(view.place + Math.floor(body.clientHeight / ROW) - 1),
  PageUp: () => goTo(view.place - Math.floor(body.clientHeight / ROW) + 1),
  Home: () => goTo(0),
  End: () => goTo(view.total - 1),
  ArrowRight: (row) => {
    if (row?.getAttribute("aria-expanded") === "false") return toggle(row);
    if (row?.hasAttribute("aria-expanded")) return goTo(view.place + 1);
  },
  ArrowLeft: (row) => {
    if (row?.getAttribute("aria-expanded") === "true") return toggle(row);
    if (row?.dataset.parent) return take(`go=${row.dataset.parent}`);
  },
  " ": (row) => row?.hasAttribute("aria-expanded") && toggle(row),
  Enter: () => view.selected !== null && location.assign(`${rows.dataset.panel}${view.selected}`),
  n: () => jump(NEXT_BAD),
  p: () => jump("previous=bad"),
  N: () => jump("next=origin"),
  P: () => jump("previous=origin"),
  u: () => jump("next=unmatched"),
  U: () => jump("previous=unmatched"),
  "*": () => view.selected !== null && take(inPlace(`unfold=${view.selected}`), { keepScroll: true }),
  c: () => copy(location.href),
  m: () => panel.querySelector("[data-copy-markdown]")?.click(),
  "[": () => toSlice("prev"),
  "]": () => toSlice("next"),
};

const KEYS_AT_ONCE = {
  "/": () => tools.elements.q.select(),
  "?": () => document.getElementById("help").showModal(),
};

async function jump(change) {
  const before = view.selected;
  if ((await take(change)) && view.selected === before) toast(say("There is no other such row"));
}

function toSlice(way) {
  const link = document.querySelector(`a[rel="${way}"]`);
  if (link) link.click();
  else toast(way === "prev" ? say("There is no slice before this one") : say("There is no slice after this one"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.name === "q")) {
      event.preventDefault();
      focusSelected();
    }
    return;
  }
  // Links and buttons keep what activates them, and the panel what scrolls it.
  const activates = event.key === "Enter" || event.key === " ";
  if (activates && !rows.contains(event.target) && event.target.closest("a, button, summary, input")) return;
  if (event.key.length > 1 && panel.contains(event.target)) return;
  const atOnce = KEYS_AT_ONCE[event.key];
  const action = KEYS[event.key];
  if (!atOnce && !action) return;
  event.preventDefault();
  // A key that is held down goes as fast as answers come.
  if (atOnce) atOnce();
  else if (!event.repeat || !isBusy) inTurn(() => action(shownRow(view.selected)));
});

// ---- mouse

rows.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button || event.target.closest("[data-leave]")) return;
  const row = event.target.closest("[data-row]");
  if (!row) return;
  event.preventDefault();
  onRow(row, event.target.closest(".twist") && row.hasAttribute("aria-expanded") ? toggle : choose);
});

// By the time of its turn a row may be another element, or gone.
const onRow = (row, action) => inTurn(() => {
  const now = shownRow(row.dataset.row);
  return now && action(now);
});

// What a row holds is fetched while the pointer rests on what opens it, or else when that is pressed.
const twistOf = (event) => event.target.closest("a.twist")?.closest("[aria-expanded]");
let resting = 0;
rows.addEventListener("pointerover", (event) => {
  clearTimeout(resting);
  const row = twistOf(event);
  if (row?.getAttribute("aria-expanded") === "false") resting = setTimeout(() => askAhead(toggling(row)), 40);
});
rows.addEventListener("pointerdown", (event) => {
  clearTimeout(resting);
  const row = twistOf(event);
  if (row && !event.button) askAhead(toggling(row));
  refresh(event.target.closest("a.twist, a.label"));
});

// Rows outlive steps: where a link leads from here is said when it is about to be followed, in a new tab for one.
function refresh(link) {
  if (!link) return;
  const step = link.matches(".twist") ? "toggle" : "go";
  link.search = [view.query, `${step}=${link.closest("[data-row]").dataset.row}`].filter(Boolean).join("&");
}

// The selected row keeps the focus.
rows.addEventListener("mousedown", (event) => {
  if (twistOf(event)) event.preventDefault();
});

rows.addEventListener("dblclick", (event) => {
  const row = event.target.closest("[data-row][aria-expanded]");
  if (row && !event.target.closest(".twist")) onRow(row, toggle);
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-step]");
  if (link) {
    event.preventDefault();
    inTurn(() => take(link.dataset.step, { focus: false }));
  } else if (event.target.closest("[data-help]")) {
    document.getElementById("help").showModal();
  }
});

// ---- filters

let typing = 0;
function chosenByNow() {
  const chosen = new URLSearchParams(new FormData(tools));
  if (!chosen.get("q")) chosen.delete("q");
  return chosen;
}

// Of what is typed while an answer is waited for, only the last is asked for.
let filters = 0;
function filter() {
  const mine = ++filters;
  inTurn(() => mine === filters && applyFilters());
}

async function applyFilters() {
  const chosen = chosenByNow();
  const filtered = [...chosen.keys()].some((name) => !["column", "sort", "regex"].includes(name));
  document.querySelector("[data-clear]").hidden = !filtered;
  // Without filters the selected row stays, and what leads to it; with them, the first match is selected.
  if (!filtered && view.selected !== null) chosen.set("row", view.selected);
  body.scrollTop = 0;
  const refused = (error) => explainSearch(error, chosen);
  if (await take("", { query: chosen.toString(), focus: false, refused })) complain("");
}

// What is wrong with a regular expression stands at its field until it is mended, in the language of the page.
async function explainSearch(error, chosen) {
  if (error.status !== 422 || !chosen.has("regex")) return toast(error.message);
  const said = await fetchPage(`${rows.dataset.address}/rows?${chosen}`).catch((refusal) => refusal);
  if (String(chosenByNow().get("q")) === chosen.get("q")) complain(said.message ?? error.message);
}

function complain(text) {
  const problem = document.getElementById("search-problem");
  problem.hidden = !text;
  problem.lastElementChild.textContent = text;
  tools.elements.q.setAttribute("aria-invalid", Boolean(text));
}

tools.addEventListener("input", (event) => {
  if ("goto" in event.target.dataset || event.target.name === "column") return;
  clearTimeout(typing);
  typing = setTimeout(filter, event.target.name === "q" ? 160 : 0);
});
tools.addEventListener("submit", (event) => {
  event.preventDefault();
  filter();
});

// Columns that are chosen take effect at once, at the same place: what is on the screen and the heading change together.
let columns = 0;
async function showColumns(mine) {
  const parameters = new URLSearchParams(view.query);
  parameters.delete("column");
  for (const column of chosenByNow().getAll("column")) parameters.append("column", column);
  const { top, height } = screen();
  const seen = between(top, top + height);
  const query = parameters.toString();
  const [page, found] = await Promise.all([fetchPage(`${rows.dataset.address}?${query}`), ask(`rows=${seen[0]}-${seen[1]}`, query)]);
  const newer = page.getElementById("tree-body");
  view.query = found.query;
  view.version += 1;
  for (const name of ["class", "style", "aria-colcount"]) body.setAttribute(name, newer.getAttribute(name));
  body.querySelector(".head-group").replaceWith(document.adoptNode(newer.querySelector(".head-group")));
  rows.replaceChildren();
  for (const html of found.pieces) keep(rowsIn(html), seen);
  if (mine === columns) for (const box of tools.querySelectorAll("[name=column]")) box.checked = page.querySelector(`[name=column][value="${box.value}"]`).checked;
  write(true);
  sayWhatHasNoRoom();
  fillAfter(seen);
}

function sayWhatHasNoRoom() {
  const golden = body.querySelector(".head .golden-cell");
  document.getElementById("no-room").hidden = !golden || golden.checkVisibility();
}

tools.querySelector("details.menu").addEventListener("toggle", sayWhatHasNoRoom);
tools.addEventListener("change", (event) => {
  if ("goto" in event.target.dataset) location.assign(event.target.value);
  if (event.target.name !== "column") return;
  const mine = ++columns;
  inTurn(() => mine === columns && showColumns(mine));
});
document.querySelector("[data-clear]").addEventListener("click", (event) => {
  event.preventDefault();
  for (const input of tools.querySelectorAll("input:not([name=column])")) input.type === "checkbox" ? (input.checked = false) : (input.value = "");
  filter();
});

// Back and forward: the address says all there is to know.
addEventListener("popstate", () => location.reload());

body.addEventListener("scroll", () => {
  cancelAnimationFrame(scrolling);
  scrolling = requestAnimationFrame(fill);
}, { passive: true });
addEventListener("resize", fill);

// ---- begin with what the server rendered

// Asking how high the tree is would have all rows laid out: it is hardly higher than the whole screen.
const likely = revealing(0, window.screen.availHeight);
const near = between(likely, likely + window.screen.availHeight);
for (const piece of rows.children) lay(piece, near);
rows.classList.add("is-placed");
setHeight();
body.scrollTop = revealing(0, body.clientHeight);
write(false);
if (document.activeElement === document.body) focusSelected();
fillAfter(between(body.scrollTop, body.scrollTop + body.clientHeight));
// What may be asked for next can wait until this page is seen.
(window.requestIdleCallback ?? setTimeout)(lookAhead, { timeout: 500 });
