// The tables of the overview: one large card, a few cards, or a dense list that can be sorted.

/** @import { Live } from "./live.js" */

import { bar, sparkline } from "./charts.js";
import {
  bytes,
  el,
  fact,
  number,
  plural,
  rate,
  reconcile,
  setAttrs,
  setQuantity,
  setText,
  store,
  stored,
  tableHead,
  tableLink,
  userText,
} from "./core.js";
import { limiterView, spanChoice, stuckRank, waiting, waitsBadge } from "./limiter.js";

const MAX_CARDS = 6;
const FILTER_FROM = 12;
const SORT_KEY = "reverb-sort";

/** The section of all tables. `update(live)`. */
export function tablesView() {
  const count = el("span", { class: "muted" });
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tables by name" });
  const span = spanChoice();
  const header = el("div", { class: "section-head wrap" }, el("h2", { id: "tables" }, "Tables"), count, el("div", { class: "end wrap" }, filter, span.node));
  const body = el("div");
  const node = el("section", { class: "all-tables", "aria-labelledby": "tables" }, header, body);
  let layout;
  /** @type {ReturnType<typeof cards | typeof list>} */
  let view;
  /** @type {Live | undefined} */
  let latest;
  /** @param {Live} live */
  const update = (live) => {
    latest = live;
    span.update(live);
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
    const shown = wanted ? tables.filter(({ name }) => name.toLowerCase().includes(wanted)) : tables;
    // Of tables that are equally stuck, first the one where the verdict says that the wait began.
    const told = live.verdict?.tables ?? [];
    const place = new Map(tables.map(({ number }) => [number, told.includes(number) ? told.indexOf(number) : told.length]));
    const before = (one, other) => stuckRank(one) - stuckRank(other) || (place.get(one.number) ?? 0) - (place.get(other.number) ?? 0) || one.number - other.number;
    view.update([...shown].sort(before), live);
  };
  filter.addEventListener("input", () => latest && update(latest));
  return { node, update };
}

/** The number now and the curve of the last minute. @param {"inserts" | "samples"} name @param {string} word */
function rateFigure(name, word) {
  const value = el("span", { class: "figure" });
  const spark = sparkline({ second: name === "samples" });
  const node = el("div", { class: "rate grid nowrap" }, value, spark.node);
  /** @param {TableDocument} table @param {Live} live */
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
  const node = el("div", { class: "fill rows" }, el("span", { class: "nowrap" }, value, limit), full.node);
  /** @param {TableDocument} table */
  const update = ({ items, max_items: most }) => {
    setText(value, number(items, 0));
    setText(limit, ` of ${number(most, 0)}`);
    full.update(items / most, `${number(items, 0)} of ${plural(most, "item")}`);
    setAttrs(full.node, { class: items >= most ? "bar full" : "bar" });
  };
  return { node, update };
}

/** Samples for each insert, in the last minute or else so far. @param {Pick<TableDocument, "inserts" | "samples" | "progress">} table */
function shareOf({ inserts, samples, progress }) {
  return progress.ratio ?? (inserts > 0 ? samples / inserts : undefined);
}

/** That ratio, of the one that is asked for: `7.98 of 8`. @param {TableDocument} table */
export function ratio(table) {
  const share = shareOf(table);
  if (share === undefined) return "–";
  const asked = table.limiter.kind === "ratio" ? ` of ${number(table.limiter.samples_per_insert, 3)}` : "";
  return `${share < 1000 ? share.toFixed(2) : number(share, 0)}${asked}`;
}

/** What both a card and a row show of a table. `update(table, live)`. @param {Parameters<typeof limiterView>[0]} options Of the limiter. */
function partsOf(options) {
  const link = tableLink();
  const selectors = el("span", { class: "selectors nowrap muted small" });
  const badge = waitsBadge();
  const items = fill();
  const size = el("span", { class: "figure" });
  const inserts = rateFigure("inserts", "Inserts");
  const samples = rateFigure("samples", "Samples");
  const perInsert = el("span", { class: "figure" });
  const limiter = limiterView(options);
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, live) => {
    link.update(table.number, table.name);
    setText(selectors, `${table.sampler} → ${table.remover}`);
    setQuantity(size, bytes(table.bytes));
    setText(perInsert, ratio(table));
    setAttrs(perInsert, { title: table.progress.ratio === null ? "So far" : "In the last minute" });
    for (const part of [badge, items, inserts, samples, limiter]) part.update(table, live);
  };
  return { link, selectors, badge, items, size, inserts, samples, perInsert, limiter, update };
}

/** Makes the children of `parent` follow the tables. @param {Element} parent @param {TableDocument[]} tables @param {Live} live */
function follow(parent, tables, live, create) {
  reconcile(parent, tables.map((table) => ({ table, live })), ({ table }) => table.number, create);
}

function cards(large) {
  const node = el("div", { class: large ? "cards grid one" : "cards grid many" });
  /** @param {TableDocument[]} tables @param {Live} live */
  const update = (tables, live) => follow(node, tables, live, () => card(large));
  return { node, update };
}

