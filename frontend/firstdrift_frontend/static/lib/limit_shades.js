// How dark an error is, by the limit that decided: what passes looks calm, however large the largest error is.

const [CALM, DARK] = [0.25, 0.5]; // the darkest shade of what passes, and the lightest of what fails
const BELOW = 4; // powers of ten that are told apart below the limit

/**
 * Say how many are told apart above it: as many as lead to an error of 1, which is as large as the values are.
 * @param {number} limit
 */
const above = (limit) => Math.max(3, -Math.log10(limit));

/** @param {number} share */
const within = (share) => Math.min(1, Math.max(0, share));

/**
 * Say how dark an error is: by the limit that decided, not by the largest error there is.
 * @param {number} error
 * @param {number | null} limit
 * @param {string} verdict
 */
export function shadeOf(error, limit, verdict) {
  const passes = verdict === "pass";
  if (limit === null) {
    const share = within(1 + Math.log10(error) / 8);
    return passes ? CALM * share : DARK + (1 - DARK) * share;
  }
  const decades = Math.log10(error / limit);
  const isDark = (decades > 0 && !passes) || verdict === "error";
  return isDark ? DARK + (1 - DARK) * within(decades / above(limit)) : CALM * within(1 + decades / BELOW);
}

/**
 * Give the errors of the lightest colour, of the darkest of what passes, and of the darkest of all.
 * @param {number} limit
 */
export const ends = (limit) => [limit * 10 ** -BELOW, limit, limit * 10 ** above(limit)];
