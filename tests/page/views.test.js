import assert from "node:assert/strict";
import { test } from "node:test";
import { page, resize } from "./dom.js";

const { detailView } = await page("detail.js");
const { memoryPanel, removalsPanel, waitsPanel } = await page("panels.js");
const { checkpointsPanel, logPanel } = await page("storage.js");
const { tablesView } = await page("tables.js");

const waits = { count: 0, longest_seconds: 0, blocked_seconds: 0, reason: null };
const LIMITER = {
  kind: "ratio", samples_per_insert: 4, min_size: 1, diff: 0, min_diff: -10, max_diff: 10, inserts_allowed: 2,
  samples_allowed: 10, ahead: 0, least_ahead: -2.5, most_ahead: 2.5, insert_bound: "actors may be at most 2.5 items ahead",
  sample_bound: "the learner may be at most 2.5 items ahead", sentence: "10 more samples may go",
};
const FLOWS = { state: "flowing", level: "good", seconds: null, sentence: "", ratio: 3.98 };
const stalled = (level) => ({ ...FLOWS, state: "stalled", level, seconds: 86, sentence: "nobody has sampled it", ratio: null });
const table = (number, more = {}) => ({
  number, name: `table ${number}`, sampler: "uniform", remover: "fifo", items: 5, max_items: 10, bytes: 2048, max_bytes: null,
  referenced_bytes: 1024, index_bytes: 512, chunks: 2, episodes: 1, max_times_sampled: 0, undelivered_samples: 0,
  inserts: 5, samples: 20, unique_samples: 4, removals: { max_size: 3, max_bytes: 0, max_times_sampled: 0, delete: 1, reset: 0 },
  unsampled_removals: 1, priority_updates: 0, insert_bytes: 10, sample_bytes: 20,
  process_inserts: 5, process_samples: 22, returned_samples: 2, returned_items: 0, last_insert_at: null, last_sample_at: 95,
  limiter: LIMITER, progress: FLOWS, waiting_inserts: waits, waiting_samples: waits,
  signature: [{ number: 0, name: "obs", dtype: "float32", shape: [null, 4] }], ...more,
});
const live = (more = {}) => ({
  server: { now: 100, resident_bytes: 10_000, buffer_pool_bytes: 1000 }, tables: [table(0)], waits: [], clients: [],
  history: { times: [98, 99, 100], tables: new Map() }, series: () => undefined, rates: () => [[99, 1], [100, 2]],
  values: () => [[99, 3], [100, 4]], events: [{ at: 99.5, kind: "client_came", table: null, text: "actor.py connected" }], span: 300,
  rate: () => 2, log: [], ...more,
});

/** The rows of a view, each as the texts of its cells. */
const rowsOf = (node) => node.querySelectorAll("tr").map((row) => row.children.map((cell) => cell.textContent));

function shown(panel, ...documents) {
  for (const document of documents) panel.update(document);
  return panel.node;
}

test("one table, a few and many have their own layouts", () => {
  const view = tablesView();
  const many = Array.from({ length: 20 }, (_, number) => table(number, { items: number }));
  view.update(live());
  assert.equal(view.node.querySelectorAll("article").length, 1);
  view.update(live({ tables: many.slice(0, 3) }));
  assert.equal(view.node.querySelectorAll("article").length, 3);
  view.update(live({ tables: many }));
  const heads = rowsOf(view.node)[0];
  assert.deepEqual(heads, ["Table", "Waits", "Items", "Data", "Inserts", "Samples", "Per insert", "Limiter"]);
  const first = () => rowsOf(view.node)[1][0];
  assert.match(first(), /^table 0/);
  const byItems = view.node.querySelectorAll("button").find((button) => button.textContent === "Items");
  byItems.click();
  assert.match(first(), /^table 19/);
  byItems.click();
  assert.match(first(), /^table 0/);
  const [filter] = view.node.querySelectorAll("input");
  filter.value = " Table 13 ";
  filter.listeners.input();
  assert.equal(rowsOf(view.node).length, 2);
});

const order = (view) => rowsOf(view.node).slice(1).map(([name]) => Number(/\d+/.exec(name)[0]));

