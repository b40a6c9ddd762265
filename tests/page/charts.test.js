import assert from "node:assert/strict";
import { test } from "node:test";
import { page, resize } from "./dom.js";

const charts = await page("charts.js");
const LIMITER = { samples_per_insert: 4, min_diff: -10, max_diff: 30, diff: 10 };

test("paths round their coordinates", () => {
  assert.equal(charts.path([[0, 1.26], [2.5, -3]]), "M0 1.3L2.5 -3");
  assert.equal(charts.path([]), "");
});

test("scales are of round numbers that reach the greatest", () => {
  assert.deepEqual(charts.scale(0), [0, 1]);
  assert.deepEqual(charts.scale(Number.NaN), [0, 1]);
  assert.deepEqual(charts.scale(3), [0, 1, 2, 3]);
  assert.deepEqual(charts.scale(7), [0, 2.5, 5, 7.5]);
  assert.deepEqual(charts.scale(100), [0, 50, 100]);
  for (const high of [0.013, 0.7, 1, 2, 9.99, 31, 12345, 2.5e9]) {
    const ticks = charts.scale(high);
    assert.ok(ticks[ticks.length - 1] >= high * (1 - 1e-9), `${ticks} of ${high}`);
    assert.ok(ticks.length >= 3 && ticks.length <= 5, `${ticks} of ${high}`);
  }
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

test("a strip says its bounds in words", () => {
  assert.equal(
    charts.stripLabel(LIMITER),
    "Inserts times 4 less samples: 10; lower bound −10, upper bound 30.",
  );
  assert.match(charts.stripLabel({ ...LIMITER, min_diff: null, max_diff: null }), /no lower bound, no upper bound/);
});

function drawn(limiter, blocked = false) {
  const { node, update } = charts.strip({ height: 118 });
  update(limiter, [1, 2, 3], [0, 5, null], blocked);
  resize(node, 308);
  const [band, top, bottom, line, point, ...words] = node.children;
  return { node, band, top, bottom, line, point, words };
}

test("a strip draws its point inside the band between the bounds", () => {
  const { band, top, bottom, point, words } = drawn(LIMITER);
  const [upper, lower, at] = [top.attributes.y1, bottom.attributes.y1, point.attributes.cy].map(Number);
  assert.ok(0 < upper && upper < at && at < lower && lower < 100);
  assert.equal(Number(band.attributes.height), Math.round((lower - upper) * 10) / 10);
  assert.equal((at - upper) / (lower - upper), 0.5);
  assert.equal(point.attributes["data-diff"], "10");
  assert.equal(point.attributes.class, "point");
  assert.deepEqual(words.slice(0, 2).map((word) => word.textContent), ["30", "−10"]);
});

test("a strip without bounds has no lines for them, and shows that requests wait", () => {
  const { top, bottom, point } = drawn({ ...LIMITER, min_diff: null, max_diff: null }, true);
  assert.equal(top.attributes.display, "none");
  assert.equal(bottom.attributes.display, "none");
  assert.equal(point.attributes.class, "point blocked");
});

test("a line chart draws each series below one scale", () => {
  const { node, update } = charts.lineChart({ height: 128 });
  update([{ points: [[0, 0], [20, 10]] }, { points: [[0, 5], [20, 5]], second: true }], "Rates");
  resize(node, 144);
  const [grid, lines] = node.children;
  assert.deepEqual(lines.children.map((one) => one.attributes), [
    { class: "line", d: "M44 108L144 8" },
    { class: "line second", d: "M44 58L144 58" },
  ]);
  const texts = grid.querySelectorAll("text").map((one) => one.textContent);
  assert.deepEqual(texts, ["0", "5", "10", "20 s ago", "now"]);
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
