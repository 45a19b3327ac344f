import assert from "node:assert/strict";
import { test } from "node:test";

import { ROW, between, gaps, nearest, overlap, placeOf, stretchOf } from "../../frontend/firstdrift_frontend/static/lib/virtual_rows.js";

test("stretches that only touch have no row in common", () => {
  assert.equal(overlap([0, 10], [10, 20]), false);
  assert.equal(overlap([0, 11], [10, 20]), true);
  assert.equal(overlap([5, 5], [0, 10]), true);
});

test("rows that are seen in part count as seen, and none lies outside the list", () => {
  assert.deepEqual(between(ROW / 2, 2.5 * ROW, 100), [0, 3]);
  assert.deepEqual(between(-500, 1e6, 7), [0, 7]);
});

test("of an empty list everything is missing, in pieces of the grid", () => {
  assert.deepEqual(gaps([], [5, 25], 10, 22), [[0, 10], [10, 20], [20, 22]]);
});

test("nothing is missing where rows are", () => {
  assert.deepEqual(gaps([[0, 10], [10, 22]], [0, 22], 10, 22), []);
});

test("only the rows between pieces are asked for, however they lie", () => {
  assert.deepEqual(gaps([[12, 15], [3, 7]], [0, 20], 10, 20), [[0, 3], [7, 10], [10, 12], [15, 20]]);
});

test("any stretch with its gaps is whole", () => {
  for (let seed = 1; seed < 200; seed++) {
    const total = (seed * 37) % 90;
    const there = [[seed % 13, (seed % 13) + (seed % 5)], [20 + (seed % 11), 33 + (seed % 17)]].filter(([a, b]) => a < b);
    const covered = new Set([...there, ...gaps(there, [0, total], 1 + (seed % 16), total)].flatMap(([a, b]) => Array.from({ length: b - a }, (_, i) => a + i)));
    for (let place = 0; place < total; place++) assert.ok(covered.has(place), `row ${place} of ${total}`);
  }
});

test("scrolling to a row moves no further than it has to", () => {
  assert.equal(nearest(5, 0, 10 * ROW), 0);
  assert.equal(nearest(2, 5 * ROW, 10 * ROW), 2 * ROW);
  assert.equal(nearest(20, 0, 10 * ROW), 11 * ROW);
});

test("a piece says where it lies by its first row", () => {
  const row = { dataset: { place: "7" } };
  assert.equal(placeOf(row), 7);
  assert.deepEqual(stretchOf({ firstElementChild: row, childElementCount: 3 }), [7, 10]);
  assert.deepEqual(stretchOf({ firstElementChild: null, childElementCount: 0 }), [0, 0]);
});
