import assert from "node:assert/strict";
import { test } from "node:test";

import { countAbove, placeOf, valueAt } from "../../frontend/firstdrift_frontend/static/rules/scales.js";

const KINDS = [
  [undefined, { usual: 3, least: 0.001, most: 1e6 }],
  ["share", { usual: 0.2, least: 0, most: 1 }],
  ["rest", { usual: 0.999, least: 0, most: 1 }],
];

for (const [scale, threshold] of KINDS) {
  test(`a slider stands in the middle at what is usual (${scale ?? "powers"})`, () => {
    assert.equal(placeOf(threshold.usual, scale, threshold), 500);
    assert.equal(valueAt(500, scale, threshold), threshold.usual);
  });

  test(`a slider that is moved stays where it was put (${scale ?? "powers"})`, () => {
    for (let place = 0; place <= 1000; place += 50) {
      const value = valueAt(place, scale, threshold);
      assert.ok(value >= threshold.least && value <= threshold.most);
      assert.ok(Math.abs(placeOf(value, scale, threshold) - place) <= 3, `${place}: ${value}`);
    }
  });
}

test("a value beyond the slider leaves it at its end", () => {
  assert.equal(placeOf(1e9, undefined, { usual: 3, least: 0, most: 1e12 }), 1000);
  assert.equal(placeOf(0, undefined, { usual: 3, least: 0, most: 1e12 }), 0);
});

test("what is counted above a limit lies beyond where its slider stands", () => {
  assert.deepEqual(countAbove([[0, 3], [500, 2], [501, 4]], 500), { above: 4, total: 9 });
  assert.deepEqual(countAbove([], 500), { above: 0, total: 0 });
});
