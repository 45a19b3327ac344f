// A pair of tensors from near: the map, the values around a place, and charts. The address says what is shown.
import { explain, fetchPage, request, say } from "./app.js";
import { axis, colour, react as draw, short } from "./plot.js";

const CHUNK = { Home: -Infinity, End: Infinity };
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-9, 0], PageDown: [9, 0] };

let shown = null; // what the section on the page is about
let map = null; // the map that is drawn
let cell = null; // [row, column] of it that is pointed at
let profiles = null;

const section = () => document.getElementById("closeup");
const element = (name) => document.getElementById(`closeup-${name}`);

// ---- what is asked for

function read() {
  const { address, source, tensor, shape, down, across, at, heads, dimensions } = section().dataset;
  if (!source) return null;
  const numbers = at ? at.split(",").map(Number) : [];
  return { address, source, tensor, shape: JSON.parse(shape), down: down === "" ? null : Number(down), across: Number(across), at: numbers, heads, dimensions: JSON.parse(dimensions) };
}

function query(extra = {}) {
  const asked = new URLSearchParams({ tensor: shown.tensor });
  if (shown.down !== null) asked.set("down", shown.down);
  asked.set("across", shown.across);
  asked.set("at", shown.at.join(","));
  if (shown.heads) asked.set("heads", shown.heads);
  for (const [name, value] of Object.entries(extra)) asked.set(name, value);
  return asked;
}

async function ask(parts) {
  const asked = query({ parts });
  asked.delete("tensor");
  const answer = await request(`${shown.source}?${asked}`, { headers: { accept: "application/json" } });
  const found = await answer.json();
  if (!answer.ok || found.reason) throw new Error(found.error ?? found.reason?.text ?? found.reason);
  return found;
}

// ---- moving: the values at once, the map only if another plane is shown

let turn = 0;
async function show(change, { push = false, whole = false } = {}) {
  const before = plane();
  Object.assign(shown, change);
  const address = `${shown.address}?${query()}`;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  const mine = ++turn;
  const newer = await fetchPage(`${shown.address}?${query({ closeup: true })}`).catch(explain);
  if (!newer || mine !== turn) return;
  const found = newer.getElementById("closeup");
  if (whole || !found?.dataset.source) {
    section().replaceWith(document.adoptNode(found));
    return begin();
  }
  const values = newer.getElementById("closeup-values");
  element("values").replaceChildren(...values.childNodes);
  section().querySelector(".around").textContent = newer.querySelector(".around").textContent;
  for (const input of section().querySelectorAll("[data-axis]")) input.value = shown.at[Number(input.dataset.axis)];
  if (plane() !== before) drawMap();
  else paint();
}

function plane() {
  return JSON.stringify([shown.down, shown.across, shown.at.filter((_, number) => number !== shown.down && number !== shown.across)]);
}

function move(rows, columns) {
  const at = [...shown.at];
  const step = (number, by) => {
    if (number !== null && at.length) at[number] = Math.max(0, Math.min(shown.shape[number] - 1, at[number] + by));
  };
  step(shown.down, rows);
  step(shown.across, columns);
  if (at.join() !== shown.at.join()) show({ at });
}

// ---- the map

async function drawMap() {
  const asked = plane();
  try {
    const found = (await ask("map")).map;
    if (asked !== plane()) return;
    map = { ...found, cells: found.cells.map((row) => row.map((value) => (value === "Infinity" ? Infinity : value))) };
    map.largest = Math.max(0, ...map.cells.flat().filter(Number.isFinite));
    paint();
  } catch (error) {
    element("cell").textContent = error.message;
  }
}

// 256 colours: what is small is near the page, what is large is far from it.
function ramp() {
  const context = new OffscreenCanvas(256, 1).getContext("2d");
  const gradient = context.createLinearGradient(0, 0, 256, 0);
  for (let stop = 0; stop < 5; stop++) gradient.addColorStop(stop / 4, colour(`heat-${stop}`));
  context.fillStyle = gradient;
  context.fillRect(0, 0, 256, 1);
  return context.getImageData(0, 0, 256, 1).data;
}

