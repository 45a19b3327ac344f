import assert from "node:assert/strict";
import { test } from "node:test";

import "./page.mjs";
import { worstAxis } from "../../frontend/firstdrift_frontend/static/node/charts.js";
import { decades, error, evenly, plain, short } from "../../frontend/firstdrift_frontend/static/lib/plot.js";

test("the dimension along which the difference is least evenly spread comes first", () => {
  assert.equal(worstAxis([{ norm: [1, 1, 1, null] }, { norm: [0, 9, 0] }, { norm: [] }]), 1);
});

test("numbers have three digits, and what is not finite has its name", () => {
  assert.deepEqual([0, 0.5, 1234.5, 1e-9, 2e9, "Infinity", "NaN", null].map(short), ["0", "0.5", "1,230", "1.00e-9", "2.00e9", "∞", "NaN", "–"]);
});

test("relative errors are percentages, in numbers and at axes", () => {
  const written = [0, 0.015, 0.459, 2, 9.32e-4, 1.9e-6, "Infinity", null].map(error);
  assert.deepEqual(written.map((text) => text.replace("\u00a0", " ")), ["0 %", "1.50 %", "45.9 %", "200 %", "0.0932 %", "1.90e-4 %", "∞", "–"]);
  assert.deepEqual(decades(2e-7, 3, true).ticktext.map((text) => text.replace("\u00a0", " ")), ["1e-4 %", "0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"]);
});

test("ticks of a linear axis are written as all percentages are", () => {
  const { tickvals, ticktext } = evenly(0.005, 0.166);
  assert.deepEqual(tickvals, [0.05, 0.1, 0.15]);
  assert.deepEqual(ticktext, ["5\u00a0%", "10\u00a0%", "15\u00a0%"]);
  assert.deepEqual(evenly(-0.01, 0.11).ticktext.at(0), "0\u00a0%");
});

test("a name from a dump is text in a chart, whatever tags it seems to have", () => {
  assert.equal(plain('<b>a</b> & "c"'), '&lt;b>a&lt;/b> &amp; "c"');
  assert.equal(plain("x".repeat(200)).length, 101);
});
