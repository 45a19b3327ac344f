// Partners that are suggested for what is picked.

import { lastOf } from "../lib/http.js";
import { say, toast } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { current, panes } from "./panes.js";
import { waitIn } from "./preview.js";
import { SIDES, ask, complainUnlessGivenUp, namesOf, page, parameters, pick, pickBoth, whenPicked } from "./state.js";

/** What suggestions are for: a side, a name, and the version of the match set. */
const shown = { of: "", loading: Promise.resolve() };

const askSuggestions = lastOf((signal, /** @type {URLSearchParams} */ said) => ask("suggestions", said, { signal }));
const links = () => /** @type {HTMLElement[]} */ ([...element("match-suggestions").querySelectorAll(".suggestion")]);

/** @param {HTMLElement} link @returns {import("./state.js").Picks} */
const picksOf = (link) => ({
  golden: JSON.parse(link.dataset.golden ?? "[]"),
  target: JSON.parse(link.dataset.target ?? "[]"),
});

function showSuggestions() {
  const side = page.source;
  const name = side && page.picks[side][0];
  const of = name ? JSON.stringify([side, name, page.version, page.set]) : "";
  if (of === shown.of) return markSuggestion();
  shown.of = of;
  element("suggestions-card").hidden = !of;
  if (side && name) shown.loading = load(parameters({ picks: { [side]: [name] } }), of);
}

/** @param {URLSearchParams} said @param {string} of */
async function load(said, of) {
  const box = element("match-suggestions");
  const stopWaiting = waitIn(box, say("Searching for candidates"));
  try {
    const found = await askSuggestions(said);
    if (of !== shown.of) return;
    stopWaiting();
    box.innerHTML = found.html;
    markSuggestion();
  } catch (error) {
    complainUnlessGivenUp(error);
  } finally {
    stopWaiting();
  }
}

/** @param {string[]} one @param {string[]} two */
const areSame = (one, two) => one.length === two.length && one.every((name, at) => name === two[at]);

function markSuggestion() {
  for (const link of links()) {
    const picks = picksOf(link);
    if (SIDES.every((side) => areSame(picks[side], page.picks[side]))) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

/**
 * Pick what is suggested.
 * @param {HTMLElement} link
 */
export function take(link) {
  const picks = picksOf(link);
  pickBoth(picks);
  const list = element("match-suggestions");
  const top = link.offsetTop - list.offsetTop;
  if (top < list.scrollTop || top + link.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top;
  for (const side of SIDES) panes[side].jump({ place_of: 1 }, { [side]: picks[side] });
}

/**
 * Take the next suggestion for what is picked, or else for the active row.
 * @param {1 | -1} step
 */
export async function nextSuggestion(step) {
  const { pane } = current;
  if (!page.source) {
    const row = pane.active();
    if (!row) return;
    pick(pane.side, namesOf(row));
  }
  await shown.loading;
  const all = links();
  if (!all.length) return toast(say("No candidates"));
  const at = all.findIndex((link) => link.hasAttribute("aria-current"));
  const none = step > 0 ? 0 : all.length - 1;
  take(all[at < 0 ? none : (at + step + all.length) % all.length]);
}

whenPicked(showSuggestions);