function smallest() {
  const positive = map.cells.flat().filter((value) => value > 0 && Number.isFinite(value));
  return Math.max(Math.min(...positive, map.largest), map.largest * 1e-6);
}

function plain(name) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = colour(name);
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

function paint() {
  const canvas = element("map");
  if (!map || !canvas) return;
  const [rows, columns] = [map.cells.length, map.cells[0]?.length ?? 0];
  if (!rows || !columns) return;
  canvas.parentElement.style.setProperty("--rows", rows);
  const scale = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
  const [colours, zero, lost] = [ramp(), plain("heat-equal"), plain("heat-nan")];
  const low = Math.log(smallest());
  const width = Math.log(map.largest || 1) - low;
  const image = new ImageData(columns, rows);
  map.cells.forEach((row, r) => row.forEach((value, c) => {
    const place = 4 * (r * columns + c);
    const share = width > 0 ? (Math.log(value) - low) / width : 1;
    const step = 4 * Math.max(0, Math.min(255, Math.round(255 * share)));
    const found = value === 0 ? zero : Number.isFinite(value) ? colours.subarray(step, step + 4) : lost;
    image.data.set(found, place);
  }));
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  const [x, y] = [canvas.width / columns, canvas.height / rows];
  const frame = (row, column, name, thickness) => {
    context.strokeStyle = colour(name);
    context.lineWidth = thickness * scale;
    context.strokeRect(column * x - 1, row * y - 1, Math.max(x, 3) + 2, Math.max(y, 3) + 2);
  };
  const here = placeOf(shown.at);
  if (here) frame(...here, "text", 2);
  if (cell) frame(...cell, "accent", 2);
  legend(colours);
  sayCell();
}

function legend(colours) {
  const [low, bar, high] = element("ramp").children;
  low.textContent = short(map.largest ? smallest() : 0);
  high.textContent = short(map.largest);
  const image = new ImageData(256, 1);
  image.data.set(colours);
  const small = new OffscreenCanvas(256, 1);
  small.getContext("2d").putImageData(image, 0, 0);
  bar.getContext("2d").drawImage(small, 0, 0, bar.width, bar.height);
}

function placeOf(at) {
  if (!map || !at.length) return null;
  return [Math.floor((shown.down === null ? 0 : at[shown.down]) / map.block[0]), Math.floor(at[shown.across] / map.block[1])];
}

function ranges([row, column]) {
  return [row, column].map((place, side) => [place * map.block[side], Math.min((place + 1) * map.block[side], map.size[side]) - 1]);
}

function sayCell() {
  const output = element("cell");
  const every = map.every[0] * map.every[1];
  if (!cell) {
    output.textContent = every > 1 ? say("Of each cell one element in {every} was looked at", { every }) : "";
    return;
  }
  const [down, across] = ranges(cell).map(([first, last]) => (first === last ? `${first}` : say("{first} to {last}", { first, last })));
  const value = map.cells[cell[0]][cell[1]];
  const index = shown.at.map((at, number) => (number === shown.down ? down : number === shown.across ? across : at)).join(", ");
  output.textContent = Number.isFinite(value) ? say("[{index}]: at most {value}", { index, value: short(value) }) : say("[{index}]: NaN or infinity on one side", { index });
}

function point(next) {
  if (!map) return;
  cell = [0, 1].map((side) => Math.max(0, Math.min((side ? map.cells[0].length : map.cells.length) - 1, next[side])));
  paint();
}

function cellUnder(event) {
  const canvas = event.currentTarget;
  const box = canvas.getBoundingClientRect();
  const [y, x] = [event.clientY - box.top - canvas.clientTop, event.clientX - box.left - canvas.clientLeft];
  return [(y / canvas.clientHeight) * map.cells.length, (x / canvas.clientWidth) * map.cells[0].length].map(Math.floor);
}

