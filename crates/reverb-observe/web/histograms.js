// The histograms of a table: of what is in it, by a bounded look, and of what was drawn or left, by counters.

import { round } from "./charts.js";
import { api, duration, el, number, percent, plural, reason, setText, svg, tableHead } from "./core.js";
import { panel } from "./panels.js";
import { explorable } from "./explore.js";

const AGAIN_MILLISECONDS = 10_000;
const [WIDTH, HEIGHT] = [320, 96];
const MOST_LABELS = 5;

const FIGURES = [
  { field: "priority", title: "Priority of items", unit: "priority", text: (value) => number(value, 3), of: "item" },
  { field: "age_seconds", title: "Age of items", unit: "time since the insert", text: duration, of: "item" },
  { field: "times_sampled", title: "Times sampled, items in the table", unit: "draws", of: "item" },
  {
    field: "sample_age_seconds", title: "Age when sampled", unit: "time from insert to draw", text: duration, of: "draw",
    empty: "No item has been drawn yet.",
  },
  {
    field: "removed_times_sampled", title: "Times sampled, removed items", unit: "draws", of: "item",
    empty: "No item has left the table yet.",
  },
];

/** Shows the histograms of a table in `element`. They are read again every 10 s while they are in view. */
export function mountHistograms(/** @type {Element} */ element, /** @type {TableDocument} */ table) {
  let current = table;
  let asked = -Infinity;
  let isSeen = false;
  let shown = "";
  const state = el("p", { class: "state", role: "status" }, "Loading histograms…");
  const grid = el("div", { class: "histograms grid" });
  const { node: root, body } = panel("histograms", "Histograms", null, "body");
  body.append(state, grid);
  element.replaceChildren(root);
  const watch = new IntersectionObserver((entries) => {
    isSeen = entries[entries.length - 1].isIntersecting;
    look();
  });
  watch.observe(root);

  async function look() {
    if (!isSeen || document.hidden || performance.now() - asked < AGAIN_MILLISECONDS) return;
    asked = performance.now();
    try {
      const answer = await api(`tables/${current.number}/histograms`);
      setText(state, "");
      state.hidden = true;
      if (JSON.stringify(answer) !== shown && !grid.contains(document.activeElement)) {
        shown = JSON.stringify(answer);
        const open = [...grid.querySelectorAll("details")].map((details) => details.open);
        grid.replaceChildren(...FIGURES.map((figure, i) => draw(figure, answer, current, open[i])));
      }
    } catch (error) {
      state.hidden = false;
      state.className = "state error";
      setText(state, `The histograms cannot be read: ${reason(error)}`);
    }
  }

  return {
    update(document) {
      current = document;
      look();
    },
    unmount() {
      watch.disconnect();
      root.remove();
    },
  };
}

function draw(figure, answer, table, isOpen) {
  const { title, of, empty = "No items." } = figure;
  const bars = barsOf(answer[figure.field], figure.text);
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  const head = el("figcaption", null, el("h3", null, title), el("p", { class: "small muted" }, note(figure, total, answer, table)));
  const attrs = { "data-histogram": figure.field };
  if (total === 0) return el("figure", attrs, head, el("p", { class: "state" }, empty));
  const text = (i) => `${bars[i].text}: ${plural(bars[i].count, of)}, ${percent(bars[i].count / total)}`;
  const values = el(
    "details", { open: isOpen }, el("summary", { class: "small" }, "Values"),
    el("table", null,
      el("caption", { class: "hidden" }, title),
      tableHead([figure.unit, `${of}s`], (column) => column > 0 && "number"),
      el("tbody", null, bars.map((bar) =>
        el("tr", null, el("th", { scope: "row" }, bar.text), el("td", { class: "number" }, number(bar.count, 0)))))),
  );
  return el("figure", attrs, head, ...plot(figure, bars, total, text), values);
}

