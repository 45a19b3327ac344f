// How a statistic of a tensor develops over steps or tokens: a line for each rank, drawn from what the page holds.

import { say } from "./lib/notice.js";
import { element } from "./lib/parts.js";
import { axis, react, whenColoursChange } from "./lib/plot.js";

const DASHES = ["solid", "dash", "dot", "dashdot"];

const figure = element("trend-chart");
const data = JSON.parse(element("trend-data").textContent ?? "");

/** @param {unknown} value NaN and infinities arrive by name, and leave a gap */
const drawable = (value) => (typeof value === "number" ? value : null);

/** @param {{name: string, points: [number | null, unknown][]}} line @param {number} number */
const trace = ({ name, points }, number) => ({
  type: "scatter",
  mode: "lines+markers",
  name: name || data.statistic,
  x: points.map(([at]) => String(at ?? "")),
  y: points.map(([, value]) => drawable(value)),
  line: { dash: DASHES[number % DASHES.length] },
  marker: { symbol: number },
  hovertemplate: `${data.axis} %{x}: %{y:.4g}<extra>${data.lines.length > 1 ? "%{fullData.name}" : ""}</extra>`,
});

function draw() {
  react(figure, data.lines.map(trace), {
    showlegend: data.lines.length > 1,
    xaxis: axis(data.axis, { type: "category" }),
    yaxis: axis(data.statistic, { exponentformat: "power" }),
  }).catch(() => (figure.textContent = say("This could not be loaded; open the page again")));
}

draw();
whenColoursChange(draw);
