// What is seen of a tree: the server works out which rows are visible, and the address says all of it.

import { fetchData } from "../lib/http.js";
import { element } from "../lib/parts.js";

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
  if (data) data.href = `${rows.dataset.address}.json?${view.query}`;
}
