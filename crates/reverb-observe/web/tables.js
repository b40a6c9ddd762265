// The tables of the overview: one large card, a few cards, or a dense list that can be sorted.

import { bar, sparkline } from "./charts.js";
import {
  bytes,
  el,
  number,
  plural,
  rate,
  reconcile,
  setAttrs,
  setQuantity,
  setText,
  setUserText,
  userText,
} from "./core.js";
import { limiterView, waiting, waitsBadge } from "./limiter.js";

const MAX_CARDS = 6;
const FILTER_FROM = 12;

/** The section of all tables. `update(live)`. */
export function tablesView() {
  const count = el("span", { class: "muted" });
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tables by name" });
  const header = el("div", { class: "section-head" }, el("h2", { id: "tables" }, "Tables"), count, filter);
  const body = el("div");
  const node = el("section", { "aria-labelledby": "tables" }, header, body);
  let layout;
  let view;
  let latest;
  const update = (live) => {
    latest = live;
    const { tables } = live;
    if (!tables) return;
    setText(count, tables.length > 1 ? number(tables.length) : "");
    filter.hidden = tables.length < FILTER_FROM;
    const next = tables.length === 1 ? "one" : tables.length <= MAX_CARDS ? "cards" : "list";
    if (next !== layout) {
      layout = next;
      view = { one: () => cards(true), cards: () => cards(false), list }[next]();
      body.replaceChildren(view.node);
    }
    const wanted = filter.hidden ? "" : filter.value.trim().toLowerCase();
    view.update(wanted ? tables.filter(({ name }) => name.toLowerCase().includes(wanted)) : tables, live);
  };
  filter.addEventListener("input", () => update(latest));
  return { node, update };
}

/** The number now and the curve of the last minute, of inserts or samples. */
export function rateFigure(name, word) {
  const value = el("span", { class: "figure" });
  const spark = sparkline({ second: name === "samples" });
  const node = el("div", { class: "rate" }, value, spark.node);
  const update = (table, live) => {
    const totals = live.series(table.number)?.[name];
    const now = rate(live.rate(totals));
    setQuantity(value, now);
    spark.update(live.rates(totals, 60), `${word} per second in the last minute, now ${now}`);
  };
  return { node, update };
}

/** How full a table is: items of its maximum, with a bar. */
function fill() {
  const value = el("span", { class: "figure" });
  const limit = el("span", { class: "unit" });
  const full = bar();
  const node = el("div", { class: "fill" }, el("span", { class: "of" }, value, limit), full.node);
  const update = ({ items, max_items: most }) => {
    setText(value, number(items, 0));
    setText(limit, ` of ${number(most, 0)}`);
    full.update(items / most, `${number(items, 0)} of ${plural(most, "item")}`);
    setAttrs(full.node, { class: items >= most ? "bar full" : "bar" });
  };
  return { node, update };
}

/** The name of a table, which leads to its details. */
function tableLink() {
  const name = el("bdi", { class: "user" });
  const node = el("a", { class: "table-name" }, name);
  const update = (table) => {
    setUserText(name, table.name);
    setAttrs(node, { href: `#/tables/${table.number}` });
  };
  return { node, update };
}

/** Samples for each insert so far. */
export function ratio({ inserts, samples }) {
  if (!(inserts > 0)) return "–";
  const share = samples / inserts;
  return share < 1000 ? share.toFixed(2) : number(share, 0);
}

function cards(large) {
  const node = el("div", { class: large ? "cards one" : "cards" });
  const update = (tables, live) => {
    reconcile(
      node,
      tables,
      ({ number }) => number,
      () => card(large),
    );
    for (const view of node.reconciled.values()) view.live(live);
  };
  return { node, update };
}

function card(large) {
  const link = tableLink();
  const selectors = el("span", { class: "selectors muted small" });
  const badge = waitsBadge();
  const items = fill();
  const size = el("span", { class: "figure" });
  const sizeLimit = el("span", { class: "unit" });
  const inserts = rateFigure("inserts", "Inserts");
  const samples = rateFigure("samples", "Samples");
  const perInsert = el("span", { class: "figure" });
  const limiter = limiterView({ height: large ? 208 : 132, flow: true });
  const fact = (label, ...value) => el("div", {}, el("dt", { class: "label" }, label), el("dd", {}, ...value));
  const node = el(
    "article",
    { class: "panel card" },
    el("header", {}, el("h3", {}, link.node), selectors, el("span", { class: "end" }, badge.node)),
    el(
      "div",
      { class: "card-body" },
      el(
        "dl",
        { class: "card-facts" },
        fact("Items", items.node),
        fact("Inserts", inserts.node),
        fact("Samples", samples.node),
        fact("Data", size, sizeLimit),
        fact("Samples per insert", perInsert),
      ),
      el("div", { class: "card-limiter" }, limiter.node),
    ),
  );
  let table;
  const update = (next) => {
    table = next;
    link.update(table);
    setText(selectors, `${table.sampler} → ${table.remover}`);
    badge.update(table);
    items.update(table);
    setQuantity(size, bytes(table.bytes));
    setText(sizeLimit, table.max_bytes === null ? "" : ` of ${bytes(table.max_bytes)}`);
    setText(perInsert, ratio(table));
    node.classList.toggle("waits", waiting(table) > 0);
  };
  const live = (state) => [inserts, samples, limiter].forEach((part) => part.update(table, state));
  return { node, update, live };
}

