// What all charts share. Plotly is loaded when one that needs it first comes into view, and never before.
import { request, say } from "./app.js";

let library = null;

// Where the data of the charts are, and which version of them: a part of the page that is kept up to date.
export function sources() {
  return document.getElementById("part-drawn").dataset;
}

const words = JSON.parse(document.getElementById("chart-words")?.textContent ?? "{}");

// Say a word of the data, such as a verdict or a class, in the language of the page.
export function word(name) {
  return words[name] ?? name;
}

export function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("[data-plotly]").dataset.plotly;
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

// light-dark() colours become plain ones here, which Plotly and canvases need.
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export function colourOf(state) {
  return colour({ error: "error", warning: "warning", pass: "pass", incomparable: "incomparable" }[state] ?? "unmatched");
}

export function axis(title, changes = {}) {
  const line = colour("line");
  return { gridcolor: line, zeroline: false, tickcolor: line, linecolor: line, automargin: true, title: { text: title, standoff: 14 }, ...changes };
}

export function layout(changes) {
  return {
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { color: colour("text") } },
    ...changes,
  };
}

// Ticks of a logarithmic axis over [low, high], not more than six.
export function decades(low, high) {
  return { type: "log", range: [Math.log10(low), Math.log10(high)], exponentformat: "power", dtick: Math.max(1, Math.round(Math.log10(high / low) / 5)) };
}

export async function react(figure, traces, changes, clicked) {
  const Plotly = await plotly();
  if (!figure.isConnected) return;
  const isFirst = !figure.dataset.drawn;
  if (isFirst) figure.replaceChildren();
  await Plotly.react(figure, traces, layout(changes), { responsive: true, displaylogo: false, displayModeBar: false });
  figure.dataset.drawn = "yes";
  if (isFirst && clicked) figure.on("plotly_click", (event) => clicked(event.points[0]?.customdata ?? []));
}

// Numbers as the pages write them: three digits, and whatever is not finite by its name.
export function short(value) {
  if (typeof value !== "number") return value === "Infinity" ? "∞" : String(value ?? "–");
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : value.toExponential(2).replace("e+", "e");
}

// Text of a dump in what Plotly shows is text, whatever tags it seems to have.
export function plain(text, most = 100) {
  const cut = text.length > most ? `…${text.slice(-most)}` : text;
  return cut.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

// Draw a figure when it first comes into view, and again when its data, the slice or the colours have changed.
export function keepDrawn(figure, source, draw) {
  let isSeen = false;
  let shown = "";
  let data = null;
  let turn = Promise.resolve();
  const update = () => {
    const address = sources()[source];
    const wanted = `${address} ${sources().version}`;
    if (!isSeen || !address || wanted === shown) return;
    shown = wanted;
    turn = turn.then(async () => {
      if (wanted !== shown) return;
      try {
        const answer = await request(address, { headers: { accept: "application/json" } });
        if (!answer.ok) throw new Error(answer.statusText);
        data = await answer.json();
        await draw(data);
      } catch (error) {
        shown = "";
        const wait = figure.querySelector(".chart-wait");
        if (wait) wait.textContent = say("This could not be loaded; open the page again");
        console.info(error);
      }
    });
  };
  const again = () => data && (turn = turn.then(() => draw(data)));
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    isSeen = true;
    update();
  }, { rootMargin: "80px" }).observe(figure);
  document.addEventListener("part", (event) => event.detail?.id === "part-drawn" && update());
  document.addEventListener("theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  return update;
}
