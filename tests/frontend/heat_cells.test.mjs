import assert from "node:assert/strict";
import { test } from "node:test";

import "./page.mjs";
import { ABSENT, UNKNOWN, bins, prepare, selection, sizeAt, worst } from "../../frontend/firstdrift_frontend/static/comparison/heat_cells.js";
import { describe, state } from "../../frontend/firstdrift_frontend/static/comparison/heat_state.js";
import { shadeOf } from "../../frontend/firstdrift_frontend/static/lib/limit_shades.js";

const DATA = {
  rows: [{}, {}],
  expected: 3,
  layers: ["model.layers.0", "model.layers.1", "model.head"],
  labels: ["0", "1", "head"],
  errors: [[0, 1e-3, null], ["NaN", 0.5, null]],
  verdicts: [[0, 0, 1], [2, 2, null]],
  verdict_names: ["pass", "warning", "error"],
  limit: 0.01,
  range: [1e-3, 0.5],
  first: { row: 1, layer: 0 },
};

test("each cell is as large as its error, and what has none says why", () => {
  const cells = prepare(DATA);
  assert.deepEqual([...cells.sizes], [0, 1e-3, UNKNOWN, Infinity, 0.5, ABSENT, ABSENT, ABSENT, ABSENT]);
  assert.equal(sizeAt(cells, 1, 1), 0.5);
});

test("the cell of the first bad node says whether its own output fails", () => {
  const said = { ...DATA, rules: "firstdrift", verdicts: [[0, 0, 1], [0, 2, null]], rows: [{ states: [] }, { states: [] }], shown: [[0, 0, 0], [1, 1, 0]], shown_names: ["clean", "propagated"], limits: [[], []], kinds: [[], []] };
  document.getElementById = () => ({ dataset: { from: "data" } });
  state.cells = prepare(said);
  assert.deepEqual(describe([1, 0]).slice(2), ["the first bad node is inside; the output of the whole is within its limit"]);
  state.cells = prepare({ ...said, first: { row: 1, layer: 1 } });
  assert.deepEqual(describe([1, 1]).slice(2), ["error, propagated", "the first bad node is here"]);
  state.cells = prepare({ ...said, limits: [[], [null, 0.2, null]], first: null });
  assert.deepEqual(describe([1, 1]).slice(2), ["limit 20.0\u00a0%", "error, propagated"]);
  state.cells = prepare({ ...said, rules: "msprobe", first: null });
  assert.deepEqual(describe([1, 1]).slice(2), ["error"]);
});

test("layers are called by their labels", () => {
  assert.deepEqual(prepare(DATA).layers, ["0", "1", "head"]);
});

test("of many cells under a pixel the worst is seen", () => {
  const cells = prepare(DATA);
  assert.deepEqual(worst(cells, [0, 2], [0, 3]), [1, 0]);
  assert.deepEqual(worst(cells, [0, 1], [0, 3]), [0, 1]);
});

test("every cell lies in one bin, and no bin is empty", () => {
  for (const [count, pixels] of [[1000, 333], [5, 5], [5, 800], [7, 0.5]]) {
    const all = bins(count, pixels);
    assert.equal(all[0][0], 0);
    assert.equal(all.at(-1)[1], count);
    all.forEach(([from, behind], i) => assert.ok(from < behind && (i === 0 || from === all[i - 1][1])));
  }
});

test("what is seen from near lies around the first bad node, or is what was selected", () => {
  const cells = prepare(DATA);
  assert.deepEqual(selection(cells, null, null), [0, 1, 0, 2]);
  assert.deepEqual(selection(cells, [0, 2], [1, 1]), [0, 1, 1, 2]);
});

test("what passes is light however large the largest error is, what fails is dark however small it is", () => {
  assert.ok(shadeOf(1e-9, 0.01, "pass") === 0);
  assert.ok(shadeOf(0.0099, 0.01, "pass") < 0.25);
  assert.ok(shadeOf(5, 0.01, "pass") <= 0.25);
  assert.ok(shadeOf(0.011, 0.01, "error") >= 0.5);
  assert.ok(shadeOf(1e-9, 0.01, "error") >= 0.5);
  assert.ok(shadeOf(10, 0.01, "error") === 1);
});

test("where the rules have no limit, the verdict alone decides", () => {
  assert.ok(shadeOf(0.5, null, "pass") <= 0.25);
  assert.ok(shadeOf(1e-6, null, "error") >= 0.5);
});

test("twice the error is as dark in a run of few as in a run of many errors", () => {
  const few = prepare({ ...DATA, errors: [[1e-3, 1e-3, null], [1e-3, 0.5, null]] });
  const many = prepare({ ...DATA, errors: [[1e-3, 1e-3, null], [1e-3, 5e4, null]] });
  assert.equal(few.shades[0], many.shades[0]);
});
