// Small charts: sparklines and bars. Each has role "img" and says in words what it shows.

import { el, setAttrs, svg } from "./core.js";

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

/** Calls `draw(shown, width)` when `node` has another width. Returns `show(shown)`, which draws something now. */
export function withWidth(node, draw) {
  let shown;
  const state = { width: 0, draw: () => state.width > 0 && shown && draw(shown, state.width) };
  widths.set(node, state);
  observer.observe(node);
  return (next) => {
    shown = next;
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
