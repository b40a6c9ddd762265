// Pictures, lines, bars and heat maps of a column.

import { path, round } from "./charts.js";
import { el, number, onceInView, plural, setText, svg } from "./core.js";
import { explorable } from "./explore.js";
import { pager } from "./texts.js";
import { frameOffset, placesOn } from "./values.js";

const MOST_POINTS = 1500;
const [WIDTH, HEIGHT] = [600, 72];
const MOST_BARS = 300;
const MOST_CELLS = 512;
// Dark blue to yellow by way of green: even steps of lightness, also for people who see few colours.
const SCALE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const NOT_A_NUMBER = 128;
const FRAMES_A_PAGE = 64;
const ONE_PIXELS = 256;
const STRIP_PIXELS = 128;
// Pictures of small whole numbers, such as kinds of cells, would be black.
const DARK = 32;

/**
 * Draws a column as `series` lines over its steps or rows, as `unit` names them. `follow` tells other lines of the item, of
 * the same length, which of them is looked at.
 */
export function lineView(data, { series, unit }, name, follow) {
  const steps = data.length / series;
  const range = data.range();
  if (!range) return { node: el("p", { class: "state" }, "No finite numbers.") };
  const span = range.high - range.low || 1;
  const x = (i) => (steps > 1 ? (i / (steps - 1)) * WIDTH : WIDTH / 2);
  const y = (value) => (range.high === range.low ? HEIGHT / 2 : HEIGHT - ((value - range.low) / span) * HEIGHT);
  const lines = Array.from({ length: series }, (_, line) =>
    svg("path", { class: "line", d: linePath(steps, (i) => data.number(i * series + line), x, y), "vector-effect": "non-scaling-stroke" }));
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  const zero = range.low < 0 && range.high > 0 && svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: y(0), y2: y(0) });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, zero, lines, cursor);
  const value = (i) => Array.from({ length: series }, (_, line) => data.text(i * series + line)).join(", ");
  const show = (i) => {
    if (i >= 0) for (const end of ["x1", "x2"]) cursor.setAttribute(end, String(x(i)));
    cursor.setAttribute("visibility", i < 0 ? "hidden" : "visible");
  };
  const plot = el("div", { class: "plot" });
  const readout = explorable(plot, {
    count: steps,
    label: `${name}, ${plural(series, "line")} of ${number(steps, 0)} ${unit} from ${number(range.low, 3)} to ${number(range.high, 3)}`,
    text: (i) => `${i}: ${value(i)}`,
    show: (i) => follow.show(i, steps),
  });
  const unfollow = follow.add(steps, (i) => {
    show(i);
    setText(readout, i < 0 ? "\u00a0" : `${i}: ${value(i)}`);
  });
  return { node: framed(drawing, plot, range, `${unit} 0 to ${number(steps - 1, 0)}${lost(range)}`, readout), unmount: unfollow };
}

/** A plot beside its scale, above what its places are and the readout. */
function framed(drawing, plot, { low, high }, words, readout) {
  return el("div", { class: "line-plot grid" },
    el("div", { class: "scale small muted" }, el("span", { title: "greatest" }, number(high, 3)), low < high && el("span", { title: "least" }, number(low, 3))),
    el("div", { class: "axes" }, drawing, plot),
    el("div", { class: "plot-legend wrap small" }, el("span", { class: "muted" }, words), readout));
}

/**
 * Draws numbers that are no series, a bar from zero for each. Of many, the bar furthest from zero of each stretch. `words`
 * say what the bars are, `text(i)` what one is; bar `marked` stands out.
 */
