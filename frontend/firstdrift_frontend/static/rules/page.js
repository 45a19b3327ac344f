// Move thresholds and see at once what they flag: what is chosen is in the address, and the server answers with
// the parts of the page that follow from it.

import { fetchPage, lastOf, request } from "../lib/http.js";
import { explain, say } from "../lib/notice.js";
import { around, element, replaceParts } from "../lib/parts.js";
import { countAbove, placeOf, valueAt } from "./scales.js";

const WAIT = 120; // ms without a change before the server is asked

const form = /** @type {HTMLFormElement} */ (element("rules-form"));
const page = /** @type {HTMLElement} */ (document.querySelector(".rules"));
const thresholds = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[data-default]")]);

/** @param {HTMLInputElement} input */
const isMoved = (input) => Number(input.value) !== Number(input.dataset.default);

/** @param {HTMLInputElement} input @returns {import("./scales.js").Threshold} */
const limitsOf = (input) => ({ usual: Number(input.dataset.default), least: Number(input.min), most: Number(input.max) });

/** @param {HTMLInputElement} input */
function mark(input) {
  input.closest("[data-threshold]")?.classList.toggle("is-moved", isMoved(input));
}

/** @param {HTMLInputElement} input whose slider follows */
function show(input) {
  const slider = /** @type {HTMLInputElement | null} */ (form.querySelector(`[data-of="${input.id}"]`));
  if (slider) slider.value = String(placeOf(Number(input.value), slider.dataset.scale, limitsOf(input)));
  mark(input);
  drawLimit(input);
}

/** Draw the limit into the picture of a threshold, where its slider stands. @param {HTMLInputElement} input */
function drawLimit(input) {
  const picture = /** @type {SVGElement | null} */ (form.querySelector(`[data-picture="${input.id}"]`));
  if (!picture) return;
  const at = placeOf(Number(input.value), "decades", limitsOf(input));
  const line = picture.querySelector(".limit");
  for (const end of ["x1", "x2"]) line?.setAttribute(end, String(at));
  for (const bar of picture.querySelectorAll("rect")) bar.classList.toggle("is-above", Number(bar.getAttribute("x")) >= at);
  /** @type {[number, number][]} */
  const counts = JSON.parse(picture.dataset.counts ?? "[]");
  const { above, total } = countAbove(counts, at);
  const said = form.querySelector(`[data-above="${input.id}"]`);
  if (said) said.textContent = say("above this threshold: {above} of {total}", { above, total });
}

// What is wrong stands at its field until it is mended; until then what the server said before is marked as old.
function areAllValid() {
  const wrong = thresholds.filter((input) => !input.validity.valid);
  for (const input of thresholds) {
    const isWrong = wrong.includes(input);
    input.setAttribute("aria-invalid", String(isWrong));
    element(input.getAttribute("aria-errormessage") ?? "").hidden = !isWrong;
    if (isWrong) open(input);
  }
  element("rules-problem").hidden = !wrong.length;
  page.classList.toggle("is-wrong", wrong.length > 0);
  const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("#part-apply button"));
  if (wrong.length) for (const button of buttons) button.disabled = true;
  return !wrong.length;
}

/** Have a field be seen. @param {HTMLElement} input */
function open(input) {
  for (let group = input.closest("details"); group; group = group.parentElement?.closest("details") ?? null) group.open = true;
}

function chosen() {
  /** @param {string} name */
  const valueOf = (name) => /** @type {HTMLInputElement | null} */ (form.elements.namedItem(name))?.value;
  const said = new URLSearchParams({ rules: valueOf("rules") ?? "" });
  for (const input of thresholds) if (input.value !== "" && isMoved(input)) said.set(input.name, input.value);
  for (const name of ["baseline", "slice"]) {
    const value = valueOf(name);
    if (value) said.set(name, value);
  }
  return said;
}

const look = lastOf(async (signal) => {
  page.removeAttribute("aria-busy");
  if (!areAllValid()) return;
  const address = `${page.dataset.address}?${chosen()}`;
  history.replaceState(null, "", address);
  page.setAttribute("aria-busy", "true");
  try {
    const newer = await fetchPage(address, { signal });
    if (!signal.aborted) replaceParts(newer);
  } catch (error) {
    explain(error);
  }
  if (!signal.aborted) page.removeAttribute("aria-busy");
});

let timer = 0;
function lookSoon() {
  clearTimeout(timer);
  timer = window.setTimeout(look, WAIT);
}

form.addEventListener("input", (event) => {
  const moved = /** @type {HTMLInputElement} */ (event.target);
  const { of, scale } = moved.dataset;
  if (of) {
    const input = /** @type {HTMLInputElement} */ (element(of));
    input.value = String(valueAt(Number(moved.value), scale, limitsOf(input)));
    mark(input);
    drawLimit(input);
  } else if (moved.dataset.default) show(moved);
  else if (moved.name === "rules") {
    const groups = /** @type {NodeListOf<HTMLDetailsElement>} */ (form.querySelectorAll("details[data-rules]"));
    for (const group of groups) group.open = group.dataset.rules === moved.value;
  }
  lookSoon();
});

form.addEventListener("click", (event) => {
  const id = around(event, "[data-reset]")?.dataset.reset;
  if (!id) return;
  const input = /** @type {HTMLInputElement} */ (element(id));
  input.value = input.dataset.default ?? "";
  show(input);
  input.focus();
  lookSoon();
});

form.addEventListener("submit", (event) => {
  if (/** @type {HTMLButtonElement | null} */ (event.submitter)?.formMethod === "post") return;
  event.preventDefault();
  look();
});

// The table of rules names thresholds, which are seen wherever they are.
function openNamed() {
  const named = location.hash.startsWith("#t-") ? document.getElementById(location.hash.slice(1)) : null;
  if (!named) return;
  open(named);
  named.focus();
}
addEventListener("hashchange", openNamed);
openNamed();

// A newer picture is of the limit that the server was asked for, which may have been moved since.
document.addEventListener("part", (event) => {
  const { id } = /** @type {CustomEvent} */ (event).detail ?? {};
  const input = id?.startsWith("part-picture-") && thresholds.find((one) => `part-picture-${one.name}` === id);
  if (input) drawLimit(input);
});

thresholds.forEach(show);
// The first look takes longest, for what was measured has to be read: let the server have it at hand.
if (document.querySelector("#part-effect [data-flagged]")) request(`${page.dataset.preview}?${chosen()}`).catch(() => {});
