// What is seen of a graph, and what changes it: modules that are opened and closed, another selected box, another part.

import { fetchData, lastOf, request } from "../lib/http.js";
import { recall, remember } from "../lib/memory.js";
import { explain, say, toast } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { followRow } from "../lib/tabs.js";
import { filling, first, revealing, whole, zoomed } from "./camera.js";
import { Canvas } from "./canvas.js";
import { leftOf } from "./elements.js";
import { picture } from "./layout.js";
import { minimap } from "./minimap.js";
import { Model } from "./model.js";

const data = JSON.parse(element("graph-data").textContent);
const stage = element("stage");
const panel = element("panel");
const sides = element("sides");

export const model = new Model(data.layers);
export const canvas = new Canvas(stage, /** @type {SVGSVGElement} */ (/** @type {unknown} */ (element("canvas"))), data.words);
const [small, frame] = element("minimap").children;
const map = minimap(element("minimap"), /** @type {HTMLCanvasElement} */ (small), /** @type {HTMLElement} */ (frame), canvas, look);

const ROOM = 900; // px: where the stage is narrower, the mini map would lie over boxes of the target

/** @param {boolean} isShown */
function showMap(isShown) {
  element("minimap").hidden = !isShown;
  document.querySelector("[data-graph=map]")?.setAttribute("aria-pressed", String(isShown));
}

showMap((recall("localStorage", "minimap") ?? (stage.clientWidth < ROOM ? "closed" : "open")) === "open");

/** Open or close the mini map, and remember it. */
export function toggleMap() {
  const isShown = element("minimap").hasAttribute("hidden");
  remember("localStorage", "minimap", isShown ? "open" : "closed");
  showMap(isShown);
  map.draw();
}

/** @type {{row: number | null}} */
export const selected = { row: data.row };

/** The box that is selected, if there is one. */
export const selectedBox = () => canvas.byKey.get(canvas.selected ?? "");

let sidesAt = NaN;

/** @param {import("./camera.js").View} view */
export function look(view) {
  canvas.look(view);
  map.look();
  const middle = leftOf(1, canvas.picture.w);
  const edge = Math.max(90, Math.min(canvas.screen.w - 10, (middle - 45) * view.k + view.x));
  if (edge !== sidesAt) sides.style.setProperty("--edge", `${edge}px`);
  sidesAt = edge;
}

/** Draw the picture anew; a box stays at its height on the screen. @param {string | null} [still] */
export function draw(still = null) {
  const before = still === null ? null : canvas.where(still);
  canvas.show(picture(model));
  const after = still === null ? null : canvas.where(still);
  const { view } = canvas;
  const by = before && after ? { x: (before.x - after.x) * view.k, y: (before.y - after.y) * view.k } : { x: 0, y: 0 };
  look(filling({ k: view.k, x: view.x + by.x, y: view.y + by.y }, canvas.size, canvas.screen));
  canvas.light();
  map.draw();
}

/** Begin with the selected box in the middle. */
export function begin() {
  canvas.show(picture(model));
  const key = selected.row === null ? null : String(selected.row);
  canvas.selected = key ?? canvas.picture.boxes[0]?.key ?? null;
  look(first(canvas.size, key === null ? null : canvas.where(key), canvas.screen));
  canvas.light();
  write(false);
  if (document.activeElement === document.body) canvas.focus();
  requestAnimationFrame(() => {
    map.draw();
    showNode();
  });
}

/** Show the part of the picture in which the selected box is. */
export function reveal() {
  const where = canvas.selected === null ? null : canvas.where(canvas.selected);
  const box = selectedBox();
  if (where && box) look(revealing(canvas.view, where.w * canvas.view.k > canvas.screen.w ? { ...where, w: box.w } : where, canvas.screen));
}

/** Select a box, and show its node. @param {string} key @param {boolean} [push] as a place to come back to */
export function choose(key, push = false) {
  const row = canvas.byKey.get(key)?.box?.row ?? null;
  canvas.select(key);
  reveal();
  canvas.focus();
  if (row !== null && row !== selected.row) {
    selected.row = row;
    write(push);
    showNode();
  }
}

