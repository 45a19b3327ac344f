// Match nodes by hand: two panes of rows that the server renders in pieces, what is picked in them, what a
// match would change, and what others decide meanwhile. What is picked goes by name, so that it stays picked
// whatever happens to the rows.

import { copy, fetchPage, replaceParts, request, say, toast } from "./app.js";

const ROW = 28;
const KEPT = 2; // pieces beyond the screen that are kept on either side
const ASK_EVERY = 1000; // ms
const LONG = 2000; // ms after which nobody has to wait for a preview

const form = document.getElementById("match");
const viewForm = document.getElementById("view");
const address = form.dataset.address;
const chunk = Number(form.dataset.chunk);
const by = (id) => document.getElementById(id);

const page = {
  set: form.dataset.set,
  version: Number(form.dataset.version),
  shown: Number(form.dataset.shown),
  picks: JSON.parse(form.dataset.picks),
  source: null, // the side that partners are suggested for
  kind: null, // null: what fits
  descendants: form.elements.descendants.checked,
  ready: false, // whether what is picked can be applied
  ownChanges: 0,
  busy: false,
};
page.source = page.picks.golden.length ? "golden" : page.picks.target.length ? "target" : null;

const otherOf = (side) => (side === "golden" ? "target" : "golden");
const same = (one, two) => one.length === two.length && one.every((name, at) => name === two[at]);

// ---- asking the server

function parameters({ picks = page.picks, view = true } = {}) {
  const said = new URLSearchParams();
  if (page.set) said.set("set", page.set);
  if (view) {
    if (viewForm.elements.show.value === "all") said.set("show", "all");
    for (const side of ["golden", "target"]) if (find(side).value.trim()) said.set(`find_${side}`, find(side).value.trim());
  }
  for (const side of ["golden", "target"]) for (const name of picks[side] ?? []) said.append(side, name);
  if (!page.descendants) said.set("descendants_box", "1");
  return said;
}

const find = (side) => viewForm.elements[`find_${side}`];

async function ask(part, said, options = {}) {
  const answer = await request(`${address}/${part}?${said}`, { headers: { accept: "application/json" }, ...options });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { status: answer.status, hint: found.hint });
  return found;
}

// ---- panes

class Pane {
  constructor(element) {
    this.element = element;
    this.side = element.dataset.side;
    this.rows = element.querySelector(".rows");
    this.total = Number(element.dataset.total);
    this.place = Number(element.dataset.place);
    this.anchor = this.place;
    this.pieces = new Map();
    this.asked = new Set();
    this.age = 0;
    for (const piece of this.rows.querySelectorAll(".piece")) this.put(Number(piece.dataset.piece), piece);
    this.rows.classList.add("is-placed");
    this.measure();
    this.reveal(true);
    this.fill();
    this.mark();
    element.addEventListener("scroll", () => requestAnimationFrame(() => this.fill()), { passive: true });
  }

  put(number, piece) {
    piece.style.top = `${number * chunk * ROW}px`;
    this.pieces.get(number)?.remove();
    this.pieces.set(number, piece);
    if (piece.parentElement !== this.rows) this.rows.append(piece);
  }

  keep(number, html) {
    const piece = document.createElement("div");
    piece.className = "piece";
    piece.setAttribute("role", "presentation");
    piece.innerHTML = html;
    this.put(number, piece);
  }

  measure() {
    this.rows.style.height = `${this.total * ROW}px`;
    this.element.querySelector(".empty").hidden = this.total > 0;
  }

  fill() {
    const screen = this.element.clientHeight;
    const first = Math.max(0, Math.floor((this.element.scrollTop - screen) / (chunk * ROW)));
    const last = Math.min(Math.floor((this.element.scrollTop + 2 * screen) / (chunk * ROW)), Math.ceil(this.total / chunk) - 1);
    for (const [number, piece] of this.pieces) {
      if (number < first - KEPT || number > last + KEPT) {
        piece.remove();
        this.pieces.delete(number);
      }
    }
    const missing = [];
    for (let number = first; number <= last; number++) if (!this.pieces.has(number) && !this.asked.has(number)) missing.push(number);
    if (missing.length) this.load(missing);
  }

