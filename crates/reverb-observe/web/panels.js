// Panels of the overview: who waits, clients, memory.

/** @import { Live, LiveClient, Rates } from "./live.js" */

import { stackedBar } from "./charts.js";
import {
  byteRate,
  bytes,
  compact,
  duration,
  el,
  number,
  percent,
  plural,
  rate,
  reconcile,
  setQuantity,
  setText,
  setUserText,
  tableHead,
  tableLink,
} from "./core.js";

/** A panel with a heading. `end` stands at the right of it, `look` is of its body. Returns `{node, body, count}`. */
export function panel(id, title, /** @type {Element | null} */ end = null, look = "") {
  const count = el("span", { class: "muted" });
  const header = el("header", { class: "wrap" }, el("h2", { id }, title), count, end);
  const body = el("div", { class: `panel-body ${look}` });
  return { node: el("section", { class: `panel ${id}-panel`, "aria-labelledby": id }, header, body), body, count };
}

/** What stands in a panel without content. */
export function nothing(title, text) {
  return el("div", { class: "state" }, el("strong", {}, title), text);
}

const where = ({ address, transport }) =>
  transport === "same_process" ? "same process" : transport === "unix" ? "unix socket" : address || transport;
/** The connections of a client differ by their ports. */
const host = (client) => where(client).replace(/:\d+$/, "");

