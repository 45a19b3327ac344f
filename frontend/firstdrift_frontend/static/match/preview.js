// What is picked, and what applying it would change.

import { lastOf } from "../lib/http.js";
import { say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { ask, complainUnlessGivenUp, page, parameters, whenPicked } from "./state.js";

const LONG = 2000; // ms after which nobody has to wait for a preview
const SOON = 150; // ms within which an answer may come without a word of waiting

const tried = { of: "", begun: 0, ok: false, done: false };

const signature = () => JSON.stringify([page.picks, page.kind, page.descendants, page.version, page.set]);
const askPicked = lastOf((signal, /** @type {URLSearchParams} */ said) => ask("picked", said, { signal }));
const askEffect = lastOf((signal, /** @type {URLSearchParams} */ said) => ask("effect", said, { signal }));

/**
 * Say that something is waited for, unless it comes soon.
 * @param {HTMLElement} box
 * @param {string} text
 * @returns {() => void} what to do once it is there
 */
export function waitIn(box, text) {
  const line = Object.assign(document.createElement("p"), { className: "muted", textContent: text });
  const timer = setTimeout(() => box.replaceChildren(line), SOON);
  return () => clearTimeout(timer);
}

/** Show what is picked, what can be done with it, and what that would change. */
export async function showPicked() {
  const said = parameters({ view: false });
  if (page.kind) said.set("kind", page.kind);
  // Results that are finished change no preview: it is about the same picks over the same version.
  const isTried = tried.done && tried.of === signature();
  if (!isTried) {
    page.ready = false;
    tried.of = "";
  }
  try {
    const found = await askPicked(said);
    fill(found.html);
    page.ready = found.is_ready && !found.is_too_many;
    page.doing = found.kind;
    const button = /** @type {HTMLButtonElement} */ (element("match-picked").querySelector("[data-apply]"));
    button.disabled = !page.ready;
    element("effect-card").hidden = !page.ready;
    if (page.ready && !isTried) await showEffect(said);
  } catch (error) {
    complainUnlessGivenUp(error);
  }
}

/** @param {string} html */
function fill(html) {
  const box = element("match-picked");
  const focused = document.activeElement;
  const within = focused && box.contains(focused) ? focused.getAttribute("name") : null;
  box.innerHTML = html;
  if (within) /** @type {HTMLElement | null} */ (box.querySelector(`[name="${within}"]`))?.focus();
}

/** @param {URLSearchParams} said */
async function showEffect(said) {
  const of = signature();
  Object.assign(tried, { of, begun: Date.now(), ok: false, done: false });
  const box = element("match-effect");
  element("effect-card").hidden = false;
  box.setAttribute("aria-busy", "true");
  const stopWaiting = waitIn(box, say("Computing the effect"));
  try {
    const found = await askEffect(said);
    if (tried.of !== of) return;
    stopWaiting();
    box.innerHTML = found.html;
    Object.assign(tried, { ok: found.ok, done: true });
    box.removeAttribute("aria-busy");
  } catch (error) {
    complainUnlessGivenUp(error);
  } finally {
    stopWaiting();
  }
}

/**
 * Say why what is picked cannot be applied now.
 * @returns {string | null} null: it can
 */
export function objection() {
  const { golden, target } = page.picks;
  if (!page.ready) return golden.length || target.length ? say("Select a node on each side") : say("Nothing selected");
  const isSoonThere = !tried.done && Date.now() - tried.begun < LONG;
  if (tried.of !== signature() || isSoonThere) return say("Wait for the preview");
  return tried.done && !tried.ok ? say("Cannot be applied: see the preview") : null;
}

whenPicked(showPicked);
