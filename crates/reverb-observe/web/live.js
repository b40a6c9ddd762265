// The state of the server as the page knows it: asks each second, keeps the last 300 s, and notices a lost server.

import { api } from "./core.js";

const POINTS = 300;
const LOG_LINES = 500;
const RATE_SECONDS = 5;
const SHOWN_MILLISECONDS = 1000;
const HIDDEN_MILLISECONDS = 10000;
const SLOW_ROUNDS = 5;
const OF_TABLE = ["items", "bytes", "inserts", "samples", "diff", "waiting_inserts", "waiting_samples"];
const OF_SERVER = ["times", "resident_bytes", "receive_bytes", "transmit_bytes"];

/** Follows a server. Calls its listeners after each round, whether the server answered or not. */
export class Live {
  /** The latest documents, `undefined` before the first. */
  server = undefined;
  tables = undefined;
  waits = undefined;
  clients = undefined;
  checkpoints = undefined;
  /** Log lines, oldest first. */
  log = undefined;
  /** Errors of the latest requests, by document. */
  errors = {};
  /** Time of the last answer in milliseconds, if the server does not answer. */
  goneSince = undefined;
  /** The series of the last 300 s. */
  history = emptyHistory();

  #listeners = new Set();
  #round = 0;
  #nextPoint = 0;
  #nextLine = 0;
  #lastAnswer = Date.now();
  #timer = undefined;
  #running = false;
  #traffic = new Map();

  /** Calls `listener` after each round. */
  listen(listener) {
    this.#listeners.add(listener);
  }

  /** Begins to ask. */
  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.#soon(0));
    this.#soon(0);
  }

  #soon(milliseconds) {
    clearTimeout(this.#timer);
    if (!this.#running) this.#timer = setTimeout(() => this.#ask(), milliseconds);
  }

  async #ask() {
    this.#running = true;
    const began = performance.now();
    try {
      await this.#once();
    } finally {
      this.#running = false;
      for (const listener of this.#listeners) listener(this);
      const pause = document.hidden ? HIDDEN_MILLISECONDS : SHOWN_MILLISECONDS;
      this.#soon(Math.max(200, pause - (performance.now() - began)));
    }
  }

  async #once() {
    await this.#get("server", "server", (server) => {
      if (this.server && server.server_id !== this.server.server_id) this.#forget();
      this.server = server;
    });
    const { server: error } = this.errors;
    if (error) {
      if ([0, 502, 504].includes(error.status)) this.goneSince ??= this.#lastAnswer;
      return;
    }
    this.goneSince = undefined;
    this.#lastAnswer = Date.now();
    const slow = this.#round++ % SLOW_ROUNDS === 0;
    await Promise.all([
      this.#get("tables", "tables", ({ tables }) => (this.tables = tables)),
      this.#get("waits", "waits", ({ waits }) => (this.waits = waits)),
      this.#get("clients", "clients", ({ clients }) => this.#keepClients(clients)),
      this.#get("history", `history?since=${this.#nextPoint}`, (points) => this.#keepPoints(points)),
      slow && this.#get("log", `log?since=${this.#nextLine}`, (lines) => this.#keepLines(lines)),
      slow && this.#get("checkpoints", "checkpoints", (checkpoints) => (this.checkpoints = checkpoints)),
    ]);
  }

  async #get(name, path, keep) {
    try {
      keep(await api(path));
      delete this.errors[name];
    } catch (error) {
      this.errors[name] = error;
    }
  }

  /** Another server answers at this address now. */
  #forget() {
    this.history = emptyHistory();
    this.#nextPoint = 0;
    this.#nextLine = 0;
    this.log = undefined;
    this.#round = 0;
    this.#traffic.clear();
  }

  #keepPoints(document) {
    const { history } = this;
    const added = document.times.length;
    this.#nextPoint = document.next;
    if (added === 0) return;
    for (const name of OF_SERVER) history[name] = [...history[name], ...document[name]].slice(-POINTS);
    const length = history.times.length;
    const tables = new Map();
    for (const table of document.tables) {
      const old = history.tables.get(table.number);
      // A table that is younger than the history has no earlier points.
      const kept = {};
      for (const name of OF_TABLE) {
        const values = [...(old?.[name] ?? []), ...table[name]].slice(-length);
        kept[name] = values.length < length ? [...Array(length - values.length).fill(null), ...values] : values;
      }
      tables.set(table.number, kept);
    }
    history.tables = tables;
  }

  #keepLines(document) {
    this.#nextLine = document.next;
    this.log = [...(this.log ?? []), ...document.lines].slice(-LOG_LINES);
  }

  /** Adds to each connection its rates, from counts of about five seconds ago. */
  #keepClients(clients) {
    const now = performance.now() / 1000;
    const traffic = new Map();
    for (const client of clients) {
      const seen = [...(this.#traffic.get(client.id) ?? []), { now, client }];
      while (seen.length > 2 && now - seen[1].now >= RATE_SECONDS) seen.shift();
      traffic.set(client.id, seen);
      const [first] = seen;
      const span = now - first.now;
      const per = (name) => (span > 0 ? Math.max(0, client[name] - first.client[name]) / span : 0);
      client.rates = {
        inserts: per("inserts"),
        samples: per("samples"),
        receive: per("receive_bytes"),
        transmit: per("transmit_bytes"),
      };
    }
    this.#traffic = traffic;
    this.clients = clients;
  }

  /** The rate of a series of totals over the last five seconds; `undefined` before there are two points. */
  rate(totals) {
    return rateAt(this.history.times, totals, this.history.times.length - 1, RATE_SECONDS);
  }

  /** The rates of a series of totals at each of the last `count` points, over `seconds`. */
  rates(totals, count, seconds = 2) {
    const { times } = this.history;
    const first = Math.max(1, times.length - count);
    const points = [];
    for (let index = first; index < times.length; index++) {
      const value = rateAt(times, totals, index, seconds);
      if (value !== undefined) points.push([times[index], value]);
    }
    return points;
  }

  /** The series of a table, if the server keeps one for it. */
  series(number) {
    return this.history.tables.get(number);
  }

  /** The sum over all tables of a series, at each point. */
  sum(name) {
    const all = [...this.history.tables.values()];
    return this.history.times.map((_, index) => all.reduce((sum, table) => sum + (table[name][index] ?? 0), 0));
  }
}

function emptyHistory() {
  return { times: [], resident_bytes: [], receive_bytes: [], transmit_bytes: [], tables: new Map() };
}

function rateAt(times, totals, index, seconds) {
  if (!totals || index < 1) return undefined;
  let from = index - 1;
  while (from > 0 && times[index] - times[from] < seconds - 0.5) from--;
  while (from < index && (totals[from] === null || totals[from] === undefined)) from++;
  const span = times[index] - times[from];
  if (from === index || !(span > 0)) return undefined;
  return Math.max(0, (totals[index] - totals[from]) / span);
}
