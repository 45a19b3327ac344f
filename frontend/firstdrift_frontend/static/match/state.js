// What is picked and what is shown: one record, which the address says. Nodes are picked by name, so that they stay
// picked whatever happens to the rows.

import { fetchData } from "../lib/http.js";
import { element } from "../lib/parts.js";

/**
 * @typedef {"golden" | "target"} Side
 * @typedef {Record<Side, string[]>} Picks
 */

export const form = /** @type {HTMLFormElement} */ (element("match"));
export const viewForm = /** @type {HTMLFormElement} */ (element("view"));
export const address = form.dataset.address;

/** @type {Side[]} */
export const SIDES = ["golden", "target"];

/** @returns {Picks} */
const none = () => ({ golden: [], target: [] });

export const page = {
  /** @type {string} the match set; none is empty */
  set: form.dataset.set ?? "",
  version: Number(form.dataset.version),
  shown: Number(form.dataset.shown),
  /** @type {Picks} */
  picks: JSON.parse(form.dataset.picks ?? "{}"),
  /** @type {Side | null} that partners are suggested for */
  source: null,
  /** @type {string | null} what to do with what is picked; null: what fits */
  kind: null,
  /** @type {string} what fits, as the server says */
  doing: "",
  descendants: field(form, "descendants").checked,
  ready: false, // whether what is picked can be applied
  ownChanges: 0,
  busy: false,
};
page.source = SIDES.find((side) => page.picks[side].length) ?? null;

/**
 * Find a field of a form.
 * @param {HTMLFormElement} of
 * @param {string} name
 */
export function field(of, name) {
  return /** @type {HTMLInputElement} */ (of.elements.namedItem(name));
}

/** @param {Side} side */
export const find = (side) => field(viewForm, `find_${side}`);

/** @param {Side} side @returns {Side} */
export const otherOf = (side) => (side === "golden" ? "target" : "golden");

/** @param {HTMLElement} row @returns {string[]} */
export const namesOf = (row) => JSON.parse(row.dataset.names ?? "[]");

/**
 * Write what is shown and picked as the part of an address after the question mark.
 * @param {object} [what]
 * @param {Partial<Picks>} [what.picks]
 * @param {boolean} [what.view] whether what is shown belongs to it
 */
export function parameters({ picks = page.picks, view = true } = {}) {
  const said = new URLSearchParams();
  if (page.set) said.set("set", page.set);
  if (view) {
    if (field(viewForm, "show").value === "all") said.set("show", "all");
    for (const side of SIDES) if (find(side).value.trim()) said.set(`find_${side}`, find(side).value.trim());
  }
  for (const side of SIDES) for (const name of picks[side] ?? []) said.append(side, name);
  if (!page.descendants) said.set("descendants_box", "1");
  return said;
}

/**
 * Ask for a part of the page.
 * @param {string} part
 * @param {URLSearchParams} said
 * @param {RequestInit} [options]
 */
export const ask = (part, said, options) => fetchData(`${address}/${part}?${said}`, options);

/** Write what is shown and picked into the address. */
export function write() {
  const said = parameters();
  history.replaceState(null, "", `${address}${`${said}` ? `?${said}` : ""}`);
  const data = /** @type {HTMLAnchorElement} */ (document.querySelector("[data-json]"));
  data.href = `${address}.json?${said}`;
}

/** @type {(() => void)[]} */
const followers = [];

/**
 * Have something follow what is picked.
 * @param {() => void} follow
 */
export const whenPicked = (follow) => followers.push(follow);

/** Say that something else is picked, or that what is picked is seen in another light. */
export function changed() {
  write();
  for (const follow of followers) follow();
}

/**
 * Pick nodes of both sides, in place of all others.
 * @param {Picks} picks
 * @param {Side | null} [source]
 */
export function pickBoth(picks, source = page.source) {
  Object.assign(page, { picks, source, kind: null });
  changed();
}

/** Pick nothing. */
export const pickNothing = () => pickBoth(none(), null);

/** Forget what was picked, once it has been applied. */
export const forgetPicks = () => Object.assign(page, { picks: none(), source: null, kind: null });

/**
 * Pick nodes of a side.
 * @param {Side} side
 * @param {string[]} names
 * @param {object} [how]
 * @param {boolean} [how.add] to those that are picked; those that all are, are not any more
 */
export function pick(side, names, { add = false } = {}) {
  const before = page.picks[side];
  const isAll = names.every((name) => before.includes(name));
  if (!add) page.picks[side] = names;
  else page.picks[side] = isAll ? before.filter((name) => !names.includes(name)) : [...new Set([...before, ...names])];
  if (!page.source || !page.picks[page.source].length) {
    page.source = [side, otherOf(side)].find((one) => page.picks[one].length) ?? null;
  }
  page.kind = null;
  changed();
}

/**
 * Say at the top of the page what went wrong.
 * @param {any} error
 */
export function complain(error) {
  const box = element("problem");
  const text = /** @type {Element} */ (box.querySelector("span"));
  text.textContent = [error.message, error.hint].filter(Boolean).join(". ");
  box.hidden = false;
}

/**
 * Complain of whatever was not given up for a newer question.
 * @param {any} error
 */
export function complainUnlessGivenUp(error) {
  if (error.name !== "AbortError") complain(error);
}
