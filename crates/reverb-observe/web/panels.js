// Panels: who waits at a table, memory, removals.

/** @import { Live } from "./live.js" */

import { stackedBar } from "./charts.js";
import { bytes, compact, duration, el, number, percent, plural, reconcile, setAttrs, setQuantity, setText, setUserText } from "./core.js";
import { levelTone } from "./limiter.js";

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
/** The requests that wait at a table. `update(live)`. @param {number} number */
export function waitsPanel(number) {
  const { node, body, count } = panel("waits", "Who waits");
  const quiet = nothing("Nobody waits", "Each insert and each sample goes as it comes.");
  const rows = el("ul", { class: "waits bounded", tabindex: "0", "aria-label": "Waiting requests, longest first" });
  body.append(quiet, rows);
  /** @param {Live} live */
  const update = (live) => {
    const waits = (live.waits ?? []).filter(({ table }) => table === number);
    quiet.hidden = waits.length > 0;
    rows.hidden = waits.length === 0;
    setText(count, waits.length ? String(waits.length) : "");
    const tone = levelTone(live.tables?.find((table) => table.number === number)?.progress.level);
    const seen = new Map();
    const keyed = waits.map((wait) => {
      const name = `${wait.operation} ${wait.client}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      return { ...wait, tone, key: `${name} ${seen.get(name)}` };
    });
    reconcile(rows, keyed, ({ key }) => key, waitRow);
  };
  return { node, update };
}

function waitRow() {
  const operation = el("span", { class: "tag" });
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
      el("span", { class: "wait-client row baseline" }, client, address),
      seconds,
    ),
    reason,
  );
  /** @param {WaitDocument & {tone: string}} wait */
  const update = (wait) => {
    setText(operation, wait.operation);
    setAttrs(operation, { class: `tag ${wait.tone}` });
    setQuantity(seconds, duration(wait.seconds));
    setUserText(client, wait.client_name || "unnamed client");
    setUserText(address, where(wait));
    setUserText(reason, wait.reason);
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
      { name: "Buffers", value: server.buffer_pool_bytes + server.shared_bytes, tone: 3 },
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
