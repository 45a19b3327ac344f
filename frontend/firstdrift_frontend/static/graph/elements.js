// The boxes and lines of a graph as elements of SVG, one for both sides.

import { say } from "../lib/notice.js";
import { HEAD, textPlace } from "./layout.js";
import { SIDES } from "./model.js";
import { placed as moved } from "./outline.js";

/**
 * @typedef {import("./layout.js").Placed} Placed
 * @typedef {import("./layout.js").Line} Line
 * @typedef {import("./model.js").Box} Box
 *
 * @typedef {object} Words what is said of boxes, and how verdicts look
 * @property {Record<string, string>} verdict
 * @property {Record<string, string>} node_class
 * @property {Record<string, string>} shapes
 */

export const SIDES_APART = 90;
const CHARACTER = 6.7;
const SMALL = 6.1;
const NAME = 31; // px: where names begin, right of the mark

/**
 * Make an element of SVG.
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {(Element | string)[]} inner
 */
export function make(name, attributes = {}, ...inner) {
  const made = /** @type {SVGElement} */ (document.createElementNS("http://www.w3.org/2000/svg", name));
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...inner);
  return made;
}

/** Say where a side begins. @param {number} side @param {number} w of one side */
export const leftOf = (side, w) => side * (w + SIDES_APART);

/** @param {Placed} placed @param {number} w of one side @param {Words} words */
export function boxElement(placed, w, words) {
  const { box, more, x, level, isOpen } = placed;
  const made = make("g", { role: "treeitem", "aria-level": level, "aria-selected": "false", tabindex: -1, "data-key": placed.key });
  if (more) {
    made.setAttribute("class", "box more");
    made.setAttribute("aria-label", say("{count} more", { count: more.count }));
    made.append(moreInside(placed, w));
    return made;
  }
  if (!box) return made;
  const alone = box.sides.length === 1 ? " is-alone" : "";
  made.setAttribute("class", `box v-${box.said} c-${box.node_class.replaceAll(" ", "-")}${alone}${isOpen ? " is-open" : ""} d-${box.direction}`);
  made.setAttribute("aria-label", described(box, words));
  made.setAttribute("data-row", String(box.row));
  if (box.holds) made.setAttribute("aria-expanded", String(isOpen));
  SIDES.forEach((side, place) => {
    if (!box.sides.includes(side)) return;
    const at = { ...placed, x: x + leftOf(place, w) };
    const named = { ...box, label: (side === "golden" && box.golden_label) || box.label };
    made.append(make("g", { class: `side ${side}` }, ...(isOpen ? frame(at, named, words) : card(at, named, words))));
  });
  return made;
}

/** @param {Placed} placed @param {number} w of one side */
function moreInside(placed, w) {
  const { more, y } = placed;
  const sides = SIDES.flatMap((_, place) => {
    const x = placed.x + leftOf(place, w);
    return [
      make("rect", { class: "body", x, y, width: placed.w, height: placed.h, rx: 6 }),
      text("name", x + placed.w / 2, y + 17, say("{count} more", { count: more?.count ?? 0 }), "middle"),
    ];
  });
  return make("g", {}, ...sides);
}

/** A closed box. @param {Placed} placed @param {Box} box @param {Words} words */
function card({ x, y, w, h }, box, words) {
  const error = box.own ? (box.shown.output.length + 1) * SMALL : 0;
  return [
    make("rect", { class: "body", x, y, width: w, height: h, rx: 6 }),
    ...bar(box, { x, y, h }),
    ...mark(box, words, { x: x + 12, y: y + 6 }),
    text("name", x + NAME, y + 17, cut(box.label, w - NAME - 7 - (box.holds ? 26 : 0))),
    ...(box.holds ? [text("holds", x + w - 9, y + 17, `▸ ${box.holds}`, "end")] : []),
    text("kind", x + NAME, y + 32, cut(second(box, words), w - NAME - 15 - error, SMALL)),
    ...(box.own ? [text("error", x + w - 9, y + 32, box.shown.output, "end")] : []),
  ];
}

/** An open box: a frame around what it holds. @param {Placed} placed @param {Box} box @param {Words} words */
function frame({ x, y, w, h }, box, words) {
  const room = w - NAME - 85;
  const named = cut(box.label, room);
  const beside = (named.length + 2) * CHARACTER;
  return [
    make("rect", { class: "body", x, y, width: w, height: h, rx: 8 }),
    make("path", { class: "head", d: `M${x} ${y + HEAD - 4}h${w}` }),
    ...bar(box, { x, y, h: HEAD - 4 }),
    ...mark(box, words, { x: x + 12, y: y + 5 }),
    text("name", x + NAME, y + 16, named),
    ...(room - beside > 50 ? [text("kind", x + NAME + beside, y + 16, cut(second(box, words), room - beside, SMALL))] : []),
    ...(box.own ? [text("error", x + w - 26, y + 16, box.shown.output, "end")] : []),
    text("holds", x + w - 9, y + 16, "▾", "end"),
  ];
}

