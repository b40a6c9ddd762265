import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { flowLines, inWords, limiterView, waiting, waitingWords, waitsBadge } = await page("limiter.js");

const LIMITER = {
  kind: "ratio", samples_per_insert: 4, min_size: 100, min_diff: -10, max_diff: 30, diff: 10, sentence: "12 more samples may go",
};
const waits = (count, longest_seconds = 0) => ({ count, longest_seconds });
const table = (more = {}) => ({
  number: 0, items: 500, inserts: 500, limiter: LIMITER, waiting_inserts: waits(0), waiting_samples: waits(0), ...more,
});
const LIVE = { history: { times: [] }, series: () => undefined, rates: () => [] };

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
  const live = { rates: (totals, count) => [[count, totals]] };
  assert.deepEqual(flowLines(live, { inserts: 1, samples: 2 }), [{ points: [[300, 2]], second: true }, { points: [[300, 1]] }]);
});
