// A table in detail: its figures, limiter, throughput, removals, memory, who waits, histograms and items.

import { lineChart, stackedBar } from "./charts.js";
import { api, bytes, duration, el, number, rate, setQuantity, setText, setUserText, time } from "./core.js";
import { mountHistograms } from "./histograms.js";
import { mountItems } from "./items.js";
import { flowLines, limiterView, waitsBadge } from "./limiter.js";
import { legendEntry, panel, removalsPanel, waitsPanel } from "./panels.js";
import { ratio, signatureTable } from "./tables.js";

/** The view of table `number`. `update(live)`, and `unmount()` at the end. */
export function detailView(number) {
  const title = el("bdi", { class: "user" }, `Table ${number}`);
  const heading = el("h1", { tabindex: "-1" }, title);
  const selectors = el("span", { class: "muted" });
  const badge = waitsBadge();
  const missing = el(
    "div",
    { class: "panel state", hidden: true },
    el("strong", {}, "No such table"),
    `This server has no table number ${number}.`,
  );
  const parts = [figures(), limiterPanel(), throughputPanel(), waitsPanel(number), removalsPanel(), memoryOfTable()];
  const [facts, limiter, throughput, waits, removals, memory] = parts;
  const histograms = el("div", { class: "mounted" });
  const items = el("div", { class: "mounted" });
  const signature = panel("signature", "Signature");
  const body = el(
    "div",
    { class: "detail" },
    facts.node,
    el("div", { class: "detail-pair" }, limiter.node, throughput.node),
    waits.node,
    el("div", { class: "detail-pair" }, removals.node, memory.node),
    histograms,
    items,
    signature.node,
  );
  const node = el(
    "div",
    { class: "view" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/", class: "back" }, "← Overview")),
    el("div", { class: "detail-head" }, heading, selectors, badge.node),
    missing,
    body,
  );
  let mounted = [];
  let shape;
  const update = (live) => {
    const table = live.tables?.find((one) => one.number === number);
    missing.hidden = !live.tables || Boolean(table);
    body.hidden = !table;
    if (!table) return;
    setUserText(title, table.name);
    setText(selectors, `${table.sampler} → ${table.remover}`);
    badge.update(table);
    facts.update(table, live);
    limiter.update(table, live);
    throughput.update(table, live);
    waits.update(live);
    removals.update(table);
    memory.update(table);
    const columns = JSON.stringify(table.signature);
    if (columns !== shape) {
      shape = columns;
      signature.node.hidden = !table.signature;
      if (table.signature)
        signature.body.replaceChildren(el("div", { class: "scroll" }, signatureTable(table.signature)));
    }
    if (mounted.length === 0) {
      mounted = [mountHistograms(histograms, { api, table }), mountItems(items, { api, table })];
    }
    for (const part of mounted) part.update(table);
  };
  const unmount = () => mounted.forEach((part) => part.unmount());
  return { node, heading, update, unmount, name: () => title.textContent };
}

function figures() {
  const values = {};
  const fact = (name, label) => {
    values[name] = el("dd", { class: "figure" });
    return el("div", {}, el("dt", { class: "label" }, label), values[name]);
  };
  const node = el(
    "section",
    { class: "panel", "aria-label": "Figures" },
    el(
      "dl",
      { class: "facts body" },
      fact("items", "Items"),
      fact("inserts", "Inserts"),
      fact("samples", "Samples"),
      fact("ratio", "Samples per insert"),
      fact("unique", "Sampled items"),
      fact("times", "max_times_sampled"),
      fact("updates", "Priority updates"),
      fact("episodes", "Episodes"),
      fact("undelivered", "Undelivered samples"),
      fact("lastInsert", "Last insert"),
      fact("lastSample", "Last sample"),
      fact("blocked", "Inserts blocked"),
      fact("starved", "Samples blocked"),
    ),
  );
  const update = (table, live) => {
    const ago = (at) => (at === null ? "never" : `${duration(Math.max(0, (live.server?.now ?? at) - at))} ago`);
    const texts = {
      items: `${number(table.items, 0)} of ${number(table.max_items, 0)}`,
      inserts: number(table.inserts, 0),
      samples: number(table.samples, 0),
      ratio: ratio(table),
      unique: number(table.unique_samples, 0),
      times: table.max_times_sampled > 0 ? number(table.max_times_sampled, 0) : "no limit",
      updates: number(table.priority_updates, 0),
      episodes: number(table.episodes, 0),
      undelivered: number(table.undelivered_samples, 0),
      lastInsert: ago(table.last_insert_at),
      lastSample: ago(table.last_sample_at),
      blocked: duration(table.waiting_inserts.blocked_seconds),
      starved: duration(table.waiting_samples.blocked_seconds),
    };
    for (const [name, text] of Object.entries(texts)) setText(values[name], text);
  };
  return { node, update };
}

function limiterPanel() {
  const { node, body, count } = panel("limiter", "Rate limiter");
  const view = limiterView({ height: 220 });
  const values = el("tbody");
  const heads = ["Time", "inserts × spi − samples", "Inserts", "Samples"];
  const head = heads.map((name, index) => el("th", { scope: "col", class: index ? "number" : "" }, name));
  const details = el(
    "details",
    {},
    el("summary", { class: "small" }, "Values as a table"),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Values" },
      el("table", {}, el("thead", {}, el("tr", {}, head)), values),
    ),
  );
  body.append(view.node, details);
  const update = (table, live) => {
    const { limiter } = table;
    const asks = limiter.kind === "min_size" ? "" : `${number(limiter.samples_per_insert, 3)} samples per insert, `;
    setText(count, `${asks}min. size ${number(limiter.min_size, 0)}`);
    view.update(table, live);
    if (details.open) fillValues(values, live, live.series(table.number) ?? {});
  };
  return { node, update };
}

