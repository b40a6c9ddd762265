// Charts over time: lines with a scale, or a line inside its band. Events of the server are marks; values are read with the
// pointer or the arrow keys.

import { path, round, withWidth } from "./charts.js";
import { compact, el, setAttrs, svg, time, visible } from "./core.js";
import { exploring } from "./explore.js";

/** @typedef {{name: string, points: [number, number][], second?: boolean, format: (value: number) => string}} Line Points are a time and a value. */
/** @typedef {{low: number | null, high: number | null, above: string, below: string, tone: string}} Band Its bounds, and the same in words. */
/** @typedef {{lines: Line[], events: EventDocument[], span: number, band?: Band}} Shown `span` is the longest time that is shown. */
/** @typedef {{left: number, top: number, width: number, height: number, last: number, seconds: number}} Plot */

// The few points of a young server are not stretched over the whole chart.
const LEAST_SECONDS = 20;
const INSETS = { lines: { left: 44, right: 0, top: 14, bottom: 20 }, band: { left: 0, right: 8, top: 14, bottom: 20 } };
// A server starts, and loads a checkpoint, a moment before its first point.
const BEFORE_SECONDS = 3;
// A narrower band has no room beside its bounds for what happens there.
const BAND_WORDS_WIDTH = 340;
// Words beside marks do not overlap.
const WORD_WIDTH = 84;
/** How an event looks: its shape, its colour, and the word beside it, for those that matter to all charts. @type {Record<string, {shape: string, tone: string, word?: string}>} */
const MARKS = {
  start: { shape: "rule", tone: "strong", word: "started" },
  restore: { shape: "rule", tone: "strong", word: "restored" },
  save: { shape: "M0 -4L4 0L0 4L-4 0Z", tone: "quiet" },
  save_failed: { shape: "rule", tone: "bad", word: "save failed" },
  log_closed: { shape: "rule", tone: "bad", word: "log closed" },
  log_opened: { shape: "rule", tone: "strong", word: "log open again" },
  options: { shape: "rule", tone: "strong", word: "options changed" },
  client_came: { shape: "M0 -4L4 3L-4 3Z", tone: "quiet" },
  client_left: { shape: "M0 4L4 -3L-4 -3Z", tone: "strong" },
};

/** Lines over time with a scale from 0. `update(shown, label)`. */
export function lineChart({ height = 140 } = {}) {
  return timeChart(height, INSETS.lines, (parts, shown, plot) => {
    const values = shown.lines.flatMap(({ points }) => points.map(([, value]) => value));
    const ticks = scale(Math.max(0, ...values));
    const high = ticks[ticks.length - 1];
    const y = (/** @type {number} */ value) => plot.top + plot.height - (value / high) * plot.height;
    const right = plot.left + plot.width;
    parts.back.replaceChildren(...ticks.flatMap((tick) => [
      svg("line", { class: "grid-line", x1: plot.left, x2: round(right), y1: round(y(tick)), y2: round(y(tick)) }),
      svg("text", { class: "axis", x: plot.left - 8, y: round(y(tick) + 4), "text-anchor": "end" }, compact(tick).replace(/\.0+(?=\D|$)/, "")),
    ]));
    return y;
  });
}

