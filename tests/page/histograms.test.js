import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { barsOf, note } = await page("histograms.js");

const texts = (...of) => barsOf(...of).map(({ text, count }) => `${text}: ${count}`);

test("bars go from the first bucket to the last that are not empty", () => {
  const bars = barsOf({ edges: [0, 1, 2, 4, 8], counts: [0, 3, 0, 5] }, String);
  assert.deepEqual(bars.map(({ low, high, count }) => [low, high, count]), [[1, 2, 3], [2, 4, 0], [4, 8, 5]]);
  assert.deepEqual(barsOf({ edges: [], counts: [] }, String), []);
  assert.deepEqual(barsOf({ edges: [0, 1], counts: [0] }, String), []);
});

test("bars of measures say their bounds once if both look the same", () => {
  const format = (value) => value.toFixed(1);
  assert.deepEqual(texts({ edges: [0, 0.01, 1], counts: [2, 1] }, format), ["0.0: 2", "0.0 to 1.0: 1"]);
});

test("an edge that has no number is infinite", () => {
  assert.deepEqual(texts({ edges: [null, 1, null], counts: [1, 2] }, String), ["up to 1: 1", "above 1: 2"]);
});

test("bars of whole numbers name the numbers", () => {
  assert.deepEqual(texts({ edges: [0, 0, 1, 4, null], counts: [7, 5, 2, 1] }), ["0: 7", "1: 5", "2 to 4: 2", "5 or more: 1"]);
});

test("a histogram says its total, and since when it counts", () => {
  const table = { removals: { max_size: 6, delete: 2 }, unsampled_removals: 2 };
  const of = (field, total) => note({ field }, total, { items: 70_000, looked_at: 65_536 }, table);
  assert.equal(of("sample_age_seconds", 1_012_345), "1,012,345 draws since the server started");
  assert.equal(of("removed_times_sampled", 8), "8 items that left since the server started, 25 % never sampled");
  assert.equal(of("priority", 65_536), "estimate from 65,536 of 70,000 items");
});
