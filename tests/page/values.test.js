import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { decode, frameOffset, sizeOf, viewsOf } = await page("values.js");

const texts = (data) => Array.from({ length: data.length }, (_, i) => data.text(i));
const of = (dtype, array) => texts(decode(dtype, array.buffer));

test("sizes of types are known, but for strings", () => {
  assert.deepEqual(["bool", "bfloat16", "complex128", "string", "void"].map(sizeOf), [1, 2, 16, undefined, undefined]);
});

test("values of whole numbers are exact", () => {
  assert.deepEqual(of("bool", Uint8Array.of(0, 1)), ["false", "true"]);
  assert.deepEqual(of("int8", Int8Array.of(-128)), ["-128"]);
  assert.deepEqual(of("uint64", BigUint64Array.of(2n ** 64n - 1n)), ["18446744073709551615"]);
});

test("floats have the shortest text of their type", () => {
  assert.deepEqual(of("float32", Float32Array.of(0.1, 1 / 3, 16777216, Number.NaN)), ["0.1", "0.33333334", "16777216", "nan"]);
  assert.deepEqual(of("float64", Float64Array.of(0.1, -Infinity)), ["0.1", "-inf"]);
  assert.deepEqual(of("complex64", Float32Array.of(0.5, -2, 1, 0)), ["0.5-2j", "1+0j"]);
});

test("floats of few bits are decoded", () => {
  assert.deepEqual(of("float16", Uint16Array.of(0x3c00, 0xc000, 0x7c00, 0x7e00, 0x0001)), ["1", "-2", "inf", "nan", "5.9605e-8"]);
  assert.deepEqual(of("bfloat16", Uint16Array.of(0x3f80, 0xc000, 0xff80)), ["1", "-2", "-inf"]);
  assert.deepEqual(of("float8_e5m2", Uint8Array.of(0x3c, 0x7c, 0x7e, 0x01)), ["1", "inf", "nan", "0.000015"]);
  assert.deepEqual(of("float8_e4m3fn", Uint8Array.of(0x38, 0x7e, 0x7f)), ["1", "448", "nan"]);
});

test("texts of any depth are one list, and unknown types are refused", () => {
  assert.deepEqual(texts(decode("string", [["a"], ["b"]])), ["a", "b"]);
  assert.throws(() => decode("void", new ArrayBuffer(0)), /columns of void cannot be shown/);
});

test("ranges leave out what is not finite, and count it", () => {
  assert.deepEqual(decode("float32", Float32Array.of(1, Number.NaN, -2).buffer).range(), { low: -2, high: 1, lost: 1 });
  assert.equal(decode("float32", Float32Array.of(Number.NaN).buffer).range(), null);
});

function kinds(dtype, shape, { name = "x", fill = () => 5, axes = {} } = {}) {
  const length = shape.reduce((product, one) => product * one, 1);
  const data = { dtype, length, number: fill, range: () => ({ low: 0, high: Math.max(fill(0), fill(1)), lost: 0 }) };
  return viewsOf({ dtype, shape, name }, axes, data).map(({ kind, label }) => `${kind}: ${label}`);
}

test("each column has the views that fit it", () => {
  assert.deepEqual(kinds("string", [3]), ["text: Text"]);
  assert.deepEqual(kinds("float32", [1, 1]), ["scalar: Value", "numbers: Numbers"]);
  assert.deepEqual(kinds("complex64", [4]), ["numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [100]), ["bars: Bars", "numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [100, 3]), ["heat: Heat map", "numbers: Numbers"]);
});

test("only an axis of steps or rows is drawn as a line", () => {
  const steps = { axes: { 0: "steps" } };
  assert.deepEqual(kinds("float32", [100], steps), ["line: Line", "numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [100, 1], steps), ["line: Line", "numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [100, 3], steps), ["heat: Heat map", "line: Lines", "numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [1, 4], steps), ["numbers: Numbers", "bars: Bars"], "a vector of one step");
  assert.deepEqual(kinds("float32", [1, 9], steps), ["bars: Bars", "numbers: Numbers"]);
  assert.deepEqual(kinds("float32", [1, 4], { axes: { 0: "steps", 1: "rows" } }), ["line: Line", "numbers: Numbers"]);
});

test("ids of tokens are known by their name, or by their values", () => {
  assert.deepEqual(kinds("int32", [8], { name: "input_ids" })[0], "tokens: Tokens");
  assert.deepEqual(kinds("int32", [8], { fill: (i) => (i % 2 ? 5 : 30_000) })[0], "tokens: Tokens");
  assert.deepEqual(kinds("int32", [8])[0], "numbers: Numbers");
});

test("bytes in the shape of a picture are one", () => {
  assert.deepEqual(kinds("uint8", [84, 84, 3])[0], "picture: Picture");
  assert.deepEqual(kinds("uint8", [3, 84, 84])[0], "picture: Picture");
  assert.deepEqual(kinds("uint8", [84, 84, 4]).slice(0, 2), ["picture: 4 frames", "picture: RGBA"]);
  assert.deepEqual(kinds("uint8", [84, 84, 4], { fill: () => 255 }).slice(0, 2), ["picture: RGBA", "picture: 4 frames"]);
  assert.deepEqual(kinds("uint8", [5, 84, 84, 3], { axes: { 0: "steps" } })[0], "picture: Film strip");
  assert.deepEqual(kinds("uint8", [1, 84, 84], { axes: { 0: "steps" } })[0], "picture: Picture");
  assert.deepEqual(kinds("uint8", [84, 84])[0], "picture: Picture");
  assert.deepEqual(kinds("float32", [84, 84, 3], { fill: () => 0.5 })[0], "picture: Picture");
  assert.deepEqual(kinds("float32", [84, 84, 3])[0], "heat: Heat map");
});

test("frames are found on several axes, the last of which counts fastest", () => {
  assert.deepEqual([0, 1, 2, 3, 5].map((index) => frameOffset([[2, 100], [3, 10]], index)), [0, 10, 20, 100, 120]);
});