test("tables that are stuck stand first, however others are sorted", () => {
  // What waits behind a stalled table is no stall of its own, but stands still, too.
  const progress = { 3: stalled("warning"), 5: stalled("alarm"), 6: { ...stalled("quiet"), state: "waiting" } };
  const tables = Array.from({ length: 8 }, (_, number) => table(number, { items: number, progress: progress[number] ?? FLOWS }));
  const view = tablesView();
  view.update(live({ tables }));
  assert.deepEqual(order(view), [5, 3, 6, 0, 1, 2, 4, 7]);
  view.node.querySelectorAll("button").find((button) => button.textContent === "Items").click();
  assert.deepEqual(order(view), [5, 3, 6, 7, 4, 2, 1, 0]);
  const cards = tablesView();
  cards.update(live({ tables: tables.slice(2, 6) }));
  assert.deepEqual(cards.node.querySelectorAll("h3").map((name) => name.textContent), ["table 5", "table 3", "table 2", "table 4"]);
  assert.ok(cards.node.textContent.includes("Nobody has sampled it."));
});

test("of tables that are equally stuck, the one where the wait began stands first", () => {
  const progress = { 1: stalled("alarm"), 2: stalled("alarm"), 4: stalled("alarm") };
  const tables = Array.from({ length: 8 }, (_, number) => table(number, { items: number, progress: progress[number] ?? FLOWS }));
  const view = tablesView();
  view.update(live({ tables, verdict: { tables: [4, 1] } }));
  assert.deepEqual(order(view), [4, 1, 2, 0, 3, 5, 6, 7]);
});

test("the order of tables lasts over a reload", () => {
  const kept = new Map();
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const tables = Array.from({ length: 8 }, (_, number) => table(number, { items: number }));
  const opened = () => {
    const view = tablesView();
    view.update(live({ tables }));
    return view;
  };
  const byItems = (view) => view.node.querySelectorAll("button").find((button) => button.textContent.startsWith("Items")).click();
  byItems(opened());
  assert.deepEqual(order(opened()), [7, 6, 5, 4, 3, 2, 1, 0]);
  const view = opened();
  byItems(view);
  byItems(view);
  assert.deepEqual(order(opened()), [0, 1, 2, 3, 4, 5, 6, 7], "a third click ends it");
  kept.set("reverb-sort", "-1 No such column");
  assert.deepEqual(order(opened()), [0, 1, 2, 3, 4, 5, 6, 7]);
  delete globalThis.localStorage;
});

test("a table in detail has its figures, its signature and what left it", () => {
  const view = detailView(0);
  view.update(live());
  const text = view.node.textContent;
  for (const part of ["table 0", "uniform → fifo", "5 of 10", "3.98 of 4", "never", "5.0 s ago", "Over max_size", "Deleted by a caller"]) {
    assert.ok(text.includes(part), part);
  }
  assert.deepEqual(rowsOf(view.node).filter(([name]) => name === "obs"), [["obs", "float32", "[?, 4]"]]);
  const [details] = view.node.querySelectorAll("details");
  details.open = true;
  view.update(live());
  assert.deepEqual(rowsOf(details)[0], ["Time", "Limiter", "Inserts", "Samples"]);
  assert.deepEqual(rowsOf(details).slice(1).map((row) => row.slice(1)), [["actors are 1 item ahead", "2 /s", "2 /s"], ["actor.py connected"]]);
  for (const drawing of view.node.querySelectorAll("svg")) resize(drawing, 300);
  view.unmount();
});

test("a table that is not there is said to be missing", () => {
  const node = shown(detailView(7), live());
  assert.deepEqual(node.children.slice(2).map(({ hidden }) => hidden), [false, true]);
});

test("requests that wait are listed, also twice, and grey while things move", () => {
  const wait = { table: 0, table_name: "t", operation: "sample", client: 1, client_name: "a", address: "", transport: "unix", seconds: 3, reason: "because" };
  const waiting = (progress) => shown(waitsPanel(0), live({ tables: [table(0, { progress })], waits: [wait, wait, { ...wait, table: 1 }] }));
  const rows = waiting(FLOWS).querySelectorAll("li");
  assert.deepEqual(rows.map((row) => row.textContent), Array(2).fill("sampleaunix socket3.0 sbecause"));
  const tone = (node) => node.querySelectorAll("li")[0].querySelectorAll("span")[0].attributes.class;
  assert.deepEqual([tone(waiting(FLOWS)), tone(waiting(stalled("alarm")))], ["tag ", "tag bad"]);
});

