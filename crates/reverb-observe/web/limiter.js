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
    if (!onlySize) band.update(bandOf(table, live, small ? 60 : live.span), bandLabel(table));
    flow?.node.toggleAttribute("hidden", !onlySize);
    if (onlySize) flow?.update(flowOf(table, live), "Inserts and samples per second");
    const need = `${number(Math.min(items, limiter.min_size), 0)} of ${number(limiter.min_size, 0)}`;
    size.update(limiter.min_size > 0 ? items / limiter.min_size : 1, `${need} items that the limiter asks for`);
    setAttrs(size.node, { class: collecting ? "bar" : "bar full" });
    setText(sizeText, collecting ? `${need} before samples` : `min. size ${number(limiter.min_size, 0)} reached`);
    setText(sentence, [table.progress.sentence, limiter.sentence].map(inWords).filter(Boolean).join(" "));
    setAttrs(sentence, { class: `sentence ${levelTone(table.progress.level)}` });
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

/**
 * The limiter's line in its band: how many items actors or learners are ahead; of queues and stacks, how many items they hold.
 * @param {TableDocument} table @param {Live} live @param {number} span @returns {import("./timeline.js").Shown}
 */
export function bandOf(table, live, span) {
  const axis = axisOf(table.limiter);
  const points = live.values(live.series(table.number)?.diff, span);
  // The latest document is newer than the history.
  points.push([Math.max(live.server?.now ?? 0, points[points.length - 1]?.[0] ?? 0), table.limiter.diff]);
  const shown = points.map(([at, diff]) => /** @type {[number, number]} */ ([at, axis.itemsOf(diff)]));
  const line = { name: "", points: shown, format: axis.words };
  return { lines: [line], band: { ...axis, tone: levelTone(table.progress.level) }, events: eventsOf(table, live), span };
}

/**
 * The axis of a limiter in items. The bounds are in the server's words.
 * @param {LimiterDocument} limiter
 */
function axisOf({ kind, samples_per_insert: ratio, min_diff: least, max_diff: most, least_ahead: low, most_ahead: high, insert_bound, sample_bound }) {
  const items = (/** @type {number} */ value) => plural(Math.abs(Math.round(value)), "item");
  const bounds = { above: insert_bound ?? "", below: sample_bound ?? "" };
  if (kind === "queue" || kind === "stack") {
    return { low: least, high: most, ...bounds, itemsOf: (/** @type {number} */ diff) => diff, words: items };
  }
  const words = (/** @type {number} */ value) =>
    Math.round(value) === 0 ? "neither side is ahead" : `${value > 0 ? "actors are" : "the learner is"} ${items(value)} ahead`;
  return { low, high, ...bounds, itemsOf: (/** @type {number} */ diff) => diff / ratio, words };
}

/** The chart of a limiter in words. @param {TableDocument} table */
export function bandLabel({ limiter }) {
  const { above, below, itemsOf, words } = axisOf(limiter);
  const bounds = [above && `inserts wait: ${above}`, below && `samples wait: ${below}`];
  return `Rate limiter: ${[words(itemsOf(limiter.diff)), ...bounds].filter(Boolean).join("; ")}.`;
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

/** A sentence with a capital and a full stop. @param {string} sentence */
export function inWords(sentence) {
  if (!sentence) return "";
  const text = sentence[0].toUpperCase() + sentence.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** The colour of a level: none while things move, or nothing is wrong. @param {string | undefined} level */
export function levelTone(level) {
  return level === "alarm" ? "bad" : level === "warning" ? "warn" : "";
}

/** The place of a table among others: those that are stuck first, then those that stand still while requests wait. @param {TableDocument} table */
export function stuckRank({ progress }) {
  const { level, state } = progress;
  return level === "alarm" ? 0 : level === "warning" ? 1 : state === "waiting" ? 2 : 3;
}

/** The number of requests that wait at a table. @param {TableDocument} table */
export function waiting(table) {
  return (table.waiting_inserts.count ?? 0) + (table.waiting_samples.count ?? 0);
}

/** A badge that says whether a table is stuck, or how many requests wait; without a time if `brief`. `update(table)`. */
export function waitsBadge(brief = false) {
  const node = el("span", { class: "tag" });
  /** @param {TableDocument} table */
  const update = (table) => {
    const { state, level, seconds } = table.progress;
    const words = state === "stalled" ? "Stalled" : waiting(table) > 0 ? waitingWords(table) : "";
    node.hidden = words === "";
    setText(node, brief || seconds === null ? words : `${words}${state === "stalled" ? "" : " ·"} ${duration(seconds)}`);
    setAttrs(node, { class: `tag ${levelTone(level)}` });
  };
  return { node, update };
}

/** Says what waits at a table: `2 inserts, 1 sample wait`. @param {TableDocument} table */
export function waitingWords(table) {
  const { waiting_inserts: inserts, waiting_samples: samples } = table;
  const parts = [inserts.count && plural(inserts.count, "insert"), samples.count && plural(samples.count, "sample")];
  return `${parts.filter(Boolean).join(", ")} ${waiting(table) === 1 ? "waits" : "wait"}`;
}
