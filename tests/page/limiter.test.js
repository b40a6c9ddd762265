import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { bandLabel, bandOf, flowOf, inWords, limiterView, spanChoice, waiting, waitingWords, waitsBadge } = await page("limiter.js");

const LIMITER = {
  kind: "ratio", samples_per_insert: 4, min_size: 100, min_diff: -10, max_diff: 30, diff: 10, sentence: "12 more samples may go",
};
const waits = (count, longest_seconds = 0) => ({ count, longest_seconds });
const table = (more = {}) => ({
  number: 0, items: 500, inserts: 500, limiter: LIMITER, waiting_inserts: waits(0), waiting_samples: waits(0), ...more,
});
const LIVE = { server: { now: 50 }, events: [], span: 300, series: () => undefined, rates: () => [], values: () => [[49, 4]] };

function shown(more, options) {
  const { node, update } = limiterView(options);
  update(table(more), LIVE);
  const [sizes, band, ...rest] = node.children;
  return { sizes, size: sizes.children[0], words: sizes.textContent, band, rest, sentence: rest.at(-1) };
}

test("a sentence has a capital and a full stop", () => {
  assert.equal(inWords({ sentence: "all may go" }), "All may go.");
  assert.equal(inWords({ sentence: "Nothing may go!" }), "Nothing may go!");
  assert.equal(inWords({ sentence: "" }), "");
});

test("requests that wait are counted, and named", () => {
  assert.equal(waiting(table({ waiting_inserts: waits(2), waiting_samples: waits(1) })), 3);
  assert.equal(waitingWords(table({ waiting_inserts: waits(2), waiting_samples: waits(1) })), "2 inserts, 1 sample wait");
  assert.equal(waitingWords(table({ waiting_samples: waits(1) })), "1 sample waits");
});

test("a badge says for how long the first has waited, unless it is brief", () => {
  const busy = table({ waiting_inserts: waits(1, 65), waiting_samples: waits(1, 3) });
  const [long, brief] = [false, true].map((isBrief) => {
    const { node, update } = waitsBadge(isBrief);
    update(table());
    assert.equal(node.hidden, true);
    update(busy);
    assert.equal(node.hidden, false);
    return node.textContent;
  });
  assert.equal(long, "1 insert, 1 sample wait · 1 min 05 s");
  assert.equal(brief, "1 insert, 1 sample wait");
});

test("a limiter with a band shows it, and its sentence", () => {
  const { sizes, band, sentence } = shown();
  assert.equal(sizes.hidden, true);
  assert.equal(band.attributes.hidden, undefined);
  assert.equal(sentence.textContent, "12 more samples may go.");
  assert.equal(sentence.classes.has("blocked"), false);
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

test("a small limiter has no sentence, and one that blocks says so", () => {
  assert.equal(shown({}, { small: true }).rest.length, 0);
  assert.equal(shown({ waiting_samples: waits(1) }).sentence.classes.has("blocked"), true);
});

test("the lines of a flow are those of samples and inserts", () => {
  const live = { ...LIVE, series: () => ({ inserts: 1, samples: 2 }), rates: (totals) => [[0, totals]] };
  const { lines } = flowOf(table(), live);
  assert.deepEqual(lines.map(({ name, points, format }) => `${name} ${format(points[0][1])}`), ["samples 2 /s", "inserts 1 /s"]);
});

test("a band ends with the latest document, and has the events of its table", () => {
  const events = [null, 0, 1].map((number) => ({ at: 1, kind: "options", table: number, text: "" }));
  const shown = bandOf(table(), { ...LIVE, events }, 60);
  assert.deepEqual(shown.lines[0].points, [[49, 4], [50, 10]]);
  assert.deepEqual(shown.events.map((event) => event.table), [null, 0]);
  assert.equal(shown.span, 60);
  assert.equal(bandOf(table({ waiting_inserts: waits(1) }), LIVE, 60).band.tone, "blocked");
});

test("a band says its bounds in words", () => {
  assert.equal(bandLabel(LIMITER), "Inserts times 4 less samples: 10; lower bound −10, upper bound 30.");
  assert.match(bandLabel({ ...LIMITER, min_diff: null, max_diff: null }), /no lower bound, no upper bound/);
});

test("charts show five minutes or an hour", () => {
  const chosen = [];
  const { node, update } = spanChoice();
  update({ ...LIVE, show: (seconds) => chosen.push(seconds) });
  assert.deepEqual(node.children.map((button) => [button.textContent, button.attributes["aria-pressed"]]), [["5 min", "true"], ["1 hour", "false"]]);
  node.children[1].click();
  assert.deepEqual(chosen, [3600]);
});