// The values of a cell are shown around its first element.
function enter() {
  if (!cell) return;
  const [[row], [column]] = ranges(cell);
  const at = shown.at.map((index, number) => (number === shown.down ? row : number === shown.across ? column : index));
  show({ at }, { push: true });
}

function listen(canvas) {
  canvas.addEventListener("pointermove", (event) => map && point(cellUnder(event)));
  canvas.addEventListener("pointerleave", () => ((cell = null), paint()));
  canvas.addEventListener("click", enter);
  canvas.addEventListener("keydown", (event) => {
    const from = cell ?? placeOf(shown.at) ?? [0, 0];
    const step = ARROWS[event.key] ?? (event.key in CHUNK ? [0, CHUNK[event.key]] : null);
    if (step) point([from[0] + step[0], from[1] + step[1]]);
    else if (event.key === "Enter" || event.key === " ") enter();
    else return;
    event.preventDefault();
  });
}

// ---- charts

function react(figure, traces, xaxis, yaxis) {
  draw(figure, traces, { margin: { l: 8, r: 12, t: 24, b: 8 }, showlegend: true, legend: { orientation: "h", y: 1.16, x: 0 }, xaxis, yaxis });
}

const FEW = 30;
const number = (value) => (typeof value === "string" ? null : value);

function drawSpread(name, histogram, series) {
  const width = (histogram.high - histogram.low) / histogram.counts[0].length;
  const x = histogram.counts[0].map((_, bin) => histogram.low + (bin + 0.5) * width);
  const shape = (which) => {
    if (series.length === 1) return { type: "bar", width, marker: { color: colour("warning") } };
    return { type: "scatter", mode: "lines", line: { shape: "hvh", width: 1.6, color: colour(which ? "error" : "pass"), dash: which ? "dot" : "solid" } };
  };
  const hovertemplate = "%{x:.4g}: %{y}<extra>%{fullData.name}</extra>";
  // Few elements are counted, many are compared in size; a logarithmic axis has no place for none.
  const most = Math.max(...histogram.counts.flat());
  const traces = histogram.counts.map((counts, which) => ({ ...shape(which), name: series[which], x, y: most < FEW ? counts : counts.map((count) => count || null), hovertemplate }));
  const few = { rangemode: "tozero", tickformat: "d", dtick: Math.max(1, Math.ceil(most / 5)) };
  react(element(name), traces, axis(""), axis(say("Elements"), most < FEW ? few : { type: "log", exponentformat: "power", dtick: 1 }));
}

function drawProfile(which) {
  const one = profiles[which];
  for (const button of element("axes").children) button.setAttribute("aria-pressed", String(button.value) === String(which));
  const x = one.norm.map((_, place) => place * one.width);
  const relative = one.norm.map((norm, place) => (norm && one.golden_norm[place] ? norm / one.golden_norm[place] : null));
  const lines = [[say("largest"), one.maximum.map(number), "error"], [say("relative L2"), relative, "pass"]];
  const mode = x.length > 64 ? "lines" : "lines+markers";
  const traces = lines.map(([name, y, tone], side) => ({ type: "scatter", mode, name, x, y: y.map((value) => value || null), line: { width: 1.5, color: colour(tone), dash: side ? "dot" : "solid" }, marker: { size: 5, symbol: side ? "diamond" : "circle" }, hovertemplate: "%{x}: %{y:.3g}<extra>%{fullData.name}</extra>" }));
  const shownValues = lines.flatMap(([, y]) => y).filter((value) => value > 0);
  const span = Math.log10(Math.max(...shownValues) / Math.min(...shownValues));
  const ticks = span > 1.5 ? { dtick: Math.ceil(span / 6) } : {}; // over less, powers of ten alone are too few
  const title = one.heads ? say("head") : say("index in dimension {axis}", { axis: one.axis });
  react(element("profile"), traces, axis(title), axis("", { type: "log", exponentformat: "power", ...ticks }));
}

