// The map of layers: a canvas, quick for a thousand slices by a hundred layers. Where there are more cells
// than pixels, each pixel shows the worst of its cells. Plotly draws the part that is zoomed into.
import { say } from "./app.js";
import { axis, colour, keepDrawn, plain, react, short, sources, word } from "./plot.js";

const figure = document.getElementById("heat-map");
const canvas = figure?.querySelector("canvas");
const tip = figure?.querySelector(".tip");
const legend = document.getElementById("heat-legend");
const zoomed = document.getElementById("heat-zoom");
const [STOPS, ABSENT, UNKNOWN] = [5, -2, -1];
const [MOST_ROWS, MOST_NAMED] = [120, 500]; // of a zoomed part: rows, and cells with their values written in
const BOTTOM = 36;

let map = null; // what is drawn: the data, and what is computed from them once
let cursor = null; // [row, column]
let anchor = null; // where a selection began
let pressed = null;

function sizeOf(error, verdict) {
  if (verdict === null) return ABSENT;
  if (error === null) return UNKNOWN;
  return typeof error === "number" ? error : Infinity;
}

function prepare(data) {
  const [rows, columns] = [Math.max(data.rows.length, data.expected), data.layers.length];
  const sizes = new Float64Array(rows * columns).fill(ABSENT);
  data.errors.forEach((row, r) => row.forEach((error, c) => (sizes[r * columns + c] = sizeOf(error, data.verdicts[r][c]))));
  const tails = data.layers.map((name) => name.split(".").at(-1));
  const high = data.range ? Math.log10(data.range[1]) : 0;
  const low = data.range ? Math.max(Math.min(Math.log10(data.range[0]), high - 1), high - 12) : -1;
  return { data, rows, columns, sizes, low, high, layers: new Set(tails).size === tails.length ? tails : data.layers };
}

// The colours as bytes: 256 steps from the stops of the style sheet, whose lightness only grows (or only
// falls), then those of what has no place on the scale.
const SPECIAL = ["heat-equal", "heat-nan", "line"];

function palette() {
  const context = new OffscreenCanvas(256 + SPECIAL.length, 1).getContext("2d");
  const gradient = context.createLinearGradient(0, 0, 256, 0);
  for (let stop = 0; stop < STOPS; stop++) gradient.addColorStop(stop / (STOPS - 1), colour(`heat-${stop}`));
  context.fillStyle = gradient;
  context.fillRect(0, 0, 256, 1);
  SPECIAL.forEach((name, i) => {
    context.fillStyle = colour(name);
    context.fillRect(256 + i, 0, 1, 1);
  });
  return new Uint32Array(context.getImageData(0, 0, 256 + SPECIAL.length, 1).data.buffer);
}

function colours() {
  return { palette: palette(), text: colour("text"), muted: colour("muted"), accent: colour("accent"), surface: colour("surface") };
}

function shade(size) {
  if (size === 0) return map.shades.palette[256];
  if (size === Infinity) return map.shades.palette[257];
  if (size === UNKNOWN) return map.shades.palette[258];
  if (size === ABSENT) return 0;
  return map.shades.palette[Math.round(255 * Math.min(1, Math.max(0, (Math.log10(size) - map.low) / (map.high - map.low))))];
}

function labelOf(row) {
  const found = map.data.rows[row];
  if (!found) return say("not done yet");
  const named = ["step", "rank", "ranks", "token", "micro_step"].filter((name) => found[name] !== undefined && found[name] !== null);
  return named.map((name) => `${word(name)} ${[found[name]].flat().join("+")}`).join(", ") || word("the only slice");
}

// Where things are, in pixels of the page.
function geometry() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  return { left: map.left, width: width - map.left - 6, height: height - BOTTOM };
}

