// The state of the server as the page knows it: asks each second, keeps an hour, and notices a lost server.

import { api, reason, stored, store } from "./core.js";
import { forget, hasToken, present } from "./session.js";

// As the server does, the page keeps all points of the last minutes, and few of the rest of an hour.
const NEW_SECONDS = 300;
const STEP_SECONDS = 10;
const HOUR_SECONDS = 3600;
const THIN_ROUNDS = 60;
/** The times that charts can show, in seconds. */
export const SPANS = /** @type {const} */ ([NEW_SECONDS, HOUR_SECONDS]);
const SPAN_KEY = "reverb-span";
const EVENTS = 512;
const LOG_LINES = 500;
const RATE_SECONDS = 5;
const SHOWN_MILLISECONDS = 1000;
const HIDDEN_MILLISECONDS = 10000;
const SLOW_ROUNDS = 5;
const OF_TABLE = /** @type {const} */ ([
  "items", "bytes", "inserts", "samples", "diff", "waiting_inserts", "waiting_samples",
]);
const OF_SERVER = /** @type {const} */ (["times", "receive_bytes", "transmit_bytes"]);

/** @typedef {Record<typeof OF_TABLE[number], Series>} TableSeries */
/** @typedef {(number | null)[]} Series A value for each point; none from before there was a table. */
/** @typedef {Record<typeof OF_SERVER[number], number[]> & {tables: Map<number, TableSeries>}} History */

/** Follows a server. Calls its listeners after each round, whether the server answered or not. */
export class Live {
  // The latest documents, `undefined` before the first.
  /** @type {ServerDocument | undefined} */
  server = undefined;
  /** @type {TableDocument[] | undefined} */
  tables = undefined;
  /** @type {WaitDocument[] | undefined} */
  waits = undefined;
  /** @type {ClientsDocument | undefined} */
  clients = undefined;
  /** @type {VerdictDocument | undefined} */
  verdict = undefined;
  /** @type {CheckpointsDocument | undefined} */
  checkpoints = undefined;
  /** Log lines, oldest first. @type {LogLineDocument[] | undefined} */
  log = undefined;
  /** Who asks, and what it may do. @type {RoleDocument | undefined} */
  role = undefined;
  /** Why the page has to sign in, as a sentence; `undefined` if it need not. Until then, it asks nothing. @type {string | undefined} */
  signedOut = undefined;
  /** Errors of the latest requests, by document. @type {Record<string, any>} */
  errors = {};
  /** Time of the last answer in milliseconds, if the server does not answer. @type {number | undefined} */
  goneSince = undefined;
  /** The series of the last hour. */
  history = emptyHistory();
  /** What happened in that time, oldest first. @type {EventDocument[]} */
  events = [];
  /** The time in seconds that charts show. @type {number} */
  span = SPANS.find((seconds) => String(seconds) === stored(SPAN_KEY)) ?? NEW_SECONDS;

  /** @type {Set<(live: Live) => void>} */
  #listeners = new Set();
  #round = 0;
  #nextPoint = 0;
  #nextLine = 0;
  #lastAnswer = Date.now();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer = undefined;
  #running = false;

  /** Calls `listener` after each round. @param {(live: Live) => void} listener */
  listen(listener) {
    this.#listeners.add(listener);
  }

  /** Chooses the time that charts show, also for later visits. @param {number} seconds */
  show(seconds) {
    this.span = seconds;
    store(SPAN_KEY, String(seconds));
    this.#tell();
  }

  #tell() {
    for (const listener of this.#listeners) listener(this);
  }

