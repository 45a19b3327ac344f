// How a statistic of a tensor develops over steps or tokens: a line for each rank, drawn from what the page holds.
import { say } from "./app.js";
import { axis, react } from "./plot.js";

const figure = document.getElementById("trend-chart");
const data = JSON.parse(document.getElementById("trend-data").textContent);
const DASHES = ["solid", "dash", "dot", "dashdot"];

// NaN and infinities arrive by name, and leave a gap.
const drawable = (value) => (typeof value === "number" ? value : null);

function draw() {
  const traces = data.lines.map((line, number) => ({
    type: "scatter",
    mode: "lines+markers",
    name: line.name || data.statistic,
    x: line.points.map(([at]) => (at === null ? "" : String(at))),
    y: line.points.map(([, value]) => drawable(value)),
    line: { dash: DASHES[number % DASHES.length] },
    marker: { symbol: number },
    hovertemplate: `${data.axis} %{x}: %{y:.4g}<extra>${data.lines.length > 1 ? "%{fullData.name}" : ""}</extra>`,
  }));
  react(figure, traces, {
    showlegend: traces.length > 1,
    xaxis: axis(data.axis, { type: "category" }),
    yaxis: axis(data.statistic, { exponentformat: "power" }),
  }).catch(() => (figure.textContent = say("This could not be loaded; open the page again")));
}

draw();
document.addEventListener("theme", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