// Cut `count` cells into as many bins as there are pixels for, at most: [first, behind].
function bins(count, pixels) {
  const many = Math.max(1, Math.min(count, Math.floor(pixels)));
  return Array.from({ length: many }, (_, i) => [Math.floor((i * count) / many), Math.floor(((i + 1) * count) / many)]);
}

function worst([r0, r1], [c0, c1]) {
  let best = [r0, c0];
  for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) if (map.sizes[r * map.columns + c] > map.sizes[best[0] * map.columns + best[1]]) best = [r, c];
  return best;
}

// The cells and their labels, drawn once for each size of the window: what moves is drawn over them.
function paintCells(scale) {
  const context = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  context.font = `${12 * scale}px ${getComputedStyle(document.body).fontFamily}`;
  const every = Math.max(1, Math.ceil(map.rows / 60));
  const widths = map.data.rows.filter((_, row) => row % every === 0).map((_, i) => context.measureText(labelOf(i * every)).width / scale);
  map.left = Math.min(190, Math.max(40, ...widths) + 12);
  const { left, width, height } = geometry();
  const [across, down] = [bins(map.columns, width * scale), bins(map.rows, height * scale)];
  const cells = new OffscreenCanvas(across.length, down.length);
  const image = new ImageData(across.length, down.length);
  const pixels = new Uint32Array(image.data.buffer);
  down.forEach((rows, y) => across.forEach((columns, x) => {
    const [r, c] = worst(rows, columns);
    pixels[y * across.length + x] = shade(map.sizes[r * map.columns + c]);
  }));
  cells.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, left * scale, 0, width * scale, height * scale);
  if (width / map.columns > 5 && height / map.rows > 5) {
    context.fillStyle = map.shades.surface;
    for (let column = 1; column < map.columns; column++) context.fillRect(Math.round((left + (column * width) / map.columns) * scale), 0, scale, height * scale);
    for (let row = 1; row < map.rows; row++) context.fillRect(left * scale, Math.round(((row * height) / map.rows) * scale), width * scale, scale);
  }
  paintLabels(context, scale);
  return context.canvas;
}

function paint() {
  if (!map || !canvas.clientWidth) return;
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale].map(Math.round);
  if (canvas.width !== width || canvas.height !== height || !map.painted) {
    Object.assign(canvas, { width, height });
    map.painted = paintCells(scale);
  }
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  context.drawImage(map.painted, 0, 0);
  const first = map.data.first;
  if (first) outline(context, scale, [first.row, first.layer], [first.row, first.layer], map.shades.text, 2, map.shades.surface);
  if (anchor && cursor) outline(context, scale, anchor, cursor, map.shades.accent, 1.5);
  if (cursor && (document.activeElement === canvas || tip.hasAttribute("data-on"))) outline(context, scale, cursor, cursor, map.shades.accent, 2);
}

// The next of 1, 2, 5, 10, 20, 50, ... labels are written at.
function round(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * [1, 2, 5, 10].find((digit) => digit * power >= step);
}

// Names are told apart by their ends; of one without end, no more is looked at than may fit.
const LONGEST = 100; // characters
function fitting(context, name, most) {
  const characters = [...name.slice(-2 * LONGEST)].slice(-LONGEST);
  let [kept, cut] = [characters, name.length > characters.join("").length ? "…" : ""];
  for (; kept.length > 1 && context.measureText(cut + kept.join("")).width > most; cut = "…") kept = kept.slice(1);
  return cut + kept.join("");
}

function paintLabels(context, scale) {
  const { left, width, height } = geometry();
  const longest = Math.max(...map.layers.map((name) => context.measureText(name).width)) / scale;
  const step = { x: round(Math.ceil(Math.min(longest + 8, 90) / (width / map.columns))), y: round(Math.ceil(14 / (height / map.rows))) };
  context.fillStyle = map.shades.muted;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (let row = 0; row < map.data.rows.length; row += step.y) context.fillText(fitting(context, labelOf(row), (left - 8) * scale), (left - 6) * scale, Math.max(7, ((row + 0.5) * height) / map.rows) * scale);
  context.textAlign = "center";
  for (let column = 0; column < map.columns; column += step.x) context.fillText(fitting(context, map.layers[column], 90 * scale), (left + ((column + 0.5) * width) / map.columns) * scale, (height + 10) * scale);
  context.fillText(word("layer"), (left + width / 2) * scale, (height + 27) * scale);
}

