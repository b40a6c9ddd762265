// Charts of SVG. Each has role "img" and says in words what it shows.

import { compact, el, number, setAttrs, setText, svg } from "./core.js";

const SPARK = { width: 120, height: 28 };
const widths = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const state = widths.get(target);
    if (!state || state.width === contentRect.width) continue;
    state.width = contentRect.width;
    state.draw();
  }
});

/** Calls `draw(shown, width)` when `node` has another width. Returns `show(shown, label)`, which draws something now. */
function withWidth(node, draw) {
  let shown;
  const state = { width: 0, draw: () => state.width > 0 && shown && draw(shown, state.width) };
  widths.set(node, state);
  observer.observe(node);
  return (next, /** @type {string} */ label) => {
    shown = next;
    setAttrs(node, { "aria-label": label });
    state.draw();
  };
}

/** Rounds a coordinate, which keeps paths short. */
export const round = (value) => Math.round(value * 10) / 10;

/** The `d` of a line through points `[x, y]`. @param {number[][]} points */
export function path(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${round(x)} ${round(y)}`).join("");
}

/** The time span of a chart: a young server's history fills it, too. */
const shownSeconds = (known, least, most) => Math.min(most, Math.max(least, known));

/** A small line of the last `seconds`. `update(points, label)`: points are `[time, value]`. `area` fills below it. */
export function sparkline({ seconds = 60, area = false, second = false } = {}) {
  const line = svg("path", { class: second ? "line second" : "line" });
  const fill = area ? svg("path", { class: "area" }) : null;
  const viewBox = `0 0 ${SPARK.width} ${SPARK.height}`;
  const node = svg("svg", { class: "spark", viewBox, preserveAspectRatio: "none", role: "img" }, fill, line);
  const update = (points, label) => {
    setAttrs(node, { "aria-label": label });
    const shape = sparkPath(points, seconds);
    setAttrs(line, { d: shape.line });
    if (fill) setAttrs(fill, { d: shape.area });
  };
  return { node, update };
}

/** The lines of a sparkline, and of its area. @param {[number, number][]} points @param {number} most */
export function sparkPath(points, most) {
  if (points.length < 2) return { line: "", area: "" };
  const last = points[points.length - 1][0];
  const seconds = shownSeconds(last - points[0][0], 20, most);
  const seen = points.filter(([time]) => time >= last - seconds);
  const values = seen.map(([, value]) => value);
  const high = Math.max(...values) || 1;
  const margin = 1.5;
  const { width, height } = SPARK;
  const place = ([time, value]) => [
    width - ((last - time) / seconds) * width,
    height - margin - (value / high) * (height - 2 * margin),
  ];
  const line = path(seen.map(place));
  return { line, area: `${line}L${width} ${height}L${round(place(seen[0])[0])} ${height}Z` };
}

/**
 * The limiter's strip: `inserts × samples_per_insert − samples` over time, inside the band between its bounds. A small
 * one has no words.
 */
export function strip({ height = 120, small = false } = {}) {
  const bounds = ["inserts wait above", "samples wait below"].map((word) => ({
    line: svg("line", { class: "bound" }),
    text: svg("text", { class: "axis", "text-anchor": "end" }),
    word: svg("text", { class: "axis", x: 4 }, word),
  }));
  const parts = {
    bounds,
    band: svg("rect", { class: "band" }),
    line: svg("path", { class: "line" }),
    point: svg("circle", { class: "point", r: small ? 2.5 : 4 }),
    from: svg("text", { class: "axis", x: 4, y: height - 3 }),
    now: svg("text", { class: "axis", y: height - 3, "text-anchor": "end" }, "now"),
  };
  const words = [...bounds.map(({ text }) => text), ...bounds.map(({ word }) => word), parts.from, parts.now];
  const lines = [...bounds.map(({ line }) => line), parts.line];
  const node = svg("svg", { class: "strip", height, role: "img" }, parts.band, lines, parts.point, !small && words);
  const show = withWidth(node, (shown, width) => drawStrip(node, parts, shown, { width, height, small }));
  /**
   * @param {LimiterDocument} limiter
   * @param {number[]} times
   * @param {(number | null)[] | undefined} diffs
   * @param {boolean} blocked
   */
  const update = (limiter, times, diffs, blocked) => {
    show({ limiter, times, diffs: diffs ?? [], blocked }, stripLabel(limiter));
  };
  return { node, update };
}

const ago = (seconds) => (seconds < 60 ? `${Math.round(seconds)} s ago` : `${Math.floor(seconds / 60)} min ago`);

/** @param {LimiterDocument} limiter */
export function stripLabel(limiter) {
  const low = limiter.min_diff === null ? "no lower bound" : `lower bound ${number(limiter.min_diff)}`;
  const high = limiter.max_diff === null ? "no upper bound" : `upper bound ${number(limiter.max_diff)}`;
  const now = `${number(limiter.samples_per_insert, 3)} less samples: ${number(limiter.diff)}`;
  return `Inserts times ${now}; ${low}, ${high}.`;
}

function drawStrip(node, parts, { limiter, times, diffs, blocked }, { width, height, small }) {
  const last = times.at(-1) ?? 0;
  const seconds = shownSeconds(last - (times[0] ?? last), 20, small ? 60 : 300);
  const right = small ? 4 : 8;
  const bottomEdge = small ? 0 : 18;
  const plot = { width: width - right, height: height - bottomEdge };
  const points = times
    .map((time, index) => [time, diffs[index] ?? null])
    .filter(([time, diff]) => time >= last - seconds && diff !== null);
  // The point is the latest document, which is newer than the history.
  points.push([last + (points.length ? 1 : 0), limiter.diff]);
  const newest = points[points.length - 1][0];
  const [low, high] = range(limiter, points);
  const x = (time) => plot.width - ((newest - time) / seconds) * plot.width;
  const y = (value) => plot.height - ((value - low) / (high - low)) * plot.height;
  const { max_diff: most, min_diff: least } = limiter;
  const upper = most === null ? 0 : y(most);
  const lower = least === null ? plot.height : y(least);
  setAttrs(node, { viewBox: `0 0 ${round(width)} ${height}`, width: round(width) });
  setAttrs(parts.band, { x: 0, y: round(upper), width: round(width), height: round(Math.max(0, lower - upper)) });
  for (const [i, [bound, at, down]] of [[most, upper, -5], [least, lower, 13]].entries()) {
    const { line, text, word } = parts.bounds[i];
    const display = bound === null ? "none" : null;
    setAttrs(line, { x1: 0, x2: round(width), y1: round(at), y2: round(at), display });
    setAttrs(text, { x: round(width - 4), y: round(at + down), display });
    setAttrs(word, { y: round(at + down), display });
    setText(text, number(bound));
  }
  setAttrs(parts.line, {
    d: path(points.filter(([time]) => time >= newest - seconds).map(([time, value]) => [x(time), y(value)])),
  });
  const state = blocked ? "point blocked" : "point";
  setAttrs(parts.point, { class: state, cx: round(x(newest)), cy: round(y(limiter.diff)), "data-diff": limiter.diff });
  setText(parts.from, ago(seconds));
  setAttrs(parts.now, { x: round(width - 4) });
}

/** The values that a strip shows: the band and the line, with room for the words beside the bounds. @param {LimiterDocument} limiter */
function range(limiter, points) {
  const values = points.map(([, value]) => value);
  if (limiter.min_diff !== null) values.push(limiter.min_diff);
  if (limiter.max_diff !== null) values.push(limiter.max_diff);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const margin = (high - low) * 0.22 || 1;
  return [low - margin, high + margin];
}

/** Lines over time with a scale. `update([{points, second}], label)`. */
export function lineChart({ height = 140 } = {}) {
  const lines = svg("g");
  const grid = svg("g");
  const node = svg("svg", { class: "lines", height, role: "img" }, grid, lines);
  return { node, update: withWidth(node, (series, width) => drawLines(node, grid, lines, series, { width, height })) };
}

function drawLines(node, grid, lines, series, { width, height }) {
  const plot = { left: 44, top: 8, width: width - 44, height: height - 8 - 20 };
  const last = Math.max(...series.map(({ points }) => points.at(-1)?.[0] ?? 0));
  const first = Math.min(last, ...series.map(({ points }) => points[0]?.[0] ?? last));
  const seconds = shownSeconds(last - first, 20, 300);
  const ticks = scale(Math.max(0, ...series.flatMap(({ points }) => points.map(([, value]) => value))));
  const high = ticks[ticks.length - 1];
  const x = (time) => plot.left + plot.width - ((last - time) / seconds) * plot.width;
  const y = (value) => plot.top + plot.height - (value / high) * plot.height;
  setAttrs(node, { viewBox: `0 0 ${round(width)} ${height}`, width: round(width) });
  grid.replaceChildren(
    ...ticks.flatMap((tick) => [
      svg("line", { class: "grid-line", x1: plot.left, x2: round(width), y1: round(y(tick)), y2: round(y(tick)) }),
      svg(
        "text",
        { class: "axis", x: plot.left - 8, y: round(y(tick) + 4), "text-anchor": "end" },
        compact(tick).replace(/\.0+(?=\D|$)/, ""),
      ),
    ]),
    svg("text", { class: "axis", x: plot.left, y: height - 4 }, ago(seconds)),
    svg("text", { class: "axis", x: round(width - 4), y: height - 4, "text-anchor": "end" }, "now"),
  );
  lines.replaceChildren(
    ...series.map(({ points, second }) =>
      svg("path", {
        class: second ? "line second" : "line",
        d: path(points.map(([time, value]) => [x(time), y(value)])),
      }),
    ),
  );
}

/** Returns round numbers from 0 to at least `high`. @param {number} high */
export function scale(high) {
  if (!(high > 0)) return [0, 1];
  const rough = high / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
  return Array.from({ length: Math.ceil(high / step) + 1 }, (_, count) => count * step);
}

/** A bar of parts side by side. `update([{name, value, tone}], total, label)`; tones are 1 to 4. */
export function stackedBar() {
  const node = el("div", { class: "stack", role: "img" });
  const update = (parts, total, label) => {
    setAttrs(node, { "aria-label": label });
    while (node.children.length < parts.length) node.append(el("span"));
    for (const [index, child] of [...node.querySelectorAll("span")].entries()) {
      const part = parts[index];
      child.hidden = !part || !(part.value > 0);
      if (!part) continue;
      setAttrs(child, { class: `tone-${part.tone}` });
      child.style.width = `${total > 0 ? (part.value / total) * 100 : 0}%`;
    }
  };
  return { node, update };
}

/** A thin bar; `update(share, label)`. */
export function bar() {
  const filled = el("span");
  const node = el("span", { class: "bar", role: "img" }, filled);
  const update = (share, label) => {
    const bounded = Math.max(0, Math.min(1, share || 0));
    filled.style.width = `${bounded * 100}%`;
    setAttrs(node, { "aria-label": label });
  };
  return { node, update };
}
