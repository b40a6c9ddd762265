import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { changes, clients, restore, saves, verdictOf, verdictTitle, verdictView } = await page("verdict.js");

const SERVER = { state: "serving", now: 1000, started_at: 900, loading: null, resident_bytes: 2 ** 30, memory_limit_bytes: 4 * 2 ** 30 };
const VERDICT = { state: "flowing", level: "good", seconds: null, line: "Flowing: 8.0 of 8 samples per insert", tables: [], troubles: [] };
const STALLED = { ...VERDICT, state: "stalled", level: "alarm", seconds: 86, line: "Stalled 1 min 26 s: nobody has sampled a:b", tables: [1] };
const SAVED = { checkpoints: [{ path: "/c/1", saved_at: 960 }], last_error: null, next_due_at: 1020, restored_from: null, restored_saved_at: null };
const live = (more = {}) => ({
  server: SERVER, verdict: VERDICT, checkpoints: SAVED, clients: { clients: [{}, {}], left: [] }, events: [], goneSince: undefined, ...more,
});

test("the verdict of the server is said as it is", () => {
  assert.deepEqual(verdictOf(live()).line, VERDICT.line);
  assert.equal(verdictOf(live({ verdict: STALLED })).level, "alarm");
});

test("a server that loads, stops or is gone has no other verdict", () => {
  const of = (more) => {
    const { level, line } = verdictOf(live(more));
    return `${level}: ${line}`;
  };
  assert.equal(of({ server: undefined }), "quiet: Connecting");
  assert.equal(of({ server: { ...SERVER, state: "loading" } }), "quiet: Loading a checkpoint");
  assert.equal(of({ server: { ...SERVER, state: "loading", loading: { done_bytes: 38, total_bytes: 100 } } }), "quiet: Loading a checkpoint: 38 %");
  assert.equal(of({ server: { ...SERVER, state: "stopping" } }), "warning: Stopping: clients are sent away");
  assert.equal(of({ verdict: undefined }), "quiet: Serving");
  assert.match(of({ goneSince: Date.now() - 5000, verdict: STALLED }), /^alarm: Disconnected 5.0 s: the server has not answered since .* reconnects by itself\.$/);
});

test("the title of the tab begins with the verdict, and a dot if something is wrong", () => {
  assert.equal(verdictTitle(live()), "Flowing");
  assert.equal(verdictTitle(live({ verdict: STALLED })), "● Stalled 1 min 26 s");
  assert.equal(verdictTitle(live({ verdict: { ...STALLED, level: "warning", line: "Flowing, the latest save failed: x" } })), "● Flowing, the latest save failed");
});

test("what could be lost is said beside it", () => {
  const of = (checkpoints) => saves(live({ checkpoints: { ...SAVED, ...checkpoints } }));
  assert.equal(of({}).text, "Saved 40 s ago, next in 20 s");
  assert.equal(of({ checkpoints: [] }).text, "No checkpoint yet: a restart would lose everything");
  const failed = of({ last_error: "No space left on device" });
  assert.match(failed.text, /^The latest save failed: a restart would lose what is newer than \d/);
  assert.deepEqual([failed.tone, failed.title], ["bad", "No space left on device"]);
  assert.match(of({ last_error: "x", checkpoints: [] }).text, /lose everything$/);
});

test("with a log of changes, a restart loses nothing", () => {
  const log = { mode: "process", size_bytes: 1, sync_age_seconds: 0.5, sync_interval_seconds: 1, is_disk_low: false, failure: null };
  const of = (more, checkpoints) => live({ checkpoints: { ...SAVED, ...checkpoints, log: { ...log, ...more } } });
  const lost = (checkpoints) => JSON.stringify(saves(of({}, checkpoints)));
  for (const checkpoints of [{}, { last_error: "x" }, { checkpoints: [] }]) assert.doesNotMatch(lost(checkpoints), /lose/);
  const events = [{ at: 910, kind: "restore", table: null, text: "restored 5 items" }];
  assert.equal(restore({ ...of({}, { restored_saved_at: 891 }), events }).title, undefined);
  assert.equal(changes(live()), undefined);
  assert.deepEqual(changes(of({})), { key: "changes", text: "Changes are logged (process), unsynced for 500 ms" });
  assert.match(changes(of({ sync_age_seconds: 0 })).text, /, all synced$/);
  assert.equal(changes(of({ is_disk_low: true })).tone, "bad");
  const closed = changes(of({ failure: "no room", is_disk_low: true }));
  assert.deepEqual([closed.tone, closed.title], ["bad", "no room"]);
  assert.match(closed.text, /^The log is closed: /);
});

test("a restart is spoken of for ten minutes", () => {
  const text = "restored 50,500 items, saved 9 s before the start";
  const events = [{ at: 910, kind: "restore", table: null, text }];
  const of = (more) => restore(live({ events, ...more }))?.text;
  assert.equal(of({}), `Restarted 1 min 30 s ago: ${text}`);
  // The next save has removed the checkpoint, of which only the time is known.
  const checkpoints = { ...SAVED, restored_from: "/c/0", restored_saved_at: 891 };
  assert.match(restore(live({ events, checkpoints })).title, /^What was newer than \d.* is lost$/);
  assert.equal(of({ server: { ...SERVER, now: 2000 } }), undefined);
  assert.equal(of({ events: [] }), undefined);
});

test("clients that were lost are counted, not those that closed", () => {
  const of = (...left) => clients(live({ clients: { clients: [{}], left: left.map((how) => ({ how })) } })).text;
  assert.equal(of("closed"), "1 client");
  assert.equal(of("lost", "closed", "stopped"), "1 client, 2 lost in the last 10 min");
});

test("only what changes is read aloud, not seconds that tick", () => {
  const { node, update } = verdictView();
  const aloud = () => node.querySelectorAll("p").find((one) => one.attributes.role === "status").textContent;
  update(live({ verdict: STALLED }));
  update(live({ verdict: { ...STALLED, seconds: 87, line: "Stalled 1 min 27 s: nobody has sampled a:b" } }));
  assert.equal(aloud(), "Stalled 1 min 26 s: nobody has sampled a:b");
  assert.match(node.textContent, /Stalled 1 min 27 s/);
  assert.equal(node.attributes["data-level"], "alarm");
  update(live());
  assert.equal(aloud(), VERDICT.line);
  assert.match(node.textContent, /Saved 40 s ago, next in 20 sMemory 1.00 GiB of 4.00 GiB2 clients/);
});
