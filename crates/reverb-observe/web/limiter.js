// What a table's rate limiter allows: a strip inside its band, or a bar up to the smallest size, and words.

/** @import { Live } from "./live.js" */

import { bar } from "./charts.js";
import { duration, el, number, plural, rate, setAttrs, setText } from "./core.js";
import { SPANS } from "./live.js";
import { bandChart, lineChart } from "./timeline.js";

/** Shows a limiter. `update(table, live)`. With `flow`, one without a band shows what flows in its place. */
export function limiterView({ height = 120, small = false, flow: hasFlow = false } = {}) {
  const band = bandChart({ height, small });
  const size = bar();
  const sizeText = el("span", { class: "small muted" });
  const sizes = el("div", { class: "min-size rows" }, size.node, sizeText);
  const sentence = el("p", { class: "sentence" });
  const flow = hasFlow ? lineChart({ height: height - 40 }) : undefined;
  const node = el("div", { class: "limiter" }, sizes, band.node, flow?.node, !small && sentence);
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, live) => {
    const { limiter, items } = table;
    const onlySize = limiter.kind === "min_size";
    // A minimum of one item, as queues have it, says no more than the strip.
    const collecting = items < limiter.min_size && limiter.min_size > 1;
    band.node.toggleAttribute("hidden", onlySize || (collecting && (small || table.inserts === 0)));
    sizes.hidden = !onlySize && !collecting;
    if (!onlySize) band.update(bandOf(table, live, small ? 60 : live.span), bandLabel(limiter));
    flow?.node.toggleAttribute("hidden", !onlySize);
    if (onlySize) flow?.update(flowOf(table, live), "Inserts and samples per second");
    const need = `${number(Math.min(items, limiter.min_size), 0)} of ${number(limiter.min_size, 0)}`;
    size.update(limiter.min_size > 0 ? items / limiter.min_size : 1, `${need} items that the limiter asks for`);
    setAttrs(size.node, { class: collecting ? "bar" : "bar full" });
    setText(sizeText, collecting ? `${need} before samples` : `min. size ${number(limiter.min_size, 0)} reached`);
    setText(sentence, inWords(limiter));
    sentence.classList.toggle("blocked", waiting(table) > 0);
  };
  return { node, update };
}

/** A choice of the time that charts show. `update(live)`. */
export function spanChoice() {
  /** @type {Live | undefined} */
  let latest;
  const names = { 300: "5 min", 3600: "1 hour" };
  const buttons = SPANS.map((seconds) => ({ seconds, node: el("button", { type: "button", on: { click: () => latest?.show(seconds) } }, names[seconds]) }));
  const node = el("div", { class: "choice", role: "group", "aria-label": "Time that charts show" }, buttons.map(({ node: button }) => button));
  /** @param {Live} live */
  const update = (live) => {
    latest = live;
    for (const { seconds, node: button } of buttons) setAttrs(button, { "aria-pressed": String(live.span === seconds) });
  };
  return { node, update };
}

/** The limiter's line in its band. @param {TableDocument} table @param {Live} live @param {number} span @returns {import("./timeline.js").Shown} */
export function bandOf(table, live, span) {
  const { diff, min_diff: low, max_diff: high } = table.limiter;
  const points = live.values(live.series(table.number)?.diff, span);
  // The latest document is newer than the history.
  points.push([Math.max(live.server?.now ?? 0, points[points.length - 1]?.[0] ?? 0), diff]);
  const line = { name: "inserts × samples per insert − samples", points, format: (/** @type {number} */ value) => number(value) };
  const band = { low, high, above: "inserts wait above", below: "samples wait below", tone: waiting(table) > 0 ? "blocked" : "" };
  return { lines: [line], band, events: eventsOf(table, live), span };
}

/** @param {LimiterDocument} limiter */
export function bandLabel(limiter) {
  const low = limiter.min_diff === null ? "no lower bound" : `lower bound ${number(limiter.min_diff)}`;
  const high = limiter.max_diff === null ? "no upper bound" : `upper bound ${number(limiter.max_diff)}`;
  const now = `${number(limiter.samples_per_insert, 3)} less samples: ${number(limiter.diff)}`;
  return `Inserts times ${now}; ${low}, ${high}.`;
}

/** Inserts and samples per second, for a line chart. @param {TableDocument} table @param {Live} live @returns {import("./timeline.js").Shown} */
export function flowOf(table, live) {
  const series = live.series(table.number);
  const lines = [
    { name: "samples", points: live.rates(series?.samples), second: true, format: rate },
    { name: "inserts", points: live.rates(series?.inserts), format: rate },
  ];
  return { lines, events: eventsOf(table, live), span: live.span };
}

/** The events of the server, without those of other tables. @param {TableDocument} table @param {Live} live */
function eventsOf(table, live) {
  return live.events.filter((event) => event.table === null || event.table === table.number);
}

/** The limiter's sentence, with a capital and a full stop. @param {LimiterDocument} limiter */
export function inWords({ sentence }) {
  if (!sentence) return "";
  const text = sentence[0].toUpperCase() + sentence.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** The number of requests that wait at a table. @param {TableDocument} table */
export function waiting(table) {
  return (table.waiting_inserts.count ?? 0) + (table.waiting_samples.count ?? 0);
}

/** How long the first of them has waited. @param {TableDocument} table */
export function longestWait(table) {
  return Math.max(table.waiting_inserts.longest_seconds ?? 0, table.waiting_samples.longest_seconds ?? 0);
}

/** A badge that says how many requests wait at a table, and how long the first has, unless `brief`. `update(table)`. */
export function waitsBadge(brief = false) {
  const node = el("span", { class: "tag warn" });
  /** @param {TableDocument} table */
  const update = (table) => {
    node.hidden = waiting(table) === 0;
    setText(node, brief ? waitingWords(table) : `${waitingWords(table)} · ${duration(longestWait(table))}`);
  };
  return { node, update };
}

/** Says what waits at a table: `2 inserts, 1 sample wait`. @param {TableDocument} table */
export function waitingWords(table) {
  const { waiting_inserts: inserts, waiting_samples: samples } = table;
  const parts = [inserts.count && plural(inserts.count, "insert"), samples.count && plural(samples.count, "sample")];
  return `${parts.filter(Boolean).join(", ")} ${waiting(table) === 1 ? "waits" : "wait"}`;
}
