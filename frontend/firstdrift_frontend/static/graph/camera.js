// What part of a graph is on the screen, and how large.

/** @typedef {{x: number, y: number, k: number}} View a point p of the picture is seen at k p + (x, y) */

export const LEAST = 0.06;
export const MOST = 2.5;
export const SMALL = 0.39; // names cannot be read any more

/** @param {number} k */
export const within = (k) => Math.min(MOST, Math.max(LEAST, k));

/**
 * Zoom so that a point of the screen stays where it is.
 * @param {View} view @param {number} by @param {{x: number, y: number}} at
 * @returns {View}
 */
export function zoomed(view, by, at) {
  const k = within(view.k * by);
  const ratio = k / view.k;
  return { k, x: at.x - (at.x - view.x) * ratio, y: at.y - (at.y - view.y) * ratio };
}

/**
 * Show all of a picture.
 * @param {{w: number, h: number}} picture @param {{w: number, h: number}} screen
 * @returns {View}
 */
export function whole(picture, screen) {
  const room = 28;
  const head = 16;
  const k = within(Math.min(1, (screen.w - 2 * room) / picture.w, (screen.h - room - head) / picture.h));
  return { k, x: (screen.w - picture.w * k) / 2, y: head + Math.max(0, (screen.h - room - head - picture.h * k) / 2) };
}

/**
 * Move as little as it takes for a rectangle of the picture to be seen, or its upper left part if it is too large.
 * @param {View} view @param {{x: number, y: number, w: number, h: number}} wanted @param {{w: number, h: number}} screen
 * @returns {View}
 */
export function revealing(view, wanted, screen) {
  /** @param {number} start @param {number} length @param {number} room @param {number} edge */
  const moved = (start, length, room, edge) => {
    if (start < edge || length > room - 2 * edge) return edge - start;
    return Math.min(0, room - edge - start - length);
  };
  const left = wanted.x * view.k + view.x;
  const top = wanted.y * view.k + view.y;
  const isSeen = left >= 0 && top >= 0 && left + wanted.w * view.k <= screen.w && top + wanted.h * view.k <= screen.h;
  if (isSeen) return view;
  return {
    k: view.k,
    x: view.x + moved(left, wanted.w * view.k, screen.w, 24),
    y: view.y + moved(top, wanted.h * view.k, screen.h, screen.h / 5),
  };
}

/**
 * Leave no room at one side that the picture could fill: in the middle, if all of its width is seen.
 * @param {View} view @param {{w: number, h: number}} picture @param {{w: number, h: number}} screen
 * @returns {View}
 */
export function filling(view, picture, screen) {
  const edge = 24;
  const least = screen.w - edge - picture.w * view.k;
  const x = least >= edge ? (screen.w - picture.w * view.k) / 2 : Math.min(edge, Math.max(least, view.x));
  return { ...view, x };
}

/**
 * Begin with both sides in their whole width, if that can be read; else with a box of both sides in the middle.
 * @param {{w: number, h: number}} picture
 * @param {{x: number, y: number, w: number, h: number} | null} both from the box of golden to that of target
 * @param {{w: number, h: number}} screen
 * @returns {View}
 */
export function first(picture, both, screen) {
  const readable = Math.min(1, Math.max(0.5, (screen.w - 48) / picture.w));
  const k = both ? Math.max(SMALL, Math.min(readable, (screen.w - 16) / both.w)) : readable;
  const fits = picture.w * k <= screen.w;
  const middle = both ? both.y + Math.min(both.h, 120) / 2 : 0;
  const y = picture.h * k <= screen.h - 48 ? 20 : Math.min(20, screen.h * 0.45 - middle * k);
  const x = both && !fits ? (screen.w - both.w * k) / 2 - both.x * k : 0;
  return filling({ k, x, y }, picture, screen);
}
