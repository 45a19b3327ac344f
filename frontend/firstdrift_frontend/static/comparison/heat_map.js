// The map of layers: quick for a thousand slices by a hundred layers. Plotly draws the part that is zoomed into.

import { listenForKeys } from "../lib/keys.js";
import { ramp, scaleOf, span } from "../lib/limit_legend.js";
import { say } from "../lib/notice.js";
import { around, element } from "../lib/parts.js";
import { error, keepDrawn, sources } from "../lib/plot.js";
import { UNKNOWN, prepare, selection } from "./heat_cells.js";
import { cellUnder, geometry, lookUpColours, paint } from "./heat_paint.js";
import { addressOf, describe, drawn, firstCell, state } from "./heat_state.js";
import { closeZoom, remembered, showZoom, zoom } from "./heat_zoom.js";

/** @typedef {import("./heat_cells.js").Cell} Cell */

const DRAGGED = 5; // px that the pointer moves before it selects

/** @param {HTMLElement} figure */
function begin(figure) {
  const canvas = /** @type {HTMLCanvasElement} */ (figure.querySelector("canvas"));
  const tip = /** @type {HTMLElement} */ (figure.querySelector(".tip"));
  const repaint = () => {
    if (state.cells) paint(canvas, state, document.activeElement === canvas || tip.hasAttribute("data-on"));
  };
  const zoomIn = () => zoom(selection(drawn(), state.cursor, state.anchor));
  const close = () => {
    if (!closeZoom(canvas)) return false;
    state.anchor = null;
    repaint();
    return true;
  };

  /** @param {Cell | null} cell */
  function showTip(cell) {
    state.cursor = cell ?? state.cursor;
    tip.toggleAttribute("data-on", Boolean(cell));
    if (cell) place(cell);
    repaint();
  }

  /** @param {Cell} cell */
  function place(cell) {
    const { rows, columns } = drawn();
    const { left, width, height } = geometry(canvas);
    const x = left + ((cell[1] + 0.5) * width) / columns;
    const y = ((cell[0] + 1) * height) / rows;
    const lines = describe(cell);
    if (tip.textContent !== lines.join("")) tip.replaceChildren(...lines.map((text) => span("", text)));
    tip.style.setProperty("--x", `${Math.min(x, left + width - 130)}px`);
    tip.style.setProperty("--y", `${y + 8}px`);
  }

  /** @param {number} rows @param {number} columns @returns {(event: KeyboardEvent) => void} */
  const move = (rows, columns) => (event) => {
    const from = state.cursor ?? [0, 0];
    state.anchor = event.shiftKey ? state.anchor ?? /** @type {Cell} */ (from) : null;
    const { rows: height, columns: width } = drawn();
    /** @param {number} at @param {number} count */
    const within = (at, count) => Math.min(count - 1, Math.max(0, at));
    showTip([within(from[0] + rows, height), within(from[1] + columns, width)]);
  };

  /** @param {Cell | null} cell */
  const open = (cell) => {
    const address = cell && addressOf(cell);
    if (address) location.assign(address);
  };

  listenForKeys(canvas, {
    ArrowUp: move(-1, 0),
    ArrowDown: move(1, 0),
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    PageUp: move(-10, 0),
    PageDown: move(10, 0),
    Home: move(0, -Infinity),
    End: move(0, Infinity),
    Enter: () => open(state.cursor),
    z: zoomIn,
    Escape: () => {
      state.anchor = null;
      if (!close()) showTip(null);
    },
  }, { isFor: () => state.cells !== null });

  canvas.addEventListener("focus", () => {
    if (state.cells && !state.pressed) showTip(state.cursor ?? firstCell());
  });
  canvas.addEventListener("blur", () => showTip(null));
  canvas.addEventListener("pointermove", (event) => {
    if (!state.cells) return;
    const { pressed } = state;
    const cell = cellUnder(canvas, event);
    canvas.style.cursor = cell && addressOf(cell) ? "pointer" : "default";
    if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > DRAGGED) state.anchor = pressed.cell;
    if (cell || !pressed) showTip(cell);
  });
  canvas.addEventListener("pointerleave", () => !state.pressed && showTip(null));
  canvas.addEventListener("pointerdown", (event) => {
    const cell = state.cells && !event.button && cellUnder(canvas, event);
    if (!cell) return;
    Object.assign(state, { pressed: { cell, x: event.clientX, y: event.clientY }, anchor: null });
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const { pressed } = state;
    state.pressed = null;
    if (!pressed) return;
    if (state.anchor) zoomIn();
    else if (event.ctrlKey || event.metaKey) window.open(addressOf(pressed.cell) ?? "#");
    else open(pressed.cell);
  });
  document.addEventListener("click", (event) => {
    if (state.cells && around(event, "[data-zoom]")) void zoomIn().then(showZoom);
    if (around(event, "[data-close-zoom]")) close();
  });
  new ResizeObserver(repaint).observe(canvas);

  keepDrawn(figure, "layers", async (data) => {
    if (!data.layers.length) return;
    const cells = prepare(data);
    state.cells = cells;
    lookUpColours();
    if (state.cursor && (state.cursor[0] >= cells.rows || state.cursor[1] >= cells.columns)) state.cursor = null;
    figure.style.setProperty("--rows", String(cells.rows));
    figure.querySelector(".chart-wait")?.remove();
    showLegend();
    repaint();
    figure.dataset.drawn = "yes";
    const part = remembered();
    if (part) await zoom(part);
  });
}

/** @param {string} text @param {string} name */
function swatch(text, name) {
  return span("", Object.assign(document.createElement("i"), { className: `swatch ${name}` }), text);
}

function showLegend() {
  const { data, limit, limits, sizes } = drawn();
  const parts = data.range ? scaleOf(limit, (value) => say("common limit {value}", { value })) : [];
  if (data.range && limits && limits[0] < limits[1]) {
    const [least, most] = limits.map((one) => error(one));
    const named = say("limits of output errors, {least} to {most}", { least, most });
    parts.splice(0, parts.length, span("scale", say("passes"), ramp("calm"), named, ramp("dark"), say("fails")));
  }
  if (sizes.includes(0)) parts.push(swatch(say("equal"), "equal"));
  const infinite = sources().from === "digest" ? say("differs") : say("NaN or infinity");
  if (sizes.includes(Infinity)) parts.push(swatch(infinite, "infinite"));
  if (sizes.includes(UNKNOWN)) parts.push(swatch(say("error unknown"), "unknown"));
  if (data.first) parts.push(swatch(say("first bad"), "first"));
  element("heat-legend").replaceChildren(...parts);
}

const found = document.getElementById("heat-map");
if (found) begin(found);
