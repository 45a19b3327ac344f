// A list of any length of which only the rows around the screen are there. Rows are alike in height, carry their
// place in `data-place`, and come from the server in pieces: rows that lie one below the other.

export const ROW = 28; // px, as in the style

/**
 * @typedef {[number, number]} Stretch the place of its first row, and the one after its last
 * @typedef {ReturnType<typeof virtualRows>} VirtualRows
 */

/** @type {Stretch} */
const UNSEEN = [0, 0];

/**
 * Tell whether two stretches have a row in common.
 * @param {Stretch} one
 * @param {Stretch} other
 */
export const overlap = (one, other) => one[0] < other[1] && other[0] < one[1];

/**
 * Give the places of the rows between two heights.
 * @param {number} top
 * @param {number} bottom
 * @param {number} total rows
 * @returns {Stretch}
 */
export const between = (top, bottom, total) => [
  Math.max(0, Math.floor(top / ROW)),
  Math.min(total, Math.ceil(bottom / ROW)),
];

/**
 * Give the stretches without rows, among those that pieces on a grid would have.
 * @param {Stretch[]} there with rows
 * @param {Stretch} wanted
 * @param {number} chunk rows between the lines of the grid
 * @param {number} total rows
 */
export function gaps(there, [from, end], chunk, total) {
  const inOrder = [...there].sort(([one], [other]) => one - other);
  /** @type {Stretch[]} */
  const found = [];
  for (let start = from - (from % chunk); start < end; start += chunk) {
    const stop = Math.min(start + chunk, total);
    let next = start;
    for (const stretch of inOrder.filter((one) => overlap(one, [start, stop]))) {
      if (stretch[0] > next) found.push([next, stretch[0]]);
      next = stretch[1];
    }
    if (next < stop) found.push([next, stop]);
  }
  return found;
}

/**
 * Give how far to scroll for a row to be just seen.
 * @param {number} place of the row
 * @param {number} top how far is scrolled
 * @param {number} height of what is seen
 */
export function nearest(place, top, height) {
  const row = place * ROW;
  if (row < top) return row;
  return row + ROW > top + height ? row + ROW - height : top;
}

/** @param {Element} row */
export const placeOf = (row) => Number(/** @type {HTMLElement} */ (row).dataset.place);

/**
 * Give the places of the rows of a piece.
 * @param {Element} piece
 * @returns {Stretch}
 */
export function stretchOf(piece) {
  const first = piece.firstElementChild ? placeOf(piece.firstElementChild) : 0;
  return [first, first + piece.childElementCount];
}

/**
 * Make elements of the rows that the server rendered.
 * @param {string} html
 */
export function rowsIn(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return /** @type {HTMLElement[]} */ ([...template.content.children]);
}

/**
 * Keep the rows around the screen.
 * @param {object} list
 * @param {HTMLElement} list.body what scrolls
 * @param {HTMLElement} list.rows what holds the pieces, those that the server rendered among them
 * @param {number} list.total rows
 * @param {number} list.chunk rows of a piece that is asked for
 * @param {number} list.kept pieces beyond the screen that are kept on either side
 * @param {string} list.role of a piece
 * @param {(stretches: Stretch[]) => Promise<string[]>} list.ask for rows
 * @param {(piece: HTMLElement) => void} list.mark marks rows that were rendered for something else being chosen
 * @param {() => void} list.arrived is told of rows that were asked for
 * @param {(error: unknown) => void} list.failed is told why none came
 */
