import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { bandLabel, bandOf, flowOf, inWords, levelTone, limiterView, spanChoice, stuckRank, waiting, waitingWords, waitsBadge } = await page("limiter.js");

const LIMITER = {
  kind: "ratio", samples_per_insert: 4, min_size: 100, min_diff: -20, max_diff: 20, diff: 4, ahead: 1, least_ahead: -5, most_ahead: 5,
  insert_bound: "actors may be at most 5 items ahead", sample_bound: "the learner may be at most 5 items ahead",
  sentence: "12 more samples may go",
};
const FLOWS = { state: "flowing", level: "good", seconds: null, sentence: "", ratio: 4 };
const STALLS = { state: "stalled", level: "alarm", seconds: 65, sentence: "nobody has sampled it", ratio: null };
const waits = (count, longest_seconds = 0) => ({ count, longest_seconds });
const table = (more = {}) => ({
  number: 0, items: 500, inserts: 500, limiter: LIMITER, progress: FLOWS, waiting_inserts: waits(0), waiting_samples: waits(0), ...more,
});
const LIVE = { server: { now: 50 }, events: [], span: 300, series: () => undefined, rates: () => [], values: () => [[49, 4]] };

function shown(more, options) {
  const { node, update } = limiterView(options);
  update(table(more), LIVE);
  const [sizes, band, ...rest] = node.children;
  return { sizes, size: sizes.children[0], words: sizes.textContent, band, rest, sentence: rest.at(-1) };
}

test("a sentence has a capital and a full stop", () => {
  assert.equal(inWords("all may go"), "All may go.");
  assert.equal(inWords("Nothing may go!"), "Nothing may go!");
  assert.equal(inWords(""), "");
});

test("colours are by progress, and what is stuck stands first", () => {
  assert.deepEqual(["good", "quiet", "warning", "alarm", undefined].map(levelTone), ["", "", "warn", "bad", ""]);
  assert.deepEqual(["good", "quiet", "warning", "alarm"].map((level) => stuckRank({ progress: { level } })), [3, 3, 1, 0]);
  assert.equal(stuckRank({ progress: { level: "quiet", state: "waiting" } }), 2, "it stands still, and is followed by what moves");
});

test("requests that wait are counted, and named", () => {
  assert.equal(waiting(table({ waiting_inserts: waits(2), waiting_samples: waits(1) })), 3);
  assert.equal(waitingWords(table({ waiting_inserts: waits(2), waiting_samples: waits(1) })), "2 inserts, 1 sample wait");
  assert.equal(waitingWords(table({ waiting_samples: waits(1) })), "1 sample waits");
});

test("a badge is grey while things move, and says since when a table stands still", () => {
  const shown = (more, brief) => {
    const { node, update } = waitsBadge(brief);
    update(table(more));
    return node.hidden ? "" : `${node.attributes.class}: ${node.textContent}`;
  };
  const busy = { waiting_inserts: waits(1), waiting_samples: waits(1) };
  assert.equal(shown({}), "");
  assert.equal(shown(busy), "tag : 1 insert, 1 sample wait", "waits of milliseconds have no time");
  assert.equal(shown({ ...busy, progress: { ...STALLS, state: "waiting", level: "quiet", seconds: 40 } }), "tag : 1 insert, 1 sample wait · 40 s");
  assert.equal(shown({ ...busy, progress: STALLS }), "tag bad: Stalled 1 min 05 s");
  assert.equal(shown({ ...busy, progress: { ...STALLS, level: "warning" } }, true), "tag warn: Stalled");
});

test("a limiter with a band shows it, and its sentence", () => {
  const { sizes, band, sentence } = shown();
  assert.equal(sizes.hidden, true);
  assert.equal(band.attributes.hidden, undefined);
  assert.equal(sentence.textContent, "12 more samples may go.");
  assert.equal(sentence.attributes.class, "sentence ");
});

