import assert from "node:assert/strict";
import { test } from "node:test";

import { filling, first, revealing, whole, zoomed } from "../../frontend/firstdrift_frontend/static/graph/camera.js";
import { picture, textPlace } from "../../frontend/firstdrift_frontend/static/graph/layout.js";
import { Model, spelt } from "../../frontend/firstdrift_frontend/static/graph/model.js";
import { placed } from "../../frontend/firstdrift_frontend/static/graph/outline.js";
import { spread } from "../../frontend/firstdrift_frontend/static/graph/place.js";
import { step } from "../../frontend/firstdrift_frontend/static/graph/walk.js";

/** A box of the tree; those with `holds` can be opened. */
const box = (row, holds = 0, sides = ["golden", "target"]) => ({
  row, label: `node${row}`, name: `node${row}`, kind: "module", type_name: "Linear", direction: "forward", sides, holds, own: true, verdict: "pass",
  node_class: "clean", said: "pass", shown: { input: "0", parameter: "–", output: "0" }, level: 0, golden_label: null, bad: 0, errors: 0, unmatched: 0,
});

const edge = (source, goal, byOrder = false) => ({ source, goal, shapes: byOrder ? [] : ["[2, 8]"], by_order: byOrder });

/** A piece of a module, with the same edges on both sides unless others are given. */
const layer = (row, boxes, edges, more = {}) => ({
  row, piece: 0, pieces: 1, total: boxes.length, size: 64, boxes, edges: { golden: edges, target: edges }, ...more,
});

/** Two boxes at the top, of which the first holds a diamond. */
const made = () => new Model([
  layer(null, [box(0, 4), box(5)], [edge(0, 5)]),
  layer(0, [box(1), box(2), box(3), box(4)], [edge(null, 1), edge(1, 2), edge(1, 3), edge(2, 4), edge(3, 4), edge(4, null)]),
]);

const at = (shown, row) => shown.boxes.find((placed) => placed.key === String(row));

test("what is given lies above what takes it, and what runs beside it at the same height", () => {
  const shown = picture(made());
  const y = (row) => at(shown, row).y;
  assert.ok(y(1) < y(2) && y(2) === y(3) && y(3) < y(4));
});

test("shapes stand beside their lines, and none covers another", () => {
  const boxes = Array.from({ length: 9 }, (_, row) => box(row));
  const shown = picture(new Model([layer(null, boxes, boxes.slice(1).map(({ row }) => ({ source: 0, goal: row, shapes: [`[${row}, 8, 4096, 128]`], by_order: false })))]));
  const named = shown.lines.filter(({ isNamed }) => isNamed);
  assert.ok(named.length > 1);
  for (const one of named) {
    for (const other of named.filter((line) => line !== one)) {
      const [a, b] = [textPlace(one.points), textPlace(other.points)];
      assert.ok(Math.abs(a.x - b.x) >= 60 || Math.abs(a.y - b.y) >= 5);
    }
  }
});

test("no two boxes of a module lie over each other, and all lie inside it, whatever is open", () => {
  let seed = 7;
  const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 60; round += 1) {
    const layers = [];
    let next = 0;
    const fill = (row, depth) => {
      const boxes = Array.from({ length: 1 + random(9) }, () => box(next++, 0));
      const edges = boxes.flatMap(({ row: goal }, place) => (place ? [edge(boxes[random(place)].row, goal)] : []));
      layers.push(layer(row, boxes, edges));
      for (const inner of boxes) if (depth < 3 && random(3) === 0) fill(inner.row, depth + 1);
    };
    fill(null, 0);
    const model = new Model(layers);
    const shown = picture(model);
    const keys = shown.boxes.map(({ key }) => key);
    assert.equal(new Set(keys).size, keys.length);
    assert.equal(keys.length, next);
    for (const one of shown.boxes) {
      assert.ok(one.x >= -1 && one.x + one.w <= shown.w + 1 && one.y >= -1 && one.y + one.h <= shown.h + 1);
      const outer = one.box.module === null ? null : at(shown, one.box.module);
      if (outer) assert.ok(one.x >= outer.x && one.x + one.w <= outer.x + outer.w && one.y >= outer.y && one.y + one.h <= outer.y + outer.h);
      for (const other of shown.boxes) {
        if (other === one || other.box.module !== one.box.module) continue;
        const apart = other.x >= one.x + one.w || one.x >= other.x + other.w || other.y >= one.y + one.h || one.y >= other.y + other.h;
        assert.ok(apart, `${one.key} lies over ${other.key}`);
      }
    }
  }
});

