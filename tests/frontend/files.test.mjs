import assert from "node:assert/strict";
import { test } from "node:test";

import "./page.mjs";
import { bundles } from "../../frontend/firstdrift_frontend/static/new/files.js";
import { amount } from "../../frontend/firstdrift_frontend/static/new/sending.js";

const given = (...paths) => paths.map((path) => ({ path, file: null }));
const names = (found) => found.map(({ name, files }) => [name, files.length]);

test("a folder is one dump, an archive another, and single files a third", () => {
  const found = bundles(given("run/a.npy", "run/b/c.npy", "other.tar.gz", "x.pt", "y.pt", "Z.ZIP"));
  assert.deepEqual(names(found), [["run", 2], ["other.tar.gz", 1], ["x.pt", 2], ["Z.ZIP", 1]]);
});

test("mapping files go together, whatever they are called", () => {
  assert.deepEqual(names(bundles(given("a.yaml", "b.zip"), true)), [["a.yaml", 2]]);
});

test("bytes are written short", () => {
  assert.deepEqual([0, 999, 1000, 1_230_000, 123_400_000_000].map(amount), ["0 B", "999 B", "1.0 kB", "1.2 MB", "123 GB"]);
});
