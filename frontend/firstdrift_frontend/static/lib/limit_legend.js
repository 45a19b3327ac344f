// The legend of what is shaded by the limit that decided.

import { ends } from "./limit_shades.js";
import { say } from "./notice.js";
import { short } from "./plot.js";

/** @param {string} className @param {...(string | Node)} content */
export function span(className, ...content) {
  const made = Object.assign(document.createElement("span"), { className });
  made.append(...content);
  return made;
}

/** @param {string} name */
const ramp = (name) => Object.assign(document.createElement("i"), { className: name });

/**
 * Make the legend of the shades: the errors at their ends and at the limit, or what passes and what fails.
 * @param {number | null} limit
 * @param {number} [unit] by which errors are multiplied
 */
export function scaleOf(limit, unit = 1) {
  if (limit === null) return [span("scale", say("passes"), ramp("calm")), span("scale", say("fails"), ramp("dark"))];
  const [low, middle, high] = ends(limit).map((error) => short(error * unit));
  return [span("scale", low, ramp("calm"), say("limit {value}", { value: middle }), ramp("dark"), high)];
}