test("a box that one side lacks has its place on both", () => {
  const model = new Model([layer(null, [box(0), box(1, 0, ["target"]), box(2)], [], {
    edges: { golden: [edge(0, 2)], target: [edge(0, 1), edge(1, 2)] },
  })]);
  const shown = picture(model);
  assert.ok(at(shown, 0).y < at(shown, 1).y && at(shown, 1).y < at(shown, 2).y);
  const sides = shown.lines.map(({ edge: { source, goal, of } }) => [source, goal, Object.keys(of).join()]);
  assert.deepEqual(sides.sort(), [[0, 1, "target"], [0, 2, "golden"], [1, 2, "target"]]);
});

test("of an edge between boxes that are far apart the ends alone are drawn", () => {
  const boxes = Array.from({ length: 30 }, (_, row) => box(row));
  const chain = boxes.slice(1).map(({ row }) => edge(row - 1, row));
  const shown = picture(new Model([layer(null, boxes, [...chain, edge(0, 29)])]));
  const far = shown.lines.filter(({ edge: { source, goal } }) => source === 0 && goal === 29);
  assert.deepEqual(far.map(({ end }) => end).sort(), ["end", "start"]);
});

test("of what many take, lines are drawn to the next of them", () => {
  const boxes = Array.from({ length: 10 }, (_, row) => box(row));
  const shown = picture(new Model([layer(null, boxes, boxes.slice(1).map(({ row }) => edge(0, row)))]));
  const whole = shown.lines.filter(({ end }) => end === null).map(({ edge: { goal } }) => goal);
  assert.deepEqual(whole, [1, 2, 3]);
});

test("what stands for the pieces that are not seen says how many boxes they have", () => {
  const boxes = Array.from({ length: 64 }, (_, row) => box(64 + row));
  const shown = picture(new Model([layer(null, boxes, [], { piece: 1, pieces: 4, total: 200 })]));
  const more = shown.boxes.filter((placed) => placed.more).map(({ more: { piece, count } }) => [piece, count]);
  assert.deepEqual(more, [[0, 64], [2, 72]]);
  assert.ok(shown.boxes[0].more && shown.boxes.at(-1).more);
});

test("an address says what is open and which pieces are seen", () => {
  const model = made();
  assert.equal(model.query(3), "row=3&open=0");
  model.open.delete(0);
  assert.equal(model.query(null), "open=");
  const pieces = new Model([layer(null, [box(70, 2)], [], { piece: 1, pieces: 4, total: 200 })]);
  assert.equal(pieces.query(70), "row=70&open=&pieces=:1");
});

test("what cannot be seen in a name is spelt out", () => {
  assert.equal(spelt("a\u0000b\u202ec\ud800"), "a\\u{0}b\\u{202e}c\\u{d800}");
  assert.equal(spelt("层.q_proj <b>"), "层.q_proj <b>");
  assert.equal(new Model([layer(null, [{ ...box(0), label: "x\u0007" }], [])]).boxes.get(0).label, "x\\u{7}");
});

test("a box is there if all around it is open", () => {
  const model = made();
  assert.deepEqual([model.isThere(3), model.isThere(5), model.isThere(9)], [true, true, false]);
  assert.deepEqual(model.around(3), [0]);
  model.open.delete(0);
  assert.equal(model.isThere(3), false);
});

test("the arrows go with the flow, into open boxes and out of them", () => {
  const shown = picture(made());
  const walk = (row, way) => step(shown, String(row), way)?.key;
  assert.equal(walk(0, "down"), "1");
  assert.ok(["2", "3"].includes(walk(1, "down")));
  assert.equal(walk(2, "down"), "4");
  assert.equal(walk(4, "down"), "5", "what follows on the box around it");
  assert.ok(["2", "3"].includes(walk(4, "up")));
  assert.equal(walk(1, "up"), "0");
  assert.equal(walk(2, "out"), "0");
  assert.equal(walk(0, "out"), undefined);
  assert.equal(walk(5, "down"), undefined);
});

test("left and right go to what lies beside a box", () => {
  const shown = picture(made());
  const [left, right] = [at(shown, 2), at(shown, 3)].sort((a, b) => a.x - b.x);
  assert.equal(step(shown, left.key, "right").key, right.key);
  assert.equal(step(shown, right.key, "left").key, left.key);
});