export function barsView(data, name, { words = "", text = (i) => `${i}: ${data.text(i)}`, marked = -1 } = {}) {
  const known = data.range();
  if (!known) return { node: el("p", { class: "state" }, "No finite numbers.") };
  const range = { low: Math.min(0, known.low), high: Math.max(0, known.high) };
  const stretch = Math.ceil(data.length / MOST_BARS);
  const count = Math.ceil(data.length / stretch);
  const step = WIDTH / count;
  const y = (value) => HEIGHT - ((value - range.low) / (range.high - range.low || 1)) * HEIGHT;
  const furthest = Array.from({ length: count }, (_, bar) => furthestOf(data, bar * stretch, stretch));
  const bars = furthest.map((i, bar) => {
    const [top, foot] = [y(0), y(i < 0 ? 0 : data.number(i))].sort((one, other) => one - other);
    const [x, width, height] = [bar * step + step * 0.1, step * 0.8, Math.max(1, foot - top)].map(round);
    return svg("rect", { class: bar === marked && "marked", x, y: round(top), width, height });
  });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, bars);
  const plot = el("div", { class: "plot" });
  const readout = explorable(plot, {
    count,
    label: `${name}, ${plural(data.length, "number")} from ${number(known.low, 3)} to ${number(known.high, 3)}`,
    text: (bar) => (furthest[bar] < 0 ? "not finite" : text(furthest[bar])),
    show: (bar) => {
      for (const [at, rect] of bars.entries()) rect.classList.toggle("marked", at === (bar < 0 ? marked : bar));
    },
  });
  const part = stretch > 1 ? `, the furthest from zero of each ${number(stretch, 0)}` : "";
  return { node: framed(drawing, plot, range, (words || `elements 0 to ${number(data.length - 1, 0)}`) + lost(known) + part, readout) };
}

/** The place of the finite number furthest from zero in a stretch; -1 if none is finite. */
function furthestOf(data, from, count) {
  let found = -1;
  for (let i = from; i < Math.min(data.length, from + count); i++) {
    if (Number.isFinite(data.number(i)) && (found < 0 || Math.abs(data.number(i)) > Math.abs(data.number(found)))) found = i;
  }
  return found;
}

const lost = (range) => (range.lost ? `, ${number(range.lost, 0)} not finite` : "");

/** A path with gaps where numbers are not finite. Of long series, least and greatest of each stretch. */
export function linePath(steps, number, x, y) {
  const stretch = Math.max(1, Math.ceil(steps / MOST_POINTS));
  /** @type {number[][]} */
  let run = [];
  const runs = [run];
  for (let from = 0; from < steps; from += stretch) {
    let [least, most] = [-1, -1];
    for (let i = from; i < Math.min(steps, from + stretch); i++) {
      if (!Number.isFinite(number(i))) continue;
      if (least < 0 || number(i) < number(least)) least = i;
      if (most < 0 || number(i) > number(most)) most = i;
    }
    if (least < 0) {
      run = [];
      runs.push(run);
    } else for (const i of new Set([Math.min(least, most), Math.max(least, most)])) run.push([x(i), y(number(i))]);
  }
  return runs.map((run) => (run.length === 1 ? path([run[0], [run[0][0] + 1, run[0][1]]]) : path(run))).join("");
}

/** Passes the step that is looked at to all lines of an item. */
export function makeFollow() {
  const all = new Set();
  return {
    add(steps, show) {
      const one = { steps, show };
      all.add(one);
      return () => all.delete(one);
    },
    show(i, steps) {
      for (const one of all) if (one.steps === steps) one.show(i);
    },
  };
}

