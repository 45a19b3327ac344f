// What every page has: light and dark, copying, forms that submit themselves, and pages that keep up to date.

import { fetchPage } from "./lib/http.js";
import { listenForKeys } from "./lib/keys.js";
import { copy, explain } from "./lib/notice.js";
import { beginPanel } from "./lib/panel.js";
import { around, replaceParts } from "./lib/parts.js";
import { beginTabs } from "./lib/tabs.js";

const FAILURES = 3; // in a row, before they are spoken of

/**
 * Ask for the page again and again, and replace what has changed.
 * @param {HTMLElement} main
 */
function keepUpToDate(main) {
  const interval = Number(main.dataset.live);
  if (!interval) return;
  let failures = 0;
  const ask = async () => {
    let again = interval;
    try {
      if (!document.hidden) {
        const newer = await fetchPage(location.href);
        const { at, live } = newer.querySelector("main")?.dataset ?? {};
        // What was waited for is there, and has a page of its own.
        if (at && at !== main.dataset.at) return location.replace(at);
        replaceParts(newer);
        failures = 0;
        if (!live) return;
      }
    } catch (failure) {
      const error = /** @type {any} */ (failure);
      if (error.status < 500) return;
      failures += 1;
      if (failures === FAILURES) explain(error);
      again = interval * Math.min(10, 2 ** failures);
    }
    setTimeout(ask, again);
  };
  setTimeout(ask, interval);
}

// What takes long to find out, such as whether dumps have changed, is asked for once the page is there.
async function checkLater() {
  const waiting = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-check]"));
  await Promise.all([...waiting].map(check));
}

/** @param {HTMLElement} part */
async function check({ id, dataset }) {
  if (dataset.check) replaceParts(await fetchPage(dataset.check), `#${id}`);
}

// What has just been compared may have more to find out.
document.addEventListener("part", (event) => {
  const part = /** @type {CustomEvent<HTMLElement>} */ (event).detail;
  if (part.dataset.check) check(part).catch(explain);
});

function toggleTheme() {
  const root = document.documentElement;
  const { theme } = root.dataset;
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  document.cookie = `firstdrift_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  document.dispatchEvent(new CustomEvent("theme"));
}

/** @param {(menu: HTMLDetailsElement) => boolean} which */
function closeMenus(which) {
  const open = /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details.menu[open]"));
  for (const menu of open) if (which(menu)) menu.open = false;
}

/**
 * Write what is selected with all digits of its numbers, whatever is shown.
 * @param {Selection} selection
 * @returns {string | null} null: as the browser writes it
 */
function textOf(selection) {
  const range = selection.getRangeAt(0);
  const fragment = range.cloneContents();
  const numbers = /** @type {NodeListOf<HTMLDataElement>} */ (fragment.querySelectorAll("data.num"));
  if (!numbers.length) {
    const common = range.commonAncestorContainer;
    const within = common instanceof Element ? common : common.parentElement;
    const single = /** @type {HTMLDataElement | null | undefined} */ (within?.closest("data.num"));
    return single && selection.toString() === single.textContent ? single.value : null;
  }
  for (const number of numbers) number.textContent = number.value;
  for (const cell of fragment.querySelectorAll("td, th")) cell.append("\t");
  for (const line of fragment.querySelectorAll("tr, p, dd, li, .row")) line.append("\n");
  return fragment.textContent?.trim() ?? "";
}

/**
 * Have the links of Markdown lead here from everywhere.
 * @param {string} text
 */
const withOrigin = (text) => text.replaceAll("](/", `](${location.origin}/`);

document.addEventListener("click", (event) => {
  const button = around(event, "[data-copy], [data-copy-from], [data-copy-link], [data-theme-toggle]");
  if (!button) return;
  const { copy: text, copyFrom, copyLink } = button.dataset;
  if (text !== undefined) copy(text);
  else if (copyFrom !== undefined) copy(withOrigin(`${document.querySelector(copyFrom)?.textContent?.trim()}\n`));
  else if (copyLink !== undefined) copy(new URL(copyLink || location.href, location.href).href);
  else toggleTheme();
});

// What leads to another page says where this one is, also when somebody comes back to it.
addEventListener("pageshow", () => {
  for (const choice of document.querySelectorAll("select[data-goto], select[data-submit]")) {
    for (const option of /** @type {HTMLSelectElement} */ (choice).options) option.selected = option.defaultSelected;
  }
});

// What is shared is the view as it is now.
document.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (around(event, "a[data-share]"));
  if (link) link.search = String(new URLSearchParams({ view: location.pathname + location.search }));
});

// A menu closes when something else is clicked, or with Escape.
document.addEventListener("click", (event) => closeMenus((menu) => !menu.contains(/** @type {Node} */ (event.target))));
document.addEventListener("keydown", (event) => event.key === "Escape" && closeMenus(() => true));

document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement | null} */ (around(event, "[data-language], [data-back]"));
  const back = /** @type {HTMLInputElement | null | undefined} */ (form?.elements.namedItem("back"));
  if (back) back.value = location.pathname + location.search;
});

document.addEventListener("change", (event) => {
  const field = /** @type {HTMLInputElement | null} */ (around(event, "[data-submit]"));
  field?.form?.requestSubmit();
});

document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (selection?.rangeCount !== 1 || selection.isCollapsed) return;
  const text = textOf(selection);
  if (text === null) return;
  event.clipboardData?.setData("text/plain", text);
  event.preventDefault();
});

// Pages without keys of their own lead to the help page.
listenForKeys(document, {
  "?": () => document.querySelector("[data-help]") || location.assign("/help"),
});

document.addEventListener("part", (event) => /** @type {CustomEvent} */ (event).detail?.id === "part-tabs" && beginTabs());

beginTabs();
beginPanel();
keepUpToDate(/** @type {HTMLElement} */ (document.querySelector("main")));
checkLater().catch(explain);