function offer() {
  const names = profiles.map((one) => (one.heads ? say("Heads") : shown.dimensions[one.axis] ? `${one.axis} (${shown.dimensions[one.axis]})` : `${one.axis}`));
  element("axes").replaceChildren(...names.map((name, which) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "quiet small", value: which, textContent: name });
    button.addEventListener("click", () => drawProfile(which));
    return button;
  }));
}

async function drawCharts() {
  const about = section();
  const found = await ask("charts");
  if (about !== section()) return;
  profiles = found.profiles;
  redraw = () => {
    drawSpread("spread", found.values_histogram, [say("golden"), say("target")]);
    drawSpread("differences", found.difference_histogram, [say("target - golden")]);
    if (profiles.length) drawProfile(Math.max(0, [...element("axes").children].findIndex((button) => button.getAttribute("aria-pressed") === "true")));
    else element("profile").textContent = "";
  };
  offer();
  if (profiles.length) element("axes").children[worstAxis()].setAttribute("aria-pressed", "true");
  redraw();
}

// The dimension along which the difference is the least evenly spread says most.
function worstAxis() {
  const spread = profiles.map(({ norm }) => {
    const known = norm.filter((value) => value !== null);
    const total = Math.hypot(...known) || 1;
    return known.length ? Math.max(...known) / (total / Math.sqrt(known.length)) : 0;
  });
  return spread.indexOf(Math.max(...spread));
}

// ---- begin, again whenever another pair is shown

let redraw = () => {};

function begin() {
  [map, cell, profiles, redraw] = [null, null, null, () => {}];
  shown = read();
  if (!shown) return;
  listen(element("map"));
  drawMap();
  new ResizeObserver(() => paint()).observe(element("map"));
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    drawCharts();
  }, { rootMargin: "80px" });
  for (const name of ["profile", "spread"]) seen.observe(element(name));
}

async function load(address) {
  const newer = (await fetchPage(address).catch(explain))?.getElementById("closeup");
  if (!newer) return;
  section().replaceWith(document.adoptNode(newer));
  begin();
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = event.target.closest("#closeup a[data-at], a[data-closer-link]");
  if (!link || !section()) return;
  event.preventDefault();
  if (link.dataset.at) return show({ at: link.dataset.at.split(",").map(Number) }, { push: true });
  const address = new URL(link.href);
  history.pushState(null, "", address);
  address.hash = "";
  address.searchParams.set("closeup", "true");
  load(address).then(() => section().scrollIntoView({ block: "start" }));
});

document.addEventListener("change", (event) => {
  const form = event.target.closest(".pickers");
  if (!form || !event.target.checkValidity()) return;
  const fields = new FormData(form);
  const at = fields.getAll("at").map(Number);
  let [down, across] = [fields.get("down"), fields.get("across")].map((value) => (value === null ? null : Number(value)));
  // The same dimension cannot run both ways: the two change places.
  if (down !== null && down === across) [down, across] = event.target.name === "down" ? [down, shown.down] : [shown.across, across];
  const heads = fields.get("heads");
  const change = { at, down, across: across ?? shown.across, heads };
  show(change, { whole: event.target.name === "heads" });
  for (const [name, value] of [["down", change.down], ["across", change.across]]) if (form.elements[name]) form.elements[name].value = value;
});

document.addEventListener("submit", (event) => event.target.matches(".pickers") && event.preventDefault());

document.addEventListener("keydown", (event) => {
  if (event.target.id !== "closeup-values" || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  move(...step);
});

const again = () => (paint(), redraw());
document.addEventListener("theme", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
addEventListener("popstate", () => location.reload());

if (section()?.dataset.later) load(section().dataset.later);
else if (section()) begin();
