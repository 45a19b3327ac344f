// The two panes: rows that the server renders in pieces, the one that is active, and those that are picked.

import { explain, say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { ROW, nearest, virtualRows } from "../lib/virtual_rows.js";
import { ask, form, namesOf, page, parameters, pick, whenPicked } from "./state.js";

const KEPT = 2; // pieces
const CHUNK = Number(form.dataset.chunk);

/**
 * @typedef {import("./state.js").Side} Side
 * @typedef {ReturnType<typeof pane>} Pane
 */

/**
 * Make a pane of what the server rendered.
 * @param {HTMLElement} body
 */
function pane(body) {
  const side = /** @type {Side} */ (body.dataset.side);
  const rows = /** @type {HTMLElement} */ (body.querySelector(".rows"));
  const state = { total: Number(body.dataset.total), place: Number(body.dataset.place), anchor: Number(body.dataset.place), age: 0, turn: 0 };
  const list = virtualRows({
    body,
    rows,
    total: state.total,
    chunk: CHUNK,
    kept: KEPT,
    role: "presentation",
    ask: async (stretches) => {
      const found = await askRows({ chunks: stretches.map(([first]) => Math.floor(first / CHUNK)).join(".") });
      return htmlsOf(found);
    },
    mark: () => {},
    arrived: mark,
    failed: explain,
  });

  /** @param {any} found @returns {string[]} */
  const htmlsOf = (found) => found.chunks.map((/** @type {[number, string]} */ [, html]) => html);

  /**
   * @param {Record<string, string | number>} step
   * @param {Partial<import("./state.js").Picks>} [picks]
   */
  function askRows(step, picks = {}) {
    const said = parameters({ picks });
    said.set("side", side);
    for (const [name, value] of Object.entries(step)) said.set(name, String(value));
    return ask("rows", said);
  }

  /** @param {number} total */
  function resize(total) {
    state.total = total;
    list.resize(total);
    /** @type {HTMLElement} */ (body.querySelector(".empty")).hidden = total > 0;
  }

  /** Mark what is active and what is picked: rows are rendered for whoever picked what at that time. */
  function mark() {
    const picked = new Set(page.picks[side]);
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (rows.querySelectorAll("[data-place]"))) {
      row.setAttribute("aria-selected", String(namesOf(row).some((name) => picked.has(name))));
      row.classList.toggle("is-active", Number(row.dataset.place) === state.place);
    }
    const active = list.at(state.place);
    if (active) body.setAttribute("aria-activedescendant", active.id);
    else body.removeAttribute("aria-activedescendant");
  }

  /** @param {boolean} middle whether a row that is off the screen comes to its middle */
  function reveal(middle) {
    const { top, height } = list.screen();
    const scrolled = nearest(state.place, top, height);
    if (scrolled !== top) body.scrollTop = middle ? Math.max(0, state.place * ROW - height / 3) : scrolled;
  }

  /**
   * Make the row at a place the active one.
   * @param {number} target
   * @param {object} [how]
   * @param {boolean} [how.middle]
   */
  async function goTo(target, { middle = false } = {}) {
    state.turn += 1;
    state.place = Math.max(0, Math.min(state.total - 1, target));
    reveal(middle);
    await list.reach(state.place);
    mark();
  }

  /**
   * Go to where the server says: the next unmatched row, or that of a name.
   * @param {Record<string, number>} step
   * @param {Partial<import("./state.js").Picks>} [picks]
   */
  async function jump(step, picks = {}) {
    const { age } = state;
    const turn = ++state.turn;
    const found = await askRows(step, picks);
    if (age !== state.age || found.place === null) return false;
    if (turn !== state.turn) return true; // somebody went elsewhere meanwhile, and stays there
    htmlsOf(found).forEach(list.add);
    await goTo(found.place, { middle: true });
    return true;
  }

  /**
   * Show the rows as they are now; the row that was active stays where it is on the screen.
   * @param {object} [how]
   * @param {boolean} [how.top] whether to begin at the top instead
   */
  async function reload({ top = false } = {}) {
    const age = ++state.age;
    const active = top ? null : list.at(state.place);
    const offset = body.scrollTop - state.place * ROW;
    let found;
    try {
      found = await (active ? askRows({ place_of: 1 }, { [side]: [namesOf(active)[0]] }) : askRows({ chunks: 0 }));
    } catch (error) {
      return explain(error);
    }
    if (age !== state.age) return;
    state.place = state.anchor = Math.max(0, Math.min(found.place ?? (top ? 0 : state.place), found.total - 1));
    resize(found.total);
    list.replace(htmlsOf(found));
    count(found);
    body.scrollTop = top ? 0 : Math.max(0, state.place * ROW + offset);
    list.fill();
    mark();
  }

  /** @param {any} found */
  function count(found) {
    const names = ["free", "doubtful", "nodes"];
    const counts = Object.fromEntries(names.map((name) => [name, found[name].toLocaleString("en-US")]));
    const line = element(`count-${side}`);
    line.dataset.free = found.free;
    line.textContent = found.doubtful
      ? say("{free} unmatched, {doubtful} doubtful of {nodes}", counts)
      : say("{free} unmatched of {nodes} rows", counts);
  }

  /** Pick all rows from where the pick began to the active one. */
  function pickRange() {
    const [from, to] = [Math.min(state.anchor, state.place), Math.max(state.anchor, state.place)];
    const names = [];
    for (let place = from; place <= to; place++) {
      const row = list.at(place);
      if (row && !row.classList.contains("is-context")) names.push(...namesOf(row));
    }
    pick(side, names);
  }

  for (const piece of list.pieces()) list.lay(piece, [0, 0]);
  rows.classList.add("is-placed");
  resize(state.total);
  reveal(true);
  list.fill();
  mark();
  whenPicked(mark);
  return { body, side, state, active: () => list.at(state.place), fill: list.fill, focus, goTo, jump, pickRange, reload };

  function focus() {
    body.focus({ preventScroll: true });
  }
}

const found = /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".pane"));

export const panes = /** @type {Record<Side, Pane>} */ (
  Object.fromEntries([...found].map((body) => [body.dataset.side, pane(body)]))
);

/** The pane that keys act on. */
export const current = { pane: panes.golden };

/** Show the rows of both panes as they are now. */
export const reloadPanes = () => Promise.all(Object.values(panes).map((one) => one.reload()));
