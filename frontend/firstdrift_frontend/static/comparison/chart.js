// The chart of a metric by token (or step, or rank), with its limit, on a logarithmic or a linear scale.

import { say } from "../lib/notice.js";
import { around, isForBrowser } from "../lib/parts.js";
import { axis, colour, colourOf, decades, evenly, keepDrawn, react, sources, word } from "../lib/plot.js";

/** @type {Record<string, string>} */
const SYMBOLS = {
  error: "x",
  warning: "triangle-up",
  pass: "circle",
  incomparable: "circle-open",
  "input differs": "diamond-open",
};
const DASHES = ["solid", "dash", "dot", "dashdot"];

const figure = document.getElementById("metric-chart");

/** @param {any} chart */
function traces(chart) {
  return chart.traces.map((/** @type {any} */ trace, /** @type {number} */ number) => ({
    type: "scatter",
    mode: "lines+markers",
    name: trace.name.text,
    x: trace.x,
    y: trace.y,
    customdata: trace.slice.map((/** @type {number} */ slice, /** @type {number} */ i) => (
      [slice, trace.shown[i], word(trace.inside[i] ? "inside" : trace.state[i])]
    )),
    line: { color: colour("line-strong"), width: 1.5, dash: DASHES[number % DASHES.length] },
    marker: markers(trace),
    hovertemplate: `${word(chart.x_title)} %{x}: %{customdata[1]}<br>%{customdata[2]}<extra></extra>`,
  }));
}

/** @param {{at_edge: boolean[], inside: boolean[], state: string[], x: unknown[]}} trace */
function markers({ at_edge: isAtEdge, inside, state, x }) {
  const scale = x.length > 150 ? 2 : 1;
  return {
    opacity: 1,
    size: isAtEdge.map((edge) => (edge ? 11 : 9) / scale),
    color: state.map(colourOf),
    symbol: state.map((name, i) => (isAtEdge[i] ? "star" : inside[i] ? "x-open" : SYMBOLS[name] ?? "circle")),
  };
}

/** @param {any} chart */
function limit(chart) {
  if (!chart.threshold) return { shapes: [], annotations: [] };
  const { value } = chart.threshold;
  const tone = colour("warning");
  const line = { color: tone, width: 1.5, dash: "dash" };
  const text = { text: say("limit"), font: { color: tone }, showarrow: false, xanchor: "right", yanchor: "bottom" };
  return {
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line }],
    annotations: [{ ...text, xref: "paper", x: 1, y: chart.logarithmic ? Math.log10(value) : value }],
  };
}

/** @param {number} slice */
function openSlice(slice) {
  for (const cell of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".cell-link[href]"))) {
    if (new URL(cell.href).searchParams.get("slice") === String(slice)) cell.click();
  }
}

/** @param {HTMLElement} target @returns {(data: any) => unknown} */
const drawIn = (target) => ({ chart }) => {
  target.classList.toggle("is-empty", !chart);
  if (!chart) return;
  const [low, high] = chart.range;
  const scale = chart.logarithmic
    ? decades(low, high, chart.is_error)
    : chart.is_error ? evenly(low, high) : { type: "linear", range: [low, high] };
  return react(target, traces(chart), {
    showlegend: chart.traces.length > 1,
    xaxis: axis(word(chart.x_title), { type: "category", showgrid: false, tickangle: 0, nticks: 16 }),
    yaxis: axis(sources().metric || chart.y_title.text, scale),
    ...limit(chart),
  }, ([slice]) => openSlice(slice));
};

/**
 * The other scale is part of the address, but no reason to load the page again.
 * @param {HTMLElement} link
 */
function chooseScale(link) {
  const scale = link.dataset.scale ?? "";
  const here = new URL(location.href);
  here.searchParams.set("scale", scale);
  history.replaceState(null, "", here);
  for (const other of link.parentElement?.children ?? []) other.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  const data = new URL(sources().chart ?? "", here);
  data.searchParams.set("scale", scale);
  sources().chart = data.pathname + data.search;
}

if (figure) {
  const update = keepDrawn(figure, "chart", drawIn(figure));
  document.addEventListener("click", (event) => {
    const link = around(event, "a[data-scale]");
    if (!link || isForBrowser(event)) return;
    event.preventDefault();
    chooseScale(link);
    update();
  });
}