/** What a histogram is of, with the total of its bars. @param {{field: string}} figure @param {number} total @param {HistogramsDocument} answer @param {TableDocument} table */
export function note({ field }, total, answer, table) {
  if (field === "sample_age_seconds") return `${plural(total, "draw")} since the server started`;
  if (field === "removed_times_sampled") {
    const removed = Object.values(table.removals ?? {}).reduce((sum, count) => sum + count, 0);
    const unseen = removed ? `, ${percent((table.unsampled_removals ?? Number.NaN) / removed)} never sampled` : "";
    return `${plural(total, "item")} that left since the server started${unseen}`;
  }
  const { items, looked_at: looked } = answer;
  return looked < items ? `estimate from ${number(looked, 0)} of ${plural(items, "item")}` : `all ${plural(items, "item")}`;
}

/** Bars from the first bucket to the last one that are not empty. Without `text`, values are whole numbers. @param {HistogramDocument} histogram */
export function barsOf({ edges, counts }, /** @type {((value: number) => string) | undefined} */ text) {
  const first = counts.findIndex((count) => count > 0);
  const last = counts.findLastIndex((count) => count > 0);
  const bars = [];
  for (let i = Math.max(0, first); i <= last; i++) {
    const [low, high] = [edges[i] ?? -Infinity, edges[i + 1] ?? Infinity];
    bars.push({ low, high, count: counts[i], text: text ? between(low, high, text) : whole(low, high, i === 0) });
  }
  return bars;
}

function between(low, high, text) {
  if (low === -Infinity) return `up to ${text(high)}`;
  if (high === Infinity) return `above ${text(low)}`;
  return low === high || text(low) === text(high) ? text(high) : `${text(low)} to ${text(high)}`;
}

function whole(low, high, holdsLow) {
  const from = Math.max(0, holdsLow ? Math.ceil(low) : Math.floor(low) + 1);
  if (high === Infinity) return `${number(from, 0)} or more`;
  const to = Math.floor(high);
  return to <= from ? number(to, 0) : `${number(from, 0)} to ${number(to, 0)}`;
}

function plot({ title, unit, text: format, of }, bars, total, text) {
  const most = Math.max(...bars.map((bar) => bar.count));
  const step = WIDTH / Math.max(bars.length, 6);
  const left = (WIDTH - step * bars.length) / 2;
  const rects = bars.map(({ count }, i) => {
    const height = count ? Math.max(1, (count / most) * HEIGHT) : 0;
    return svg("rect", { x: round(left + i * step + 1), y: round(HEIGHT - height), width: round(step - 2), height: round(height) });
  });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }), rects);
  const target = el("div", { class: "plot", style: { "margin-inline": `${(left / WIDTH) * 100}%` } });
  const readout = explorable(target, {
    count: bars.length,
    label: `${title}, ${plural(total, of)} in ${plural(bars.length, "bar")}`,
    text,
    show: (i) => {
      for (const [at, rect] of rects.entries()) rect.classList.toggle("marked", at === i);
    },
  });
  return [
    el("div", { class: "axes" },
      el("span", { class: "top small muted" }, `tallest bar: ${plural(most, of)}`), drawing, target,
      el("div", { class: "ticks small muted" }, ticks(bars, left, step, format))),
    el("div", { class: "plot-legend wrap small" }, el("span", { class: "muted" }, unit), readout),
  ];
}

/** Labels of at most five places: of bounds for measures, of bars for whole numbers. */
function ticks(bars, left, step, format) {
  const places = format
    ? [...bars.map((bar, i) => [i, bar.low]), [bars.length, bars.at(-1).high]]
        .filter(([, value]) => Number.isFinite(value)).map(([i, value]) => [i, format(value)])
    : bars.map((bar, i) => [i + 0.5, bar.text.replace(" or more", "+").replace(" to ", "–")]);
  const every = Math.ceil(places.length / MOST_LABELS);
  return places
    .filter((_, i) => i % every === 0)
    .map(([i, text]) => {
      const place = ((left + i * step) / WIDTH) * 100;
      // Labels of bounds stay inside, also at both ends.
      return el("span", { style: { left: `${place}%`, transform: `translateX(-${format ? place : 50}%)` } }, text);
    });
}
