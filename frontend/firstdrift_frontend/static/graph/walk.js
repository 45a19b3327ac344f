// From box to box with the arrow keys: down and up with the flow of data, left and right beside it.

/**
 * @typedef {import("./layout.js").Placed} Placed
 * @typedef {import("./layout.js").Picture} Picture
 * @typedef {"down" | "up" | "left" | "right" | "out"} Way
 */

/**
 * Find the box that a step leads to.
 * @param {Picture} picture
 * @param {string} key of the box that it begins at
 * @param {Way} way
 * @returns {Placed | null}
 */
export function step(picture, key, way) {
  const here = picture.boxes.find((box) => box.key === key);
  if (!here) return picture.boxes[0] ?? null;
  if (way === "down") return down(picture, here);
  if (way === "up") return up(picture, here);
  if (way === "out") return moduleOf(picture, here);
  return beside(picture, here, way);
}

/** @param {Placed} placed */
const rowOf = ({ box, more }) => (box ? (box.module ?? null) : (more?.row ?? null));

/** @param {Picture} picture @param {Placed} here */
function moduleOf(picture, here) {
  const row = rowOf(here);
  return row === null ? null : (picture.boxes.find(({ box }) => box?.row === row) ?? null);
}

/** @param {Picture} picture @param {number | null} row */
const heldBy = (picture, row) => picture.boxes.filter((box) => rowOf(box) === row);

/** Into an open box, else to what takes what this one gives, else to the next in the order of execution. @param {Picture} picture @param {Placed} here */
function down(picture, here) {
  if (here.isOpen && here.box) {
    const held = heldBy(picture, here.box.row);
    if (held.length) return held[0];
  }
  for (let box = /** @type {Placed | null} */ (here); box; box = moduleOf(picture, box)) {
    const next = linked(picture, box, "goal") ?? inOrder(picture, box, 1);
    if (next) return next;
  }
  return null;
}

/** To what gave this box what it was given, else to the one before it, else to the module. @param {Picture} picture @param {Placed} here */
function up(picture, here) {
  return linked(picture, here, "source") ?? inOrder(picture, here, -1) ?? moduleOf(picture, here);
}

/**
 * Find the nearest box at the other end of an edge.
 * @param {Picture} picture @param {Placed} here @param {"source" | "goal"} end
 */
function linked(picture, here, end) {
  const row = here.box?.row;
  const other = end === "goal" ? "source" : "goal";
  const rows = new Set(picture.lines.filter(({ edge }) => edge[other] === row && edge[end] !== null).map(({ edge }) => edge[end]));
  const held = heldBy(picture, rowOf(here)).filter(({ box, y }) => box && rows.has(box.row) && (end === "goal" ? y > here.y : y < here.y));
  held.sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y) || Math.abs(a.x - here.x) - Math.abs(b.x - here.x));
  return held[0] ?? null;
}

/** @param {Picture} picture @param {Placed} here @param {number} by */
function inOrder(picture, here, by) {
  const held = heldBy(picture, rowOf(here));
  return held[held.indexOf(here) + by] ?? null;
}

/** Find the nearest box at one side, in the same module: at the same height if there is one. @param {Picture} picture @param {Placed} here @param {Way} way */
function beside(picture, here, way) {
  const sign = way === "left" ? -1 : 1;
  const middle = (/** @type {Placed} */ { x, w }) => x + w / 2;
  const across = (/** @type {Placed} */ other) => sign * (middle(other) - middle(here));
  const above = (/** @type {Placed} */ other) => Math.max(0, other.y - here.y - here.h, here.y - other.y - other.h);
  const found = heldBy(picture, rowOf(here)).filter((other) => other !== here && across(other) > 1);
  return found.sort((a, b) => above(a) - above(b) || across(a) - across(b))[0] ?? null;
}
