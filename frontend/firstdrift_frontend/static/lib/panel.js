// The side panel: its edge is dragged, or moved by keys; it can be hidden. The browser remembers both.

import { recall, remember } from "./memory.js";

const NAME = "panel"; // what it is remembered by
const [LEAST, MOST] = [20, 75]; // % of the window
const STEP = 2; // %, of an arrow key

/** @param {number} share */
const within = (share) => Math.round(10 * Math.min(MOST, Math.max(LEAST, share))) / 10;

/**
 * Give the width of a panel in % whose left edge is at a place.
 * @param {number} x px
 * @param {{left: number, width: number}} around
 */
export const shareAt = (x, { left, width }) => within(100 * (1 - (x - left) / width));

/**
 * Give the width that a key leads to; null if it is not for that.
 * @param {string} key
 * @param {number} share
 */
export function shareAfter(key, share) {
  if (key === "ArrowLeft") return within(share + STEP);
  if (key === "ArrowRight") return within(share - STEP);
  if (key === "Home") return MOST;
  return key === "End" ? LEAST : null;
}

/** @param {HTMLElement} divider @param {HTMLElement} split */
function resizable(divider, split) {
  /** @param {number | null} share null: as usual */
  const set = (share) => {
    if (share === null) split.style.removeProperty("--panel");
    else split.style.setProperty("--panel", `${share}%`);
    divider.setAttribute("aria-valuenow", String(share ?? 41));
    remember("localStorage", NAME, share === null ? null : String(share));
  };
  const now = () => Number(divider.getAttribute("aria-valuenow"));
  divider.addEventListener("pointerdown", (event) => {
    divider.setPointerCapture(event.pointerId);
    divider.classList.add("is-dragged");
    event.preventDefault();
    divider.focus();
  });
  divider.addEventListener("pointermove", (event) => {
    if (divider.hasPointerCapture(event.pointerId)) set(shareAt(event.clientX, split.getBoundingClientRect()));
  });
  divider.addEventListener("lostpointercapture", () => divider.classList.remove("is-dragged"));
  divider.addEventListener("dblclick", () => set(null));
  divider.addEventListener("keydown", (event) => {
    const share = event.ctrlKey || event.metaKey || event.altKey ? null : shareAfter(event.key, now());
    if (share === null) return;
    event.preventDefault();
    event.stopPropagation(); // the page has the same keys
    set(share);
  });
  const kept = Number(recall("localStorage", NAME));
  if (kept) set(within(kept));
}

/** @param {HTMLElement} button @param {HTMLElement} split */
function hideable(button, split) {
  /** @param {boolean} isShown */
  const show = (isShown) => {
    split.classList.toggle("is-panel-hidden", !isShown);
    button.setAttribute("aria-expanded", String(isShown));
    remember("localStorage", `${NAME} hidden`, isShown ? null : "yes");
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(recall("localStorage", `${NAME} hidden`) === null);
}

/** Begin, on a page that has a panel. */
export function beginPanel() {
  const divider = document.getElementById("divider");
  const button = /** @type {HTMLElement | null} */ (document.querySelector("[data-panel-toggle]"));
  if (!divider?.parentElement) return;
  resizable(divider, divider.parentElement);
  if (button) hideable(button, divider.parentElement);
}
