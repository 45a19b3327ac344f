// The whole graph, small: what is on the screen has a frame, and a click goes there.

import { leftOf } from "./elements.js";
import { SIDES } from "./model.js";

/** @typedef {import("./canvas.js").Canvas} Canvas */

/**
 * @param {HTMLElement} around both that follow
 * @param {HTMLCanvasElement} element
 * @param {HTMLElement} frame of what is on the screen
 * @param {Canvas} canvas
 * @param {(view: import("./camera.js").View) => void} move
 */
export function minimap(around, element, frame, canvas, move) {
  const scale = { k: 1, x: 0, y: 0 };

  /** @param {string} name */
  function colour(name) {
    element.style.color = `var(${name})`;
    return getComputedStyle(element).color;
  }

  /** Draw the boxes, once for each picture. */
  function draw() {
    const { devicePixelRatio: dots } = window;
    const { clientWidth: w, clientHeight: h } = element;
    if (!w) return;
    element.width = w * dots;
    element.height = h * dots;
    const { w: width, h: height } = canvas.size;
    scale.k = Math.min((w - 8) / width, (h - 8) / height);
    scale.x = (w - width * scale.k) / 2;
    scale.y = (h - height * scale.k) / 2;
    /** @type {Record<string, string>} */
    const colours = { error: colour("--error"), warning: colour("--warning"), box: colour("--line-strong") };
    const context = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d"));
    context.scale(dots, dots);
    for (const { box, isOpen, x, y, w: wide, h: high } of canvas.picture.boxes) {
      const isBad = box?.said === "error" || box?.said === "warning";
      context.fillStyle = context.strokeStyle = colours[isBad ? box.said : "box"];
      SIDES.forEach((side, place) => {
        if (box && !box.sides.includes(side)) return;
        const left = scale.x + (x + leftOf(place, canvas.picture.w)) * scale.k;
        /** @type {[number, number, number, number]} */
        const at = [left, scale.y + y * scale.k, Math.max(1, wide * scale.k), Math.max(1, high * scale.k)];
        if (isOpen) context.strokeRect(...at);
        else context.fillRect(...at);
      });
    }
    look();
  }

  /** Put the frame around what is on the screen: it is moved, and nothing is drawn. */
  function look() {
    const { x, y, k } = canvas.view;
    const { w, h } = canvas.screen;
    const by = scale.k / k;
    const size = `${Math.max(6, Math.round(w * by))}px ${Math.max(6, Math.round(h * by))}px`;
    if (frame.dataset.size !== size) {
      frame.dataset.size = size;
      [frame.style.width, frame.style.height] = size.split(" ");
    }
    frame.style.transform = `translate(${scale.x - x * by}px, ${scale.y - y * by}px)`;
  }

  /** @param {PointerEvent} event */
  function go(event) {
    const { left, top } = element.getBoundingClientRect();
    const { w, h } = canvas.screen;
    const { k } = canvas.view;
    const at = { x: (event.clientX - left - scale.x) / scale.k, y: (event.clientY - top - scale.y) / scale.k };
    move({ k, x: w / 2 - at.x * k, y: h / 2 - at.y * k });
  }

  around.addEventListener("pointerdown", (event) => {
    around.setPointerCapture(event.pointerId);
    go(event);
  });
  around.addEventListener("pointermove", (event) => event.buttons & 1 && go(event));
  return { draw, look };
}