/** The bar that says how far an error is above its limit. @param {Box} box @param {{x: number, y: number, h: number}} at */
function bar(box, { x, y, h }) {
  if (!box.own || box.level === null) return [];
  const heat = box.level < 0 ? "equal" : String(box.level);
  return [make("rect", { class: `heat h-${heat}`, x, y, width: 6, height: h, rx: 3 })];
}

/** @param {Box} box @param {Words} words @param {{x: number, y: number}} at */
function mark(box, words, at) {
  const outline = words.shapes[box.said];
  return outline ? [make("path", { class: `mark shape-${box.said}`, d: moved(outline, { ...at, k: 0.86 }) })] : [];
}

/** @param {string} name @param {number} x @param {number} y @param {string} said @param {string} [anchor] */
function text(name, x, y, said, anchor = "start") {
  return make("text", { class: name, x, y, "text-anchor": anchor }, said);
}

/** Cut a text to so many pixels. @param {string} said @param {number} room @param {number} [wide] */
export function cut(said, room, wide = CHARACTER) {
  const most = Math.max(1, Math.floor(room / wide));
  return said.length <= most ? said : `${said.slice(0, Math.max(1, most - 1))}…`;
}

/** How many nodes in a box fail; where none does, how many have a warning. @param {Box} box */
function failing({ bad, errors }) {
  if (errors) return say("{count} failing below", { count: errors });
  return bad === 1 ? say("{count} warning below", { count: bad }) : say("{count} warnings below", { count: bad });
}

/** What stands below the name: what the box did to the error, or what it is. @param {Box} box @param {Words} words */
function second(box, words) {
  if (box.sides.length === 1) return box.sides[0] === "golden" ? say("golden only") : say("target only");
  if (box.own && box.node_class !== "clean") return words.node_class[box.class_shown];
  if (!box.own && box.bad) return failing(box);
  return box.type_name.split(".").at(-1) ?? "";
}

/** Say all of a box in a line. @param {Box} box @param {Words} words */
export function described(box, words) {
  const parts = [box.label];
  if (box.kind !== "api" && box.type_name) parts.push(box.type_name);
  if (box.own || box.sides.length === 1) parts.push(words.verdict[box.verdict]);
  if (box.own) parts.push(words.node_class[box.class_shown]);
  if (box.sides.length === 1) parts.push(second(box, words));
  if (box.own) parts.push(say("input error {error}", { error: box.shown.input }), say("output error {error}", { error: box.shown.output }));
  if (box.bad) parts.push(failing(box));
  if (box.unmatched) parts.push(say("{count} unmatched below", { count: box.unmatched }));
  return parts.filter(Boolean).join(", ");
}

/** Say whether a tensor shows that a box feeds another, or their order alone does. @param {{by_order: boolean}} edge */
export const kindOf = (edge) => (edge.by_order ? "by-order" : "by-value");

/** @param {Line} line @param {number} w of one side */
export function lineElement(line, w) {
  const made = make("g", { class: "line", "aria-hidden": "true" });
  SIDES.forEach((side, place) => {
    const edge = line.edge.of[side];
    if (!edge) return;
    const moved = line.points.map(({ x, y }) => ({ x: x + leftOf(place, w), y }));
    const kind = `${kindOf(edge)}${line.end ? " is-end" : ""}`;
    made.append(make("path", { class: `way ${kind}`, d: curve(moved) }));
    if (line.end !== "start") made.append(make("path", { class: `tip ${kind}`, d: arrow(moved) }));
    if (line.end === "start") made.append(make("circle", { class: "stop", cx: moved[1].x, cy: moved[1].y, r: 2 }));
    if (line.isNamed && edge.shapes.length) {
      const { x, y } = textPlace(moved);
      made.append(text("shape", x, y, edge.shapes.join(" ")));
    }
  });
  return made;
}

/** @param {{x: number, y: number}[]} points */
export function curve([first, ...others]) {
  let before = first;
  let path = `M${first.x} ${first.y}`;
  for (const next of others) {
    const half = (before.y + next.y) / 2;
    path += before.x === next.x ? `V${next.y}` : `C${before.x} ${half} ${next.x} ${half} ${next.x} ${next.y}`;
    before = next;
  }
  return path;
}

/** @param {{x: number, y: number}[]} points */
function arrow(points) {
  const { x, y } = points[points.length - 1];
  const isUp = points[points.length - 2].y > y;
  return isUp ? `M${x - 3.2} ${y + 6}L${x} ${y}L${x + 3.2} ${y + 6}Z` : `M${x - 3.2} ${y - 6}L${x} ${y}L${x + 3.2} ${y - 6}Z`;
}
