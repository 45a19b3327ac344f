import assert from "node:assert/strict";
import { test } from "node:test";

import { shareAfter, shareAt } from "../../frontend/firstdrift_frontend/static/lib/panel.js";

const around = { left: 100, width: 1000 };

test("the panel begins where the pointer is, and is neither hidden nor everything", () => {
  assert.equal(shareAt(600, around), 50);
  assert.equal(shareAt(850, around), 25);
  assert.equal(shareAt(100, around), 75);
  assert.equal(shareAt(2000, around), 20);
});

test("arrows move its edge, Home and End as far as it goes; other keys are not for it", () => {
  assert.equal(shareAfter("ArrowLeft", 40), 42);
  assert.equal(shareAfter("ArrowRight", 40), 38);
  assert.equal(shareAfter("ArrowLeft", 75), 75);
  assert.equal(shareAfter("Home", 40), 75);
  assert.equal(shareAfter("End", 40), 20);
  assert.equal(shareAfter("n", 40), null);
});