  async load(numbers) {
    const age = this.age;
    for (const number of numbers) this.asked.add(number);
    try {
      const found = await this.ask({ chunks: numbers.join(".") });
      if (age !== this.age) return;
      for (const [number, html] of found.chunks) this.keep(number, html);
      this.mark();
    } catch (error) {
      toast(error.message);
    } finally {
      for (const number of numbers) this.asked.delete(number);
    }
  }

  ask(step, picks = {}) {
    const said = parameters({ picks });
    said.set("side", this.side);
    for (const [name, value] of Object.entries(step)) said.set(name, value);
    return ask("rows", said);
  }

  // Show the rows as they are now; the row that was active stays where it is on the screen.
  async reload({ top = false } = {}) {
    const age = ++this.age;
    const active = top ? null : this.row(this.place);
    const step = active ? { place_of: 1 } : { chunks: 0 };
    const offset = this.element.scrollTop - this.place * ROW;
    let found;
    try {
      found = await this.ask(step, active ? { [this.side]: [namesOf(active)[0]] } : {});
    } catch (error) {
      return toast(error.message);
    }
    if (age !== this.age) return;
    for (const piece of this.pieces.values()) piece.remove();
    this.pieces.clear();
    this.asked.clear();
    this.total = found.total;
    this.place = this.anchor = Math.max(0, Math.min(found.place ?? (top ? 0 : this.place), this.total - 1));
    for (const [number, html] of found.chunks) this.keep(number, html);
    const counts = Object.fromEntries(["free", "doubtful", "nodes"].map((name) => [name, found[name].toLocaleString("en-US")]));
    by(`count-${this.side}`).textContent = found.doubtful ? say("{free} unmatched, {doubtful} doubtful of {nodes}", counts) : say("{free} unmatched of {nodes}", counts);
    this.measure();
    this.element.scrollTop = top ? 0 : Math.max(0, this.place * ROW + offset);
    this.fill();
    this.mark();
  }

  row(place) {
    return this.rows.querySelector(`[data-place="${place}"]`);
  }

