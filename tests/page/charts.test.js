import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const charts = await page("charts.js");

test("paths round their coordinates", () => {
  assert.equal(charts.path([[0, 1.26], [2.5, -3]]), "M0 1.3L2.5 -3");
  assert.equal(charts.path([]), "");
});

test("a sparkline shows the last seconds, and needs two points", () => {
  assert.deepEqual(charts.sparkPath([[1, 1]], 60), { line: "", area: "" });
  const points = Array.from({ length: 100 }, (_, i) => [i, i < 50 ? 1000 : 2]);
  const { line, area } = charts.sparkPath(points, 30);
  assert.equal(line.match(/[ML]/g).length, 31);
  assert.ok(line.startsWith("M0 1.5"), "the peak before is not seen");
  assert.ok(area.startsWith(line) && area.endsWith("Z"));
  const young = charts.sparkPath([[0, 0], [5, 1]], 60).line;
  assert.equal(young, "M90 26.5L120 1.5", "five seconds fill a quarter of twenty");
});

test("a sparkline says what it shows", () => {
  const { node, update } = charts.sparkline({ area: true });
  update([[0, 1], [1, 2]], "Items, now 2");
  assert.equal(node.attributes["aria-label"], "Items, now 2");
  assert.deepEqual(node.children.map((child) => child.attributes.class), ["area", "line"]);
});

test("the parts of a stacked bar have their shares, and empty ones are hidden", () => {
  const { node, update } = charts.stackedBar();
  update([{ value: 1, tone: 1 }, { value: 0, tone: 2 }, { value: 3, tone: 3 }], 4, "Sizes");
  assert.deepEqual(node.children.map((child) => [child.hidden, child.style.width, child.attributes.class]), [
    [false, "25%", "tone-1"],
    [true, "0%", "tone-2"],
    [false, "75%", "tone-3"],
  ]);
  update([{ value: 1, tone: 4 }], 0, "Sizes");
  assert.deepEqual(node.children.map((child) => child.hidden), [false, true, true]);
});

test("a bar stays within its frame", () => {
  const { node, update } = charts.bar();
  const widths = [0.5, -1, 7, Number.NaN].map((share) => {
    update(share, "full");
    return node.children[0].style.width;
  });
  assert.deepEqual(widths, ["50%", "0%", "100%", "0%"]);
});