  /** Begins to ask. */
  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.#soon(0));
    this.#soon(0);
  }

  /** Presents a token to the server. @param {string} token */
  async signIn(token) {
    present(token);
    await this.#ask();
  }

  #soon(milliseconds) {
    clearTimeout(this.#timer);
    if (!this.#running && this.signedOut === undefined) this.#timer = setTimeout(() => this.#ask(), milliseconds);
  }

  async #ask() {
    this.#running = true;
    const began = performance.now();
    try {
      await this.#once();
    } finally {
      this.#running = false;
      this.#tell();
      const pause = document.hidden ? HIDDEN_MILLISECONDS : SHOWN_MILLISECONDS;
      this.#soon(Math.max(200, pause - (performance.now() - began)));
    }
  }

  async #once() {
    await Promise.all([
      this.#get("server", "server", (/** @type {ServerDocument} */ server) => {
        if (this.server && server.server_id !== this.server.server_id) this.#forget();
        this.server = server;
      }),
      this.#round % SLOW_ROUNDS === 0 && this.#get("role", "role", (/** @type {RoleDocument} */ role) => {
        this.role = role;
      }),
    ]);
    const { server: error } = this.errors;
    if (error?.status === 401 || (error && this.signedOut !== undefined)) return this.#signOut(error);
    this.signedOut = undefined;
    if (error) {
      if ([0, 502, 504].includes(error.status)) this.goneSince ??= this.#lastAnswer;
      return;
    }
    this.goneSince = undefined;
    this.#lastAnswer = Date.now();
    const slow = this.#round++ % SLOW_ROUNDS === 0;
    await Promise.all([
      this.#get("tables", "tables", (/** @type {TablesDocument} */ { tables }) => {
        this.tables = tables;
      }),
      this.#get("waits", "waits", (/** @type {WaitsDocument} */ { waits }) => {
        this.waits = waits;
      }),
      this.#get("clients", "clients", (/** @type {ClientsDocument} */ clients) => {
        this.clients = clients;
      }),
      this.#get("verdict", "verdict", (/** @type {VerdictDocument} */ verdict) => {
        this.verdict = verdict;
      }),
      this.#get("history", `history?since=${this.#nextPoint}`, (points) => this.#keepPoints(points)),
      slow && this.#get("log", `log?since=${this.#nextLine}`, (lines) => this.#keepLines(lines)),
      slow && this.#get("checkpoints", "checkpoints", (/** @type {CheckpointsDocument} */ checkpoints) => {
        this.checkpoints = checkpoints;
      }),
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

  /** The server does not know who asks. Nothing of what it has told stays. @param {any} error */
  #signOut(error) {
    if (error.status !== 401) this.signedOut = `The server could not check the token: ${reason(error)}`;
    else if (!hasToken()) this.signedOut = "This server needs a token.";
    else if (this.role) this.signedOut = "The server does not know the token any more: it was removed or replaced. Sign in with another one.";
    else this.signedOut = "The server does not know this token. See whether it is whole.";
    forget();
    this.#forget();
    this.server = this.tables = this.waits = this.clients = this.verdict = this.checkpoints = this.role = undefined;
    this.goneSince = undefined;
    this.errors = {};
  }

  /** Another server answers at this address now. */
  #forget() {
    this.history = emptyHistory();
    this.events = [];
    this.#nextPoint = 0;
    this.#nextLine = 0;
    this.log = undefined;
    this.#round = 0;
  }

  /** @param {HistoryDocument} document */
  #keepPoints(document) {
    const { history } = this;
    const known = history.times.length;
    this.#nextPoint = document.next;
    this.events = [...this.events, ...document.events].slice(-EVENTS);
    for (const name of OF_SERVER) history[name].push(...document[name]);
    for (const table of document.tables) {
      const series = history.tables.get(table.number) ?? emptySeries();
      history.tables.set(table.number, series);
      for (const name of OF_TABLE) {
        // A table that is younger than the history has no earlier points.
        while (series[name].length < known) series[name].push(null);
        series[name].push(...table[name]);
      }
    }
    if (this.#round % THIN_ROUNDS === 0) this.#thinOut();
  }

  #thinOut() {
    const { history } = this;
    const places = keptPlaces(history.times);
    if (places.length === history.times.length) return;
    const first = history.times[places[0]];
    for (const name of OF_SERVER) history[name] = places.map((place) => history[name][place]);
    for (const series of history.tables.values()) {
      for (const name of OF_TABLE) series[name] = places.map((place) => series[name][place]);
    }
    this.events = this.events.filter(({ at }) => at >= first);
  }

  /** @param {LogDocument} document */
  #keepLines(document) {
    this.#nextLine = document.next;
    this.log = [...(this.log ?? []), ...document.lines].slice(-LOG_LINES);
  }

  /** The place of the first point after the start of the server, or after it has loaded a checkpoint: the load itself is no traffic. */
  #begin() {
    const restored = this.events.findLast(({ kind }) => kind === "restore");
    return restored ? Math.max(0, this.history.times.findIndex((at) => at >= restored.at)) : 0;
  }

  /** The rate of a series of totals over the last five seconds; `undefined` before there are two points. @param {Series} [totals] */
  rate(totals) {
    return rateAt(this.history.times, totals, this.history.times.length - 1, RATE_SECONDS, this.#begin());
  }

  /**
   * The rates of a series of totals at each point of the last `span` seconds. Those of an hour are means of longer times.
   * @param {Series | undefined} totals
   * @returns {[number, number][]}
   */
  rates(totals, span = this.span) {
    const seconds = span > NEW_SECONDS ? STEP_SECONDS : 2;
    const begin = this.#begin();
    return this.#recent(span).flatMap((index) => {
      const value = rateAt(this.history.times, totals, index, seconds, begin);
      return value === undefined ? [] : /** @type {[number, number][]} */ ([[this.history.times[index], value]]);
    });
  }

  /**
   * The values of a series at each point of the last `span` seconds.
   * @param {Series | undefined} series
   * @returns {[number, number][]}
   */
  values(series, span = this.span) {
    const begin = this.#begin();
    return this.#recent(span).flatMap((index) => {
      const value = index < begin ? null : (series?.[index] ?? null);
      return value === null ? [] : /** @type {[number, number][]} */ ([[this.history.times[index], value]]);
    });
  }

  /** The places of the points of the last `span` seconds. @param {number} span */
  #recent(span) {
    const { times } = this.history;
    const from = times.findIndex((at) => at >= times[times.length - 1] - span);
    return Array.from({ length: times.length - Math.max(0, from) }, (_, index) => Math.max(0, from) + index);
  }

  /** The series of a table, if the server keeps one for it. @param {number} number */
  series(number) {
    return this.history.tables.get(number);
  }

  /** The sum over all tables of a series, at each point. @param {typeof OF_TABLE[number]} name */
  sum(name) {
    const all = [...this.history.tables.values()];
    return this.history.times.map((_, index) => all.reduce((sum, table) => sum + (table[name][index] ?? 0), 0));
  }
}

