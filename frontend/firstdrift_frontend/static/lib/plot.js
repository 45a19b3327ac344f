// What all charts share. Plotly is loaded when one that needs it first comes into view, and never before.

import { fetchData } from "./http.js";
import { say } from "./notice.js";
import { element } from "./parts.js";

/** @type {Promise<any> | null} */
let library = null;

/** @type {Record<string, string>} */
const words = JSON.parse(document.getElementById("chart-words")?.textContent || "{}");

/** Say where the data of the charts are, and which version of them: a part of the page that is kept up to date. */
export const sources = () => element("part-drawn").dataset;

/**
 * Say a word of the data, such as a verdict or a class, in the language of the page.
 * @param {string} name
 */
export const word = (name) => words[name] ?? name;

function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    const place = /** @type {HTMLElement} */ (document.querySelector("[data-plotly]"));
    script.src = place.dataset.plotly ?? "";
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

/**
 * Give a colour of the style as Plotly and canvases need it: light-dark() becomes a plain one.
 * @param {string} name
 */
export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** How many colours the style has for errors, from the lightest to the darkest. */
export const STOPS = 5;

/**
 * Give colours as bytes: 256 steps from the stops of the style, whose lightness only grows (or only falls), then others.
 * @param {string[]} [others] by name
 */
export function ramp(others = []) {
  const width = 256 + others.length;
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(width, 1).getContext("2d"));
  const gradient = context.createLinearGradient(0, 0, 256, 0);
  for (let stop = 0; stop < STOPS; stop++) gradient.addColorStop(stop / (STOPS - 1), colour(`heat-${stop}`));
  context.fillStyle = gradient;
  context.fillRect(0, 0, 256, 1);
  others.forEach((name, i) => {
    context.fillStyle = colour(name);
    context.fillRect(256 + i, 0, 1, 1);
  });
  return context.getImageData(0, 0, width, 1).data;
}

const STATES = ["error", "warning", "pass", "incomparable"];

/** @param {string} state @returns the colour of a verdict */
export const colourOf = (state) => colour(STATES.includes(state) ? state : "unmatched");

/**
 * Describe an axis.
 * @param {string} title
 * @param {object} [changes]
 */
export function axis(title, changes = {}) {
  const line = colour("line");
  return {
    gridcolor: line,
    zeroline: false,
    tickcolor: line,
    linecolor: line,
    automargin: true,
    title: { text: title, standoff: 14 },
    ...changes,
  };
}

/** @param {object} changes */
function layout(changes) {
  return {
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { color: colour("text") } },
    ...changes,
  };
}

/**
 * Describe a logarithmic axis, with not more than six ticks.
 * @param {number} low
 * @param {number} high
 * @param {boolean} isOfErrors
 */
export function decades(low, high, isOfErrors) {
  const dtick = Math.max(1, Math.round(Math.log10(high / low) / 5));
  const range = [Math.log10(low), Math.log10(high)];
  if (!isOfErrors) return { type: "log", range, exponentformat: "power", dtick };
  const tickvals = [];
  for (let power = Math.ceil(range[0]); power <= range[1]; power += dtick) tickvals.push(Number(`1e${power}`));
  return { type: "log", range, tickvals, ticktext: tickvals.map(errorAtAxis) };
}

/**
 * Describe a linear axis of errors, with about five ticks.
 * @param {number} low
 * @param {number} high
 */
export function evenly(low, high) {
  const wanted = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5].find((many) => many * power >= wanted) ?? 10);
  const tickvals = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) tickvals.push(Number((at * step).toPrecision(6)));
  return { type: "linear", range: [low, high], tickvals, ticktext: tickvals.map(errorAtAxis) };
}

/**
 * Draw a figure, or draw it anew.
 * @param {HTMLElement} figure
 * @param {object[]} traces
 * @param {object} changes of the layout
 * @param {(data: any[]) => void} [clicked] is given what belongs to a point
 */
export async function react(figure, traces, changes, clicked) {
  const Plotly = await plotly();
  if (!figure.isConnected) return;
  const isFirst = !figure.dataset.drawn;
  if (isFirst) figure.replaceChildren();
  await Plotly.react(figure, traces, layout(changes), { responsive: true, displaylogo: false, displayModeBar: false });
  figure.dataset.drawn = "yes";
  if (!isFirst || !clicked) return;
  const drawn = /** @type {any} */ (figure);
  drawn.on("plotly_click", (/** @type {any} */ event) => clicked(event.points[0]?.customdata ?? []));
}

