// The clients by process: what each does, how fast, and what it waits for; those that have left, and how.

/** @import { Live } from "./live.js" */

import { duration, el, number, plural, rate, reconcile, setAttrs, setText, setUserText } from "./core.js";
import { levelTone } from "./limiter.js";
import { nothing, panel } from "./panels.js";

const MOST_ROWS = 100;
/** Shorter waits come and go with each batch. */
const WAIT_SECONDS = 1;
/** @type {Record<string, string>} */
const HOW = { closed: "closed", lost: "connection lost", stopped: "no longer answered" };
/** @type {Record<string, string>} */
const ROLES = { writes: "writes", draws: "draws", both: "both", none: "idle" };

/** The clients of the server, stuck ones first, and those that left. `update(live)`. */
export function clientsPanel() {
  const { node, body, count } = panel("clients", "Clients");
  const quiet = nothing("No client is connected", "Clients appear as soon as they connect.");
  const rows = el("ul", { class: "clients bounded", tabindex: "0", "aria-label": "Clients, those that are stuck first" });
  const more = el("p", { class: "small muted body" });
  body.append(quiet, rows, more);
  /** @param {Live} live */
  const update = (live) => {
    if (!live.clients) return;
    const all = rowsOf(live);
    const { clients, left } = live.clients;
    quiet.hidden = clients.length > 0;
    rows.hidden = all.length === 0;
    setText(count, [clients.length && `${number(clients.length, 0)} connected`, left.length && `${number(left.length, 0)} left`].filter(Boolean).join(", "));
    setText(more, all.length > MOST_ROWS ? `${number(all.length - MOST_ROWS, 0)} more` : "");
    more.hidden = all.length <= MOST_ROWS;
    reconcile(rows, all.slice(0, MOST_ROWS), ({ key }) => key, clientRow);
  };
  return { node, update };
}

/**
 * @typedef {object} Row
 * @property {string} key
 * @property {string} program
 * @property {string} place Where it runs: the rest of its name, or its address.
 * @property {string} name Its whole name.
 * @property {string} role
 * @property {string} may The token that it has shown, and what it may do, where the server asks for that.
 * @property {string} doing Its rates, or how it left.
 * @property {string} state What it waits for, or since when it is there.
 * @property {string} tone Of the state.
 * @property {string} reason Of a wait that is stuck.
 * @property {boolean} isGone
 */

/** @param {Live} live @returns {Row[]} */
export function rowsOf({ clients: known, tables, server }) {
  const now = server?.now ?? 0;
  const levels = new Map(tables?.map((table) => [table.number, table.progress.level]));
  const here = (known?.clients ?? []).map((client) => {
    const waits = client.waits.map((wait) => ({ ...wait, tone: wait.kind === "call" ? levelTone(levels.get(wait.table)) : "" }));
    const stuck = waits.find(({ tone }) => tone !== "");
    return { client, row: rowOf(client, stuck ?? waits[0], now), rank: stuck ? -stuck.seconds : 0 };
  });
  here.sort((one, other) => one.rank - other.rank || (one.row.program < other.row.program ? -1 : one.row.program > other.row.program ? 1 : one.client.since - other.client.since));
  const gone = (known?.left ?? []).map((client) => ({
    ...identity(client), key: `left ${client.name} ${client.at}`, may: "", doing: "",
    state: `${HOW[client.how] ?? client.how} ${duration(now - client.at)} ago, after ${duration(client.at - client.since)}`,
    tone: client.how === "closed" ? "" : "warn", reason: "", isGone: true,
  }));
  return [...here.map(({ row }) => row), ...gone];
}

/** @param {ClientDocument} client @param {(ClientWaitDocument & {tone: string}) | undefined} wait @param {number} now @returns {Row} */
function rowOf(client, wait, now) {
  const rates = [
    ["writes", "both"].includes(client.role) && `${rate(client.inserts_per_second)} in`,
    ["draws", "both"].includes(client.role) && `${rate(client.samples_per_second)} out`,
  ];
  const waits = wait && wait.seconds >= WAIT_SECONDS ? waitWords(wait) : "";
  return {
    ...identity(client), key: `here ${client.id}`, may: mayWords(client), doing: rates.filter(Boolean).join(", "),
    state: waits || `connected for ${duration(now - client.since)}`, tone: wait && waits ? wait.tone : "",
    reason: wait && waits ? wait.reason : "", isGone: false,
  };
}

/** @param {ClientDocument | LeftClientDocument} client */
function identity({ name, program, address, transport, role }) {
  const place = /\((.*)\)$/.exec(name)?.[1] ?? "";
  const where = transport === "same_process" ? "the server's own process" : transport === "unix" ? "unix socket" : address;
  return { name: name || where, program: program || "unnamed client", place: [place, where].filter(Boolean).join(" · "), role: ROLES[role] ?? role };
}

/** @param {ClientDocument} client */
function mayWords({ token, may }) {
  return token ? `token ${token} (${may})` : may && `role ${may}`;
}

/** @param {ClientWaitDocument} wait */
function waitWords({ kind, operation, table_name: table, seconds, count }) {
  const many = count > 1 ? ` (${plural(count, "request")})` : "";
  if (kind === "ahead") return `draws ahead of its program from ${table}${many}`;
  if (kind === "newer") return `waits for a newer version of ${table}`;
  return `waits ${duration(seconds)} ${operation === "insert" ? "to insert into" : "for a sample of"} ${table}${many}`;
}

function clientRow() {
  const program = el("bdi", { class: "user client-program" });
  const place = el("bdi", { class: "user muted small" });
  const may = el("bdi", { class: "user muted small end" });
  const role = el("span", { class: "tag" });
  const doing = el("span", { class: "number end" });
  const state = el("bdi", { class: "user small" });
  const reason = el("bdi", { class: "reason small" });
  const node = el("li", {}, el("div", { class: "row baseline" }, program, role, doing), el("div", { class: "row baseline" }, place, may), el("div", { class: "row baseline" }, state), reason);
  /** @param {Row} row */
  const update = (row) => {
    setUserText(program, row.program);
    setAttrs(program, { title: row.name });
    setUserText(place, row.place);
    setUserText(may, row.may);
    setText(role, row.role);
    setText(doing, row.doing);
    setUserText(state, row.state);
    setUserText(reason, row.reason);
    reason.hidden = row.reason === "" || row.tone === "";
    setAttrs(state, { class: `user small ${row.tone || "muted"}` });
    setAttrs(node, { class: row.isGone ? "gone" : "" });
  };
  return { node, update };
}
