// The bar of the pages of a comparison leads to the node that was selected last, on whichever of the pages that was.

import { recall, remember } from "./memory.js";

const bar = () => /** @type {HTMLElement | null} */ (document.querySelector(".tab-list[data-slice]"));

/**
 * Have the other pages show a node.
 * @param {number | string} row
 */
export function followRow(row) {
  const found = bar();
  if (!found?.dataset.slice) return;
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (found.querySelectorAll("[data-with-row]"))) {
    link.href = `${link.dataset.withRow}${row}`;
    for (const name of ["role", "aria-disabled", "title"]) link.removeAttribute(name);
  }
  remember("sessionStorage", `row ${found.dataset.slice}`, String(row));
}

/** Begin with the node that the page shows, else with the one that was selected last. */
export function beginTabs() {
  const found = bar();
  if (!found?.dataset.slice) return;
  const row = found.dataset.row || recall("sessionStorage", `row ${found.dataset.slice}`);
  if (row && /^\d+$/.test(row)) followRow(row);
}
