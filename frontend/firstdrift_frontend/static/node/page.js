// A pair of tensors from near: the map, the values around a place, and charts.

import { fetchPage } from "../lib/http.js";
import { listenForKeys } from "../lib/keys.js";
import { explain } from "../lib/notice.js";
import { around, isForBrowser } from "../lib/parts.js";
import { whenColoursChange, whenSeen } from "../lib/plot.js";
import { drawCharts, forgetCharts, redrawCharts } from "./charts.js";
import { drawMap, forgetMap, listenToMap, paint } from "./map.js";
import { pair, part, plane, query, read, section, shown } from "./pair.js";

let turn = 0;

/**
 * Show something else: its values at once, the map only if another plane is shown.
 * @param {Partial<import("./pair.js").Shown>} change
 * @param {object} [how]
 * @param {boolean} [how.push] whether it is a place to come back to
 * @param {boolean} [how.whole] whether nothing stays as it is
 */
async function show(change, { push = false, whole = false } = {}) {
  const before = plane();
  const now = Object.assign(shown(), change);
  const address = `${now.address}?${query()}`;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  const mine = ++turn;
  const newer = await fetchPage(`${now.address}?${query({ closeup: "true" })}`).catch(explain);
  if (!newer || mine !== turn) return;
  const found = /** @type {HTMLElement} */ (newer.getElementById("closeup"));
  if (whole || !found?.dataset.source) return replace(found);
  part("values").replaceChildren(...(newer.getElementById("closeup-values")?.childNodes ?? []));
  const title = section()?.querySelector(".around");
  if (title) title.textContent = newer.querySelector(".around")?.textContent ?? "";
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (section()?.querySelectorAll("[data-axis]") ?? [])) {
    input.value = String(now.at[Number(input.dataset.axis)]);
  }
  if (plane() !== before) drawMap();
  else paint();
}

/** @param {HTMLElement} newer */
function replace(newer) {
  section()?.replaceWith(document.adoptNode(newer));
  begin();
}

/** Begin, again whenever another pair is shown. */
function begin() {
  forgetMap();
  forgetCharts();
  pair.shown = read();
  if (!pair.shown) return;
  listenToMap(part("map"), (at) => show({ at }, { push: true }));
  drawMap();
  new ResizeObserver(() => paint()).observe(part("map"));
  whenSeen([part("profile"), part("spread")], () => drawCharts());
}

/** @param {string | URL} address */
async function load(address) {
  const newer = (await fetchPage(address).catch(explain))?.getElementById("closeup");
  if (newer) replace(newer);
}

/** @param {number} rows @param {number} columns @returns {() => void} */
const move = (rows, columns) => () => {
  const { down, across, shape, at: before } = shown();
  const at = [...before];
  /** @param {number | null} axis @param {number} by */
  const step = (axis, by) => {
    if (axis !== null && at.length) at[axis] = Math.max(0, Math.min(shape[axis] - 1, at[axis] + by));
  };
  step(down, rows);
  step(across, columns);
  if (at.join() !== before.join()) show({ at });
};

listenForKeys(document, {
  ArrowUp: move(-1, 0),
  ArrowDown: move(1, 0),
  ArrowLeft: move(0, -1),
  ArrowRight: move(0, 1),
  PageUp: move(-9, 0),
  PageDown: move(9, 0),
}, { isFor: (event) => /** @type {Element} */ (event.target).id === "closeup-values" });

/** @param {string} way @returns {() => void} */
const toSlice = (way) => () => /** @type {HTMLElement | null} */ (document.querySelector(`.over a[rel="${way}"]`))?.click();

listenForKeys(document, { "[": toSlice("prev"), "]": toSlice("next") });

document.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (around(event, "#closeup a[data-at], a[data-closer-link]"));
  if (!link || isForBrowser(event) || !section()) return;
  event.preventDefault();
  if (link.dataset.at) return void show({ at: link.dataset.at.split(",").map(Number) }, { push: true });
  const address = new URL(link.href);
  history.pushState(null, "", address);
  address.hash = "";
  address.searchParams.set("closeup", "true");
  load(address).then(() => section()?.scrollIntoView({ block: "start" }));
});

document.addEventListener("change", (event) => {
  const form = /** @type {HTMLFormElement | null} */ (around(event, ".pickers"));
  const picker = /** @type {HTMLInputElement} */ (event.target);
  if (form && picker.checkValidity()) follow(form, picker.name);
});

/** @param {HTMLFormElement} form @param {string} changed by its name */
function follow(form, changed) {
  const fields = new FormData(form);
  /** @param {string} name */
  const number = (name) => (fields.get(name) === null ? null : Number(fields.get(name)));
  let [down, across] = [number("down"), number("across") ?? shown().across];
  // The same dimension cannot run both ways: the two change places.
  if (down !== null && down === across) {
    if (changed === "down") across = shown().down ?? across;
    else down = shown().across;
  }
  const heads = String(fields.get("heads") ?? "");
  show({ at: fields.getAll("at").map(Number), down, across, heads }, { whole: changed === "heads" });
  for (const [name, value] of Object.entries({ down, across })) {
    const field = /** @type {HTMLInputElement | null} */ (form.elements.namedItem(name));
    if (field) field.value = String(value);
  }
}

document.addEventListener("submit", (event) => around(event, ".pickers") && event.preventDefault());

whenColoursChange(() => {
  paint();
  redrawCharts();
});
addEventListener("popstate", () => location.reload());

const later = section()?.dataset.later;
if (later) load(later);
else if (section()) begin();
