// Input error against output error of the nodes of a slice; what lies above the diagonal makes the error.

import { say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { axis, colour, decades, error, errorFrom, keepDrawn, plain, react, sources, word } from "../lib/plot.js";

const figure = document.getElementById("scatter");

/** @type {Record<string, [string, string]>} tone and symbol by class */
const LOOKS = {
  source: ["error", "x"],
  "unexplained input": ["error", "cross"],
  "weights differ": ["error", "diamond"],
  "non-finite": ["error", "star"],
  "argument differs": ["error", "square"],
  "structure differs": ["error", "square-open"],
  "gradient missing": ["error", "hexagon"],
  amplified: ["warning", "triangle-up"],
  propagated: ["muted", "circle"],
  "begins inside": ["muted", "circle-cross-open"],
  "from other ranks": ["muted", "circle-x-open"],
  healed: ["pass", "triangle-down"],
  clean: ["faint", "circle-open"],
};

/**
 * @typedef {[number, number]} Range
 * @param {unknown} value
 * @param {Range} range
 */
const edged = (value, [low, high]) => (typeof value !== "number" ? high : Math.max(low, value));

/** @param {string} name @param {number} factor @param {string} dash @param {Range} range */
function line(name, factor, dash, [low, high]) {
  return {
    type: "scatter",
    mode: "lines",
    name,
    x: [low, high / factor],
    y: [low * factor, high],
    hoverinfo: "skip",
    line: { color: colour("line-strong"), width: 1.5, dash },
  };
}

/** @param {any} data @param {string} name @param {number} code @param {Range} range */
function points(data, name, code, range) {
  /** @type {number[]} */
  const mine = data.shown_classes.flatMap((/** @type {number} */ other, /** @type {number} */ i) => (other === code ? [i] : []));
  const [tone, symbol] = LOOKS[name] ?? ["muted", "circle"];
  const errors = say("input {input}, output {output}", { input: "%{customdata[2]}", output: "%{customdata[3]}" });
  return {
    type: "scatter",
    mode: "markers",
    // Classes are of our rules, whichever give the verdicts.
    name: data.rules === "firstdrift" ? word(name) : `${word(name)} ${word("(firstdrift)")}`,
    x: mine.map((i) => edged(data.inputs[i], range)),
    y: mine.map((i) => edged(data.outputs[i], range)),
    customdata: mine.map((i) => [data.rows[i], plain(data.names[i]), ...[data.inputs[i], data.outputs[i]].map((one) => errorFrom(one, data.kinds[i]))]),
    marker: { color: colour(tone), symbol, size: tone === "error" ? 10 : 7, opacity: tone === "error" ? 1 : 0.75 },
    hovertemplate: `%{customdata[1]}<br>${errors}<br>%{fullData.name}<extra></extra>`,
  };
}

/** @param {any} data @param {boolean} isAlike @returns what can be seen, and why not more */
function summary(data, isAlike) {
  const { total, with_input: withInput, with_output: known, shown } = data;
  if (!total && !withInput && known) {
    return say("No inputs were compared (one dump may lack them): {known} nodes have an output error only.", { known });
  }
  if (!total) return say("No node of this slice has both an input error and an output error.");
  if (isAlike && data.inputs.concat(data.outputs).every((/** @type {unknown} */ error) => error === 0)) {
    return say("Inputs and outputs of all {total} nodes are equal.", { total });
  }
  if (isAlike && sources().from === "digest") return say("Digests show which nodes match, not how large the other errors are.");
  if (isAlike) return say("All nodes that do not match have NaN or infinity.");
  if (shown < total) return say("{shown} of {total} nodes: the largest errors, and a random sample of the rest.", { shown, total });
  return say("{total} nodes are drawn.", { total });
}

/** @param {any} data @param {boolean} isAlike */
function explain(data, isAlike) {
  const left = data.matched - data.total;
  const said = [summary(data, isAlike)];
  if (data.total && left > 0) said.push(say("{left} more have no input error or no output error.", { left }));
  if (!isAlike) said.push(say("Points on the left or lower edge have an error of zero or near zero; on the right or upper edge, NaN or infinity."));
  element("scatter-note").textContent = said.join(" ");
}

/** @param {HTMLElement} target @returns {(data: any) => unknown} */
const drawIn = (target) => (data) => {
  const isAlike = !data.range;
  explain(data, isAlike);
  target.classList.toggle("is-empty", isAlike);
  if (isAlike) return;
  const { limit } = data;
  const high = Math.max(data.range[1], limit ?? 0) * 4;
  // Far below rounding and the limit, differences say nothing; they would only push what matters into a corner.
  const low = Math.min(high / 100, limit ? limit / 2 : high, Math.max(data.range[0] / 4, data.roundoff / 1000));
  /** @type {Range} */
  const range = [low, high];
  const { factor } = data;
  const lines = [
    line(say("output = input"), 1, "solid", range),
    line(say("output = {factor} x input", { factor }), factor, "dot", range),
  ];
  if (limit) lines.push({ ...line(say("common limit {value}", { value: error(limit) }), 1, "dash", range), y: [limit, limit], x: range });
  const traces = data.shown_names.map((/** @type {string} */ name, /** @type {number} */ code) => points(data, name, code, range));
  return react(target, [...lines, ...traces], {
    showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    hovermode: "closest",
    xaxis: axis(word("input error"), decades(low / 1.3, high * 1.3, true)),
    yaxis: axis(word("output error"), decades(low / 1.3, high * 1.3, true)),
  }, ([row]) => row !== undefined && location.assign(`${sources().nodes}${row}`));
};

if (figure) keepDrawn(figure, "scatter", drawIn(figure));