export function virtualRows({ body, rows, total, chunk, kept, role, ask, mark, arrived, failed }) {
  const state = { total, version: 0, isFilling: false, later: 0, frame: 0 };

  const pieces = () => /** @type {HTMLElement[]} */ ([...rows.children]);
  // Whoever asks what is seen has the browser lay out what has changed.
  const screen = () => ({ top: body.scrollTop, height: body.clientHeight });
  /** @param {number} top @param {number} bottom */
  const places = (top, bottom) => between(top, bottom, state.total);
  /** @param {Stretch} wanted */
  const missing = (wanted) => gaps(pieces().map(stretchOf), wanted, chunk, state.total);

  /**
   * Put a piece where it belongs. Pieces off the screen are not laid out (content-visibility in the style). Of one
   * that is put on the screen this is said at once: the browser itself sees it only after a layout without the
   * piece, and does a second one.
   * @param {HTMLElement} piece
   * @param {Stretch} seen
   */
  function lay(piece, seen) {
    const stretch = stretchOf(piece);
    if (overlap(stretch, seen)) piece.style.contentVisibility = "visible";
    piece.style.top = `${stretch[0] * ROW}px`;
    piece.style.height = `${(stretch[1] - stretch[0]) * ROW}px`;
  }

  /**
   * Add a piece.
   * @param {HTMLElement[]} content its rows
   * @param {Stretch} [seen]
   */
  function keep(content, seen = UNSEEN) {
    if (!content.length) return;
    const piece = document.createElement("div");
    piece.className = "piece";
    piece.setAttribute("role", role);
    piece.append(...content);
    lay(piece, seen);
    mark(piece);
    rows.append(piece);
  }

  /**
   * Add what is not there yet.
   * @param {string} html
   */
  function add(html) {
    const content = rowsIn(html);
    if (!content.length) return;
    const [first, end] = [placeOf(content[0]), placeOf(content[0]) + content.length];
    if (!pieces().some((piece) => overlap(stretchOf(piece), [first, end]))) keep(content);
  }

  /**
   * Replace all rows.
   * @param {string[]} htmls
   * @param {Stretch} [seen]
   */
  function replace(htmls, seen) {
    state.version += 1;
    rows.replaceChildren();
    for (const html of htmls) keep(rowsIn(html), seen);
  }

  /** @param {number} count */
  function resize(count) {
    state.total = count;
    rows.style.height = `${count * ROW}px`;
  }

  /**
   * Fetch rows; tell whether there were any, or others are shown meanwhile.
   * @param {Stretch[]} stretches
   */
  async function load(stretches) {
    const { version } = state;
    const found = await ask(stretches);
    if (version !== state.version) return true;
    found.forEach(add);
    arrived();
    return found.some((html) => html.trim());
  }

  // One request at a time: whoever scrolls fast is past the pieces in between when their turn comes.
  /** @returns {Promise<void>} */
  async function fill() {
    const { top, height } = screen();
    const margin = height + kept * chunk * ROW;
    const near = places(top - margin, top + height + margin);
    for (const piece of pieces()) if (!overlap(stretchOf(piece), near)) piece.remove();
    const wanted = missing(places(top - height, top + 2 * height));
    if (state.isFilling || !wanted.length) return;
    state.isFilling = true;
    try {
      if (!(await load(wanted))) return;
    } catch (error) {
      return failed(error);
    } finally {
      state.isFilling = false;
    }
    return fill();
  }

  /**
   * Fetch what is missing of what is seen now; what is beside it can wait, scrolling there fetches it at once.
   * @param {Stretch} seen
   */
  function fillAfter(seen) {
    clearTimeout(state.later);
    if (missing(seen).length) fill();
    else state.later = window.setTimeout(fill, 250);
  }

  /**
   * Find the row at a place, which may have to be fetched first.
   * @param {number} place
   */
  async function reach(place) {
    if (!at(place)) await load(missing([place, place + 1]));
    return at(place);
  }

  /** @param {number} place @returns {HTMLElement | null} */
  const at = (place) => rows.querySelector(`[data-place="${place}"]`);

  /** Others are shown from now on: answers that are on their way come too late. */
  const turn = () => (state.version += 1);

  body.addEventListener("scroll", () => {
    cancelAnimationFrame(state.frame);
    state.frame = requestAnimationFrame(() => void fill());
  }, { passive: true });
  addEventListener("resize", () => void fill());

  return { add, at, fill, fillAfter, keep, lay, missing, pieces, places, reach, replace, resize, screen, turn };
}
