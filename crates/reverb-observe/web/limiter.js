// What a table's rate limiter allows: a strip inside its band, or a bar up to the smallest size, and words.

/** @import { Live } from "./live.js" */

import { bar, lineChart, strip } from "./charts.js";
import { duration, el, number, plural, setAttrs, setText } from "./core.js";

/** Shows a limiter. `update(table, live)`. With `flow`, one without a band shows what flows in its place. */
export function limiterView({ height = 120, small = false, flow: hasFlow = false } = {}) {
  const band = strip({ height, small });
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
    const series = live.series(table.number);
    if (!onlySize) band.update(limiter, live.history.times, series?.diff, waiting(table) > 0);
    flow?.node.toggleAttribute("hidden", !onlySize);
    if (onlySize) flow?.update(flowLines(live, series), "Inserts and samples per second in the last five minutes");
    const need = `${number(Math.min(items, limiter.min_size), 0)} of ${number(limiter.min_size, 0)}`;
    size.update(limiter.min_size > 0 ? items / limiter.min_size : 1, `${need} items that the limiter asks for`);
    setAttrs(size.node, { class: collecting ? "bar" : "bar full" });
    setText(sizeText, collecting ? `${need} before samples` : `min. size ${number(limiter.min_size, 0)} reached`);
    setText(sentence, inWords(limiter));
    sentence.classList.toggle("blocked", waiting(table) > 0);
  };
  return { node, update };
}

/** The lines of inserts and samples per second, for a line chart. @param {Live} live @param {ReturnType<Live["series"]>} series */
export function flowLines(live, series) {
  return [{ points: live.rates(series?.samples, 300), second: true }, { points: live.rates(series?.inserts, 300) }];
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
