import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { numbersView, pager, scalarView, textView, tokensView } = await page("texts.js");

const column = (texts) => ({ length: texts.length, text: (i) => texts[i] });

test("one page needs no buttons", () => {
  assert.equal(pager(10, 10, "items", () => {}), null);
});

test("buttons turn pages, and stop at both ends", () => {
  const shown = [];
  const [back, on, where] = pager(25, 10, "items", (from) => shown.push(from)).children;
  assert.equal(where.textContent, "0 to 9 of 25 items");
  assert.deepEqual([back.disabled, on.disabled], [true, false]);
  on.click();
  on.click();
  assert.equal(where.textContent, "20 to 24 of 25 items");
  assert.deepEqual([back.disabled, on.disabled], [false, true]);
  back.click();
  assert.deepEqual(shown, [10, 20, 10]);
});

test("texts keep their line ends, and show what cannot be seen", () => {
  const { node } = textView(column(["a\n\tb\u0007"]), [1]);
  assert.equal(node.textContent, "a\n\tb\\u{7}");
  assert.equal(textView(column([""]), [1]).node.textContent, "empty text");
});

test("several texts have their indices", () => {
  const { node } = textView(column(["a", "b", "c", "d"]), [2, 2]);
  assert.deepEqual(node.querySelectorAll("li").map((item) => item.textContent), ["[0, 0]a", "[0, 1]b", "[1, 0]c", "[1, 1]d"]);
});

test("a long text is shown in parts, ten times as much at a time", () => {
  const { node } = textView(column(["x".repeat(50_000)]), [1]);
  const seen = () => node.textContent.match(/^x+/)[0].length;
  assert.equal(seen(), 4000);
  assert.match(node.textContent, /Show more of 50,000 characters$/);
  node.querySelectorAll("button")[0].click();
  assert.equal(seen(), 40_000);
  node.querySelectorAll("button")[0].click();
  assert.equal(seen(), 50_000);
  assert.equal(node.querySelectorAll("button").length, 0);
});

test("tokens are running text, by pages", () => {
  const ids = Array.from({ length: 2001 }, (_, i) => String(i));
  const { node } = tokensView(column(ids));
  assert.match(node.textContent, /^←→0 to 1,999 of 2,001 tokens0 1 2 .* 1999$/);
});

test("numbers stand in rows of the last axis, each with its index", () => {
  const { node } = numbersView(column(["1", "2", "3", "4", "5", "6"]), [2, 3]);
  const rows = node.querySelectorAll("tr").map((row) => row.children.map((cell) => cell.textContent));
  assert.deepEqual(rows, [["[0, 0]", "1", "2", "3"], ["[1, 0]", "4", "5", "6"]]);
  assert.equal(numbersView(column(Array(20).fill("0")), [20]).node.querySelectorAll("tr")[0].children.length, 9);
});

test("a single value is written out", () => {
  assert.equal(scalarView(column(["0.5"])).node.textContent, "0.5");
});