/** Every tenth second of the strip and of the throughput, newest first. */
function fillValues(body, live, { diff, inserts, samples }) {
  const perSecond = [inserts, samples].map((totals) => new Map(live.rates(totals, 300)));
  const rows = live.history.times.map((at, index) =>
    el(
      "tr",
      {},
      el("td", {}, time(at)),
      [number(diff?.[index]), ...perSecond.map((rates) => rate(rates.get(at)))].map((text) =>
        el("td", { class: "number" }, text),
      ),
    ),
  );
  body.replaceChildren(...rows.reverse().filter((_, index) => index % 10 === 0));
}

function throughputPanel() {
  const { node, body } = panel("throughput", "Throughput");
  const chart = lineChart({ height: 220 });
  const inserts = legendEntry("line-1", "Inserts");
  const samples = legendEntry("line-2", "Samples");
  const legend = el("dl", { class: "legend" }, inserts.node, samples.node);
  body.append(legend, chart.node);
  const update = (table, live) => {
    const series = live.series(table.number);
    const now = [rate(live.rate(series?.inserts)), rate(live.rate(series?.samples))];
    setQuantity(inserts.value, now[0]);
    setQuantity(samples.value, now[1]);
    chart.update(
      flowLines(live, series),
      `Inserts and samples per second in the last five minutes, now ${now[0]} and ${now[1]}`,
    );
  };
  return { node, update };
}

function memoryOfTable() {
  const { node, body, count } = panel("memory", "Memory");
  const sizes = stackedBar();
  const values = {};
  const fact = (name, label, tone = "") => {
    const entry = legendEntry(tone, label);
    values[name] = entry.value;
    return entry.node;
  };
  const legend = el(
    "dl",
    { class: "legend" },
    fact("bytes", "Chunks", "tone-1"),
    fact("index", "Index and selectors", "tone-2"),
    fact("rows", "Rows that items refer to"),
    fact("inserted", "Inserted in all"),
    fact("sampled", "Sampled in all"),
  );
  body.append(sizes.node, legend);
  const update = (table) => {
    const known = table.bytes + table.index_bytes;
    const parts = [
      { value: table.bytes, tone: 1 },
      { value: table.index_bytes, tone: 2 },
    ];
    const total = Math.max(known, table.max_bytes ?? 0);
    setText(count, table.max_bytes === null ? "" : `of at most ${bytes(table.max_bytes)}`);
    sizes.update(parts, total, `Chunks ${bytes(table.bytes)}, index ${bytes(table.index_bytes)}`);
    setQuantity(values.bytes, `${bytes(table.bytes)}`);
    setQuantity(values.index, bytes(table.index_bytes));
    setQuantity(values.rows, bytes(table.referenced_bytes));
    setQuantity(values.inserted, bytes(table.insert_bytes));
    setQuantity(values.sampled, bytes(table.sample_bytes));
  };
  return { node, update };
}
