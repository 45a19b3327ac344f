// What is looked for in a tree: filters, the search, the order, and the columns that are shown.

import { fetchPage } from "../lib/http.js";
import { explain } from "../lib/notice.js";
import { around, element } from "../lib/parts.js";
import { choose, inTurn, take } from "./steps.js";
import { ask, body, focusSelected, list, rows, search, tools, view, write } from "./view.js";

const WAIT = 160; // ms without another letter

// Of what is typed or chosen while an answer is waited for, only the last is asked for.
const asked = { timer: 0, filters: 0, columns: 0 };

/** Follow what is typed and chosen. */
export function listenToFilters() {
  tools.addEventListener("input", (event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if ("goto" in field.dataset || field.name === "column") return;
    clearTimeout(asked.timer);
    asked.timer = window.setTimeout(filter, field.name === "q" ? WAIT : 0);
  });
  tools.addEventListener("submit", (event) => {
    event.preventDefault();
    filter();
  });
  tools.addEventListener("change", (event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if ("goto" in field.dataset) location.assign(withNode(field.value));
    if (field.name !== "column") return;
    const mine = ++asked.columns;
    inTurn(() => mine === asked.columns && showColumns(mine));
  });
  tools.addEventListener("click", (event) => {
    if (!around(event, "[data-clear]")) return;
    event.preventDefault();
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (tools.querySelectorAll("input:not([name=column])"))) {
      if (input.type === "checkbox") input.checked = false;
      else input.value = "";
    }
    filter();
  });
  tools.querySelector("details.menu")?.addEventListener("toggle", sayWhatHasNoRoom);
}

/**
 * Say in the address of another slice which node is selected here: there it is found by its name.
 * @param {string} address
 */
export function withNode(address) {
  const other = new URL(address, location.href);
  const row = new URLSearchParams(view.query).get("row");
  const slice = /\/s\/(\d+)\/tree$/.exec(location.pathname)?.[1];
  if (row && slice) other.searchParams.set("as", `${slice}.${row}`);
  return other.href;
}

function chosenByNow() {
  const chosen = new URLSearchParams(/** @type {any} */ (new FormData(tools)));
  if (!chosen.get("q")) chosen.delete("q");
  return chosen;
}

/** Select the first row that is found, in the order in which rows are shown, once what was typed is looked for. */
export function selectFirst() {
  filter();
  return inTurn(async () => {
    for (let place = 0; place < view.total; place++) {
      const row = await list.reach(place);
      if (row && !row.classList.contains("is-context")) return choose(row);
    }
    focusSelected();
  });
}

function filter() {
  clearTimeout(asked.timer);
  const mine = ++asked.filters;
  inTurn(() => mine === asked.filters && applyFilters());
}

async function applyFilters() {
  const chosen = chosenByNow();
  const isFiltered = [...chosen.keys()].some((name) => !["column", "sort", "regex"].includes(name));
  /** @type {HTMLElement} */ (tools.querySelector("[data-clear]")).hidden = !isFiltered;
  // Without filters the selected row stays, and what leads to it; with them, the first match is selected.
  if (!isFiltered && view.selected !== null) chosen.set("row", String(view.selected));
  body.scrollTop = 0;
  /** @param {any} error */
  const refused = (error) => explainSearch(error, chosen);
  if (await take("", { query: chosen.toString(), focus: false, refused })) complain("");
}

/**
 * Say at its field what is wrong with a regular expression until it is mended, in the language of the page.
 * @param {any} error
 * @param {URLSearchParams} chosen
 */
async function explainSearch(error, chosen) {
  if (error.status !== 422 || !chosen.has("regex")) return explain(error);
  const said = await fetchPage(`${rows.dataset.address}/rows?${chosen}`).catch((refusal) => refusal);
  if (String(chosenByNow().get("q")) === chosen.get("q")) complain(said.message ?? error.message);
}

/** @param {string} text */
function complain(text) {
  const problem = element("search-problem");
  problem.hidden = !text;
  /** @type {Element} */ (problem.lastElementChild).textContent = text;
  search.setAttribute("aria-invalid", String(Boolean(text)));
}

/**
 * Show other columns at the same place: what is on the screen and the heading change together.
 * @param {number} mine
 */
async function showColumns(mine) {
  const parameters = new URLSearchParams(view.query);
  parameters.delete("column");
  for (const column of chosenByNow().getAll("column")) parameters.append("column", column);
  const { top, height } = list.screen();
  const seen = list.places(top, top + height);
  const query = parameters.toString();
  const [page, found] = await Promise.all([
    fetchPage(`${rows.dataset.address}?${query}`),
    ask(`rows=${seen[0]}-${seen[1]}`, query),
  ]);
  const newer = /** @type {HTMLElement} */ (page.getElementById("tree-body"));
  view.query = found.query;
  for (const name of ["class", "style", "aria-colcount"]) body.setAttribute(name, newer.getAttribute(name) ?? "");
  const heading = /** @type {HTMLElement} */ (newer.querySelector(".head-group"));
  body.querySelector(".head-group")?.replaceWith(document.adoptNode(heading));
  list.replace(found.pieces, seen);
  if (mine === asked.columns) tickColumns(page);
  write(true);
  sayWhatHasNoRoom();
  list.fillAfter(seen);
}

/** @param {Document} page that has what is shown now ticked */
function tickColumns(page) {
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (tools.querySelectorAll("[name=column]"))) {
    const there = /** @type {HTMLInputElement | null} */ (page.querySelector(`[name=column][value="${box.value}"]`));
    box.checked = there?.checked ?? false;
  }
}

function sayWhatHasNoRoom() {
  const golden = body.querySelector(".head .golden-cell");
  element("no-room").hidden = !golden || golden.checkVisibility();
}
