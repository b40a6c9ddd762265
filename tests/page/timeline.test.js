import assert from "node:assert/strict";
import { test } from "node:test";
import { page, resize } from "./dom.js";

const { bandChart, lineChart, nearest, scale, textAt } = await page("timeline.js");

test("scales are of round numbers that reach the greatest", () => {
  assert.deepEqual(scale(0), [0, 1]);
  assert.deepEqual(scale(Number.NaN), [0, 1]);
  assert.deepEqual(scale(3), [0, 1, 2, 3]);
  assert.deepEqual(scale(7), [0, 2.5, 5, 7.5]);
  assert.deepEqual(scale(100), [0, 50, 100]);
  for (const high of [0.013, 0.7, 1, 2, 9.99, 31, 12345, 2.5e9]) {
    const ticks = scale(high);
    assert.ok(ticks[ticks.length - 1] >= high * (1 - 1e-9), `${ticks} of ${high}`);
    assert.ok(ticks.length >= 3 && ticks.length <= 5, `${ticks} of ${high}`);
  }
});

test("the place of a time is the nearest", () => {
  const times = [10, 20, 30];
  assert.deepEqual([0, 10, 14, 16, 29, 99].map((at) => nearest(times, at)), [0, 0, 0, 1, 2, 2]);
});

const event = (at, kind, text = kind) => ({ at, kind, table: null, text });
const line = (name, points, more = {}) => ({ name, points, format: (value) => `${value} /s`, ...more });
const FLOW = {
  lines: [line("samples", [[0, 5], [10, 5], [20, 5]], { second: true }), line("inserts", [[0, 0], [10, 4], [20, 10]])],
  events: [event(-1, "start"), event(-1, "restore"), event(12, "client_left", "actor.py left"), event(20, "save_failed")],
  span: 300,
};

function drawn(chart, shown, width) {
  chart.update(shown, "Rates");
  const [drawing] = chart.node.querySelectorAll("svg");
  resize(drawing, width);
  const [back, marks, lines, cursor] = drawing.children;
  const slider = chart.node.querySelectorAll("div").find((one) => one.attributes.role === "slider");
  const texts = (node) => node.querySelectorAll("text").map((one) => one.textContent);
  return { back, marks, lines, cursor, slider, texts };
}

const press = (slider, key) => slider.listeners.keydown({ key, preventDefault() {} });

test("a line chart draws each line below one scale", () => {
  const { back, lines, texts } = drawn(lineChart({ height: 134 }), FLOW, 144);
  assert.deepEqual(lines.children.map((one) => one.attributes), [
    { class: "line second", d: "M44 64L94 64L144 64" },
    { class: "line", d: "M44 114L94 74L144 14" },
  ]);
  assert.deepEqual(texts(back), ["0", "5", "10", "20 s ago", "now"]);
});

test("events are marks, and the newest word wins", () => {
  const { marks, texts } = drawn(lineChart({ height: 134 }), FLOW, 344);
  const kinds = marks.children.map((one) => one.attributes["data-event"]).filter(Boolean);
  assert.deepEqual(kinds, ["save_failed", "client_left", "restore", "start"]);
  assert.deepEqual(texts(marks), ["save failed", "restored"]);
  const old = { ...FLOW, events: [event(-50, "start"), event(-50, "unknown")] };
  assert.equal(drawn(lineChart(), old, 344).marks.children.length, 0);
});

test("values are read by the keys, with what has happened there", () => {
  const chart = lineChart({ height: 134 });
  const { slider, cursor } = drawn(chart, FLOW, 144);
  assert.equal(slider.attributes["aria-label"], "Rates");
  const at = (text) => slider.attributes["aria-valuetext"].slice("00:00:00: ".length).endsWith(text);
  assert.ok(at("samples 5 /s, inserts 10 /s · actor.py left · save_failed"), slider.attributes["aria-valuetext"]);
  press(slider, "ArrowLeft");
  assert.ok(at("samples 5 /s, inserts 4 /s"), slider.attributes["aria-valuetext"]);
  assert.equal(cursor.attributes.x1, "94");
  press(slider, "Home");
  assert.ok(at("inserts 0 /s · start · restore"), slider.attributes["aria-valuetext"]);
});

