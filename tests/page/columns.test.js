import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { columnsView, openAxis } = await page("columns.js");

const column = (shape, steps, more = {}) => ({ number: 0, name: "data/tokens", dtype: "int64", shape, steps, ...more });
const table = (shape) => ({ number: 0, signature: shape && [{ number: 0, name: "data/tokens", dtype: "int64", shape }] });

test("the open axis is that of the steps, or of the rows of one step", () => {
  assert.equal(openAxis(table([null]), column([1, 7], 1)), 1, "one step, which holds an array of any length");
  assert.equal(openAxis(table([null]), column([7], null)), 0, "the same, squeezed");
  assert.equal(openAxis(table([null, 4]), column([12, 4], 12)), 0, "any number of steps");
  assert.equal(openAxis(table([4]), column([1, 4], 1)), -1);
  assert.equal(openAxis(table([4, null]), column([1, 4, 7], 1)), -1, "only the first axis may be open where items are stacked");
  assert.equal(openAxis(table(undefined), column([7], 7)), -1);
});

function lengths(shape, items) {
  const { node, unmount } = columnsView(table(shape), items[0], items);
  unmount();
  return node.querySelectorAll("div").find((one) => one.attributes.class === "lengths");
}

test("a ragged column shows its length, and those of the listed items", () => {
  const items = [3, 1, 2].map((rows, key) => ({ key: `1${key}`, columns: [column([1, rows], 1)] }));
  const shown = lengths([null], items);
  assert.match(shown.textContent, /^30Ragged: 3 rows here, 1 to 3 rows in the 3 listed items/);
  const slider = shown.querySelectorAll("div").find((one) => one.attributes.role === "slider");
  slider.listeners.keydown({ key: "End", preventDefault() {} });
  assert.equal(slider.attributes["aria-valuetext"], "item 12: 2 rows");
  assert.deepEqual(shown.querySelectorAll("rect").map((rect) => rect.classes.has("marked")), [false, false, true]);
  assert.equal(lengths([3], items), undefined);
  const { node } = columnsView(table([null]), items[0], items.slice(0, 1));
  assert.match(node.textContent, /Ragged: 3 rowsLoading/);
});
