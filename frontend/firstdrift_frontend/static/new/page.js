// The form for a new comparison: folders open in place, what is typed is checked while it is typed, and what is
// dropped is uploaded. Keys in a list of folders: up and down, right opens, left goes up, space chooses.

import { fetchPage } from "../lib/http.js";
import { listenForKeys } from "../lib/keys.js";
import { explain, say, toast } from "../lib/notice.js";
import { around, element, isForBrowser, replaceParts } from "../lib/parts.js";
import { dropped, picked } from "./files.js";
import { startUploads } from "./uploads.js";

/** @typedef {import("./upload.js").Side} Side */

const WAIT = 250; // ms without another letter

const form = /** @type {HTMLFormElement} */ (element("new"));

/** What was typed last, what was asked for, what of it is shown, and beside which dump the other side was opened. */
const asked = { timer: 0, latest: 0, shown: 0, beside: "" };

/** @param {string} name */
const field = (name) => /** @type {HTMLInputElement & HTMLTextAreaElement} */ (form.elements.namedItem(name));

/** @param {string} side */
const otherOf = (side) => (side === "golden" ? "target" : "golden");

// What is typed is not yet known to be a dump, or none: say so until the answer is there.
/** @param {string} side */
function look(side) {
  const wait = Object.assign(document.createElement("span"), { className: "faint being-read", textContent: say("Being read") });
  element(`part-said-${side}`).replaceChildren(wait);
}

/** @param {() => HTMLElement | null | undefined} [focus] finds what has the focus afterwards */
async function refresh(focus) {
  const query = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  for (const [name, value] of [...query]) if (!value && !name.endsWith("_at")) query.delete(name);
  const mine = ++asked.latest;
  const newer = await fetchPage(`/new?${query}`).catch(explain);
  if (!newer || mine < asked.shown) return;
  asked.shown = mine;
  const focused = describe(document.activeElement);
  replaceParts(newer);
  for (const side of ["golden", "target"]) {
    const isWrong = Boolean(document.querySelector(`#part-said-${side} .problem`));
    field(side).setAttribute("aria-invalid", String(isWrong));
    if (field(side).value !== (query.get(side) ?? "")) look(side);
  }
  showChosen();
  history.replaceState(null, "", `/new?${query}`);
  openBeside();
  (focus ?? focused)?.()?.focus();
}

// Once a path that was typed is known to be a dump, the other side opens where it lies, as after a click.
function openBeside() {
  for (const side of ["golden", "target"]) {
    const other = otherOf(side);
    const chosen = /** @type {HTMLElement | null} */ (document.querySelector(`#part-said-${side} [data-chosen]`));
    if (!chosen || field(other).value || asked.beside === chosen.dataset.chosen) continue;
    asked.beside = chosen.dataset.chosen ?? "";
    const folder = asked.beside.replace(/\/[^/]*$/, "");
    if (field(`${other}_at`).value === folder) continue;
    field(`${other}_at`).value = folder;
    refresh();
  }
}

/**
 * Give a way to find a link again in a newer version of its part.
 * @param {Element | null} link
 */
function describe(link) {
  const part = link?.closest("[data-part]")?.id;
  if (!link || !part) return null;
  const path = /** @type {HTMLElement | null} */ (link.closest("[data-path]"))?.dataset.path;
  const kind = link.matches(".choose-it") ? ".choose-it" : ".into";
  const href = link.getAttribute("href");
  return () => {
    const there = element(part);
    const rows = /** @type {HTMLElement[]} */ ([...there.querySelectorAll("[data-path]")]);
    const row = path && rows.find((one) => one.dataset.path === path);
    if (row) return /** @type {HTMLElement | null} */ (row.querySelector(kind) ?? row.querySelector("a"));
    return [...there.querySelectorAll("a")].find((one) => one.getAttribute("href") === href);
  };
}

/** @param {string} side @returns {() => HTMLElement | null} */
const firstOf = (side) => () => {
  const folder = element(`part-folder-${side}`);
  return folder.querySelector(".folders :is(.into, .choose-it)") ?? folder.querySelector(".trail [aria-current]");
};

/** @param {Element} within */
const sideOf = (within) => /** @type {HTMLElement | null} */ (within.closest(".side"))?.dataset.side;

/** @param {HTMLAnchorElement} link */
function follow(link) {
  const wanted = new URL(link.href).searchParams;
  const side = link.dataset.side ?? sideOf(link) ?? "golden";
  const isBoth = "both" in link.dataset;
  const sides = isBoth ? ["golden", "target"] : [side];
  const before = sides.map((one) => field(one).value);
  if (isBoth) for (const one of sides) field(one).value = "";
  for (const name of [...sides.flatMap((one) => [one, `${one}_at`]), "order"]) if (wanted.has(name)) field(name).value = wanted.get(name) ?? "";
  sides.forEach((one, i) => field(one).value && field(one).value !== before[i] && look(one));
  // The other side opens where the first was chosen: the two often lie together.
  const other = otherOf(side);
  const isChoosing = link.matches(".choose-it, .chip");
  if (isChoosing && !field(other).value) field(`${other}_at`).value = field(`${side}_at`).value;
  const isStaying = isChoosing || isBoth || link.closest(".segments");
  refresh(isStaying ? undefined : firstOf(side));
}

