// The graph as a file: all that is open, with its colours as they are seen now.

import { say, toast } from "../lib/notice.js";
import { boxElement, leftOf, lineElement, make } from "./elements.js";
import { SIDES } from "./model.js";

/** @typedef {import("./canvas.js").Canvas} Canvas */

const ROOM = 24;
const HEADING = 40;
const LARGEST = 8000; // px of a side of a picture in dots
const KEPT = [
  ...["fill", "fill-rule", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "paint-order"],
  ...["font-family", "font-size", "font-weight", "font-style"],
];
const PLAIN = new Set(["normal", "fill-rule nonzero", "stroke none", "stroke-dasharray none", "stroke-linecap butt", "stroke-linejoin miter", "opacity 1"]);
const OF_PAGE = /^(class|role|tabindex|(aria|data)-.*)$/;

/**
 * Write the graph as SVG that needs nothing else.
 * @param {Canvas} canvas
 * @param {string[]} names of both sides
 */
export function svgOf(canvas, names) {
  const { w, h } = canvas.size;
  const width = w + 2 * ROOM;
  const height = h + 2 * ROOM + HEADING;
  const whole = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  const world = make("g", { transform: `translate(${ROOM} ${ROOM + HEADING})` });
  SIDES.forEach((_, place) => world.append(make("text", { class: "side-name", x: leftOf(place, canvas.picture.w), y: -HEADING / 2 }, names[place])));
  for (const { box, line } of canvas.order) {
    if (box) world.append(boxElement(box, canvas.picture.w, canvas.words));
    else if (line) world.append(lineElement(line, canvas.picture.w));
  }
  whole.append(make("rect", { class: "paper", width, height }), world);
  canvas.stage.append(whole);
  whole.style.visibility = "hidden";
  settle(whole);
  whole.remove();
  whole.removeAttribute("style");
  return { text: new XMLSerializer().serializeToString(whole), width, height };
}

/** Write down how each element looks, and nothing of the page. @param {SVGElement} whole */
function settle(whole) {
  /** @type {Map<string, Record<string, string>>} */
  const known = new Map();
  const elements = /** @type {SVGElement[]} */ ([...whole.querySelectorAll("*")]);
  const styles = elements.map((element) => {
    const key = [element, element.closest(".box")].map((one) => `${one?.localName}.${one?.getAttribute("class")}`).join(" ");
    if (!known.has(key)) {
      const style = getComputedStyle(element);
      const told = KEPT.filter((name) => isTold(element, name, style.getPropertyValue(name)));
      known.set(key, Object.fromEntries(told.map((name) => [name, style.getPropertyValue(name)])));
    }
    return known.get(key) ?? {};
  });
  elements.forEach((element, place) => {
    if (element.localName !== "g") for (const [name, value] of Object.entries(styles[place])) element.setAttribute(name, value);
    for (const name of element.getAttributeNames()) if (OF_PAGE.test(name)) element.removeAttribute(name);
  });
}

/** Tell whether a style has to be written down. @param {Element} element @param {string} name @param {string} value */
function isTold(element, name, value) {
  return !PLAIN.has(value) && !PLAIN.has(`${name} ${value}`) && (element.localName === "text" || !name.startsWith("font-"));
}

/** @param {Canvas} canvas @param {string[]} names @param {string} file its name, without the ending */
export function saveSvg(canvas, names, file) {
  save(new Blob([svgOf(canvas, names).text], { type: "image/svg+xml" }), `${file}.svg`);
}

/** @param {Canvas} canvas @param {string[]} names @param {string} file */
export async function savePng(canvas, names, file) {
  const { text, width, height } = svgOf(canvas, names);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const scale = Math.min(2, LARGEST / width, LARGEST / height);
    const drawn = document.createElement("canvas");
    drawn.width = Math.ceil(width * scale);
    drawn.height = Math.ceil(height * scale);
    drawn.getContext("2d")?.drawImage(image, 0, 0, drawn.width, drawn.height);
    const made = await new Promise((/** @type {(blob: Blob | null) => void} */ done) => drawn.toBlob(done, "image/png"));
    if (!made) throw new Error("the picture is too large");
    save(made, `${file}.png`);
  } catch {
    toast(say("Failed"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** @param {Blob} content @param {string} name */
function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
