// The chart of a metric by token (or step, or rank), with its limit, on a logarithmic or a linear scale.
import { say } from "./app.js";
import { axis, colour, colourOf, decades, keepDrawn, react, sources, word } from "./plot.js";

const SYMBOLS = { error: "x", warning: "triangle-up", pass: "circle", incomparable: "circle-open", "input differs": "diamond-open" };
const figure = document.getElementById("metric-chart");

function traces(chart) {
  return chart.traces.map((trace, number) => ({
    type: "scatter",
    mode: "lines+markers",
    name: trace.name,
    x: trace.x,
    y: trace.y,
    customdata: trace.slice.map((slice, i) => [slice, trace.exact[i], word(trace.state[i])]),
    line: { color: colour("line-strong"), width: 1.5, dash: ["solid", "dash", "dot", "dashdot"][number % 4] },
    marker: {
      opacity: 1,
      size: trace.at_edge.map((edge) => (edge ? 11 : 9) / (trace.x.length > 150 ? 2 : 1)),
      color: trace.state.map(colourOf),
      symbol: trace.state.map((state, i) => (trace.at_edge[i] ? "star" : SYMBOLS[state] ?? "circle")),
    },
    hovertemplate: `${word(chart.x_title)} %{x}: %{customdata[1]}<br>%{customdata[2]}<extra></extra>`,
  }));
}

async function draw({ chart }) {
  figure.classList.toggle("is-empty", !chart);
  if (!chart) return;
  const [low, high] = chart.range;
  const limit = chart.threshold;
  await react(figure, traces(chart), {
    showlegend: chart.traces.length > 1,
    xaxis: axis(word(chart.x_title), { type: "category", showgrid: false, tickangle: 0, nticks: 16 }),
    yaxis: axis(sources().metric || chart.y_title, chart.logarithmic ? decades(low, high) : { type: "linear", range: [low, high] }),
    shapes: limit ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.value, y1: limit.value, line: { color: colour("warning"), width: 1.5, dash: "dash" } }] : [],
    annotations: limit ? [{ xref: "paper", x: 1, y: chart.logarithmic ? Math.log10(limit.value) : limit.value, text: say("limit"), showarrow: false, xanchor: "right", yanchor: "bottom", font: { color: colour("warning") } }] : [],
  }, ([slice]) => {
    for (const cell of document.querySelectorAll(".cell-link[href]")) if (new URL(cell.href).searchParams.get("slice") === String(slice)) cell.click();
  });
}

if (figure) {
  const update = keepDrawn(figure, "chart", draw);
  // The other scale is part of the address, but no reason to load the page again.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-scale]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const here = new URL(location.href);
    here.searchParams.set("scale", link.dataset.scale);
    history.replaceState(null, "", here);
    for (const other of link.parentElement.children) other.toggleAttribute("aria-current", other === link);
    link.setAttribute("aria-current", "true");
    const data = new URL(sources().chart, here);
    data.searchParams.set("scale", link.dataset.scale);
    sources().chart = data.pathname + data.search;
    update();
  });
}