form.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (around(event, "a[data-swap]"));
  if (!link || isForBrowser(event)) return;
  event.preventDefault();
  follow(link);
});

/** @param {Event} event */
const rowAt = (event) => around(event, "li");

/** @param {ParentNode | null | undefined} within @param {string} selector @returns {HTMLElement | null | undefined} */
const inside = (within, selector) => within?.querySelector(selector);

/** @param {number} by so many rows @returns {(event: KeyboardEvent) => void} */
const step = (by) => (event) => {
  const rows = [...(around(event, ".folders")?.querySelectorAll("li:has(a)") ?? [])];
  inside(rows[rows.indexOf(/** @type {Element} */ (rowAt(event))) + by], ".into, .choose-it")?.focus();
};

/** @param {KeyboardEvent} event */
function goUp(event) {
  const trail = around(event, ".folders")?.parentElement?.querySelectorAll(".trail nav a") ?? [];
  /** @type {HTMLElement | undefined} */ ([...trail].at(-2))?.click();
}

listenForKeys(form, {
  ArrowDown: step(1),
  ArrowUp: step(-1),
  ArrowRight: (event) => inside(rowAt(event), ".into")?.click(),
  ArrowLeft: goUp,
  " ": (event) => inside(rowAt(event), ".choose-it")?.click(),
}, { isFor: (event) => around(event, ".folders") !== null });

function showChosen() {
  for (const chosen of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".folders .is-chosen"))) {
    const list = /** @type {HTMLElement} */ (chosen.parentElement);
    const above = chosen.offsetTop - list.offsetTop;
    const isSeen = above >= list.scrollTop && above <= list.scrollTop + list.clientHeight - 40;
    if (!isSeen) list.scrollTop = above - list.clientHeight / 2;
  }
}

form.addEventListener("input", (event) => {
  const typedIn = /** @type {HTMLInputElement} */ (event.target);
  if (typedIn.type === "file") return;
  if (["golden", "target"].includes(typedIn.name)) look(typedIn.name);
  clearTimeout(asked.timer);
  const isPasted = /** @type {InputEvent} */ (event).inputType === "insertFromPaste";
  asked.timer = window.setTimeout(typed, isPasted ? 0 : WAIT);
});

// Typing is over: after a moment, or at once when the field is left or something was pasted.
function typed() {
  clearTimeout(asked.timer);
  asked.timer = 0;
  refresh();
}

/**
 * What has been uploaded becomes the dump of its side, or is opened there if several dumps lie in it. What is no dump
 * is not chosen: its row says why not.
 * @param {Side} side
 * @param {any} dump
 * @param {string[]} paths
 */
function landed(side, dump, paths) {
  if (side === "mapping") {
    const mapping = field("mapping");
    const lines = mapping.value.split("\n").filter(Boolean);
    mapping.value = [...lines, ...paths.map((path) => `${dump.path}/${path}`)].join("\n");
    mapping.rows = mapping.value.split("\n").length;
  } else if (!dump.format && !dump.holds.length) {
    return toast(say("No dump was found in what was uploaded"));
  } else if (dump.format) {
    field(side).value = dump.path;
    look(side);
    field(`${side}_at`).value = dump.path.replace(/\/[^/]*$/, "");
  } else {
    field(`${side}_at`).value = dump.path;
    const other = otherOf(side);
    if (!field(other).value) field(`${other}_at`).value = dump.path;
    toast(say("Choose a dump in what was uploaded"));
  }
  refresh();
}

/** @param {Side} side @param {string} path */
function left(side, path) {
  if (field(side).value === path) field(side).value = "";
  refresh();
}

const panel = document.getElementById("uploads");
const uploads = panel && startUploads(panel, landed, left);

form.addEventListener("change", (event) => {
  const chosen = /** @type {HTMLInputElement} */ (event.target);
  if (chosen.type !== "file") return void (asked.timer && typed());
  if (!uploads || !chosen.files) return;
  const isMapping = "mapping" in chosen.dataset;
  const given = picked(chosen.files, isMapping);
  chosen.value = "";
  uploads.add(isMapping ? "mapping" : /** @type {Side} */ (sideOf(chosen)), given);
});

/** @param {DragEvent} event */
async function drag(event) {
  if (!uploads || !event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  const over = around(event, ".side");
  const sides = form.querySelectorAll(".side");
  for (const one of sides) one.classList.toggle("is-target", event.type === "dragover" && one === over);
  if (event.type !== "drop") return;
  const side = over?.dataset.side ?? (field("golden").value ? "target" : "golden");
  uploads.add(/** @type {Side} */ (side), await dropped(event.dataTransfer));
}
form.addEventListener("dragover", drag);
form.addEventListener("dragleave", drag);
form.addEventListener("drop", drag);

// What the browser finds wrong with a field can only be shown where the field is seen.
form.addEventListener("invalid", () => /** @type {HTMLDetailsElement} */ (element("how")).open = true, true);

showChosen();
