import assert from "node:assert/strict";
import { test } from "node:test";

import { answering } from "./page.mjs";
import { Refused, fetchData, lastOf, understand } from "../../frontend/firstdrift_frontend/static/lib/http.js";

test("data are asked for as JSON, and other headers stay", async () => {
  const asked = answering(200, '{"rows": 3}');
  assert.deepEqual(await fetchData("/rows", { method: "POST", headers: { "content-type": "text/plain" } }), { rows: 3 });
  assert.deepEqual(asked, [{ address: "/rows", method: "POST", headers: { accept: "application/json", "content-type": "text/plain" } }]);
});

test("a refusal has its status, its reason and its hint", async () => {
  answering(409, '{"error": "somebody else changed it", "hint": "look again"}');
  await assert.rejects(fetchData("/edit"), (error) => {
    assert.ok(error instanceof Refused);
    assert.deepEqual([error.status, error.message, error.hint], [409, "somebody else changed it", "look again"]);
    return true;
  });
});

test("what stands between page and server is told from the server", () => {
  assert.throws(() => understand(502, "<html>bad gateway</html>"), (error) => error instanceof Refused && error.message === "502");
  assert.throws(() => understand(200, "<html>log in to this network</html>"), TypeError);
});

test("an empty answer holds nothing", () => assert.deepEqual(understand(204, ""), {}));

test("of several questions only the last goes on", () => {
  const ask = lastOf((signal, name) => ({ signal, name }));
  const [first, second] = [ask("first"), ask("second")];
  assert.deepEqual([first.name, second.name], ["first", "second"]);
  assert.deepEqual([first.signal.aborted, second.signal.aborted], [true, false]);
});
