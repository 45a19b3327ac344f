// The legend of what is shaded by the limit that decided.

import { ends } from "./limit_shades.js";
import { say } from "./notice.js";
import { error } from "./plot.js";

/** @param {string} className @param {...(string | Node)} content */
export function span(className, ...content) {
  const made = Object.assign(document.createElement("span"), { className });
  made.append(...content);
  return made;
}

/** @param {string} name */
export const ramp = (name) => Object.assign(document.createElement("i"), { className: name });

/**
 * Make the legend of the shades: the errors at their ends and at the limit, or what passes and what fails.
 * @param {number | null} limit
 * @param {(middle: string) => string} name of the limit, with its value
 * @param {(size: number) => string} [write] an error as it is read
 */
export function scaleOf(limit, name, write = error) {
  if (limit === null) return [span("scale", say("passes"), ramp("calm")), span("scale", say("fails"), ramp("dark"))];
  const [low, middle, high] = ends(limit).map(write);
  return [span("scale", low, ramp("calm"), name(middle), ramp("dark"), high)];
}