  // Mark what is active and what is picked; rows are rendered for whoever picked what at that time.
  mark() {
    const picked = new Set(page.picks[this.side]);
    for (const row of this.rows.querySelectorAll("[data-place]")) {
      row.setAttribute("aria-selected", namesOf(row).some((name) => picked.has(name)));
      row.classList.toggle("is-active", Number(row.dataset.place) === this.place);
    }
    const active = this.row(this.place);
    if (active) this.element.setAttribute("aria-activedescendant", active.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  reveal(middle = false) {
    const top = this.place * ROW;
    const seen = this.element.clientHeight;
    if (middle ? top < this.element.scrollTop || top + ROW > this.element.scrollTop + seen : false) this.element.scrollTop = Math.max(0, top - seen / 3);
    else if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + ROW > this.element.scrollTop + seen) this.element.scrollTop = top + ROW - seen;
  }

  async goTo(place, { middle = false } = {}) {
    this.place = Math.max(0, Math.min(this.total - 1, place));
    const number = Math.floor(this.place / chunk);
    this.reveal(middle);
    if (!this.pieces.has(number)) await this.load([number]);
    this.mark();
  }

  // Go to where the server says: the next unmatched row, or that of a name.
  async jump(step, picks = {}) {
    const age = this.age;
    const found = await this.ask(step, picks);
    if (age !== this.age || found.place === null) return false;
    for (const [number, html] of found.chunks) this.keep(number, html);
    await this.goTo(found.place, { middle: true });
    return true;
  }
}

const namesOf = (row) => JSON.parse(row.dataset.names);
const panes = Object.fromEntries([...form.querySelectorAll(".pane")].map((element) => [element.dataset.side, new Pane(element)]));
let current = panes.golden;
const focused = () => Object.values(panes).find((pane) => pane.element === document.activeElement) ?? current;

// ---- picking

function pick(side, names, { add = false } = {}) {
  const before = page.picks[side];
  if (!add) page.picks[side] = names;
  else if (names.every((name) => before.includes(name))) page.picks[side] = before.filter((name) => !names.includes(name));
  else page.picks[side] = [...new Set([...before, ...names])];
  if (!page.source || !page.picks[page.source].length) page.source = page.picks[side].length ? side : page.picks[otherOf(side)].length ? otherOf(side) : null;
  page.kind = null;
  changed();
}

function pickRange(pane, from, to) {
  const names = [];
  for (let place = Math.min(from, to); place <= Math.max(from, to); place++) {
    const row = pane.row(place);
    if (row && !row.classList.contains("is-context")) names.push(...namesOf(row));
  }
  pick(pane.side, names);
}

function pickNothing() {
  page.picks = { golden: [], target: [] };
  page.source = page.kind = null;
  changed();
}

function changed() {
  for (const pane of Object.values(panes)) pane.mark();
  write();
  showPicked();
  showSuggestions();
}

function write() {
  const said = parameters();
  history.replaceState(null, "", `${address}${`${said}` ? `?${said}` : ""}`);
  const data = document.querySelector("[data-json]");
  data.href = `${address}.json?${said}`;
}

// Only the last of several questions counts.
function latest() {
  let asking = null;
  return (part, said) => {
    asking?.abort();
    asking = new AbortController();
    return ask(part, said, { signal: asking.signal });
  };
}
const askPicked = latest();
const askEffect = latest();
const askSuggestions = latest();

const signature = () => JSON.stringify([page.picks, page.kind, page.descendants, page.version, page.set]);
const tried = { of: "", begun: 0, ok: false, done: false };

async function showPicked() {
  const said = parameters({ view: false });
  if (page.kind) said.set("kind", page.kind);
  // Results that are finished change no preview: it is about the same picks over the same version.
  const isTried = tried.done && tried.of === signature();
  if (!isTried) {
    page.ready = false;
    tried.of = "";
  }
  try {
    const found = await askPicked("picked", said);
    const box = by("match-picked");
    const within = box.contains(document.activeElement) ? document.activeElement.name : null;
    box.innerHTML = found.html;
    if (within) box.querySelector(`[name="${within}"]`)?.focus();
    page.ready = found.is_ready && !found.is_too_many;
    page.doing = found.kind;
    box.querySelector("[data-apply]").disabled = !page.ready;
    by("effect-card").hidden = !page.ready;
    if (page.ready && !isTried) await showEffect(said);
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  }
}

async function showEffect(said) {
  const of = signature();
  Object.assign(tried, { of, begun: Date.now(), ok: false, done: false });
  const box = by("match-effect");
  by("effect-card").hidden = false;
  box.setAttribute("aria-busy", "true");
  const waiting = setTimeout(() => (box.innerHTML = `<p class="muted">${say("Finding out what it would change")}</p>`), 150);
  try {
    const found = await askEffect("effect", said);
    if (tried.of !== of) return;
    clearTimeout(waiting);
    box.innerHTML = found.html;
    Object.assign(tried, { ok: found.ok, done: true });
    box.removeAttribute("aria-busy");
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  } finally {
    clearTimeout(waiting);
  }
}

let suggestedFor = "";
let suggesting = Promise.resolve();
function showSuggestions() {
  const side = page.source;
  const name = side && page.picks[side][0];
  const of = name ? JSON.stringify([side, name, page.version, page.set]) : "";
  if (of === suggestedFor) return markSuggestion();
  suggestedFor = of;
  by("suggestions-card").hidden = !of;
  if (of) suggesting = loadSuggestions(side, name, of);
}

async function loadSuggestions(side, name, of) {
  const box = by("match-suggestions");
  const waiting = setTimeout(() => (box.innerHTML = `<p class="muted">${say("Looking for partners")}</p>`), 150);
  try {
    const found = await askSuggestions("suggestions", parameters({ picks: { [side]: [name] } }));
    if (of !== suggestedFor) return;
    clearTimeout(waiting);
    box.innerHTML = found.html;
    markSuggestion();
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  } finally {
    clearTimeout(waiting);
  }
}

const suggestions = () => [...by("match-suggestions").querySelectorAll(".suggestion")];
const partsOf = (link) => ({ golden: JSON.parse(link.dataset.golden), target: JSON.parse(link.dataset.target) });

function markSuggestion() {
  for (const link of suggestions()) {
    const parts = partsOf(link);
    if (same(parts.golden, page.picks.golden) && same(parts.target, page.picks.target)) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function take(link) {
  const parts = partsOf(link);
  page.picks = parts;
  page.kind = null;
  changed();
  const list = by("match-suggestions");
  const top = link.offsetTop - list.offsetTop;
  if (top < list.scrollTop || top + link.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top;
  for (const side of ["golden", "target"]) panes[side].jump({ place_of: 1 }, { [side]: parts[side] });
}

async function nextSuggestion(by_) {
  if (!page.source) {
    const row = current.row(current.place);
    if (!row) return;
    pick(current.side, namesOf(row));
  }
  await suggesting;
  const links = suggestions();
  if (!links.length) return toast(say("There is no suggestion"));
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  take(links[at < 0 ? (by_ > 0 ? 0 : links.length - 1) : (at + by_ + links.length) % links.length]);
}

// ---- changes

function complain(error) {
  const box = by("problem");
  box.querySelector("span").textContent = [error.message, error.hint].filter(Boolean).join(". ");
  box.hidden = false;
}

async function send(change, fields) {
  const body = new URLSearchParams(fields);
  if (page.set) body.set("set", page.set);
  body.set("version", page.version);
  const answer = await request(`${address}/${change}`, { method: "POST", body, headers: { accept: "application/json" } });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { status: answer.status, hint: found.hint });
  return found;
}

// Make a change, and show what came of it; a conflict is explained, and what is picked stays picked.
async function make(change, fields, { forget = false } = {}) {
  if (page.busy) return false;
  page.busy = true;
  form.setAttribute("aria-busy", "true");
  page.ownChanges += 1;
  by("problem").hidden = true;
  try {
    const found = await send(change, fields);
    const isNew = `${found.set}` !== page.set;
    Object.assign(page, { set: `${found.set}`, version: found.version });
    if (forget) Object.assign(page, { picks: { golden: [], target: [] }, source: null, kind: null });
    write();
    if (isNew) replaceParts(await fetchPage(location.href), "#sets, #files");
    await refresh();
    return true;
  } catch (error) {
    if (error.status === 409) error.hint = say("What you picked is still picked: look at the preview, and match again");
    complain(error);
    if (error.status === 409) await refresh();
    return false;
  } finally {
    page.busy = false;
    form.removeAttribute("aria-busy");
  }
}

async function apply() {
  const { golden, target } = page.picks;
  if (!page.ready) return toast(golden.length || target.length ? say("Pick a node on either side") : say("Nothing is picked"));
  if (tried.of !== signature() || (!tried.done && Date.now() - tried.begun < LONG)) return toast(say("The preview comes first"));
  if (tried.done && !tried.ok) return toast(say("It cannot be applied: the preview says why"));
  const fields = [...golden.map((name) => ["golden", name]), ...target.map((name) => ["target", name])];
  fields.push(["kind", page.doing], ["new_name", form.elements.new_name.value], ["descendants_box", "1"]);
  if (page.descendants) fields.push(["descendants", "yes"]);
  if (await make("edit", fields, { forget: true })) current.element.focus({ preventScroll: true });
}

// ---- the version in force, and what others do

let stateShown = "";
function showState(found) {
  Object.assign(page, { version: found.version, shown: found.shown });
  if (found.html === stateShown) return;
  stateShown = found.html;
  const box = by("match-state");
  const within = box.contains(document.activeElement) ? document.activeElement.id : null;
  const opened = by("history")?.open;
  box.innerHTML = found.html;
  if (opened && by("history")) by("history").open = true;
  if (within) by(within)?.focus();
  const name = found.name || say("No match set");
  for (const place of [by("set-name"), document.querySelector("#state-card h3")]) place.textContent = name;
  for (const input of document.querySelectorAll('[name="version"]')) input.value = found.version;
}

async function refresh() {
  showState(await ask("state", parameters({ picks: {} })));
  await Promise.all(Object.values(panes).map((pane) => pane.reload()));
  changed();
}

let failures = 0;
async function watch() {
  const before = page.ownChanges;
  let again = ASK_EVERY;
  try {
    if (page.set && !document.hidden && !page.busy) {
      const { version, shown } = page;
      const found = await ask("state", parameters({ picks: {} }));
      failures = 0;
      if (before === page.ownChanges && !page.busy) {
        showState(found);
        if (found.version !== version) {
          const { latest } = by("match-state").querySelector("[data-latest]").dataset;
          toast(latest ? say("Somebody else changed it: {what}", { what: latest }) : say("Somebody else changed it"));
          changed();
        }
        if (found.version !== version || found.shown !== shown) {
          for (const pane of Object.values(panes)) pane.reload();
          if (found.version === version) showPicked();
        }
      }
    }
  } catch (error) {
    if (error.status === 404) return complain(Object.assign(new Error(say("This match set was deleted")), { hint: say("What you picked is still picked: choose another match set") }));
    failures += 1;
    if (failures === 3) toast(say("The server does not answer"));
    again = ASK_EVERY * Math.min(10, 2 ** failures);
  }
  setTimeout(watch, again);
}

// ---- keys

const move = (by_) => async (event) => {
  const pane = current;
  await pane.goTo(pane.place + by_(pane));
  if (event.shiftKey) pickRange(pane, pane.anchor, pane.place);
  else pane.anchor = pane.place;
};
const screenful = (pane) => Math.max(1, Math.floor(pane.element.clientHeight / ROW) - 1);
const change = (name) => () => void (!by(name).disabled && make(name, []));

// Each key acts on what the one before it led to; only what may take long is not waited for.
let moved = Promise.resolve();
const act = (action, event) => (moved = moved.then(() => action(event)).catch(complain));

const KEYS = {
  ArrowDown: move(() => 1),
  ArrowUp: move(() => -1),
  PageDown: move(screenful),
  PageUp: move((pane) => -screenful(pane)),
  Home: move((pane) => -pane.place),
  End: move((pane) => pane.total - 1 - pane.place),
  ArrowLeft: () => panes.golden.element.focus(),
  ArrowRight: () => panes.target.element.focus(),
  " ": () => {
    const row = current.row(current.place);
    if (row) pick(current.side, namesOf(row), { add: true });
  },
  m: () => void apply(),
  Enter: () => void apply(),
  s: () => void nextSuggestion(1),
  S: () => void nextSuggestion(-1),
  u: async () => {
    current.element.focus({ preventScroll: true });
    if (!(await current.jump({ next: current.place }))) toast(say("Nothing is unmatched here"));
    current.anchor = current.place;
  },
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
  "/": () => find(current.side).focus(),
  "?": () => by("help").showModal(),
  c: () => copy(location.href),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea")) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.form === viewForm)) {
      event.preventDefault();
      current.element.focus({ preventScroll: true });
    }
    return;
  }
  // Links, buttons and boxes keep what activates and moves them.
  const inPane = Object.values(panes).some((pane) => pane.element === event.target);
  const activates = event.key === "Enter" || event.key === " " || (event.key.startsWith("Arrow") && event.target.matches("input"));
  if (activates && !inPane && event.target.closest("a, button, summary, input, label")) return;
  if (!inPane && event.key.length > 1 && event.target !== document.body && !["Escape", "Enter"].includes(event.key)) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  act(action, event);
});