test("memory is that of the largest tables, and of the rest", () => {
  const tables = Array.from({ length: 10 }, (_, number) => table(number));
  const rows = shown(memoryPanel(), live({ tables })).querySelectorAll("li").map((row) => row.textContent);
  assert.equal(rows.length, 9);
  assert.equal(rows[0], "table 02.50 KiB1.00 KiB of rows");
  assert.equal(rows[8], "2 other tables5.00 KiB");
});

test("removals are listed by reason", () => {
  const rows = shown(removalsPanel(), table(0)).querySelectorAll("li").map((row) => row.textContent);
  assert.deepEqual(rows, ["Over max_size375 %", "Deleted by a caller125 %"]);
});

test("checkpoints are listed with what is known of them", () => {
  const saved = { path: "/c/1", saved_at: 60, size_bytes: 2048, duration_seconds: null, is_verified: true };
  const checkpoints = {
    path: "/c", interval_seconds: 60, next_due_at: 130, saving: { path: "/c/2", since: 90, done_bytes: 50, total_bytes: 100 },
    saves_ok: 1, saves_failed: 2, last_error: "full", restored_from: "/c/1", checkpoints: [saved],
  };
  const node = shown(checkpointsPanel(), live({ checkpoints }));
  assert.deepEqual(rowsOf(node), [
    ["Checkpoint", "Saved", "Size", "Took", "Verified"],
    ["1Copy pathloaded at start", "40 s ago", "2.00 KiB", "–", "verified"],
  ]);
  for (const part of ["next in 30 s, every 1 min 00 s", "The latest save failed: full", "50 B of 100 B, about 10 s left", "/c · 1 save, 2 failed"]) {
    assert.ok(node.textContent.includes(part), part);
  }
});

test("the log of changes stands below the checkpoints", () => {
  const log = { mode: "power", size_bytes: 2048, sync_age_seconds: 0.5, sync_interval_seconds: 1, is_disk_low: false, failure: null };
  const of = (more) => {
    const checkpoints = { path: "/c", interval_seconds: null, next_due_at: null, saving: null, saves_ok: 0, saves_failed: 0, last_error: null, restored_from: null, checkpoints: [], log: more && { ...log, ...more } };
    return shown(checkpointsPanel(), live({ checkpoints })).querySelectorAll("p").filter((node) => !node.hidden).map((node) => node.textContent);
  };
  const told = (more) => of(more).filter((text) => /[Ll]og/.test(text));
  assert.deepEqual(told(null), []);
  assert.deepEqual(told({}), ["Log (power): 2.00 KiB, unsynced for 500 ms"]);
  assert.deepEqual(told({ failure: "no room", is_disk_low: true }), ["The log is closed: no room", "Log (power): 2.00 KiB, closed, too little free space"]);
});

test("lines of the log are chosen by level, newest first", () => {
  const log = [["info", "a"], ["error", "b"], ["warning", "c"]].map(([level, message], number) => ({ number, at: 0, level, message }));
  const panel = logPanel();
  const texts = () => panel.node.querySelectorAll("li").map((line) => line.textContent.at(-1));
  panel.update(live({ log }));
  assert.deepEqual(texts(), ["c", "b", "a"]);
  panel.node.querySelectorAll("button")[1].click();
  assert.deepEqual(texts(), ["c", "b"]);
});

test("figures that a server does not tell are left open", () => {
  const unknown = {
    bytes: null, index_bytes: null, referenced_bytes: null, removals: null, unsampled_removals: null, chunks: null,
    priority_updates: null, insert_bytes: null, sample_bytes: null, undelivered_samples: null,
    waiting_inserts: { ...waits, count: null, longest_seconds: null },
  };
  const view = detailView(0);
  view.update(live({ tables: [table(0, unknown)] }));
  assert.ok(view.node.textContent.includes("Nothing has left this table"));
  assert.equal(/NaN|null|undefined/.test(view.node.textContent), false, view.node.textContent);
  const list = shown(tablesView(), live({ tables: [table(0, unknown)] }));
  assert.equal(/NaN|null|undefined/.test(list.textContent), false, list.textContent);
  assert.equal(shown(memoryPanel(), live({ tables: [table(0, unknown)] })).querySelectorAll("li").length, 0);
});