test("a time that is looked at stays when points come and go", () => {
  const chart = lineChart({ height: 134 });
  const { slider } = drawn(chart, FLOW, 144);
  press(slider, "ArrowLeft");
  const later = FLOW.lines.map((one) => ({ ...one, points: [...one.points.slice(1), [30, 7], [40, 8]] }));
  chart.update({ ...FLOW, lines: later }, "Rates");
  assert.match(slider.attributes["aria-valuetext"], /inserts 4 \/s/);
  slider.listeners.blur();
  chart.update({ ...FLOW, lines: later }, "Rates");
  assert.match(slider.attributes["aria-valuetext"], /inserts 8 \/s/, "otherwise the newest");
});

test("the pointer reads the nearest time", () => {
  const { slider } = drawn(lineChart({ height: 134 }), FLOW, 144);
  slider.getBoundingClientRect = () => ({ left: 0, width: 144 });
  slider.listeners.pointermove({ clientX: 90 });
  assert.match(slider.attributes["aria-valuetext"], /inserts 4 \/s/);
  slider.listeners.pointermove({ clientX: 0 });
  assert.match(slider.attributes["aria-valuetext"], /inserts 0 \/s/);
});

test("only the chosen time is shown, and hostile names are seen", () => {
  const { lines } = drawn(lineChart({ height: 134 }), { ...FLOW, span: 20, lines: [line("x", [[0, 1], [100, 1], [110, 1]])] }, 144);
  assert.equal(lines.children[0].attributes.d.match(/[ML]/g).length, 2);
  assert.match(textAt({ ...FLOW, events: [event(0, "client_left", "a\u202eb left")] }, [0], 0), /a\\u\{202e\}b left/);
  assert.equal(textAt(FLOW, [], 0), "");
});

const BAND = { low: -10, high: 30, above: "at most 30", below: "at least -10", tone: "" };
const LIMITER = { lines: [line("diff", [[1, 0], [2, 5], [3, 10]])], events: [], span: 300, band: BAND };

test("a band chart draws its point inside the band between the bounds", () => {
  const { back, texts } = drawn(bandChart({ height: 118 }), LIMITER, 400);
  const [band, point] = [back.querySelectorAll("rect")[0], back.querySelectorAll("circle")[0]];
  const [upper, lower] = back.querySelectorAll("line").map((bound) => Number(bound.attributes.y1));
  const at = Number(point.attributes.cy);
  assert.ok(0 < upper && upper < at && at < lower && lower < 100);
  assert.ok(Math.abs(Number(band.attributes.height) - (lower - upper)) < 0.11);
  assert.ok(Math.abs((at - upper) / (lower - upper) - 0.5) < 0.01);
  assert.equal(point.attributes["data-now"], "10");
  assert.deepEqual(texts(back).slice(0, 2), ["inserts wait: at most 30", "samples wait: at least -10"]);
  const narrow = drawn(bandChart({ height: 118 }), LIMITER, 308);
  assert.deepEqual(narrow.texts(narrow.back).slice(0, 2), ["at most 30", "at least -10"]);
});

test("a band without bounds has no lines for them, and its point says how it is", () => {
  const { back } = drawn(bandChart({ height: 118 }), { ...LIMITER, band: { ...BAND, low: null, high: null, tone: "blocked" } }, 308);
  assert.equal(back.querySelectorAll("line").length, 0);
  assert.equal(back.querySelectorAll("circle")[0].attributes.class, "point blocked");
});

test("a small band chart has no words, and is not read", () => {
  const { node, update } = bandChart({ height: 28, small: true });
  update(LIMITER, "Limiter");
  resize(node, 100);
  assert.equal(node.tagName, "svg");
  assert.equal(node.attributes["aria-label"], "Limiter");
  assert.equal(node.querySelectorAll("text").length, 0);
});