form.addEventListener("focusin", (event) => {
  const pane = Object.values(panes).find((one) => one.element === event.target);
  if (pane) current = pane;
});
for (const side of ["golden", "target"]) find(side).addEventListener("focus", () => (current = panes[side]));

// ---- mouse

const paneOf = (row) => panes[row.closest(".pane").dataset.side];

function pickRow(pane, row, event) {
  const place = Number(row.dataset.place);
  pane.element.focus({ preventScroll: true });
  pane.place = place;
  if (event.shiftKey) return pickRange(pane, pane.anchor, place);
  pane.anchor = place;
  pick(pane.side, namesOf(row), { add: event.ctrlKey || event.metaKey });
}

// Where rows are made anew while the button is down, browsers say of no click: the row that was pressed is meant.
let pressed = null;
form.addEventListener("mousedown", (event) => {
  const row = event.target.closest(".node-row");
  pressed = row && { row, pane: paneOf(row) };
  if (row && event.shiftKey) event.preventDefault();
});
form.addEventListener("mouseup", (event) => {
  const isGone = pressed && !pressed.row.isConnected && !event.button;
  if (isGone && pressed.pane.element.contains(event.target)) pickRow(pressed.pane, pressed.row, event);
});

form.addEventListener("click", (event) => {
  const row = event.target.closest(".node-row");
  if (row) return pickRow(paneOf(row), row, event);
  const button = event.target.closest("button, a");
  if (!button) return;
  if (button.matches(".suggestion") && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    take(button);
  } else if (button.dataset.drop) pick(button.dataset.drop, [button.dataset.name], { add: true });
  else if ("clear" in button.dataset) pickNothing();
  else if ("apply" in button.dataset) {
    event.preventDefault();
    apply();
  } else if (button.dataset.change) {
    event.preventDefault();
    make(button.dataset.change, []);
  }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-help]")) by("help").showModal();
  if (event.target.closest("[data-close]")) by("problem").hidden = true;
  if (event.target.closest('[data-key="u"]')) act(KEYS.u);
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  if (event.target.name === "descendants") {
    page.descendants = event.target.checked;
    changed();
  } else if (event.target.name === "kind") {
    page.kind = event.target.value;
    showPicked();
  }
});