test("a limiter that waits for items shows how many there are", () => {
  const { sizes, size, words, band } = shown({ items: 25, inserts: 0 });
  assert.equal(sizes.hidden, false);
  assert.equal(words, "25 of 100 before samples");
  assert.equal(size.attributes["aria-label"], "25 of 100 items that the limiter asks for");
  assert.equal(size.children[0].style.width, "25%");
  assert.equal(band.attributes.hidden, "");
});

test("a limiter of a minimum size alone has no band", () => {
  const { words, band, rest } = shown({ limiter: { ...LIMITER, kind: "min_size" } }, { flow: true });
  assert.equal(words, "min. size 100 reached");
  assert.equal(band.attributes.hidden, "");
  assert.equal(rest[0].attributes.hidden, undefined, "what flows is shown in its place");
});

test("a small limiter has no sentence, and one that stands still says why", () => {
  assert.equal(shown({}, { small: true }).rest.length, 0);
  const { sentence } = shown({ progress: STALLS });
  assert.equal(sentence.textContent, "Nobody has sampled it. 12 more samples may go.");
  assert.equal(sentence.attributes.class, "sentence bad");
});

test("the lines of a flow are those of samples and inserts", () => {
  const live = { ...LIVE, series: () => ({ inserts: 1, samples: 2 }), rates: (totals) => [[0, totals]] };
  const { lines } = flowOf(table(), live);
  assert.deepEqual(lines.map(({ name, points, format }) => `${name} ${format(points[0][1])}`), ["samples 2 /s", "inserts 1 /s"]);
});

const textsOf = ({ lines: [{ points, format }] }) => points.map(([at, value]) => `${at}: ${format(value)}`);

test("a band shows who is ahead in items, to the latest document, with the events of its table", () => {
  const events = [null, 0, 1].map((number) => ({ at: 1, kind: "options", table: number, text: "" }));
  const shown = bandOf(table(), { ...LIVE, events, values: () => [[48, -20], [49, 0]] }, 60);
  assert.deepEqual(textsOf(shown), ["48: the learner is 5 items ahead", "49: neither side is ahead", "50: actors are 1 item ahead"]);
  assert.deepEqual([shown.band.low, shown.band.high, shown.span], [-5, 5, 60]);
  assert.deepEqual(shown.events.map((event) => event.table), [null, 0]);
  assert.equal(bandOf(table({ progress: STALLS }), LIVE, 60).band.tone, "bad");
});

test("a bound that is missing is none; queues count their items", () => {
  const of = (more) => bandOf(table({ limiter: { ...LIMITER, ...more } }), LIVE, 60);
  assert.deepEqual([of({ most_ahead: null }).band.low, of({ most_ahead: null }).band.high], [-5, null]);
  const queue = of({ kind: "queue", samples_per_insert: 1, diff: 14, min_diff: 0, max_diff: 30, least_ahead: null, most_ahead: null, insert_bound: "the queue is full" });
  assert.deepEqual([textsOf(queue).at(-1), queue.band.low, queue.band.high, queue.band.above], ["50: 14 items", 0, 30, "the queue is full"]);
});

test("a limiter's chart says in words what it shows", () => {
  const bounds = "inserts wait: actors may be at most 5 items ahead; samples wait: the learner may be at most 5 items ahead";
  assert.equal(bandLabel(table()), `Rate limiter: actors are 1 item ahead; ${bounds}.`);
  const open = table({ limiter: { ...LIMITER, insert_bound: null, sample_bound: null } });
  assert.equal(bandLabel(open), "Rate limiter: actors are 1 item ahead.");
});

test("charts show five minutes or an hour", () => {
  const chosen = [];
  const { node, update } = spanChoice();
  update({ ...LIVE, show: (seconds) => chosen.push(seconds) });
  assert.deepEqual(node.children.map((button) => [button.textContent, button.attributes["aria-pressed"]]), [["5 min", "true"], ["1 hour", "false"]]);
  node.children[1].click();
  assert.deepEqual(chosen, [3600]);
});
