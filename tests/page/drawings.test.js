import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { barsView, linePath, makeFollow, lineView } = await page("drawings.js");

const path = (values) => linePath(values.length, (i) => values[i], (i) => i, (value) => value);

test("a path has gaps where numbers are not finite, and a dash for a single one", () => {
  assert.equal(path([1, 2, 3]), "M0 1L1 2L2 3");
  assert.equal(path([1, Number.NaN, 3, 4]), "M0 1L1 1M2 3L3 4");
  assert.equal(path([Number.NaN]), "");
});

test("a long path keeps the least and the greatest of each stretch", () => {
  const values = Array.from({ length: 100_000 }, (_, i) => (i === 50_001 ? 1e6 : i % 7));
  const drawn = path(values);
  assert.ok(drawn.includes("50001 1000000"));
  assert.ok(drawn.match(/[ML]/g).length < 10_000);
});

test("lines of the same length follow each other", () => {
  const seen = [];
  const follow = makeFollow();
  const end = follow.add(10, (i) => seen.push(["a", i]));
  follow.add(20, (i) => seen.push(["b", i]));
  follow.show(3, 10);
  end();
  follow.show(4, 10);
  assert.deepEqual(seen, [["a", 3]]);
});

test("a line says what it shows, and its values", () => {
  const values = [1, 2, 4];
  const data = { length: 3, number: (i) => values[i], text: (i) => String(values[i]), range: () => ({ low: 1, high: 4, lost: 2 }) };
  const { node } = lineView(data, { series: 1, unit: "steps" }, "reward", makeFollow());
  const plot = node.querySelectorAll("div").find((one) => one.attributes.role === "slider");
  assert.equal(plot.attributes["aria-label"], "reward, 1 line of 3 steps from 1 to 4");
  assert.match(node.textContent, /steps 0 to 2, 2 not finite/);
  plot.listeners.keydown({ key: "End", preventDefault() {} });
  assert.equal(plot.attributes["aria-valuetext"], "2: 4");
});

function bars(values, options) {
  const finite = values.filter(Number.isFinite);
  const range = finite.length ? { low: Math.min(...finite), high: Math.max(...finite), lost: values.length - finite.length } : null;
  const { node } = barsView({ length: values.length, number: (i) => values[i], text: (i) => String(values[i]), range: () => range }, "x", options);
  return { node, rects: node.querySelectorAll("rect"), plot: node.querySelectorAll("div").find((one) => one.attributes.role === "slider") };
}

test("numbers that are no series are bars from zero", () => {
  const { node, rects, plot } = bars([2, -1, Number.NaN]);
  assert.deepEqual(rects.map(({ attributes: { y, height } }) => [y, height].map(Number)), [[0, 48], [48, 24], [48, 1]]);
  assert.equal(plot.attributes["aria-label"], "x, 3 numbers from −1 to 2");
  assert.match(node.textContent, /elements 0 to 2, 1 not finite/);
  plot.listeners.keydown({ key: "ArrowRight", preventDefault() {} });
  assert.equal(plot.attributes["aria-valuetext"], "1: -1");
  assert.equal(bars([Number.NaN]).node.textContent, "No finite numbers.");
});

test("of many numbers, the one furthest from zero of each stretch is a bar", () => {
  const { node, rects, plot } = bars(Array.from({ length: 1000 }, (_, i) => (i === 501 ? -9 : 1)));
  assert.equal(rects.length, 250);
  assert.match(node.textContent, /the furthest from zero of each 4/);
  for (let i = 0; i < 125; i++) plot.listeners.keydown({ key: "ArrowRight", preventDefault() {} });
  assert.equal(plot.attributes["aria-valuetext"], "501: -9");
});
