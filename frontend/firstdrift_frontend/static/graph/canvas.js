// The picture on the screen: only what is near the screen is there as elements, and moving it draws nothing anew until
// its edge comes near.

import { SMALL } from "./camera.js";
import { boxElement, curve, kindOf, leftOf, lineElement, make } from "./elements.js";
import { SIDES } from "./model.js";

/**
 * @typedef {import("./layout.js").Picture} Picture
 * @typedef {import("./layout.js").Placed} Placed
 * @typedef {import("./camera.js").View} View
 */

const MARGIN = 320; // px around the screen

export class Canvas {
  /** @param {HTMLElement} stage @param {SVGSVGElement} svg @param {import("./elements.js").Words} words */
  constructor(stage, svg, words) {
    this.stage = stage;
    this.svg = svg;
    this.words = words;
    this.world = svg.appendChild(make("g"));
    this.lit = make("g", { class: "lit", "aria-hidden": "true" });
    /** @type {Picture} */
    this.picture = { boxes: [], lines: [], w: 0, h: 0 };
    /** @type {View} */
    this.view = { x: 0, y: 0, k: 1 };
    /** @type {View} what the elements were put in place for */
    this.base = this.view;
    /** @type {Map<string, SVGElement>} */
    this.elements = new Map();
    /** @type {string | null} */
    this.selected = null;
    /** @type {{key: string, box: Placed | null, line: import("./layout.js").Line | null}[]} */
    this.order = [];
    /** @type {Map<string, Placed>} */
    this.byKey = new Map();
    this.moved = /** @type {HTMLElement} */ (svg.parentElement);
    this.moved.style.inset = `${-MARGIN}px`;
  }

  /** How large the picture is, both sides together. */
  get size() {
    return { w: leftOf(1, this.picture.w) + this.picture.w, h: this.picture.h };
  }

  get screen() {
    return { w: this.stage.clientWidth, h: this.stage.clientHeight };
  }

  /** Show another picture. @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    this.world.replaceChildren();
    this.elements.clear();
    this.byKey = new Map(picture.boxes.map((box) => [box.key, box]));
    this.order = inOrder(picture);
  }

  /** Show another part of it. @param {View} view */
  look(view) {
    const { base } = this;
    this.view = view;
    const [dx, dy] = [view.x - base.x, view.y - base.y];
    const isNear = this.elements.size && view.k === base.k && Math.max(Math.abs(dx), Math.abs(dy)) < 0.9 * MARGIN;
    if (isNear) {
      this.moved.style.transform = `translate(${dx}px, ${dy}px)`;
      return;
    }
    this.base = view;
    this.moved.style.transform = "none";
    this.world.setAttribute("transform", `translate(${view.x + MARGIN} ${view.y + MARGIN}) scale(${view.k})`);
    this.svg.classList.toggle("is-small", view.k < SMALL);
    this.fill();
  }

  /** Have there what is near the screen, and nothing else. */
  fill() {
    const { x, y, k } = this.base;
    const { w, h } = this.screen;
    const near = { left: (-MARGIN - x) / k, right: (w + MARGIN - x) / k, top: (-MARGIN - y) / k, bottom: (h + MARGIN - y) / k };
    const right = leftOf(1, this.picture.w);
    /** @param {number} left @param {number} top @param {number} width @param {number} height */
    const meets = (left, top, width, height) =>
      top <= near.bottom && top + height >= near.top &&
      ((left <= near.right && left + width >= near.left) || (left + right <= near.right && left + right + width >= near.left));
    const wanted = this.order.filter(({ key, box, line }) => {
      if (box) return key === this.selected || meets(box.x, box.y, box.w, box.h);
      const { left, top, width, height } = /** @type {import("./layout.js").Line} */ (line).around;
      return meets(left, top, width, height);
    });
    const keys = new Set(wanted.map(({ key }) => key));
    for (const [key, element] of this.elements) if (!keys.has(key)) this.drop(key, element);
    let after = this.world.firstChild;
    for (const { key, box, line } of wanted) {
      const known = this.elements.get(key);
      if (known) {
        after = known.nextSibling;
        continue;
      }
      const made = box ? boxElement(box, this.picture.w, this.words) : lineElement(/** @type {any} */ (line), this.picture.w);
      this.elements.set(key, made);
      this.world.insertBefore(made, after);
      if (key === this.selected) mark(made, true);
    }
    if (!this.lit.isConnected) this.world.append(this.lit);
  }

  /** @param {string} key @param {SVGElement} element */
  drop(key, element) {
    element.remove();
    this.elements.delete(key);
  }

  /** Mark a box as the selected one, and what it is linked with. @param {string | null} key */
  select(key) {
    const before = this.selected === null ? null : this.elements.get(this.selected);
    if (before) mark(before, false);
    this.selected = key;
    if (key !== null && !this.elements.has(key)) this.fill();
    const element = key === null ? null : this.elements.get(key);
    if (element) mark(element, true);
    this.light();
  }

  /** Draw the links of the selected box once more, over everything, far ones from end to end. */
  light() {
    this.lit.replaceChildren();
    const box = this.selected === null ? null : this.byKey.get(this.selected)?.box;
    if (!box) return;
    /** @type {Set<string>} */
    const drawn = new Set();
    for (const { edge, points, end } of this.picture.lines) {
      if (edge.source !== box.row && edge.goal !== box.row) continue;
      const name = `${edge.source}>${edge.goal}`;
      const from = this.byKey.get(String(edge.source));
      const to = this.byKey.get(String(edge.goal));
      if (end && (!from || !to || drawn.has(name))) continue;
      drawn.add(name);
      const way = end && from && to ? [{ x: from.x + from.w / 2, y: from.y + from.h }, { x: to.x + to.w / 2, y: to.y }] : points;
      SIDES.forEach((side, place) => {
        const own = edge.of[side];
        if (!own) return;
        const moved = way.map(({ x, y }) => ({ x: x + leftOf(place, this.picture.w), y }));
        this.lit.append(make("path", { class: `way ${kindOf(own)}`, d: curve(moved) }));
      });
    }
  }

  /** Give the focus to the selected box. */
  focus() {
    const element = this.selected === null ? null : this.elements.get(this.selected);
    if (element && element !== /** @type {unknown} */ (document.activeElement)) element.focus({ preventScroll: true });
  }

  /** Say where a box is, on both sides. @param {string} key */
  where(key) {
    const box = this.byKey.get(key);
    return box ? { x: box.x, y: box.y, w: leftOf(1, this.picture.w) + box.w, h: box.h } : null;
  }
}

/** @param {SVGElement} element @param {boolean} isSelected */
function mark(element, isSelected) {
  element.setAttribute("aria-selected", String(isSelected));
  element.setAttribute("tabindex", isSelected ? "0" : "-1");
}

/** Lines of a module lie on its frame, and below what it holds. @param {Picture} picture */
function inOrder(picture) {
  /** @type {Map<number | null, import("./layout.js").Line[]>} */
  const lines = new Map();
  for (const line of picture.lines) lines.set(line.module, [...(lines.get(line.module) ?? []), line]);
  /** @param {number | null} module */
  const of = (module) => (lines.get(module) ?? []).map((line) => ({ key: line.key, box: null, line }));
  return [...of(null), ...picture.boxes.flatMap((box) => [{ key: box.key, box, line: null }, ...(box.isOpen ? of(box.box?.row ?? null) : [])])];
}
