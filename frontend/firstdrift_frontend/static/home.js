// The front page by keyboard: / searches, up and down go from row to row, n begins a comparison, Delete deletes.

import { listenForKeys } from "./lib/keys.js";
import { around, element } from "./lib/parts.js";

const LINKS = ".comparisons .what > a, .dump-list .start > a:first-child";

/** @param {number} by so many rows @returns {(event: Event) => void} */
const step = (by) => (event) => {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(LINKS)]);
  const row = around(event, "li");
  const at = all.findIndex((link) => link.closest("li") === row);
  all[by > 0 ? at + 1 : Math.max(0, at - 1)]?.focus();
};

listenForKeys(document, {
  "/": () => element("search").focus(),
  n: () => location.assign("/new"),
  ArrowDown: step(1),
  ArrowUp: step(-1),
  Delete: (event) => /** @type {HTMLElement | null | undefined} */ (around(event, "li")?.querySelector("form button"))?.click(),
}, { fields: "input, select, textarea" });