function outline(context, scale, one, other, stroke, thick, around) {
  const { left, width, height } = geometry();
  const [cell, row] = [(width / map.columns) * scale, (height / map.rows) * scale];
  let [x, y] = [left * scale + Math.min(one[1], other[1]) * cell, Math.min(one[0], other[0]) * row];
  let [w, h] = [(Math.abs(one[1] - other[1]) + 1) * cell, (Math.abs(one[0] - other[0]) + 1) * row];
  const least = 7 * scale; // seen, however small the cells are
  if (w < least) [x, w] = [x - (least - w) / 2, least];
  if (h < least) [y, h] = [Math.max(1, y - (least - h) / 2), least];
  if (around) {
    context.strokeStyle = around;
    context.lineWidth = (thick + 2) * scale;
    context.strokeRect(x, y, w - 1, h - 1);
  }
  context.strokeStyle = stroke;
  context.lineWidth = thick * scale;
  context.strokeRect(x, y, w - 1, h - 1);
}

// The cell under the pointer; of several under one pixel, the worst.
function under(event) {
  const box = canvas.getBoundingClientRect();
  const { left, width, height } = geometry();
  const place = (at, size, count) => {
    const from = Math.floor((at / size) * count);
    return [from, Math.max(from + 1, Math.floor(((at + 1) / size) * count))].map((one) => Math.min(count, Math.max(0, one)));
  };
  const [x, y] = [event.clientX - box.left - left, event.clientY - box.top];
  if (x < 0 || y < 0 || x >= width || y >= height) return null;
  return worst(place(Math.floor(y), height, map.rows), place(Math.floor(x), width, map.columns));
}

function address([row, column]) {
  const { data } = map;
  const slice = data.slices[row]?.[column];
  return slice === undefined || slice === null ? null : `${sources().page}/s/${slice}/tree?row=${data.nodes[row][column]}`;
}

function describe([row, column]) {
  const { data } = map;
  const error = data.errors[row]?.[column];
  const verdict = data.verdicts[row]?.[column];
  const where = `${labelOf(row)}, ${data.layers[column]}`;
  if (verdict === undefined || verdict === null) return [where, row < data.rows.length ? say("not there") : say("not done yet")];
  const isFirst = data.first?.row === row && data.first?.layer === column;
  return [
    where,
    error === null ? say("error not known") : sources().from === "digest" ? (error === 0 ? say("equal") : say("differs")) : sources().from === "statistics" ? say("output error at least {error}", { error: short(error) }) : say("output error {error}", { error: short(error) }),
    `${word(data.verdict_names[verdict])}, ${word(data.class_names[data.classes[row][column]])}`,
    ...(isFirst ? [say("the first bad node lies here")] : []),
    ...(data.rows[row].states.includes("input differs") ? [say("its input differs already")] : []),
  ];
}

