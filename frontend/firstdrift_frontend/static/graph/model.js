// What is known of a graph: the boxes of modules as far as they were fetched, which modules are open, and which pieces
// of them are seen.

/**
 * @typedef {object} Box a row of the tree; `place` is where it stands in its module
 * @property {number} row
 * @property {string} label
 * @property {string} name
 * @property {string} kind
 * @property {string} type_name
 * @property {string} direction
 * @property {string[]} sides
 * @property {number} holds
 * @property {boolean} own
 * @property {string} verdict
 * @property {string} node_class
 * @property {string} class_shown
 * @property {string} said
 * @property {Record<string, string>} shown
 * @property {number | null} level
 * @property {string | null} golden_label
 * @property {number} bad
 * @property {number} errors
 * @property {number} unmatched
 * @property {number | null} [module]
 * @property {number} [place]
 *
 * @typedef {object} Edge
 * @property {number | null} source
 * @property {number | null} goal
 * @property {string[]} shapes
 * @property {boolean} by_order
 *
 * @typedef {object} Layer a piece of what lies in a module
 * @property {number | null} row
 * @property {number} piece
 * @property {number} pieces
 * @property {number} total
 * @property {number} size of a piece
 * @property {Box[]} boxes
 * @property {Record<string, Edge[]>} edges
 */

export const SIDES = ["golden", "target"];

/** The name of a module in addresses: nothing for what lies in none. @param {number | null} row */
const nameOf = (row) => (row === null ? "" : String(row));

const UNSEEN = /[\p{C}\u2028\u2029]/gu;

/** Spell out what cannot be seen in a name, or would turn the text around it; no file of XML can hold some of it. @param {string} name */
export const spelt = (name) => name.replace(UNSEEN, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);

/** What is known of one graph. */
export class Model {
  /** @param {Layer[]} layers what a page begins with: all of it is open */
  constructor(layers) {
    /** @type {Map<number, Box>} */
    this.boxes = new Map();
    /** @type {Map<string, Map<number, Layer>>} pieces by module */
    this.modules = new Map();
    /** @type {Set<number>} */
    this.open = new Set();
    /** @type {Map<string, Set<number>>} pieces that are seen, by module */
    this.seen = new Map();
    for (const layer of layers) {
      this.add(layer);
      this.show(layer.row, layer.piece);
      if (layer.row !== null) this.open.add(layer.row);
    }
  }

  /** @param {Layer} layer */
  add(layer) {
    const name = nameOf(layer.row);
    const known = this.modules.get(name) ?? new Map();
    this.modules.set(name, known.set(layer.piece, layer));
    layer.boxes.forEach((box, place) => {
      box.module = layer.row;
      box.place = place;
      box.label = spelt(box.label);
      box.type_name = spelt(box.type_name);
      this.boxes.set(box.row, box);
    });
  }

  /** Have a piece of a module be seen. @param {number | null} row @param {number} piece */
  show(row, piece) {
    const name = nameOf(row);
    this.seen.set(name, (this.seen.get(name) ?? new Set()).add(piece));
  }

  /** Tell whether a piece is known. @param {number | null} row @param {number} piece */
  has(row, piece) {
    return this.modules.get(nameOf(row))?.has(piece) ?? false;
  }

  /** Tell whether anything in a module is known. @param {number} row */
  isKnown(row) {
    return this.modules.has(String(row));
  }

  /** List the pieces of a module that are seen, in their order. @param {number | null} row @returns {Layer[]} */
  pieces(row) {
    const known = this.modules.get(nameOf(row));
    const seen = [...(this.seen.get(nameOf(row)) ?? [])].sort((a, b) => a - b);
    return seen.flatMap((piece) => known?.get(piece) ?? []);
  }

  /** Tell whether a box is there: all modules around it are open, and its piece is seen. @param {number} row */
  isThere(row) {
    for (let box = this.boxes.get(row); box; box = this.boxes.get(/** @type {number} */ (box.module))) {
      if (!this.pieces(box.module ?? null).some((layer) => layer.boxes.includes(/** @type {Box} */ (box)))) return false;
      if (box.module === null) return true;
      if (!this.open.has(/** @type {number} */ (box.module))) return false;
    }
    return false;
  }

  /** List the modules around a box, the innermost first. @param {number} row @returns {number[]} */
  around(row) {
    const found = [];
    for (let box = this.boxes.get(row); box && typeof box.module === "number"; box = this.boxes.get(box.module)) found.push(box.module);
    return found;
  }

  /** Open a module whose boxes are known. @param {number} row */
  unfold(row) {
    this.open.add(row);
    const known = this.modules.get(String(row));
    if (!this.seen.has(String(row)) && known) for (const piece of known.keys()) this.show(row, piece);
  }

  /**
   * Write down what is open and seen, as addresses have it.
   * @param {number | null} row the selected one
   */
  query(row) {
    const written = new URLSearchParams();
    if (row !== null) written.set("row", String(row));
    written.set("open", [...this.open].sort((a, b) => a - b).join("."));
    const some = [...this.seen].flatMap(([name, pieces]) => {
      const all = this.modules.get(name)?.values().next().value?.pieces ?? 1;
      return all > 1 ? [...pieces].map((piece) => `${name}:${piece}`) : [];
    });
    if (some.length) written.set("pieces", some.join("."));
    return written.toString().replaceAll("%3A", ":");
  }
}

/**
 * Put the edges of both sides together.
 * @param {Layer[]} pieces of a module
 * @returns {Joined[]}
 *
 * @typedef {object} Joined an edge that at least one side has
 * @property {number | null} source
 * @property {number | null} goal
 * @property {Record<string, Edge>} of the edge of each side
 */
export function joined(pieces) {
  /** @type {Map<string, Joined>} */
  const found = new Map();
  for (const layer of pieces)
    for (const side of SIDES)
      for (const edge of layer.edges[side]) {
        const key = `${edge.source}>${edge.goal}`;
        const known = found.get(key) ?? { source: edge.source, goal: edge.goal, of: {} };
        known.of[side] = edge;
        found.set(key, known);
      }
  return [...found.values()];
}
