// Outlines of SVG, put where they are seen: each transformation that is left to the browser slows down all of the picture.

/** How many numbers the commands of an outline take. @type {Record<string, number>} */
const TAKES = { m: 2, l: 2, h: 1, v: 1, c: 6, a: 7, z: 0 };

/**
 * Move and scale an outline.
 * @param {string} outline as the attribute `d`
 * @param {{x: number, y: number, k: number}} to
 */
export function placed(outline, { x, y, k }) {
  let written = "";
  for (const [, command, numbers] of outline.matchAll(/([a-z])([^a-z]*)/gi)) {
    const kind = command.toLowerCase();
    const isRelative = kind === command;
    const moves = kind === "h" ? [x] : kind === "v" ? [y] : [x, y];
    const values = [...numbers.matchAll(/-?(?:\d+\.?\d*|\.\d+)/g)].map(Number).map((value, index) => {
      const place = index % TAKES[kind];
      if (kind === "a" && place < 5) return place < 2 ? value * k : value;
      const along = kind === "a" ? place - 5 : place;
      return value * k + (isRelative ? 0 : moves[along % moves.length]);
    });
    written += command + values.map((value) => Math.round(value * 100) / 100).join(" ");
  }
  return written;
}
