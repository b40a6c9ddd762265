// A table in detail: its figures, limiter, throughput, removals, memory, who waits, histograms and items.

/** @import { Live } from "./live.js" */

import { bytes, duration, el, fact, number, rate, setQuantity, setText, setUserText, tableHead, time, userText } from "./core.js";
import { mountHistograms } from "./histograms.js";
import { mountItems } from "./items.js";
import { bandOf, flowOf, limiterView, spanChoice, waitsBadge } from "./limiter.js";
import { heldBar, heldBytes, legendEntry, nothing, panel, removalsPanel, waitsPanel } from "./panels.js";
import { ratio, signatureTable } from "./tables.js";
import { lineChart } from "./timeline.js";

/** The view of table `number`. `update(live)`, and `unmount()` at the end. @param {number} number */
export function detailView(number) {
  const title = el("bdi", { class: "user" }, `Table ${number}`);
  const heading = el("h1", { class: "row", tabindex: "-1" }, title);
  const selectors = el("span", { class: "muted" });
  const badge = waitsBadge();
  const span = spanChoice();
  const words = nothing("No such table", `This server has no table number ${number}.`);
  const missing = el("div", { class: "panel", hidden: true }, words);
  const [facts, limiter, throughput] = [figures(), limiterPanel(), throughputPanel()];
  const [waits, removals, memory] = [waitsPanel(number), removalsPanel(), memoryOfTable()];
  const histograms = el("div", { class: "mounted" });
  const items = el("div", { class: "mounted" });
  const signature = panel("signature", "Signature");
  const body = el(
    "div",
    { class: "detail grid" },
    facts.node,
    el("div", { class: "detail-pair grid" }, limiter.node, throughput.node),
    waits.node,
    el("div", { class: "detail-pair grid" }, removals.node, memory.node),
    histograms,
    items,
    signature.node,
  );
  const node = el(
    "div",
    { class: "view grid" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/", class: "back" }, "← Overview")),
    el("div", { class: "detail-head wrap baseline" }, heading, selectors, badge.node, el("div", { class: "end" }, span.node)),
    missing,
    body,
  );
  /** @type {{update(table: TableDocument, live: Live): void, unmount(): void}[]} */
  let mounted = [];
  /** @type {string | undefined} */
  let shape;
  /** @param {Live} live */
  const update = (live) => {
    const table = live.tables?.find((one) => one.number === number);
    missing.hidden = !live.tables || Boolean(table);
    body.hidden = !table;
    if (!table) return;
    setUserText(title, table.name);
    setText(selectors, `${table.sampler} → ${table.remover}`);
    waits.update(live);
    span.update(live);
    const columns = JSON.stringify(table.signature);
    if (columns !== shape) {
      shape = columns;
      signature.node.hidden = !table.signature;
      if (table.signature)
        signature.body.replaceChildren(el("div", { class: "scroll" }, signatureTable(table.signature)));
    }
    if (mounted.length === 0) {
      mounted = [mountHistograms(histograms, table), mountItems(items)];
    }
    for (const part of [badge, facts, limiter, throughput, removals, memory, ...mounted]) part.update(table, live);
  };
  const unmount = () => {
    for (const part of mounted) part.unmount();
  };
  return { node, heading, update, unmount, name: () => title.textContent };
}

/** @typedef {[string, (table: TableDocument, live: Live) => string]} Figure What it is called, and how it is written. */

/** The figures of a table, those of its checkpoint included. @type {Figure[]} */
const FIGURES = [
  ["Items", (table) => `${number(table.items, 0)} of ${number(table.max_items, 0)}`],
  ["Inserts", (table) => number(table.inserts, 0)],
  ["Samples", (table) => number(table.samples, 0)],
  ["Samples per insert", ratio],
  ["Sampled items", (table) => number(table.unique_samples, 0)],
  ["max_times_sampled", (table) => (table.max_times_sampled > 0 ? number(table.max_times_sampled, 0) : "no limit")],
  ["Episodes", (table) => number(table.episodes, 0)],
  ["Undelivered samples", (table) => number(table.undelivered_samples, 0)],
];

/** Those that the server counts from its start. @type {Figure[]} */
const SINCE_START = [
  ["Priority updates", (table) => number(table.priority_updates, 0)],
  ["Returned samples", (table) => number(table.returned_samples, 0)],
  ["Last insert", (table, live) => ago(table.last_insert_at, live)],
  ["Last sample", (table, live) => ago(table.last_sample_at, live)],
  ["Inserts blocked", (table) => duration(table.waiting_inserts.blocked_seconds)],
  ["Samples blocked", (table) => duration(table.waiting_samples.blocked_seconds)],
];

/** @param {number | null} at @param {Live} live */
const ago = (at, live) => (at === null ? "never" : `${duration(Math.max(0, (live.server?.now ?? at) - at))} ago`);

function figures() {
  const since = el("p", { class: "small muted" });
  const [all, young] = [FIGURES, SINCE_START].map((figures) => figures.map(([label]) => fact(label, { class: "figure" })));
  const list = (/** @type {typeof all} */ facts) => el("dl", { class: "facts grid" }, facts.map(({ node }) => node));
  const node = el("section", { class: "panel body grid", "aria-label": "Figures" }, list(all), since, list(young));
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, live) => {
    setText(since, live.server ? `Since the server started, ${ago(live.server.started_at, live)}` : "");
    for (const [index, [, textOf]] of FIGURES.entries()) setText(all[index].value, textOf(table, live));
    for (const [index, [, textOf]] of SINCE_START.entries()) setText(young[index].value, textOf(table, live));
  };
  return { node, update };
}