/**
 * Write a number as the pages do: three digits, and whatever is not finite by its name.
 * @param {unknown} value
 */
export function short(value) {
  if (typeof value !== "number") return value === "Infinity" ? "∞" : String(value ?? "–");
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return value.toLocaleString("en", { maximumSignificantDigits: 3 });
  return value.toExponential(2).replace("e+", "e");
}

/**
 * Write a relative error as the pages do: "1.48 %", "1.91e-4 %".
 * @param {unknown} value
 */
export function error(value) {
  if (typeof value !== "number") return short(value);
  const [percent, size] = [100 * value, Math.abs(100 * value)];
  const isPlain = !size || (size >= 1e-3 && size < 1e6);
  const written = isPlain
    ? percent.toLocaleString("en", size ? { minimumSignificantDigits: 3, maximumSignificantDigits: 3 } : {})
    : percent.toExponential(2).replace("e+", "e");
  return `${written}\u00a0%`;
}

/**
 * Write an error by what it comes from: statistics give lower bounds.
 * @param {unknown} value
 * @param {string} from
 */
export const errorFrom = (value, from) => `${from === "statistics" && typeof value === "number" && value !== 0 ? "≥ " : ""}${error(value)}`;

/** @param {number} value @returns a power of ten as axes have it: "1 %", "1e-4 %" */
const errorAtAxis = (value) => error(value).replace(/\.0+(?=[e\u00a0])|(\.0*[1-9])0+(?=\u00a0)/, "$1");

/**
 * Text of a dump in what Plotly shows is text, whatever tags it seems to have.
 * @param {string} text
 * @param {number} [most] characters
 */
export function plain(text, most = 100) {
  const cut = text.length > most ? `…${text.slice(-most)}` : text;
  return cut.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** What is drawn when it comes into view, or before that for a printer. @type {Set<() => unknown>} */
const unseen = new Set();

/**
 * Do something when a figure first comes into view, or is printed.
 * @param {Element[]} figures one of which is enough
 * @param {() => unknown} seen
 */
export function whenSeen(figures, seen) {
  const begin = () => {
    observer.disconnect();
    unseen.delete(begin);
    return seen();
  };
  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) begin();
  }, { rootMargin: "80px" });
  unseen.add(begin);
  for (const figure of figures) observer.observe(figure);
}

const drawAll = () => Promise.all([...unseen].map((begin) => begin()));

addEventListener("beforeprint", drawAll);
const LONGEST = 5000; // ms that a printer waits
const soon = () => new Promise((done) => void setTimeout(done, LONGEST));

// Printers do not wait for what has to be fetched: with the keys for it, printing begins once all is drawn.
addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key !== "p" || !unseen.size) return;
  event.preventDefault();
  Promise.race([drawAll(), soon()]).finally(() => print());
});

/**
 * Do something when the colours change.
 * @param {() => void} again
 */
export function whenColoursChange(again) {
  document.addEventListener("theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

/**
 * Draw a figure when it first comes into view, and again when its data, the slice or the colours have changed.
 * @param {HTMLElement} figure
 * @param {string} source of its data
 * @param {(data: any) => unknown} draw
 * @returns {() => void} what to do when the source may have changed
 */
export function keepDrawn(figure, source, draw) {
  const drawn = { isSeen: false, of: "", /** @type {any} */ data: null, turn: Promise.resolve() };
  const update = () => {
    const { [source]: address, version } = sources();
    const wanted = `${address} ${version}`;
    if (!drawn.isSeen || !address || wanted === drawn.of) return;
    drawn.of = wanted;
    drawn.turn = drawn.turn.then(async () => {
      if (wanted !== drawn.of) return;
      try {
        drawn.data = await fetchData(address);
        await draw(drawn.data);
      } catch (error) {
        drawn.of = "";
        const wait = figure.querySelector(".chart-wait");
        if (wait) wait.textContent = say("This could not be loaded; open the page again");
        console.info(error);
      }
    });
  };
  whenSeen([figure], () => {
    drawn.isSeen = true;
    update();
    return drawn.turn;
  });
  document.addEventListener("part", (event) => {
    if (/** @type {CustomEvent} */ (event).detail?.id === "part-drawn") update();
  });
  whenColoursChange(() => drawn.data && (drawn.turn = drawn.turn.then(() => void draw(drawn.data))));
  return update;
}