function card(large) {
  const parts = partsOf({ height: large ? 208 : 132, flow: true });
  const badge = el("span", { class: "end" }, parts.badge.node);
  const sizeLimit = el("span", { class: "unit" });
  const node = el(
    "article",
    { class: "panel card" },
    el("header", { class: "wrap" }, el("h3", { class: "row" }, parts.link.node), parts.selectors, badge),
    el(
      "div",
      { class: "card-body grid body" },
      el(
        "dl",
        { class: "card-facts rows" },
        fact("Items", null, parts.items.node).node,
        fact("Inserts", null, parts.inserts.node).node,
        fact("Samples", null, parts.samples.node).node,
        fact("Data", null, parts.size, sizeLimit).node,
        fact("Samples per insert", null, parts.perInsert).node,
      ),
      el("div", { class: "card-limiter" }, parts.limiter.node),
    ),
  );
  /** @param {{table: TableDocument, live: Live}} now */
  const update = ({ table, live }) => {
    parts.update(table, live);
    setText(sizeLimit, table.max_bytes === null ? "" : ` of ${bytes(table.max_bytes)}`);
  };
  return { node, update };
}

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {(table: TableDocument, live: Live) => string | number} of What is sorted by.
 * @property {number} [start] The direction of the first click.
 * @property {string} [class]
 */

/** @type {Column[]} */
const COLUMNS = [
  { name: "Table", of: ({ name }) => name.toLowerCase(), start: 1 },
  { name: "Waits", of: (table) => waiting(table) && 1 + (table.progress.seconds ?? 0), class: "narrow-hidden" },
  { name: "Items", of: ({ items }) => items },
  { name: "Data", of: ({ bytes: size }) => size ?? 0, class: "number wide" },
  { name: "Inserts", of: ({ number: n }, live) => live.rate(live.series(n)?.inserts) ?? 0, class: "number" },
  { name: "Samples", of: ({ number: n }, live) => live.rate(live.series(n)?.samples) ?? 0, class: "number" },
  { name: "Per insert", of: (table) => shareOf(table) ?? 0, class: "number narrow-hidden" },
  { name: "Limiter", of: ({ limiter }) => limiter.ahead ?? 0, class: "wide" },
];

/** The order that was chosen on an earlier visit. @returns {{column: Column | undefined, direction: number}} */
function storedSort() {
  const [, direction, name] = /^(-?1) (.*)$/.exec(stored(SORT_KEY) ?? "") ?? [];
  const column = COLUMNS.find((one) => one.name === name);
  return { column, direction: column ? Number(direction) : 1 };
}

function list() {
  let sort = storedSort();
  /** @type {[TableDocument[], Live]} */
  let latest;
  const rows = el("tbody");
  const heads = COLUMNS.map((column) => {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const click = () => {
      const first = column.start ?? -1;
      const again = sort.column === column;
      if (again && sort.direction !== first) sort = { column: undefined, direction: 1 };
      else sort = { column, direction: again ? -sort.direction : first };
      store(SORT_KEY, sort.column ? `${sort.direction} ${sort.column.name}` : "");
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
      el("thead", {}, el("tr", {}, heads.map(({ head }) => head))),
      rows,
    ),
  );
  /** @param {TableDocument[]} tables @param {Live} live */
  const update = (tables, live) => {
    latest = [tables, live];
    const { column, direction } = sort;
    for (const { column: own, head, arrow } of heads) {
      setAttrs(head, { "aria-sort": own === column ? (direction > 0 ? "ascending" : "descending") : null });
      setText(arrow, own === column ? (direction > 0 ? " ↑" : " ↓") : "");
    }
    const inOrder = column ? sorted(tables, live, column, direction) : tables;
    follow(rows, inOrder, live, row);
  };
  return { node, update };
}

/** Those that are stuck stay first. @param {TableDocument[]} tables @param {Live} live @param {Column} column @param {number} direction */
function sorted(tables, live, { of }, direction) {
  const keys = new Map(tables.map((table) => [table, of(table, live)]));
  return [...tables].sort((one, other) => {
    const [left, right] = [keys.get(one) ?? 0, keys.get(other) ?? 0];
    const byColumn = direction * (left < right ? -1 : left > right ? 1 : 0);
    return stuckRank(one) - stuckRank(other) || byColumn || one.number - other.number;
  });
}

function row() {
  const parts = partsOf({ height: 22, small: true });
  const phoneBadge = waitsBadge(true);
  const cell = (name, child) => el("td", { class: name }, child);
  const node = el(
    "tr",
    {},
    el("th", { scope: "row" }, el("div", { class: "table-place" }, parts.link.node, parts.selectors), el("span", { class: "narrow-only" }, phoneBadge.node)),
    cell("narrow-hidden", parts.badge.node),
    cell("", parts.items.node),
    cell("number wide", parts.size),
    cell("number", parts.inserts.node),
    cell("number", parts.samples.node),
    cell("number narrow-hidden", parts.perInsert),
    cell("wide", parts.limiter.node),
  );
  /** @param {{table: TableDocument, live: Live}} now */
  const update = ({ table, live }) => {
    parts.update(table, live);
    phoneBadge.update(table);
  };
  return { node, update };
}

/** A list of the columns of a signature. @param {ColumnDocument[]} columns */
export function signatureTable(columns) {
  const shape = (/** @type {ColumnDocument["shape"]} */ lengths) => (lengths ? `[${lengths.map((length) => length ?? "?").join(", ")}]` : "any");
  const row = (/** @type {ColumnDocument} */ column) => {
    const cells = [column.dtype, shape(column.shape)].map((text) => el("td", { class: "mono" }, text));
    return el("tr", {}, el("th", { scope: "row", class: "mono" }, userText(column.name)), cells);
  };
  return el("table", {}, tableHead(["Column", "Type", "Shape"]), el("tbody", {}, columns.map(row)));
}