function limiterPanel() {
  const { node, body, count } = panel("limiter", "Rate limiter", null, "grid body");
  const view = limiterView({ height: 220 });
  const values = el("tbody");
  const heads = ["Time", "Limiter", "Inserts", "Samples"];
  const details = el(
    "details",
    {},
    el("summary", { class: "small" }, "Values as a table"),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Values" },
      el("table", {}, tableHead(heads, (column) => column > 0 && "number"), values),
    ),
  );
  body.append(view.node, details);
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, live) => {
    const { limiter } = table;
    const asks = limiter.kind === "min_size" ? "" : `${number(limiter.samples_per_insert, 3)} samples per insert, `;
    setText(count, `${asks}min. size ${number(limiter.min_size, 0)}`);
    view.update(table, live);
    if (details.open) fillValues(values, table, live);
  };
  return { node, update };
}

/** Every tenth point of the strip and of the throughput, and all that happened between, newest first. @param {Element} body @param {TableDocument} table @param {Live} live */
function fillValues(body, table, live) {
  const series = live.series(table.number);
  const [band] = bandOf(table, live, live.span).lines;
  // The last point is of now, and no second has passed since.
  const columns = [band.points.slice(0, -1), live.rates(series?.inserts), live.rates(series?.samples)].map((points) => new Map(points));
  const texts = [(/** @type {number | undefined} */ value) => (value === undefined ? "–" : band.format(value)), rate, rate];
  const rows = [...columns[0].keys()].reverse().filter((_, index) => index % 10 === 0).map((at) => ({ at, node:
    el("tr", {}, el("td", {}, time(at)), columns.map((values, i) => el("td", { class: "number" }, texts[i](values.get(at))))) }));
  const events = flowOf(table, live).events.map(({ at, text }) => ({ at, node:
    el("tr", {}, el("td", {}, time(at)), el("td", { colspan: columns.length }, userText(text))) }));
  body.replaceChildren(...[...rows, ...events].sort((one, other) => other.at - one.at).map(({ node }) => node));
}

function throughputPanel() {
  const { node, body } = panel("throughput", "Throughput", null, "grid body");
  const chart = lineChart({ height: 220 });
  const inserts = legendEntry("dash tone-1", "Inserts");
  const samples = legendEntry("dash tone-3", "Samples");
  const legend = el("dl", { class: "legend wrap" }, inserts.node, samples.node);
  body.append(legend, chart.node);
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, live) => {
    const series = live.series(table.number);
    const now = [rate(live.rate(series?.inserts)), rate(live.rate(series?.samples))];
    setQuantity(inserts.value, now[0]);
    setQuantity(samples.value, now[1]);
    chart.update(flowOf(table, live), `Inserts and samples per second, now ${now[0]} and ${now[1]}`);
  };
  return { node, update };
}

/** The sizes of a table: class of the color, label, value. @type {[string, string, (table: TableDocument) => number | null][]} */
const SIZES = [
  ["tone-1", "Chunks", (table) => table.bytes],
  ["tone-2", "Index and selectors", (table) => table.index_bytes],
  ["", "Rows that items refer to", (table) => table.referenced_bytes],
  ["", "Inserted in all", (table) => table.insert_bytes],
  ["", "Sampled in all", (table) => table.sample_bytes],
];

function memoryOfTable() {
  const { node, body, count } = panel("memory", "Memory", null, "grid body");
  const held = heldBar();
  const entries = SIZES.map(([swatch, label]) => legendEntry(swatch, label));
  body.append(held.node, el("dl", { class: "legend rows" }, entries.map((entry) => entry.node)));
  /** @param {TableDocument} table */
  const update = (table) => {
    setText(count, table.max_bytes === null ? "" : `of at most ${bytes(table.max_bytes)}`);
    held.update(table, Math.max(heldBytes(table), table.max_bytes ?? 0));
    for (const [index, [, , sizeOf]] of SIZES.entries()) setQuantity(entries[index].value, bytes(sizeOf(table)));
  };
  return { node, update };
}
