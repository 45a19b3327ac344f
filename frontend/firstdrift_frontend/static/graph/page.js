// The page of a graph, by keyboard and mouse.

import { listenForKeys } from "../lib/keys.js";
import { copy, explain, say, toast } from "../lib/notice.js";
import { around, element } from "../lib/parts.js";
import { zoomed } from "./camera.js";
import { savePng, saveSvg } from "./export.js";
import { askAhead, begin, canvas, choose, draw, go, look, model, selected, selectedBox, showMore, showWhole, toggle, toggleMap, write, zoom } from "./view.js";
import { step } from "./walk.js";

const ZOOM = 1.25;
const REST = 40; // ms that the pointer rests on a box before what it holds is fetched

const stage = element("stage");
const help = () => /** @type {HTMLDialogElement} */ (element("help")).showModal();

/** Do something, and say why it could not be done. @param {() => unknown} action */
async function doing(action) {
  try {
    await action();
  } catch (error) {
    explain(error);
  }
}

/** @param {import("./walk.js").Way} way */
function walk(way) {
  const next = canvas.selected === null ? canvas.picture.boxes[0] : step(canvas.picture, canvas.selected, way);
  if (next) choose(next.key);
}

/** Open or close the selected box. */
function open() {
  const placed = selectedBox();
  if (placed?.more) return showMore(placed.more.row, placed.more.piece);
  if (placed?.box) return toggle(placed.box.row);
}

/** @param {"prev" | "next"} way */
function toSlice(way) {
  const link = /** @type {HTMLAnchorElement | null} */ (document.querySelector(`a[rel="${way}"]`));
  if (link) location.assign(link.href);
  else toast(way === "prev" ? say("No earlier slice") : say("No later slice"));
}

/** @param {string} which */
const follow = (which) => /** @type {HTMLElement | null} */ (document.querySelector(which))?.click();

listenForKeys(
  document,
  {
    ArrowDown: () => walk("down"),
    ArrowUp: () => walk("up"),
    ArrowLeft: () => walk("left"),
    ArrowRight: () => walk("right"),
    Escape: () => walk("out"),
    Enter: open,
    " ": open,
    n: () => go("next=bad"),
    p: () => go("previous=bad"),
    N: () => go("next=origin"),
    P: () => go("previous=origin"),
    u: () => go("next=unmatched"),
    U: () => go("previous=unmatched"),
    "+": () => zoom(ZOOM),
    "=": () => zoom(ZOOM),
    "-": () => zoom(1 / ZOOM),
    0: showWhole,
    o: () => selected.row !== null && location.assign(`${stage.dataset.panel}${selected.row}`),
    t: () => follow("[data-tab=tree]"),
    c: () => copy(location.href),
    m: () => follow("#panel [data-copy-markdown]"),
    "[": () => toSlice("prev"),
    "]": () => toSlice("next"),
    "?": help,
  },
  {
    // Links and buttons keep what activates them, and the panel what scrolls it.
    isFor: (event) => {
      const target = /** @type {Node} */ (event.target);
      const isActivating = event.key === "Enter" || event.key === " ";
      if (isActivating && !stage.contains(target) && target !== document.body) return false;
      return event.key.length === 1 || !element("panel").contains(target);
    },
    act: (action, event) => doing(() => action(event)),
  },
);

/** What is pressed: where it was, and whether the picture was moved since. */
const pressed = { x: 0, y: 0, hasMoved: false };

stage.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  const { x, y } = canvas.view;
  Object.assign(pressed, { x: event.clientX - x, y: event.clientY - y, hasMoved: false });
});
stage.addEventListener("pointermove", (event) => {
  if (!(event.buttons & 1)) return;
  const [x, y] = [event.clientX - pressed.x, event.clientY - pressed.y];
  if (!pressed.hasMoved && Math.hypot(x - canvas.view.x, y - canvas.view.y) < 4) return;
  if (!pressed.hasMoved) stage.setPointerCapture(event.pointerId);
  pressed.hasMoved = true;
  look({ k: canvas.view.k, x, y });
});

/** @param {MouseEvent} event */
const keyAt = (event) => around(event, "[data-key]")?.dataset.key;

stage.addEventListener("click", (event) => {
  const key = keyAt(event);
  if (pressed.hasMoved || key === undefined) return;
  const more = canvas.byKey.get(key)?.more;
  doing(() => (more ? showMore(more.row, more.piece) : choose(key)));
  if (around(event, ".holds")) doing(open);
});
stage.addEventListener("dblclick", (event) => {
  const key = keyAt(event);
  if (key !== undefined && !around(event, ".holds")) doing(open);
});

let resting = 0;
stage.addEventListener("pointerover", (event) => {
  clearTimeout(resting);
  const placed = canvas.byKey.get(keyAt(event) ?? "");
  const { box } = placed ?? {};
  if (!box) return;
  titled(around(event, "[data-key]"));
  resting = window.setTimeout(() => askAhead(box.row), REST);
});

/** Say what a box is when the pointer rests on it. @param {Element | null} box */
function titled(box) {
  if (!box || box.querySelector("title")) return;
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = box.getAttribute("aria-label");
  box.prepend(title);
}

stage.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const { left, top } = stage.getBoundingClientRect();
    const { view } = canvas;
    if (event.ctrlKey || event.metaKey) {
      look(zoomed(view, Math.exp(-event.deltaY / 300), { x: event.clientX - left, y: event.clientY - top }));
    } else {
      const [dx, dy] = event.shiftKey ? [event.deltaY, event.deltaX] : [event.deltaX, event.deltaY];
      look({ k: view.k, x: view.x - dx, y: view.y - dy });
    }
  },
  { passive: false },
);

/** @type {Record<string, () => unknown>} */
const ACTIONS = {
  "zoom-in": () => zoom(ZOOM),
  "zoom-out": () => zoom(1 / ZOOM),
  whole: showWhole,
  map: toggleMap,
  svg: () => saveSvg(canvas, names(), fileName()),
  png: () => savePng(canvas, names(), fileName()),
};
const names = () => [...document.querySelectorAll("#sides > *")].map((side) => side.textContent?.trim() ?? "");
const fileName = () => `firstdrift-${stage.dataset.file}`;

document.addEventListener("click", (event) => {
  const action = around(event, "[data-graph]")?.dataset.graph;
  if (action) doing(ACTIONS[action]);
  const way = around(event, "[data-step]")?.dataset.step;
  if (way) {
    event.preventDefault();
    doing(() => go(way));
  } else if (around(event, "[data-help]")) help();
});

document.addEventListener("change", (event) => {
  const menu = /** @type {HTMLSelectElement | null} */ (around(event, "select[data-goto]"));
  if (menu) location.assign(menu.value);
});

addEventListener("popstate", () => location.reload());
new ResizeObserver(() => {
  if (canvas.elements.size) canvas.fill();
}).observe(stage);

if (model.boxes.size) begin();
else write(false);

document.addEventListener("theme", () => draw()); // the mini map has its colours of the page
