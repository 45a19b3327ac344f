// Input error against output error of the nodes of a slice; what lies above the diagonal makes the error.
import { say } from "./app.js";
import { axis, colour, decades, keepDrawn, plain, react, short, sources, word } from "./plot.js";

const figure = document.getElementById("scatter");
const note = document.getElementById("scatter-note");
const LOOKS = {
  source: ["error", "x"],
  "weights differ": ["error", "diamond"],
  "non-finite": ["error", "star"],
  "structure differs": ["error", "square"],
  amplified: ["warning", "triangle-up"],
  propagated: ["muted", "circle"],
  healed: ["pass", "triangle-down"],
  clean: ["faint", "circle-open"],
};

function edged(value, low, high) {
  return typeof value !== "number" ? high : Math.max(low, value);
}

function line(name, factor, dash, low, high) {
  return { type: "scatter", mode: "lines", name, x: [low, high / factor], y: [low * factor, high], hoverinfo: "skip", line: { color: colour("line-strong"), width: 1.5, dash } };
}

function points(data, name, code, low, high) {
  const mine = data.classes.flatMap((other, i) => (other === code ? [i] : []));
  const [tone, symbol] = LOOKS[name] ?? ["muted", "circle"];
  const errors = say("input {input}, output {output}", { input: "%{customdata[2]}", output: "%{customdata[3]}" });
  return {
    type: "scatter",
    mode: "markers",
    name: word(name),
    x: mine.map((i) => edged(data.inputs[i], low, high)),
    y: mine.map((i) => edged(data.outputs[i], low, high)),
    customdata: mine.map((i) => [data.rows[i], plain(data.names[i]), short(data.inputs[i]), short(data.outputs[i])]),
    marker: { color: colour(tone), symbol, size: tone === "error" ? 10 : 7, opacity: tone === "error" ? 1 : 0.75 },
    hovertemplate: `%{customdata[1]}<br>${errors}<br>%{fullData.name}<extra></extra>`,
  };
}

function explain(data, isAlike) {
  const said = [];
  if (!data.total && !data.with_input && data.with_output) said.push(say("Inputs could be compared of no node, as where only one of the dumps recorded them: {known} nodes have an output error alone.", { known: data.with_output }));
  else if (!data.total) said.push(say("No node of this slice has both an input error and an output error that are known."));
  else if (isAlike && data.inputs.concat(data.outputs).every((error) => error === 0)) said.push(say("Of all {total} nodes input and output agree exactly.", { total: data.total }));
  else if (isAlike) said.push(sources().from === "digest" ? say("Digests tell which nodes agree, but not by how much others are off.") : say("Where nodes do not agree, it is by NaN or infinity."));
  else if (data.shown < data.total) said.push(say("{shown} of {total} nodes: the worst, and a random sample of the others.", { shown: data.shown, total: data.total }));
  else said.push(say("{total} nodes.", { total: data.total }));
  if (data.total && data.matched > data.total) said.push(say("{left} more have no known input error or no known output error.", { left: data.matched - data.total }));
  if (!isAlike) said.push(say("On the edges: 0 or next to it (below, left), NaN or infinity (above, right)."));
  note.textContent = said.join(" ");
}

async function draw(data) {
  const isAlike = !data.range;
  explain(data, isAlike);
  figure.classList.toggle("is-empty", isAlike);
  if (isAlike) return;
  const high = data.range[1] * 4;
  // Far below rounding, differences say nothing; they would only push what matters into a corner.
  const low = Math.min(high / 100, Math.max(data.range[0] / 4, data.roundoff / 1000));
  const traces = data.class_names.map((name, code) => points(data, name, code, low, high));
  const lines = [line(say("output = input"), 1, "solid", low, high), line(say("output = {factor} x input", { factor: data.factor }), data.factor, "dot", low, high)];
  await react(figure, [...lines, ...traces], {
    showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    hovermode: "closest",
    xaxis: axis(word("input error"), decades(low / 1.3, high * 1.3)),
    yaxis: axis(word("output error"), decades(low / 1.3, high * 1.3)),
  }, ([row]) => row !== undefined && location.assign(sources().nodes + row));
}

if (figure) keepDrawn(figure, "scatter", draw);