/** @returns {History} */
function emptyHistory() {
  return { times: [], receive_bytes: [], transmit_bytes: [], tables: new Map() };
}

/** @returns {TableSeries} */
function emptySeries() {
  return { items: [], bytes: [], inserts: [], samples: [], diff: [], waiting_inserts: [], waiting_samples: [] };
}

/** The places of the points that are kept: all of the last minutes, few of the rest of an hour. @param {number[]} times */
export function keptPlaces(times) {
  const last = times[times.length - 1];
  let before = -Infinity;
  return times.flatMap((at, place) => {
    const isOld = last - at > NEW_SECONDS;
    if (last - at > HOUR_SECONDS || (isOld && at - before < STEP_SECONDS - 0.5)) return [];
    before = at;
    return [place];
  });
}

/** The mean rate of a series up to a point, over `seconds`; none reaches back before the point `begin`. @param {number[]} times @param {Series | undefined} totals @param {number} index @param {number} seconds */
export function rateAt(times, totals, index, seconds, begin = 0) {
  if (!totals || index < begin + 1) return undefined;
  let from = index - 1;
  while (from > begin && times[index] - times[from] < seconds - 0.5) from--;
  while (from < index && (totals[from] === null || totals[from] === undefined)) from++;
  const span = times[index] - times[from];
  if (from === index || !(span > 0)) return undefined;
  return Math.max(0, (Number(totals[index]) - Number(totals[from])) / span);
}