/** The requests that wait. `update(live)`; with `number`, those of one table. @param {number} [number] */
export function waitsPanel(number) {
  const { node, body, count } = panel("waits", "Who waits");
  const quiet = nothing("Nobody waits", "Each insert and each sample goes as it comes.");
  const rows = el("ul", { class: "waits bounded", tabindex: "0", "aria-label": "Waiting requests, longest first" });
  body.append(quiet, rows);
  /** @param {Live} live */
  const update = (live) => {
    const waits = (live.waits ?? []).filter(({ table }) => number === undefined || table === number);
    quiet.hidden = waits.length > 0;
    rows.hidden = waits.length === 0;
    setText(count, waits.length ? String(waits.length) : "");
    const seen = new Map();
    const keyed = waits.map((wait) => {
      const name = `${wait.table} ${wait.operation} ${wait.client}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      return { ...wait, key: `${name} ${seen.get(name)}` };
    });
    reconcile(rows, keyed, ({ key }) => key, () => waitRow(number === undefined));
  };
  return { node, update };
}

function waitRow(withTable) {
  const operation = el("span", { class: "tag warn" });
  const link = tableLink();
  const seconds = el("span", { class: "seconds end nowrap" });
  const client = el("bdi", { class: "user" });
  const address = el("span", { class: "muted small mono user" });
  const reason = el("p", { class: "reason" });
  const node = el(
    "li",
    {},
    el(
      "div",
      { class: "wait-head row baseline" },
      operation,
      withTable && link.node,
      el("span", { class: "wait-client row baseline" }, client, address),
      seconds,
    ),
    reason,
  );
  /** @param {WaitDocument} wait */
  const update = (wait) => {
    setText(operation, wait.operation);
    link.update(wait.table, wait.table_name);
    setQuantity(seconds, duration(wait.seconds));
    setUserText(client, wait.client_name || "unnamed client");
    setUserText(address, where(wait));
    setUserText(reason, wait.reason);
  };
  return { node, update };
}

/** The clients with their traffic, connections of the same name together. `update(live)`. */
export function clientsPanel() {
  const { node, body, count } = panel("clients", "Clients");
  const quiet = nothing("No client is connected", "Clients appear as soon as they connect.");
  const rows = el("tbody");
  const head = tableHead(["Client", "Inserts", "Samples", "Received", "Sent", "Since"], clientCellClass);
  const table = el(
    "div",
    { class: "scroll bounded", tabindex: "0", role: "group", "aria-label": "Clients, the busiest first" },
    el("table", { class: "clients" }, head, rows),
  );
  body.append(quiet, table);
  /** @param {Live} live */
  const update = (live) => {
    if (!live.clients) return;
    const groups = grouped(live.clients);
    quiet.hidden = groups.length > 0;
    table.hidden = groups.length === 0;
    setText(count, groups.length ? String(groups.length) : "");
    reconcile(rows, groups, ({ key }) => key, () => clientRow(live));
  };
  return { node, update };
}

/** A phone shows the client, its inserts and its samples. */
const clientCellClass = (column) => (column === 0 ? "" : column < 3 ? "number" : "number narrow-hidden");

/** @typedef {{key: string, name: string, connections: LiveClient[], since: number, rates: Rates, busy: number}} Group */

/** The connections of the same name together, the busiest first. @param {LiveClient[]} clients @returns {Group[]} */
export function grouped(clients) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const client of clients) {
    const key = client.name || `#${client.id}`;
    const group = groups.get(key) ?? {
      key,
      name: client.name || "unnamed client",
      connections: [],
      since: client.since,
      rates: { inserts: 0, samples: 0, receive: 0, transmit: 0 },
      busy: 0,
    };
    group.connections.push(client);
    group.since = Math.min(group.since, client.since);
    groups.set(key, group);
  }
  const busy = (/** @type {Group} */ { rates }) => rates.inserts + rates.samples + (rates.receive + rates.transmit) / 1e6;
  const names = /** @type {const} */ (["inserts", "samples", "receive", "transmit"]);
  for (const group of groups.values()) {
    for (const { rates } of group.connections) {
      for (const name of names) group.rates[name] += rates[name];
    }
    group.busy = Math.round(Math.log2(1 + busy(group)));
  }
  return [...groups.values()].sort(
    (one, other) => other.busy - one.busy || one.since - other.since || (one.key < other.key ? -1 : 1),
  );
}

/** @param {Live} live */
function clientRow(live) {
  const client = el("bdi", { class: "user" });
  const place = el("span", { class: "muted small mono user" });
  const cells = Array.from({ length: 5 }, (_, index) => el("td", { class: clientCellClass(index + 1) }));
  const node = el("tr", {}, el("th", { scope: "row" }, el("div", { class: "two-lines" }, client, place)), cells);
  /** @param {Group} group */
  const update = ({ name, connections, rates, since }) => {
    const places = [...new Set(connections.map(connections.length > 1 ? host : where))];
    const more = places.length > 2 ? ` and ${places.length - 2} more` : "";
    const many = connections.length > 1 ? ` · ${plural(connections.length, "connection")}` : "";
    setUserText(client, name);
    setUserText(place, `${places.slice(0, 2).join(", ")}${more}${many}`);
    const texts = [rate(rates.inserts), rate(rates.samples), byteRate(rates.receive), byteRate(rates.transmit)];
    texts.forEach((text, index) => {
      setQuantity(cells[index], text);
      cells[index].classList.toggle("muted", /^0 /.test(text));
    });
    setQuantity(cells[4], duration((live.server?.now ?? 0) - since));
  };
  return { node, update };
}

/** The memory of the tables, the pool and the process. `update(live)`. */
export function memoryPanel() {
  const { node, body } = panel("memory", "Memory");
  const total = el("span", { class: "big" });
  const kinds = stackedBar();
  const legend = el("dl", { class: "legend wrap" });
  const rows = el("ul", { class: "memory-rows rows body" });
  body.append(
    el(
      "div",
      { class: "memory-head rows body" },
      el("div", {}, total, el("span", { class: "muted" }, " resident")),
      kinds.node,
      legend,
    ),
    rows,
  );
  /** @param {Live} live */
  const update = (live) => {
    const { server, tables } = live;
    if (!server || !tables) return;
    setQuantity(total, bytes(server.resident_bytes));
    const sum = (/** @type {"bytes" | "index_bytes"} */ name) => tables.reduce((all, table) => all + (table[name] ?? 0), 0);
    const parts = [
      { name: "Chunks", value: sum("bytes"), tone: 1 },
      { name: "Index", value: sum("index_bytes"), tone: 2 },
      { name: "Buffer pool", value: server.buffer_pool_bytes, tone: 3 },
    ];
    const known = parts.reduce((all, { value }) => all + value, 0);
    const resident = Math.max(server.resident_bytes ?? known, known);
    parts.push({ name: "Rest of the process", value: resident - known, tone: 4 });
    kinds.update(parts, resident, parts.map(({ name, value }) => `${name} ${bytes(value)}`).join(", "));
    reconcile(legend, parts, ({ name }) => name, partEntry);
    const chunks = (/** @type {TableDocument} */ table) => table.bytes ?? 0;
    const largest = [...tables].sort((one, other) => chunks(other) - chunks(one) || one.number - other.number);
    const shown = largest.slice(0, 8).filter((table) => chunks(table) > 0);
    const most = Math.max(1, ...shown.map(heldBytes));
    const rest = largest.slice(shown.length).reduce((all, table) => all + heldBytes(table), 0);
    /** @type {Memory[]} */
    const entries = shown.map((table) => ({ ...table, most }));
    if (rest > 0 && largest.length > shown.length && shown.length > 0) {
      const name = plural(largest.length - shown.length, "other table");
      entries.push({ number: -1, name, bytes: rest, index_bytes: 0, referenced_bytes: null, most: Math.max(most, rest) });
    }
    rows.hidden = entries.length === 0;
    reconcile(rows, entries, ({ number }) => number, () => barRow(heldBar(), writeMemory));
  };
  return { node, update };
}

/** An entry of a legend: `swatch` is the class of its colour. Returns `{node, value}`. */
export function legendEntry(swatch, name) {
  const label = el("dt", { class: "row muted" }, el("span", { class: `swatch ${swatch}` }), name);
  const value = el("dd", { class: "number end" });
  return { value, node: el("div", { class: "row" }, label, value) };
}

function partEntry(part) {
  const { node, value } = legendEntry(`tone-${part.tone}`, part.name);
  return { node, update: (next) => setQuantity(value, bytes(next.value)) };
}

/** A row of a name, a bar, a number and a quieter one. `write({name, bar, size, rest}, value)` writes them. */
function barRow(bar, write) {
  const name = el("bdi", { class: "user" });
  const size = el("span", { class: "number" });
  const rest = el("span", { class: "number muted small" });
  const node = el("li", { class: "grid" }, name, bar.node, size, rest);
  return { node, update: (value) => write({ name, bar, size, rest }, value) };
}

/** @typedef {Pick<TableDocument, "bytes" | "index_bytes">} Sizes */
/** @typedef {Sizes & Pick<TableDocument, "number" | "name" | "referenced_bytes"> & {most: number}} Memory */

/** What a table holds as far as it is known. @param {Sizes} table */
export function heldBytes(table) {
  return (table.bytes ?? 0) + (table.index_bytes ?? 0);
}

/** A bar of what a table holds. `update(table, total)`. */
export function heldBar() {
  const { node, update: show } = stackedBar();
  const update = (/** @type {Sizes} */ table, /** @type {number} */ total) => {
    const parts = [
      { value: table.bytes ?? 0, tone: 1 },
      { value: table.index_bytes ?? 0, tone: 2 },
    ];
    show(parts, total, `Chunks ${bytes(table.bytes)}, index ${bytes(table.index_bytes)}`);
  };
  return { node, update };
}

/** @param {Record<string, any>} parts @param {Memory} table */
function writeMemory({ name, bar, size, rest }, table) {
  setUserText(name, table.name);
  bar.update(table, table.most);
  setQuantity(size, bytes(heldBytes(table)));
  setText(rest, table.referenced_bytes === null ? "" : `${bytes(table.referenced_bytes)} of rows`);
}

/** Items that left a table, by reason. `update(table)`. */
export function removalsPanel() {
  const { node, body, count } = panel("removals", "Removals");
  const quiet = nothing("Nothing has left this table", "");
  const rows = el("ul", { class: "memory-rows rows body" });
  body.append(quiet, rows);
  /** @type {Record<string, string>} */
  const names = {
    max_size: "Over max_size",
    max_bytes: "Over max_bytes",
    max_times_sampled: "Reached max_times_sampled",
    delete: "Deleted by a caller",
    reset: "Table was reset",
  };
  /** @param {TableDocument} table */
  const update = ({ removals, unsampled_removals: unsampled }) => {
    const counts = removals ?? {};
    const all = Object.values(counts).reduce((sum, value) => sum + value, 0);
    quiet.hidden = all > 0;
    setText(count, all > 0 ? `${number(all, 0)}, ${percent((unsampled ?? Number.NaN) / all)} never sampled` : "");
    const entries = Object.entries(names).map(([key, reason]) => ({ reason, value: counts[key] ?? 0, all }));
    const some = entries.filter(({ value }) => value > 0);
    reconcile(rows, some, ({ reason }) => reason, () => barRow(stackedBar(), writeRemovals));
  };
  return { node, update };
}

function writeRemovals({ name, bar, size, rest }, { reason, value, all }) {
  const share = percent(value / all);
  setText(name, reason);
  bar.update([{ value, tone: 1 }], all, `${share} of all removals`);
  setText(size, compact(value));
  setText(rest, share);
}