// ---- one node dragged onto the other

let dragged = null;
const droppedOn = (event) => {
  const row = dragged && event.target.closest?.(".node-row");
  return row && row.closest(".pane").dataset.side !== dragged.side ? row : null;
};
form.addEventListener("dragstart", (event) => {
  const row = event.target.closest?.(".node-row");
  if (!row) return;
  const { side } = row.closest(".pane").dataset;
  const names = namesOf(row);
  dragged = { side, names: names.some((name) => page.picks[side].includes(name)) ? page.picks[side] : names };
  event.dataTransfer.setData("text/plain", dragged.names.join("\n"));
  event.dataTransfer.effectAllowed = "link";
});
form.addEventListener("dragover", (event) => {
  const row = droppedOn(event);
  for (const other of form.querySelectorAll(".is-over")) if (other !== row) other.classList.remove("is-over");
  if (!row) return;
  event.preventDefault();
  row.classList.add("is-over");
});
form.addEventListener("drop", (event) => {
  const row = droppedOn(event);
  if (!row) return;
  event.preventDefault();
  page.picks = { [dragged.side]: dragged.names, [otherOf(dragged.side)]: namesOf(row) };
  page.source = dragged.side;
  page.kind = null;
  changed();
});
form.addEventListener("dragend", () => {
  dragged = null;
  for (const other of form.querySelectorAll(".is-over")) other.classList.remove("is-over");
});

