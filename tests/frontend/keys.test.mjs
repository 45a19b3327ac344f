import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeElement, press } from "./page.mjs";
import { listenForKeys } from "../../frontend/firstdrift_frontend/static/lib/keys.js";

function listening(choices) {
  const where = new FakeElement(...(choices?.selectors ?? []));
  const done = [];
  listenForKeys(where, { n: () => done.push("n"), Enter: () => done.push("Enter") }, choices);
  return { where, done };
}

test("a key of the map does what it says, and nothing else", () => {
  const { where, done } = listening();
  assert.equal(press(where, "n").defaultPrevented, true);
  assert.deepEqual(done, ["n"]);
});

test("other keys stay with the browser, as do those together with others", () => {
  const { where, done } = listening();
  const left = [press(where, "x"), press(where, "toString"), press(where, "n", { ctrlKey: true }), press(where, "n", { metaKey: true }), press(where, "n", { altKey: true })];
  assert.ok(left.every((event) => !event.defaultPrevented));
  assert.deepEqual(done, []);
});

test("whoever types in a field types", () => {
  const { where, done } = listening({ selectors: ["textarea"] });
  assert.equal(press(where, "n").defaultPrevented, false);
  assert.deepEqual(done, []);
});

test("Escape leaves a field, and so does what the page says", () => {
  let left = 0;
  const { where, done } = listening({ selectors: ["input"], leave: () => (left += 1), isLeaving: (event) => event.key === "Enter" });
  for (const key of ["n", "Escape", "Enter"]) press(where, key);
  assert.equal(left, 2);
  assert.deepEqual(done, []);
});

test("what has the focus keeps its keys", () => {
  const { where, done } = listening({ isFor: (event) => event.key !== "Enter" });
  assert.equal(press(where, "Enter").defaultPrevented, false);
  assert.equal(press(where, "n").defaultPrevented, true);
  assert.deepEqual(done, ["n"]);
});

test("while a dialog is open, keys are for the dialog", () => {
  const { where, done } = listening();
  document.querySelector = (selector) => (selector === "dialog[open]" ? {} : null);
  press(where, "n");
  document.querySelector = () => null;
  assert.deepEqual(done, []);
});