/** A line inside its band, with words beside the bounds. `update(shown, label)`. A small one has no words, and is not read. */
export function bandChart({ height = 120, small = false } = {}) {
  const inset = small ? { left: 0, right: 4, top: 0, bottom: 0 } : INSETS.band;
  return timeChart(height, inset, (parts, shown, plot, width) => {
    const band = shown.band ?? { low: null, high: null, above: "", below: "", tone: "" };
    const [line] = shown.lines;
    const [least, most] = rangeOf(line.points, band);
    const y = (/** @type {number} */ value) => plot.top + plot.height - ((value - least) / (most - least)) * plot.height;
    const upper = band.high === null ? plot.top : y(band.high);
    const lower = band.low === null ? plot.top + plot.height : y(band.low);
    const bound = (/** @type {number | null} */ value, /** @type {number} */ at, /** @type {number} */ down, /** @type {string} */ waits, /** @type {string} */ words) =>
      value === null ? [] : [
        svg("line", { class: "bound", x1: 0, x2: round(width), y1: round(at), y2: round(at) }),
        ...(small ? [] : [svg("text", { class: "axis", x: 4, y: round(at + down) }, width < BAND_WORDS_WIDTH ? words : `${waits}: ${words}`)]),
      ];
    const latest = line.points[line.points.length - 1];
    parts.back.replaceChildren(
      svg("rect", { class: "band", x: 0, y: round(upper), width: round(width), height: round(Math.max(0, lower - upper)) }),
      ...bound(band.high, upper, -5, "inserts wait", band.above),
      ...bound(band.low, lower, 13, "samples wait", band.below),
      ...(latest ? [svg("circle", { class: `point ${band.tone}`, r: small ? 2.5 : 4, cx: round(plot.left + plot.width), cy: round(y(latest[1])), "data-now": latest[1] })] : []),
    );
    return y;
  }, small);
}

/** The values that a band chart shows: the band and the line, with room for the words beside the bounds. @param {[number, number][]} points @param {Band} band */
function rangeOf(points, { low, high }) {
  const values = points.map(([, value]) => value);
  if (low !== null) values.push(low);
  if (high !== null) values.push(high);
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const margin = (most - least) * 0.22 || 1;
  return [least - margin, most + margin];
}

/**
 * What all charts over time have in common. `drawScale(parts, shown, plot, width)` draws what is behind the lines, and
 * returns the height of a value.
 * @param {number} height
 * @param {typeof INSETS.lines} inset
 * @param {(parts: {back: SVGElement}, shown: Shown, plot: Plot, width: number) => (value: number) => number} drawScale
 */
function timeChart(height, inset, drawScale, small = false) {
  const [back, marks, lines] = ["back", "marks", "series"].map((name) => svg("g", { class: name }));
  const cursor = svg("line", { class: "cursor", visibility: "hidden" });
  const drawing = svg("svg", { class: "lines", height, role: small ? "img" : null, "aria-hidden": small ? null : "true" }, back, marks, lines, cursor);
  const overlay = el("div", { class: "plot" });
  /** @type {{times: number[], shown: Shown | undefined, plot: Plot | undefined, width: number}} */
  const now = { times: [], shown: undefined, plot: undefined, width: 0 };
  const x = (/** @type {number} */ at) => (now.plot ? now.plot.left + now.plot.width * (1 - (now.plot.last - at) / now.plot.seconds) : 0);
  const places = {
    count: 0, label: "",
    text: (/** @type {number} */ i) => (now.shown ? textAt(now.shown, now.times, i) : ""),
    show: (/** @type {number} */ i) => {
      const at = i < 0 ? 0 : round(x(now.times[i]));
      setAttrs(cursor, { x1: at, x2: at, y1: inset.top, y2: height - inset.bottom, visibility: i < 0 ? "hidden" : "visible" });
    },
    placeAt: (/** @type {number} */ share) => nearest(now.times, now.plot ? now.plot.last - (1 - (share * now.width - now.plot.left) / now.plot.width) * now.plot.seconds : 0),
  };
  const { readout, refresh } = exploring(overlay, places);
  const show = withWidth(drawing, (/** @type {Shown} */ shown, /** @type {number} */ width) => {
    const before = now.times;
    const plot = plotOf(shown, { ...inset, height, width });
    const first = plot.last - plot.seconds;
    const seen = { ...shown, lines: shown.lines.map((line) => ({ ...line, points: line.points.filter(([at]) => at >= first) })) };
    Object.assign(now, { times: seen.lines[0].points.map(([at]) => at), shown: seen, plot, width });
    setAttrs(drawing, { viewBox: `0 0 ${round(width)} ${height}`, width: round(width) });
    const y = drawScale({ back }, seen, plot, width);
    if (!small) back.append(...edgeWords(plot, width, height));
    lines.replaceChildren(...seen.lines.map(({ points, second }) =>
      svg("path", { class: second ? "line second" : "line", d: path(points.map(([at, value]) => [x(at), y(value)])) })));
    marks.replaceChildren(...(small ? [] : marksOf(seen.events.filter(({ at }) => at >= first - BEFORE_SECONDS), x, plot)));
    places.count = now.times.length;
    refresh((at, isMarked) => (isMarked ? nearest(now.times, before[at]) : places.count - 1));
  });
  const update = (/** @type {Shown} */ shown, /** @type {string} */ label) => {
    places.label = label;
    show(shown);
    if (small) setAttrs(drawing, { "aria-label": label });
  };
  const node = small ? drawing : el("div", { class: "time-chart" }, el("div", { class: "time-axes" }, drawing, overlay), readout);
  return { node, update };
}