function showTip(cell) {
  cursor = cell ?? cursor;
  tip.toggleAttribute("data-on", Boolean(cell));
  if (cell) {
    const { left, width, height } = geometry();
    const x = left + ((cell[1] + 0.5) * width) / map.columns;
    const y = ((cell[0] + 1) * height) / map.rows;
    const lines = describe(cell);
    if (tip.textContent !== lines.join("")) tip.replaceChildren(...lines.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
    tip.style.setProperty("--x", `${Math.min(x, left + width - 130)}px`);
    tip.style.setProperty("--y", `${y + 8}px`);
  }
  paint();
}

function swatch(text, name) {
  const span = document.createElement("span");
  const box = Object.assign(document.createElement("i"), { className: `swatch ${name}` });
  span.append(box, text);
  return span;
}

function showLegend() {
  const { data, low, high, sizes } = map;
  const parts = [];
  if (data.range) {
    const scale = Object.assign(document.createElement("span"), { className: "scale" });
    const bar = document.createElement("i");
    scale.append(short(10 ** low), bar, short(10 ** high));
    parts.push(scale);
  }
  if (sizes.includes(0)) parts.push(swatch(say("equal"), "equal"));
  if (sizes.includes(Infinity)) parts.push(swatch(sources().from === "digest" ? say("differs") : say("NaN or infinity"), "infinite"));
  if (sizes.includes(UNKNOWN)) parts.push(swatch(say("error not known"), "unknown"));
  if (data.first) parts.push(swatch(say("first bad"), "first"));
  legend.replaceChildren(...parts);
}

function selection() {
  if (anchor && cursor) return [Math.min(anchor[0], cursor[0]), Math.max(anchor[0], cursor[0]), Math.min(anchor[1], cursor[1]), Math.max(anchor[1], cursor[1])];
  const first = map.data.first;
  const [row, column] = cursor ?? (first ? [first.row, first.layer] : [0, 0]);
  return [Math.max(0, row - 8), Math.min(map.data.rows.length - 1, row + 8), Math.max(0, column - 12), Math.min(map.columns - 1, column + 12)];
}

function remember(part) {
  const here = new URL(location.href);
  if (part) here.searchParams.set("zoom", part.join("."));
  else here.searchParams.delete("zoom");
  history.replaceState(null, "", here);
}

async function zoom(part) {
  const [r0, c0, c1] = [Math.max(0, part[0]), Math.max(0, part[2]), Math.min(part[3], map.columns - 1)];
  const r1 = Math.min(part[1], map.data.rows.length - 1, r0 + MOST_ROWS - 1);
  if (!(r1 >= r0 && c1 >= c0)) return;
  const { data, low, high } = map;
  const rows = data.rows.slice(r0, r1 + 1).map((_, i) => i + r0);
  const columns = data.layers.slice(c0, c1 + 1).map((_, i) => i + c0);
  const value = (r, c) => map.sizes[r * map.columns + c];
  const target = zoomed.querySelector("figure");
  zoomed.hidden = false;
  target.style.setProperty("--rows", rows.length);
  remember([r0, r1, c0, c1]);
  const cells = (of) => rows.map((r) => columns.map((c) => of(r, c)));
  const shared = {
    type: "heatmap",
    x: columns.map((c) => map.layers[c]),
    y: rows.map((r) => plain(labelOf(r))),
    customdata: cells((r, c) => [address([r, c]), describe([r, c]).map((text) => plain(text)).join("<br>")]),
    texttemplate: rows.length * columns.length <= MOST_NAMED && columns.length <= 24 ? "%{text}" : "",
    hovertemplate: "%{customdata[1]}<extra></extra>",
    hoverongaps: false,
    xgap: 1,
    ygap: 1,
    showscale: false,
  };
  // Plotly writes the text of cells without a value, too; each layer names its own only.
  const named = (isMine) => cells((r, c) => (isMine(value(r, c)) ? short(data.errors[r]?.[c]) : ""));
  const isScaled = (size) => size > 0 && size < Infinity;
  const special = (size, name) => ({ ...shared, text: named((other) => other === size), z: cells((r, c) => (value(r, c) === size ? 1 : null)), colorscale: [[0, colour(name)], [1, colour(name)]], zmin: 0, zmax: 1 });
  const scaled = { ...shared, text: named(isScaled), z: cells((r, c) => (isScaled(value(r, c)) ? Math.log10(value(r, c)) : null)), zmin: low, zmax: high };
  scaled.colorscale = Array.from({ length: STOPS }, (_, stop) => [stop / (STOPS - 1), colour(`heat-${stop}`)]);
  await react(target, [special(UNKNOWN, "line"), special(0, "heat-equal"), special(Infinity, "heat-nan"), scaled], {
    xaxis: axis(word("layer"), { type: "category", showgrid: false }),
    yaxis: axis("", { type: "category", showgrid: false, autorange: "reversed" }),
  }, ([place]) => place && location.assign(place));
}

function closeZoom() {
  if (zoomed.hidden) return false;
  if (zoomed.contains(document.activeElement)) canvas.focus();
  zoomed.hidden = true;
  anchor = null;
  paint();
  remember(null);
  return true;
}

function move(rows, columns, isSelecting) {
  const from = cursor ?? [0, 0];
  if (isSelecting) anchor ??= from;
  else anchor = null;
  showTip([Math.min(map.rows - 1, Math.max(0, from[0] + rows)), Math.min(map.columns - 1, Math.max(0, from[1] + columns))]);
}

const KEYS = {
  ArrowUp: (shift) => move(-1, 0, shift),
  ArrowDown: (shift) => move(1, 0, shift),
  ArrowLeft: (shift) => move(0, -1, shift),
  ArrowRight: (shift) => move(0, 1, shift),
  PageUp: (shift) => move(-10, 0, shift),
  PageDown: (shift) => move(10, 0, shift),
  Home: (shift) => move(0, -map.columns, shift),
  End: (shift) => move(0, map.columns, shift),
  Enter: () => cursor && address(cursor) && location.assign(address(cursor)),
  z: () => zoom(selection()),
  Escape: () => {
    anchor = null;
    if (!closeZoom()) showTip(null);
  },
};

function watch() {
  canvas.addEventListener("keydown", (event) => {
    const act = !event.ctrlKey && !event.metaKey && !event.altKey && map && KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act(event.shiftKey);
  });
  canvas.addEventListener("focus", () => {
    if (!map || pressed) return;
    const first = map.data.first;
    showTip(cursor ?? (first ? [first.row, first.layer] : [0, 0]));
  });
  canvas.addEventListener("blur", () => showTip(null));
  canvas.addEventListener("pointermove", (event) => {
    if (!map) return;
    const cell = under(event);
    canvas.style.cursor = cell && address(cell) ? "pointer" : "default";
    if (pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 5) anchor = pressed.cell;
    if (cell || !pressed) showTip(cell);
  });
  canvas.addEventListener("pointerleave", () => !pressed && showTip(null));
  canvas.addEventListener("pointerdown", (event) => {
    const cell = map && !event.button && under(event);
    if (!cell) return;
    pressed = { cell, x: event.clientX, y: event.clientY };
    anchor = null;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const from = pressed;
    pressed = null;
    if (!from) return;
    if (anchor) zoom(selection());
    else if (event.ctrlKey || event.metaKey) window.open(address(from.cell) ?? "#");
    else if (address(from.cell)) location.assign(address(from.cell));
  });
  document.addEventListener("click", (event) => {
    if (map && event.target.closest("[data-zoom]")) zoom(selection());
    if (event.target.closest("[data-close-zoom]")) closeZoom();
  });
  new ResizeObserver(paint).observe(canvas);
}

async function draw(data) {
  if (!data.layers.length) return;
  map = prepare(data);
  map.shades = colours();
  if (cursor && (cursor[0] >= map.rows || cursor[1] >= map.columns)) cursor = null;
  figure.style.setProperty("--rows", map.rows);
  figure.querySelector(".chart-wait")?.remove();
  showLegend();
  paint();
  figure.dataset.drawn = "yes";
  const part = new URL(location.href).searchParams.get("zoom")?.split(".").map(Number);
  if (part?.length === 4 && part.every(Number.isInteger)) await zoom(part);
}

if (figure) {
  watch();
  keepDrawn(figure, "layers", draw);
}
