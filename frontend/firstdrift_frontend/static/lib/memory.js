// What a browser remembers for itself: for good, or as long as a window is open. Where it refuses, nothing is remembered.

/** @param {"localStorage" | "sessionStorage"} where @param {string} name @returns {string | null} */
export function recall(where, name) {
  try {
    return window[where].getItem(`firstdrift.${name}`);
  } catch {
    return null;
  }
}

/** @param {"localStorage" | "sessionStorage"} where @param {string} name @param {string | null} value null: forget it */
export function remember(where, name, value) {
  try {
    if (value === null) window[where].removeItem(`firstdrift.${name}`);
    else window[where].setItem(`firstdrift.${name}`, value);
  } catch {
    // Then it is as usual the next time.
  }
}