test("every box is reached with the arrow down", () => {
  const model = new Model([layer(null, [box(0, 2), box(3), box(4)], [edge(0, 3, true), edge(3, 4, true)]), layer(0, [box(1), box(2)], [edge(1, 2, true)])]);
  const shown = picture(model);
  const visited = ["0"];
  for (let next = step(shown, "0", "down"); next; next = step(shown, next.key, "down")) visited.push(next.key);
  assert.deepEqual(visited, ["0", "1", "2", "3", "4"]);
});

test("what is widest keeps its place and moves the others away", () => {
  assert.deepEqual(spread([0, 100, 200], [50, 400, 50]), [-147, 100, 347]);
  assert.deepEqual(spread([0, 100], [50, 50]), [0, 100]);
  assert.deepEqual(spread([], []), []);
});

test("zooming keeps the point that is pointed at", () => {
  const before = { x: 30, y: -20, k: 0.8 };
  const after = zoomed(before, 1.5, { x: 200, y: 100 });
  const seen = (view) => [(200 - view.x) / view.k, (100 - view.y) / view.k];
  seen(before).forEach((value, index) => assert.ok(Math.abs(value - seen(after)[index]) < 1e-9));
  assert.equal(zoomed(before, 1e9, { x: 0, y: 0 }).k, 2.5);
});

test("all of it is within the screen", () => {
  const { x, y, k } = whole({ w: 5000, h: 900 }, { w: 800, h: 600 });
  assert.ok(x >= 0 && y >= 0 && x + 5000 * k <= 800 && y + 900 * k <= 600);
});

test("a picture that fits is in the middle, and one that does not leaves no room", () => {
  const screen = { w: 800, h: 600 };
  assert.equal(filling({ x: -300, y: 7, k: 1 }, { w: 400, h: 50 }, screen).x, 200);
  assert.deepEqual(filling({ x: 90, y: 7, k: 1 }, { w: 2000, h: 50 }, screen), { x: 24, y: 7, k: 1 });
  assert.equal(filling({ x: -1900, y: 7, k: 1 }, { w: 2000, h: 50 }, screen).x, -1224);
  assert.equal(filling({ x: -500, y: 7, k: 1 }, { w: 2000, h: 50 }, screen).x, -500);
});

test("an outline is moved and made smaller, command by command", () => {
  const to = { x: 10, y: 20, k: 0.5 };
  assert.equal(placed("M8 1.8 14.8 14H1.2Z", to), "M14 20.9 17.4 27H10.6Z");
  assert.equal(placed("M14.5 8a6.5 6.5 0 1 1-13 0Z", to), "M17.25 24a3.25 3.25 0 1 1 -6.5 0Z");
  assert.equal(placed("M4.9.5h6.2l-1.3 1.3v.6V8", to), "M12.45 20.25h3.1l-0.65 0.65v0.3V24");
});

test("a box that is seen moves nothing, and another one comes into view", () => {
  const view = { x: 0, y: 0, k: 1 };
  const screen = { w: 800, h: 600 };
  assert.equal(revealing(view, { x: 10, y: 10, w: 100, h: 40 }, screen), view);
  const { x, y } = revealing(view, { x: 900, y: 2000, w: 100, h: 40 }, screen);
  assert.ok(900 + x >= 0 && 1000 + x <= 800 && 2000 + y >= 0 && 2040 + y <= 600);
});

test("a page begins with the selected box of both sides on the screen, where names can still be read", () => {
  const both = { x: 600, y: 700, w: 1800, h: 40 };
  const { x, k } = first({ w: 3200, h: 2000 }, both, { w: 750, h: 700 });
  assert.ok(600 * k + x >= 0 && 2400 * k + x <= 750);
  assert.ok(k > 0.39);
  assert.equal(first({ w: 9000, h: 2000 }, { ...both, w: 5000 }, { w: 750, h: 700 }).k, 0.39);
});

test("a page begins without room at one side where the other is cut", () => {
  const both = { x: 40, y: 700, w: 700, h: 40 };
  const { x, k } = first({ w: 1300, h: 2000 }, both, { w: 720, h: 700 });
  assert.ok(x <= 24 && 40 * k + x >= 0 && 740 * k + x <= 720);
  const all = first({ w: 500, h: 900 }, both, { w: 720, h: 700 });
  assert.equal(all.x, (720 - 500 * all.k) / 2);
});

test("a page begins with the selected box on the screen", () => {
  const { y, k } = first({ w: 1000, h: 9000 }, { x: 100, y: 7000, w: 150, h: 40 }, { w: 900, h: 700 });
  assert.ok(7000 * k + y > 0 && 7000 * k + y < 700);
});
