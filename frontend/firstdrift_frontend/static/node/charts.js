// Charts of a pair: how the values and their differences are spread, and the difference along each dimension.

import { say } from "../lib/notice.js";
import { axis, colour, error, react, short } from "../lib/plot.js";
import { ask, part, section, shown } from "./pair.js";

/**
 * @typedef {object} Profile the difference along a dimension, in steps of `width`
 * @property {number} axis
 * @property {boolean} heads
 * @property {number} width
 * @property {(number | null)[]} norm
 * @property {(number | null)[]} golden_norm
 * @property {(number | string | null)[]} maximum
 * @typedef {{low: number, high: number, counts: number[][]}} Histogram
 */

const FEW = 30; // elements, which are counted; many are compared in size
const NONE = 0.5; // where a logarithmic axis begins, on which no bin is empty otherwise
const MOST_MARKED = 64; // points of a line

/** @param {string} name @param {object[]} traces @param {object} xaxis @param {object} yaxis */
function draw(name, traces, xaxis, yaxis) {
  return react(part(name), traces, {
    margin: { l: 8, r: 12, t: 24, b: 8 },
    showlegend: true,
    legend: { orientation: "h", y: 1.16, x: 0 },
    xaxis,
    yaxis,
  });
}

/** @param {string} name @param {Histogram} histogram @param {string[]} series */
function drawSpread(name, { low, high, counts }, series) {
  const width = (high - low) / counts[0].length;
  const x = counts[0].map((_, bin) => low + (bin + 0.5) * width);
  const most = Math.max(...counts.flat());
  const isFew = most < FEW;
  /** @param {number} which */
  const look = (which) => {
    if (series.length === 1) return { type: "bar", width, marker: { color: colour("warning") } };
    const line = { shape: "hvh", width: 1.6, color: colour(which ? "error" : "pass"), dash: which ? "dot" : "solid" };
    return { type: "scatter", mode: "lines", line };
  };
  const traces = counts.map((some, which) => ({
    ...look(which),
    name: series[which],
    x,
    y: isFew ? some : some.map((count) => count || NONE),
    customdata: some,
    hovertemplate: "%{x:.4g}: %{customdata}<extra>%{fullData.name}</extra>",
  }));
  const few = { rangemode: "tozero", tickformat: "d", dtick: Math.max(1, Math.ceil(most / 5)) };
  const many = { type: "log", exponentformat: "power", dtick: 1, range: [Math.log10(NONE), Math.log10(most) + 0.1] };
  return draw(name, traces, axis(""), axis(say("Elements"), isFew ? few : many));
}

/** @param {Profile} profile */
function drawProfile({ axis: dimension, heads, width, norm, golden_norm: golden, maximum }) {
  const x = norm.map((_, place) => place * width);
  const relative = norm.map((value, place) => (value && golden[place] ? value / golden[place] : null));
  const largest = maximum.map((value) => (typeof value === "string" ? null : value));
  /** @param {string} name @param {(number | null)[]} values @param {string} tone @param {boolean} isFirst @param {(value: unknown) => string} [write] */
  const trace = (name, values, tone, isFirst, write = short) => ({
    type: "scatter",
    mode: x.length > MOST_MARKED ? "lines" : "lines+markers",
    name,
    x,
    y: values.map((value) => value || null),
    line: { width: 1.5, color: colour(tone), dash: isFirst ? "solid" : "dot" },
    marker: { size: 5, symbol: isFirst ? "circle" : "diamond" },
    customdata: values.map(write),
    hovertemplate: "%{x}: %{customdata}<extra>%{fullData.name}</extra>",
  });
  const traces = [trace(say("largest |target - golden|"), largest, "error", true), trace(say("relative L2"), relative, "pass", false, error)];
  const drawn = [...largest, ...relative].filter((value) => value !== null && value > 0);
  const span = Math.log10(Math.max(.../** @type {number[]} */ (drawn)) / Math.min(.../** @type {number[]} */ (drawn)));
  const ticks = span > 1.5 ? { dtick: Math.ceil(span / 6) } : {}; // over less, powers of ten alone are too few
  const title = heads ? say("head") : say("index in dimension {axis}", { axis: dimension });
  return draw("profile", traces, axis(title), axis("", { type: "log", exponentformat: "power", ...ticks }));
}

/**
 * Find the dimension along which the difference is the least evenly spread: it says most.
 * @param {Profile[]} profiles
 */
export function worstAxis(profiles) {
  const spread = profiles.map(({ norm }) => {
    const known = /** @type {number[]} */ (norm.filter((value) => value !== null));
    const total = Math.hypot(...known) || 1;
    return known.length ? Math.max(...known) / (total / Math.sqrt(known.length)) : 0;
  });
  return spread.indexOf(Math.max(...spread));
}

const drawn = {
  /** @type {Profile[]} */
  profiles: [],
  chosen: 0,
  redraw: () => {},
};

/** Forget what is drawn: another pair is shown. */
export const forgetCharts = () => Object.assign(drawn, { profiles: [], chosen: 0, redraw: () => {} });

/** Draw what is drawn anew, in other colours. */
export const redrawCharts = () => drawn.redraw();

/** @param {number} which */
function choose(which) {
  drawn.chosen = which;
  [...part("axes").children].forEach((button, at) => button.setAttribute("aria-pressed", String(at === which)));
  return drawProfile(drawn.profiles[which]);
}

function offer() {
  const { dimensions } = shown();
  part("axes").replaceChildren(...drawn.profiles.map(({ axis: dimension, heads }, which) => {
    const named = dimensions[dimension] ? `${dimension} (${dimensions[dimension]})` : `${dimension}`;
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "quiet small",
      value: String(which),
      textContent: heads ? say("Heads") : named,
    });
    button.addEventListener("click", () => void choose(which));
    return button;
  }));
}

/** Draw all charts of the pair. */
export async function drawCharts() {
  const about = section();
  const found = await ask("charts");
  if (about !== section()) return;
  drawn.profiles = found.profiles;
  drawn.chosen = worstAxis(drawn.profiles);
  drawn.redraw = () => {
    drawSpread("spread", found.values_histogram, [say("golden"), say("target")]);
    drawSpread("differences", found.difference_histogram, [say("target - golden")]);
    if (drawn.profiles.length) choose(drawn.chosen);
    else part("profile").textContent = "";
  };
  offer();
  drawn.redraw();
}
