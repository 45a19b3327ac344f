// Sliders of thresholds: they stand in the middle at what is usual, and reach two decades either way of it.

/**
 * @typedef {object} Threshold
 * @property {number} usual
 * @property {number} least
 * @property {number} most
 */

const MIDDLE = 500; // where a slider stands at what is usual, in thousands

/** @param {number} value */
const digits = (value) => Number(value.toPrecision(3));

/**
 * Give the value that a slider stands at.
 * @param {number} place from 0 to 1000
 * @param {string | undefined} scale "share": linear; "rest": by what is left to 1; else by powers of ten
 * @param {Threshold} threshold
 */
export function valueAt(place, scale, { usual, least, most }) {
  const away = (place - MIDDLE) / MIDDLE;
  if (Math.abs(away) < 0.01) return usual;
  /** @param {number} value */
  const within = (value) => Math.min(most, Math.max(least, value));
  if (scale === "share") return digits(within(usual + away * (away > 0 ? most - usual : usual - least)));
  if (scale === "rest") return within(1 - digits((1 - usual) * 10 ** (-2 * away)));
  return within(digits(usual * 10 ** (2 * away)));
}

/**
 * Give where a slider stands at a value.
 * @param {number} value
 * @param {string | undefined} scale
 * @param {Threshold} threshold
 */
export function placeOf(value, scale, { usual, least, most }) {
  let away = 0;
  if (value !== usual) {
    if (scale === "share") away = (value - usual) / (value > usual ? most - usual : usual - least);
    else if (scale === "rest") away = -Math.log10(Math.max(1e-12, 1 - value) / (1 - usual)) / 2;
    else away = Math.log10(Math.max(1e-30, value) / usual) / 2;
  }
  return Math.round(MIDDLE + MIDDLE * Math.min(1, Math.max(-1, away)));
}

/**
 * Count the nodes beyond a place.
 * @param {[number, number][]} counts places, and how many lie there
 * @param {number} at
 */
export function countAbove(counts, at) {
  let [above, total] = [0, 0];
  for (const [place, count] of counts) {
    total += count;
    if (place > at) above += count;
  }
  return { above, total };
}
