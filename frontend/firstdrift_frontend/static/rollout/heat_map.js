// Sequences by tokens: the largest difference of log-probabilities in each cell, on a logarithmic scale.

import { say } from "../lib/notice.js";
import { element } from "../lib/parts.js";
import { STOPS, axis, colour, plain, react, short, whenColoursChange, whenSeen } from "../lib/plot.js";

const figure = element("rollout-chart");
const data = JSON.parse(element("heat-data").textContent ?? "");
const finite = data.cells.flat().filter((/** @type {unknown} */ cell) => typeof cell === "number");
const sorted = finite.filter((/** @type {number} */ cell) => cell > 0).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
// A difference of 1 is dark in every map, so that a healthy one is light.
const most = Math.max(1, sorted.at(-1) ?? 1);
// Half of all cells are no worse than this, and as light as any.
const least = Math.min(sorted[sorted.length >> 1] ?? 1, most / 10);

/** @param {unknown} cell what is not finite is as dark as the worst */
const shade = (cell) => (cell === null ? null : Math.log10(typeof cell === "number" ? Math.max(least, cell) : most));

/** @param {number} column */
const place = (column) => (data.width === 1 ? `${column}` : `${column * data.width}–${(column + 1) * data.width - 1}`);

function draw() {
  const where = say("token {token}", { token: "%{customdata[2]}" });
  const here = say("look here first");
  const stops = Array.from({ length: STOPS }, (_, stop) => [stop / (STOPS - 1), colour(`heat-${stop}`)]);
  const first = Math.ceil(Math.log10(least));
  const decades = Array.from({ length: Math.floor(Math.log10(most)) - first + 1 }, (_, i) => first + i);
  const map = {
    type: "heatmap",
    z: data.cells.map((/** @type {unknown[]} */ row) => row.map(shade)),
    x: data.cells[0]?.map((/** @type {unknown} */ _, /** @type {number} */ column) => column * data.width) ?? [],
    y: data.rows.map((/** @type {unknown} */ _, /** @type {number} */ row) => row),
    customdata: data.cells.map((/** @type {unknown[]} */ row, /** @type {number} */ r) =>
      row.map((cell, column) => [data.rows[r].address, plain(data.rows[r].name), place(column), short(cell)])),
    zmin: Math.log10(least),
    zmax: Math.log10(most),
    colorscale: stops,
    colorbar: { thickness: 10, outlinewidth: 0, tickvals: decades, ticktext: decades.map((at) => short(10 ** at)), title: { text: "|Δ|" } },
    hoverongaps: false,
    hovertemplate: `%{customdata[1]}<br>${where}: |Δ| %{customdata[3]}<extra></extra>`,
  };
  const firsts = data.rows.flatMap((/** @type {any} */ row, /** @type {number} */ r) => (row.first === null ? [] : [{ row, r }]));
  const marks = {
    type: "scatter",
    mode: "markers",
    x: firsts.map((/** @type {any} */ { row }) => Math.floor(row.first / data.width) * data.width),
    y: firsts.map((/** @type {any} */ { r }) => r),
    customdata: firsts.map((/** @type {any} */ { row }) => [row.address]),
    marker: { symbol: "diamond", size: 9, color: colour("raised"), line: { color: colour("text"), width: 1.5 } },
    hovertemplate: `${here}<extra></extra>`,
  };
  const names = data.rows.map((/** @type {any} */ row) => plain(row.name, 24));
  react(figure, [map, marks], {
    showlegend: false,
    xaxis: axis(say("Token"), { showgrid: false }),
    yaxis: axis("", {
      autorange: "reversed",
      showgrid: false,
      tickvals: names.map((/** @type {string} */ _, /** @type {number} */ i) => i),
      ticktext: names,
      tickfont: { size: 10 },
    }),
  }, ([address]) => address && location.assign(address)).catch(() => {
    figure.textContent = say("This could not be loaded; open the page again");
  });
}

whenSeen([figure], draw);
whenColoursChange(draw);
