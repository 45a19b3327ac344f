// The difference of log-probabilities by token; those that have left the noise are marked.

import { say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { axis, colour, react, whenColoursChange, whenSeen } from "../lib/plot.js";

const figure = element("sequence-chart");
const data = JSON.parse(element("sequence-data").textContent ?? "");

/** @type {(number | null)[]} */
const values = data.differences.map((/** @type {unknown} */ one) => (typeof one === "number" ? one : null));

function draw() {
  const hovertemplate = `${data.token} %{x}: Δ %{y:.4g}<extra></extra>`;
  const line = {
    type: "scatter",
    mode: "lines+markers",
    x: values.map((_, at) => at),
    y: values,
    line: { color: colour("line-strong"), width: 1.5 },
    marker: { color: colour("pass"), size: values.length > 200 ? 3 : 5 },
    hovertemplate,
  };
  const out = {
    type: "scatter",
    mode: "markers",
    x: data.out,
    y: data.out.map((/** @type {number} */ at) => values[at]),
    marker: { color: colour("error"), symbol: "x", size: 9 },
    hovertemplate,
  };
  // What is no number has no height: it is marked on the line of 0.
  const lost = {
    type: "scatter",
    mode: "markers",
    x: data.lost,
    y: data.lost.map(() => 0),
    marker: { color: colour("error"), symbol: "diamond-open", size: 11 },
    hovertemplate: `${data.token} %{x}: ${data.not_finite}<extra></extra>`,
  };
  react(figure, [line, out, lost], {
    showlegend: false,
    xaxis: axis(data.token),
    yaxis: axis("Δ", { zeroline: true, zerolinecolor: colour("line-strong"), exponentformat: "power" }),
  }).catch(() => {
    figure.textContent = say("This could not be loaded; open the page again");
  });
}

whenSeen([figure], draw);
whenColoursChange(draw);