/** @returns {Plot} */
function plotOf({ lines, span }, { left, right, top, bottom, height, width }) {
  const times = lines.flatMap(({ points }) => (points.length ? [points[0][0], points[points.length - 1][0]] : []));
  const last = times.length ? Math.max(...times) : 0;
  const first = times.length ? Math.min(...times) : 0;
  const seconds = Math.min(span, Math.max(LEAST_SECONDS, last - first));
  return { left, top, width: Math.max(1, width - left - right), height: height - top - bottom, last, seconds };
}

const ago = (/** @type {number} */ seconds) =>
  seconds < 90 ? `${Math.round(seconds)} s ago` : seconds < 3570 ? `${Math.round(seconds / 60)} min ago` : "1 h ago";

/** The words at both ends of the axis of time. @param {Plot} plot @param {number} width @param {number} height */
function edgeWords({ left, seconds }, width, height) {
  return [
    svg("text", { class: "axis", x: Math.max(4, left), y: height - 3 }, ago(seconds)),
    svg("text", { class: "axis", x: round(width - 4), y: height - 3, "text-anchor": "end" }, "now"),
  ];
}

/** The newest word wins where words would overlap. @param {EventDocument[]} events @param {(at: number) => number} x @param {Plot} plot */
function marksOf(events, x, { top, height, left, width }) {
  let free = Infinity;
  return [...events].reverse().flatMap(({ at, kind }) => {
    const { shape, tone, word } = MARKS[kind] ?? { shape: "rule", tone: "strong" };
    const place = Math.max(left, Math.min(round(x(at)), left + width));
    const foot = top + height;
    const node = shape === "rule"
      ? svg("line", { class: `event ${tone}`, x1: place, x2: place, y1: top - 4, y2: foot, "data-event": kind })
      : svg("path", { class: `event ${tone}`, d: shape, transform: `translate(${place} ${foot})`, "data-event": kind });
    const from = Math.min(place + 4, left + width - WORD_WIDTH);
    if (!word || from + WORD_WIDTH > free) return [node];
    free = from;
    return [node, svg("text", { class: `axis event-word ${tone}`, x: from, y: top - 4 }, word)];
  });
}

/** What a chart says of a place: the time, the value of each line, and what happened since the place before. @param {Shown} shown @param {number[]} times @param {number} i */
export function textAt({ lines, events }, times, i) {
  const at = times[i];
  if (at === undefined) return "";
  const values = lines.flatMap(({ name, points, format }) => {
    const point = points.find(([time]) => time === at);
    return point ? [`${name} ${format(point[1])}`.trim()] : [];
  });
  const from = i > 0 ? times[i - 1] : -Infinity;
  const to = i < times.length - 1 ? at : Infinity;
  const happened = events.filter((event) => event.at > from && event.at <= to).map(({ text }) => ` · ${visible(text)}`);
  return `${time(at)}: ${values.join(", ")}${happened.join("")}`;
}

/** The index of the time that is nearest to another. @param {number[]} times ascending @param {number} at */
export function nearest(times, at) {
  const next = times.findIndex((time) => time >= at);
  if (next <= 0) return next < 0 ? times.length - 1 : 0;
  return times[next] - at < at - times[next - 1] ? next : next - 1;
}

/** Returns round numbers from 0 to at least `high`. @param {number} high */
export function scale(high) {
  if (!(high > 0)) return [0, 1];
  const rough = high / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  return Array.from({ length: Math.ceil(high / step) + 1 }, (_, count) => count * step);
}
