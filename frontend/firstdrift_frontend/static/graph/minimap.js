// The whole graph, small: what is on the screen has a frame, and a click goes there.

import { leftOf } from "./elements.js";
import { SIDES } from "./model.js";

/** @typedef {import("./canvas.js").Canvas} Canvas */

/**
 * @param {HTMLCanvasElement} element
 * @param {Canvas} canvas
 * @param {(view: import("./camera.js").View) => void} move
 */
export function minimap(element, canvas, move) {
  const context = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d"));
  const kept = document.createElement("canvas");
  const scale = { k: 1, x: 0, y: 0 };
  const { devicePixelRatio: dots } = window;
  let frame = "";

  /** @param {string} name */
  function colour(name) {
    element.style.color = `var(${name})`;
    return getComputedStyle(element).color;
  }

  /** Draw the boxes once for each picture. */
  function draw() {
    const { clientWidth: w, clientHeight: h } = element;
    kept.width = element.width = w * dots;
    kept.height = element.height = h * dots;
    const { w: width, h: height } = canvas.size;
    scale.k = Math.min((w - 8) / width, (h - 8) / height);
    scale.x = (w - width * scale.k) / 2;
    scale.y = (h - height * scale.k) / 2;
    /** @type {Record<string, string>} */
    const colours = { error: colour("--error"), warning: colour("--warning"), box: colour("--line-strong") };
    frame = colour("--accent");
    const boxes = /** @type {CanvasRenderingContext2D} */ (kept.getContext("2d"));
    boxes.scale(dots, dots);
    for (const { box, isOpen, x, y, w: wide, h: high } of canvas.picture.boxes) {
      const isBad = box?.said === "error" || box?.said === "warning";
      boxes.fillStyle = boxes.strokeStyle = colours[isBad ? box.said : "box"];
      SIDES.forEach((side, place) => {
        if (box && !box.sides.includes(side)) return;
        /** @type {[number, number, number, number]} */
        const at = [scale.x + (x + leftOf(place, canvas.picture.w)) * scale.k, scale.y + y * scale.k, Math.max(1, wide * scale.k), Math.max(1, high * scale.k)];
        if (isOpen) boxes.strokeRect(...at);
        else boxes.fillRect(...at);
      });
    }
    look();
  }

  /** Draw the frame of what is on the screen. */
  function look() {
    const { x, y, k } = canvas.view;
    const { w, h } = canvas.screen;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, element.width, element.height);
    context.drawImage(kept, 0, 0);
    context.setTransform(dots, 0, 0, dots, 0, 0);
    context.strokeStyle = frame;
    context.lineWidth = 1.5;
    const by = scale.k / k;
    context.strokeRect(scale.x - x * by, scale.y - y * by, w * by, h * by);
  }

  /** @param {PointerEvent} event */
  function go(event) {
    const { left, top } = element.getBoundingClientRect();
    const { w, h } = canvas.screen;
    const { k } = canvas.view;
    const at = { x: (event.clientX - left - scale.x) / scale.k, y: (event.clientY - top - scale.y) / scale.k };
    move({ k, x: w / 2 - at.x * k, y: h / 2 - at.y * k });
  }

  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    go(event);
  });
  element.addEventListener("pointermove", (event) => event.buttons & 1 && go(event));
  return { draw, look };
}
