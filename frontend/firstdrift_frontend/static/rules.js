// Move thresholds and see at once what they flag: what is chosen is in the address, and the server answers with
// the parts of the page that follow from it.

import { explain, fetchPage, replaceParts } from "./app.js";

const WAIT = 120; // ms without a change before the server is asked
const MIDDLE = 500; // where a slider stands at the default
const form = document.getElementById("rules-form");
const page = document.querySelector(".rules");

// ---- sliders: two decades either way of the default, in thousands

const digits = (value) => Number(value.toPrecision(3));

function valueAt(slider, input) {
  const usual = Number(input.dataset.default);
  const away = (Number(slider.value) - MIDDLE) / MIDDLE;
  if (Math.abs(away) < 0.01) return usual;
  const [least, most] = [Number(input.min), Number(input.max)];
  if (slider.dataset.scale === "share") return digits(Math.min(most, Math.max(least, usual + away * (away > 0 ? most - usual : usual - least))));
  if (slider.dataset.scale === "rest") return Math.min(most, Math.max(least, 1 - digits((1 - usual) * 10 ** (-2 * away))));
  return Math.min(most, Math.max(least, digits(usual * 10 ** (2 * away))));
}

function placeOf(slider, input) {
  const [value, usual] = [Number(input.value), Number(input.dataset.default)];
  const [least, most] = [Number(input.min), Number(input.max)];
  let away = 0;
  if (value !== usual) {
    if (slider.dataset.scale === "share") away = value > usual ? (value - usual) / (most - usual) : (value - usual) / (usual - least);
    else if (slider.dataset.scale === "rest") away = -Math.log10(Math.max(1e-12, 1 - value) / (1 - usual)) / 2;
    else away = Math.log10(Math.max(1e-30, value) / usual) / 2;
  }
  return Math.round(MIDDLE + MIDDLE * Math.min(1, Math.max(-1, away)));
}

function show(input) {
  const slider = form.querySelector(`[data-of="${input.id}"]`);
  if (slider) slider.value = placeOf(slider, input);
  input.closest(".threshold").classList.toggle("is-moved", Number(input.value) !== Number(input.dataset.default));
}

// ---- what cannot be tried

// What is wrong stands at its field until it is mended; until then what the server said before is marked as old.
function areAllValid() {
  const wrong = thresholds.filter((input) => !input.validity.valid);
  for (const input of thresholds) {
    input.setAttribute("aria-invalid", wrong.includes(input));
    document.getElementById(input.getAttribute("aria-errormessage")).hidden = !wrong.includes(input);
  }
  for (const input of wrong) input.closest("details").open = true;
  document.getElementById("rules-problem").hidden = !wrong.length;
  page.classList.toggle("is-wrong", wrong.length > 0);
  if (wrong.length) for (const button of document.querySelectorAll("#part-apply button")) button.disabled = true;
  return !wrong.length;
}

// ---- what is chosen

const thresholds = [...form.querySelectorAll("input[data-default]")];

function chosen() {
  const said = new URLSearchParams({ rules: form.elements.rules.value });
  for (const input of thresholds) if (input.value !== "" && Number(input.value) !== Number(input.dataset.default)) said.set(input.name, input.value);
  for (const name of ["baseline", "slice"]) if (form.elements[name]?.value) said.set(name, form.elements[name].value);
  return said;
}

let timer = 0;
let asked = null;

async function look() {
  asked?.abort();
  asked = null;
  page.removeAttribute("aria-busy");
  if (!areAllValid()) return;
  const address = `${page.dataset.address}?${chosen()}`;
  history.replaceState(null, "", address);
  const mine = (asked = new AbortController());
  page.setAttribute("aria-busy", "true");
  try {
    const newer = await fetchPage(address, { signal: mine.signal });
    if (mine === asked) replaceParts(newer);
  } catch (error) {
    explain(error);
  }
  if (mine === asked) page.removeAttribute("aria-busy");
}

const lookSoon = () => {
  clearTimeout(timer);
  timer = setTimeout(look, WAIT);
};

form.addEventListener("input", (event) => {
  const moved = event.target;
  if (moved.dataset.of) {
    const input = document.getElementById(moved.dataset.of);
    input.value = valueAt(moved, input);
    input.closest(".threshold").classList.toggle("is-moved", Number(input.value) !== Number(input.dataset.default));
  } else if (moved.dataset.default) show(moved);
  else if (moved.name === "rules") for (const group of form.querySelectorAll("details[data-rules]")) group.open = group.dataset.rules === moved.value;
  lookSoon();
});

form.addEventListener("click", (event) => {
  const input = document.getElementById(event.target.closest("[data-reset]")?.dataset.reset);
  if (!input) return;
  input.value = input.dataset.default;
  show(input);
  input.focus();
  lookSoon();
});

form.addEventListener("submit", (event) => {
  if (event.submitter?.formMethod === "post") return;
  event.preventDefault();
  look();
});

thresholds.forEach(show);
// The first look takes longest, for what was measured has to be read: let the server have it at hand.
if (document.querySelector("#part-effect [data-flagged]")) fetch(`${page.dataset.preview}?${chosen()}`).catch(() => {});