const COLUMNS = [
  { id: "name", name: "Table", of: ({ name }) => name.toLowerCase(), start: 1 },
  { id: "items", name: "Items", of: ({ items }) => items },
  { id: "bytes", name: "Data", of: ({ bytes: size }) => size, class: "number wide" },
  {
    id: "inserts",
    name: "Inserts",
    of: ({ number: n }, live) => live.rate(live.series(n)?.inserts) ?? 0,
    class: "number",
  },
  {
    id: "samples",
    name: "Samples",
    of: ({ number: n }, live) => live.rate(live.series(n)?.samples) ?? 0,
    class: "number",
  },
  {
    id: "ratio",
    name: "Per insert",
    of: ({ inserts, samples }) => (inserts ? samples / inserts : 0),
    class: "number wide",
  },
  { id: "limiter", name: "Limiter", of: ({ limiter }) => limiter.diff, class: "wide" },
  {
    id: "waits",
    name: "Waits",
    class: "narrow-hidden",
    of: (table) =>
      waiting(table) && 1 + Math.max(table.waiting_inserts.longest_seconds, table.waiting_samples.longest_seconds),
  },
];

function list() {
  let sort = { column: undefined, direction: 1 };
  let latest;
  const rows = el("tbody");
  const heads = COLUMNS.map((column) => {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const click = () => {
      const first = column.start ?? -1;
      const again = sort.column === column;
      if (again && sort.direction !== first) sort = { column: undefined, direction: 1 };
      else sort = { column, direction: again ? -sort.direction : first };
      update(...latest);
    };
    const head = el(
      "th",
      { scope: "col", class: column.class ?? "" },
      el("button", { type: "button", on: { click } }, column.name, arrow),
    );
    return { column, head, arrow };
  });
  const node = el(
    "div",
    { class: "panel scroll" },
    el(
      "table",
      { class: "tables" },
      el("caption", { class: "hidden" }, "Tables of the server; the names of the columns sort"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map(({ head }) => head),
        ),
      ),
      rows,
    ),
  );
  const update = (tables, live) => {
    latest = [tables, live];
    const { column, direction } = sort;
    for (const { column: own, head, arrow } of heads) {
      setAttrs(head, { "aria-sort": own === column ? (direction > 0 ? "ascending" : "descending") : null });
      setText(arrow, own === column ? (direction > 0 ? " ↑" : " ↓") : "");
    }
    reconcile(rows, column ? sorted(tables, live, column, direction) : tables, ({ number }) => number, row);
    for (const view of rows.reconciled.values()) view.live(live);
  };
  return { node, update };
}

function sorted(tables, live, { of }, direction) {
  const keys = new Map(tables.map((table) => [table, of(table, live)]));
  return [...tables].sort((one, other) => {
    const [left, right] = [keys.get(one), keys.get(other)];
    return direction * (left < right ? -1 : left > right ? 1 : 0) || one.number - other.number;
  });
}

function row() {
  const link = tableLink();
  const selectors = el("span", { class: "selectors muted small" });
  const items = fill();
  const size = el("span");
  const inserts = rateFigure("inserts", "Inserts");
  const samples = rateFigure("samples", "Samples");
  const perInsert = el("span");
  const limiter = limiterView({ height: 28, small: true });
  const badge = waitsBadge();
  const phoneBadge = waitsBadge(true);
  const cell = (name, ...children) => el("td", { class: name }, ...children);
  const node = el(
    "tr",
    {},
    el("th", { scope: "row" }, link.node, selectors, el("span", { class: "narrow-only" }, phoneBadge.node)),
    cell("", items.node),
    cell("number wide", size),
    cell("number", inserts.node),
    cell("number", samples.node),
    cell("number wide", perInsert),
    cell("wide", limiter.node),
    cell("narrow-hidden", badge.node),
  );
  let table;
  const update = (next) => {
    table = next;
    link.update(table);
    setText(selectors, `${table.sampler} → ${table.remover}`);
    items.update(table);
    setQuantity(size, bytes(table.bytes));
    setText(perInsert, ratio(table));
    badge.update(table);
    phoneBadge.update(table);
  };
  const live = (state) => [inserts, samples, limiter].forEach((part) => part.update(table, state));
  return { node, update, live };
}

/** A list of the columns of a signature. */
export function signatureTable(columns) {
  const shape = (lengths) => (lengths ? `[${lengths.map((length) => length ?? "?").join(", ")}]` : "any");
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ["Column", "Type", "Shape"].map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el(
      "tbody",
      {},
      columns.map((column) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", class: "mono" }, userText(column.name)),
          el("td", { class: "mono" }, column.dtype),
          el("td", { class: "mono" }, shape(column.shape)),
        ),
      ),
    ),
  );
}