/** Draws the last two axes of a column by colour; a slider goes through the axes before. */
export function heatView(data, rows, columns, name) {
  const range = data.range();
  if (!range) return { node: el("p", { class: "state" }, "No finite numbers.") };
  const every = [Math.ceil(rows / MOST_CELLS), Math.ceil(columns / MOST_CELLS)];
  /** @type {[number, number]} */
  const size = [Math.ceil(rows / every[0]), Math.ceil(columns / every[1])];
  const slices = data.length / (rows * columns);
  const [high, wide] = size.map((cells, axis) => cells * Math.max(1, Math.min(20, Math.floor([240, 640][axis] / cells))));
  const canvas = el("canvas", {
    class: "heat", role: "img", width: size[1], height: size[0],
    style: { width: `${wide}px`, "aspect-ratio": `${wide} / ${high}` },
    "aria-label": `${name}, heat map of ${rows} × ${columns} numbers from ${number(range.low, 3)} to ${number(range.high, 3)}`,
  });
  const readout = el("p", { class: "readout end", "aria-hidden": "true" }, "\u00a0");
  let slice = 0;
  const place = (row, column) => (slice * rows + row) * columns + column;
  const draw = () => fill(canvas, size, (row, column, channel) => color(data.number(place(row * every[0], column * every[1])), range, channel));
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    if (row >= 0 && row < rows && column >= 0 && column < columns) setText(readout, `${row}, ${column}: ${data.text(place(row, column))}`);
  });
  canvas.addEventListener("pointerleave", () => setText(readout, "\u00a0"));
  const ramp = el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${SCALE.map((one) => `rgb(${one})`)})` } });
  const output = el("output", { class: "small muted" }, `0 of ${slices}`);
  const choose = slices > 1 && el("label", { class: "slice row small" }, "Slice", el("input", {
    type: "range", min: 0, max: slices - 1, value: 0,
    on: {
      input: (event) => {
        slice = Number(event.target.value);
        setText(output, `${slice} of ${slices}`);
        draw();
      },
    },
  }), output);
  draw();
  const part = every.some((step) => step > 1) ? `, each ${every[0]} × ${every[1]}` : "";
  return {
    node: el("div", null, choose, canvas,
      el("div", { class: "plot-legend wrap small" },
        el("span", { class: "row" }, number(range.low, 3), ramp, number(range.high, 3), el("span", { class: "muted" }, lost(range) + part)), readout)),
  };
}

/** Paints each pixel: `shade(row, column, channel)` is red, green, blue or alpha, of 255. */
function fill(canvas, [rows, columns], shade) {
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  for (let row = 0, to = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      for (let channel = 0; channel < 4; channel++) pixels.data[to++] = shade(row, column, channel);
    }
  }
  context.putImageData(pixels, 0, 0);
}

function color(value, { low, high }, channel) {
  if (channel === 3) return 255;
  if (!Number.isFinite(value)) return NOT_A_NUMBER;
  const place = (high > low ? (value - low) / (high - low) : 0.5) * (SCALE.length - 1);
  const from = Math.min(SCALE.length - 2, Math.floor(place));
  return SCALE[from][channel] + (SCALE[from + 1][channel] - SCALE[from][channel]) * (place - from);
}

/** Draws a column by a layout of `viewsOf`. Frames are drawn when they scroll into view. */
export function pictureView(data, layout, name) {
  const count = layout.frames.reduce((product, [length]) => product * length, 1);
  const scale = data.dtype === "uint8" ? 1 : 255;
  const range = data.range();
  const isDark = range !== null && range.high > 0 && range.high * scale < DARK;
  const bright = isDark ? 255 / range.high : scale;
  let stretch = bright;
  const watch = onceInView("200px", (canvas) => paint(canvas, data, layout, stretch));
  const list = el("ol", { class: "frames wrap" });
  const draw = (from) => {
    watch.disconnect();
    const shown = Math.min(FRAMES_A_PAGE, count - from);
    list.replaceChildren(...Array.from({ length: shown }, (_, i) => frame(from + i)));
    for (const canvas of list.querySelectorAll("canvas")) watch.observe(canvas);
  };
  const frame = (i) => {
    const [height, width] = [layout.y[0], layout.x[0]];
    const zoom = Math.max(1, Math.floor((count > 1 ? STRIP_PIXELS : ONE_PIXELS) / Math.max(height, width)));
    const title = `${name}, ${count > 1 ? `frame ${i + 1} of ${count}, ` : ""}${width} × ${height} pixels`;
    const canvas = el("canvas", { width, height, role: "img", "aria-label": title, "data-frame": i, style: { width: `${width * zoom}px` } });
    return el("li", null, canvas, count > 1 && el("span", { class: "small muted", "aria-hidden": "true" }, placeOf(layout.frames, i)));
  };
  const again = el("button", {
    class: "small", "aria-pressed": "true",
    on: {
      click: () => {
        stretch = stretch === scale ? bright : scale;
        again.setAttribute("aria-pressed", String(stretch !== scale));
        setText(again, stretch === scale ? "Stretch contrast" : "Contrast stretched");
        for (const canvas of list.querySelectorAll("canvas")) paint(canvas, data, layout, stretch);
      },
    },
  }, "Contrast stretched");
  const node = el("div", null, isDark && again, pager(count, FRAMES_A_PAGE, "frames", draw),
    el("div", count > 1 ? { class: "film", tabindex: 0, role: "group", "aria-label": "Frames" } : null, list));
  draw(0);
  return { node, unmount: () => watch.disconnect() };
}

/** The place of a frame on the axes that count frames: `5`, or `2 · 5`. */
function placeOf(frames, i) {
  const lengths = frames.map(([length]) => length).filter((length) => length > 1);
  return placesOn(lengths, i).join(" · ");
}

function paint(canvas, data, { frames, y, x, c }, stretch) {
  const from = frameOffset(frames, Number(canvas.dataset.frame));
  fill(canvas, [y[0], x[0]], (row, column, channel) =>
    channel === 3 && c[0] < 4 ? 255 : data.number(from + row * y[1] + column * x[1] + channel * c[1]) * stretch);
}
