import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { keptPlaces, Live, rateAt } = await page("live.js");

test("a rate is that of the last seconds, and needs two points", () => {
  const times = [0, 1, 2, 3, 4];
  assert.equal(rateAt(times, [0, 10, 20, 30, 100], 4, 2), 40);
  assert.equal(rateAt(times, [0, 10, 20, 30, 100], 4, 5), 25);
  assert.equal(rateAt(times, [null, null, null, 30, 100], 4, 5), 70, "a young table has no earlier points");
  assert.equal(rateAt(times, [0, 0, 50, 10, 10], 3, 1), 0, "a count that is begun again is no negative rate");
  assert.equal(rateAt(times, [0, 0, 1e6, 1e6 + 10, 1e6 + 30], 4, 5, 2), 15, "of what came after a restore");
  assert.equal(rateAt(times, [1], 0, 5), undefined);
  assert.equal(rateAt(times, undefined, 4, 5), undefined);
});

test("the last minutes are kept whole, and few points of an hour", () => {
  const times = Array.from({ length: 5000 }, (_, second) => second);
  const kept = keptPlaces(times);
  assert.equal(kept.length, 301 + 330);
  assert.deepEqual(kept.slice(0, 2), [1399, 1409]);
  assert.deepEqual(kept.slice(-302, -299), [4689, 4699, 4700]);
  const again = keptPlaces(kept.map((place) => times[place]));
  assert.equal(again.length, kept.length, "what was thinned out stays");
});

const SERVER = { server_id: "a", state: "serving" };
const series = (values) => ({
  items: values, bytes: values, inserts: values, samples: values, diff: values, waiting_inserts: values, waiting_samples: values,
});
const history = (times, tables, events = []) => ({
  events,
  next: times.length, times, receive_bytes: times, transmit_bytes: times,
  tables: Object.entries(tables).map(([number, values]) => ({ number: Number(number), ...series(values) })),
});

/** Answers each path with what `answers` has for it; an error is thrown. Runs one round of a live page. */
async function round(live, answers) {
  globalThis.fetch = async (url) => {
    const answer = answers[url.pathname.split("/").pop()];
    if (answer instanceof Error) throw answer;
    return { ok: true, json: async () => answer };
  };
  await new Promise((done) => {
    live.listen(done);
    live.start();
  });
}

const ANSWERS = {
  server: SERVER,
  tables: { tables: [{ number: 0, inserts: 1 }] },
  waits: { waits: [] },
  clients: { clients: [{ id: 1, name: "actor" }], left: [] },
  verdict: { state: "flowing", line: "Flowing" },
  history: history([1, 2, 3], { 0: [10, 20, 30] }),
  log: { next: 1, lines: [{ number: 1, message: "begun" }] },
  checkpoints: { checkpoints: [] },
};

test("a page keeps the documents of a server, forgets another one's history, and notices its loss", async (context) => {
  const timers = [];
  context.mock.method(globalThis, "setTimeout", (work) => timers.push(work));
  const next = async (live, answers) => {
    const done = round(live, answers);
    await timers.pop()();
    await done;
  };
  const live = new Live();
  await next(live, ANSWERS);
  assert.equal(live.server, SERVER);
  assert.equal(live.clients, ANSWERS.clients);
  assert.equal(live.verdict, ANSWERS.verdict);
  assert.deepEqual(live.series(0).inserts, [10, 20, 30]);
  assert.equal(live.rate(live.series(0).inserts), 10);
  assert.deepEqual(live.rates(live.sum("items"), 300), [[2, 10], [3, 10]]);
  assert.deepEqual(live.log.map(({ message }) => message), ["begun"]);

  await next(live, { ...ANSWERS, history: history([4], { 0: [40], 1: [7] }) });
  assert.deepEqual(live.history.times, [1, 2, 3, 4]);
  assert.deepEqual(live.series(1).items, [null, null, null, 7], "a younger table has no earlier points");
  assert.deepEqual(live.sum("items"), [10, 20, 30, 47]);

  const restore = { at: 4.5, kind: "restore", table: null, text: "restored 8 items" };
  await next(live, { ...ANSWERS, history: history([5, 6], { 0: [1e6, 1e6 + 3], 1: [8, 9] }, [restore]) });
  assert.deepEqual(live.events, [restore]);
  assert.deepEqual(live.rates(live.series(0).inserts, 300), [[6, 3]], "rates begin after a restore");
  assert.deepEqual(live.values(live.series(1).diff), [[5, 8], [6, 9]]);
  live.show(3600);
  assert.equal(live.span, 3600);

  await next(live, { ...ANSWERS, server: new TypeError("refused") });
  assert.ok(live.goneSince > 0);
  assert.equal(live.errors.server.status, 0);

  await next(live, { ...ANSWERS, server: { ...SERVER, server_id: "b" }, history: history([9], { 0: [1] }) });
  assert.equal(live.goneSince, undefined);
  assert.deepEqual(live.history.times, [9]);
  assert.deepEqual(live.events, []);
});
