// The chart of a metric by token. Plotly is loaded when a chart first comes into view, and never before.

const SYMBOLS = { error: "x", warning: "triangle-up", pass: "circle", incomparable: "circle-open", "input differs": "diamond-open" };
let plotly = null;

function load(address) {
  plotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return plotly;
}

// light-dark() colours become plain ones here, which Plotly needs.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function colourOf(state) {
  return colour({ error: "error", warning: "warning", pass: "pass", incomparable: "incomparable" }[state] ?? "unmatched");
}

function traces(chart) {
  return chart.traces.map((trace) => ({
    type: "scatter",
    mode: "lines+markers",
    name: trace.name,
    x: trace.x,
    y: trace.y,
    customdata: trace.slice.map((slice, i) => [slice, trace.exact[i], trace.state[i]]),
    line: { color: colour("line-strong"), width: 1.5 },
    marker: {
      opacity: 1,
      size: trace.at_edge.map((edge) => (edge ? 11 : 9)),
      color: trace.state.map(colourOf),
      symbol: trace.state.map((state, i) => (trace.at_edge[i] ? "star" : SYMBOLS[state] ?? "circle")),
    },
    hovertemplate: `${chart.x_title} %{x}: %{customdata[1]}<br>%{customdata[2]}<extra></extra>`,
  }));
}

function layout(chart) {
  const axis = { gridcolor: colour("line"), zeroline: false, tickcolor: colour("line"), linecolor: colour("line"), automargin: true };
  const [low, high] = chart.range;
  const range = chart.logarithmic ? [Math.log10(low), Math.log10(high)] : [low, high];
  const limit = chart.threshold;
  return {
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    showlegend: chart.traces.length > 1,
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { color: colour("text") } },
    xaxis: { ...axis, title: { text: chart.x_title }, type: "category" },
    yaxis: { ...axis, title: { text: chart.y_title }, type: chart.logarithmic ? "log" : "linear", range, exponentformat: "power", dtick: chart.logarithmic ? Math.max(1, Math.round((range[1] - range[0]) / 5)) : undefined },
    shapes: limit ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.value, y1: limit.value, line: { color: colour("warning"), width: 1.5, dash: "dash" } }] : [],
  };
}

// A map of slices and layers: the darker, the larger the error.
function mapTrace(chart) {
  const [low, high] = chart.range;
  const powers = [];
  for (let power = Math.ceil(low); power <= Math.floor(high); power++) powers.push(power);
  return {
    type: "heatmap",
    x: chart.x,
    y: chart.y,
    z: chart.z,
    customdata: chart.address.map((row, i) => row.map((address, j) => [address, chart.exact[i][j], chart.verdict[i][j]])),
    zmin: low,
    zmax: high,
    xgap: 1,
    ygap: 1,
    hoverongaps: false,
    colorscale: [[0, colour("pass-soft")], [0.5, colour("warning")], [1, colour("error")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickvals: powers, ticktext: powers.map((power) => `10<sup>${power}</sup>`) },
    hovertemplate: "%{y}, %{x}<br>%{customdata[1]} (%{customdata[2]})<extra></extra>",
  };
}

function mapLayout(chart) {
  const axis = { showgrid: false, zeroline: false, automargin: true, type: "category" };
  const tails = chart.x.map((name) => name.split(".").at(-1));
  return {
    margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { color: colour("text") } },
    xaxis: { ...axis, title: { text: "layer" }, tickmode: "array", tickvals: chart.x, ticktext: new Set(tails).size === tails.length ? tails : chart.x },
    yaxis: { ...axis, autorange: "reversed" },
  };
}

async function draw(figure) {
  const data = document.getElementById(figure.dataset.chartId);
  const chart = JSON.parse(data.textContent);
  const Plotly = await load(figure.dataset.chart);
  if (!figure.isConnected) return;
  figure.replaceChildren();
  const isMap = chart.kind === "map";
  const [drawn, axes] = isMap ? [[mapTrace(chart)], mapLayout(chart)] : [traces(chart), layout(chart)];
  await Plotly.react(figure, drawn, axes, { responsive: true, displaylogo: false, displayModeBar: false });
  figure.dataset.drawn = "yes";
  figure.on("plotly_click", (event) => {
    const [place] = event.points[0]?.customdata ?? [];
    if (isMap && place) location.assign(place);
    if (isMap) return;
    const cells = document.querySelectorAll(".cell-link");
    for (const cell of cells) if (new URL(cell.href).searchParams.get("slice") === String(place)) cell.click();
  });
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "80px" });

const watched = new WeakSet(); // a figure that is drawn twice at once ends up empty
function watch() {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (watched.has(figure)) continue;
    watched.add(figure);
    seen.observe(figure);
  }
}

document.addEventListener("part", watch);
document.addEventListener("theme", () => document.querySelectorAll("[data-chart][data-drawn]").forEach(draw));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.querySelectorAll("[data-chart][data-drawn]").forEach(draw));
watch();