/** Write what is seen into the address. @param {boolean} push as a place to come back to */
export function write(push) {
  const query = model.query(selected.row);
  if (location.search !== `?${query}`) {
    if (push) history.pushState(null, "", `?${query}`);
    else history.replaceState(null, "", `?${query}`);
  }
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("[data-with-view]"))) {
    link.search = `?${query}`;
  }
  if (selected.row !== null) followRow(selected.row);
}

/** Open or close a module, and have what it holds be seen. @param {number} row */
export async function toggle(row) {
  const box = model.boxes.get(row);
  if (!box?.holds) return;
  if (model.open.delete(row)) {
    if (selected.row !== null && model.around(selected.row).includes(row)) {
      selected.row = row;
      canvas.selected = String(row);
      showNode();
    }
  } else {
    if (!model.isKnown(row)) await fetchLayers(`of=${row}`);
    model.unfold(row);
  }
  draw(String(row));
  write(true);
  canvas.focus();
}

/** Have more of a module be seen. @param {number | null} row @param {number} piece */
export async function showMore(row, piece) {
  if (!model.has(row, piece)) await fetchLayers(`of=${row ?? ""}:${piece}`);
  model.show(row, piece);
  const before = canvas.selected;
  const box = model.pieces(row).find((layer) => layer.piece === piece)?.boxes[0];
  const still = canvas.picture.boxes.find((placed) => placed.box && placed.box.module === row)?.key ?? null;
  draw(still);
  if (box && !canvas.byKey.has(before ?? "")) choose(String(box.row));
  write(true);
}

/** @param {string} query @returns {Promise<any>} */
async function fetchLayers(query) {
  const found = await fetchData(`${data.address}/layers?${query}`, { signal: AbortSignal.timeout(60_000) });
  for (const layer of found.layers) model.add(layer);
  return found;
}

/** @type {Map<number, Promise<any>>} */
const asked = new Map();

/** Fetch what a module holds before it is opened. @param {number} row */
export function askAhead(row) {
  const box = model.boxes.get(row);
  if (!box?.holds || model.isKnown(row) || asked.has(row)) return;
  asked.set(row, fetchLayers(`of=${row}`).catch(() => asked.delete(row)));
}

/** Go to another node, and open what it lies in. @param {string} way "next=bad" */
export async function go(way) {
  const found = await fetchLayers(`${way}&row=${selected.row ?? ""}`);
  if (found.row === null || found.row === selected.row) return toast(say("No other such node"));
  /** @type {[number | null, number][]} */
  const path = found.path;
  const missing = path.filter(([row, piece]) => !model.has(row, piece)).map(([row, piece]) => `${row ?? ""}:${piece}`);
  if (missing.length) await fetchLayers(`of=${missing.join(".")}`);
  for (const [row, piece] of path) {
    model.show(row, piece);
    if (row !== null) model.open.add(row);
  }
  draw();
  choose(String(found.row), true);
}

/** @param {number} by */
export const zoom = (by) => look(zoomed(canvas.view, by, { x: canvas.screen.w / 2, y: canvas.screen.h / 2 }));

export const showWhole = () => look(whole(canvas.size, canvas.screen));

/** Show the node that is selected; while a key is held down, only the one where it stops is fetched. */
function showNode() {
  clearTimeout(held.timer);
  const isHeld = performance.now() - held.last < HELD;
  held.last = performance.now();
  if (isHeld) held.timer = window.setTimeout(fetchNode, REST);
  else fetchNode();
}

const HELD = 150; // ms between the steps of a key that is held down, at most
const REST = 90; // ms
const held = { timer: 0, last: -Infinity };

const fetchNode = lastOf(async (signal) => {
  if (selected.row === null) return panel.replaceChildren();
  try {
    const answer = await request(`${data.panel}${selected.row}?panel=true`, { signal, headers: { accept: "text/html" } });
    if (!answer.ok) return panel.replaceChildren();
    panel.innerHTML = await answer.text();
  } catch (error) {
    if (signal.aborted) return;
    panel.replaceChildren(); // what is shown is of another node than the one that is picked
    explain(error);
  }
});