// ---- what is shown

let typing = 0;
function filter(sides) {
  write();
  for (const side of sides) panes[side].reload({ top: true });
}
document.addEventListener("input", (event) => {
  if (event.target.form !== viewForm) return;
  clearTimeout(typing);
  const side = event.target.name.startsWith("find_") ? event.target.name.slice(5) : null;
  typing = setTimeout(() => filter(side ? [side] : ["golden", "target"]), side ? 160 : 0);
});
document.addEventListener("submit", (event) => {
  if (event.target === viewForm) {
    event.preventDefault();
    filter(["golden", "target"]);
  } else if (event.target.closest("#match-tools")) {
    // What was picked since the page was rendered goes along.
    for (const input of event.target.querySelectorAll('[name="golden"], [name="target"]')) input.remove();
    for (const side of ["golden", "target"]) {
      for (const name of page.picks[side]) {
        const input = Object.assign(document.createElement("input"), { type: "hidden", name: side, value: name });
        event.target.append(input);
      }
    }
  }
});
document.addEventListener("change", async (event) => {
  if ("goto" in event.target.dataset) location.assign(event.target.value);
  if (event.target.id === "import-file" && event.target.files[0]) {
    const file = event.target.files[0];
    const fields = by("import").elements;
    const most = Number(event.target.dataset.most);
    if (file.size > most) {
      event.target.value = "";
      return complain(new Error(say("{name} is no mapping file: it is larger than {most} MiB", { name: file.name, most: most / 2 ** 20 })));
    }
    fields.name.value = file.name;
    fields.text.value = await file.text();
  }
});
addEventListener("resize", () => Object.values(panes).forEach((pane) => pane.fill()));

// ---- begin with what the server rendered

stateShown = by("match-state").innerHTML;
if (document.activeElement === document.body) panes[page.source ? otherOf(page.source) : "golden"].element.focus({ preventScroll: true });
changed();
watch();
