import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const { clientsPanel, rowsOf } = await page("clients.js");

const client = (id, name, more = {}) => ({
  id, name, program: name.split(" (")[0], address: `127.0.0.1:${id}`, transport: "tcp", since: 40, role: "writes", connections: 1, streams: 1,
  inserts: 1, samples: 0, inserts_per_second: 452, samples_per_second: 0, last_seen: 100, receive_bytes: 0, transmit_bytes: 0, waits: [], token: "", may: "", ...more,
});
const wait = (table, seconds, more = {}) => ({
  table, table_name: `table ${table}`, operation: "insert", kind: "call", count: 1, seconds, reason: "it is full", ...more,
});
const left = (name, how, at) => ({ ...client(9, name), how, at });
const live = (clients, gone = []) => ({
  server: { now: 100 }, clients: { clients, left: gone },
  tables: [["good", 0], ["alarm", 1]].map(([level, number]) => ({ number, progress: { level } })),
});

const texts = (rows) => rows.map(({ program, place, role, doing, state, tone }) => [program, place, role, doing, state, tone].join(" | "));

test("each process has a row: what it does, how fast, and where it is", () => {
  const learner = { role: "draws", samples_per_second: 3616, transport: "unix" };
  assert.deepEqual(texts(rowsOf(live([client(1, "learner.py (a:2)", learner), client(2, "actor.py (b:3)"), client(3, "", { role: "none" })]))), [
    "unnamed client | 127.0.0.1:3 | idle |  | connected for 1 min 00 s | ".replace("unnamed client", "unnamed client"),
    "actor.py | b:3 · 127.0.0.1:2 | writes | 452 /s in | connected for 1 min 00 s | ",
    "learner.py | a:2 · unix socket | draws | 3.62k /s out | connected for 1 min 00 s | ",
  ].sort((one, other) => Number(one.startsWith("unnamed")) - Number(other.startsWith("unnamed"))));
});

test("what a client waits for is grey, unless its table is stuck; then it stands first", () => {
  const rows = rowsOf(live([
    client(1, "a (x:1)", { waits: [wait(0, 0.02)] }),
    client(2, "b (x:2)", { waits: [wait(0, 12, { operation: "sample", count: 2 })] }),
    client(3, "c (x:3)", { waits: [wait(0, 90), wait(1, 86)] }),
    client(4, "d (x:4)", { waits: [wait(1, 400, { kind: "ahead", operation: "sample" })] }),
    client(5, "e (x:5)", { waits: [wait(1, 400, { kind: "newer" })] }),
  ]));
  assert.deepEqual(rows.map(({ program, state, tone }) => `${program}: ${state} ${tone}`), [
    "c: waits 1 min 26 s to insert into table 1 bad",
    "a: connected for 1 min 00 s ",
    "b: waits 12 s for a sample of table 0 (2 requests) ",
    "d: draws ahead of its program from table 1 ",
    "e: waits for a newer version of table 1 ",
  ]);
});

test("those that left are told last, with how", () => {
  const rows = rowsOf(live([client(1, "z (x:1)")], [left("actor.py (b:3)", "lost", 90), left("eval.py (b:4)", "closed", 70), left("old.py (b:5)", "stopped", 50)]));
  assert.deepEqual(rows.map(({ state, tone, isGone }) => `${state} ${tone} ${isGone}`), [
    "connected for 1 min 00 s  false",
    "connection lost 10 s ago, after 50 s warn true",
    "closed 30 s ago, after 30 s  true",
    "no longer answered 50 s ago, after 10 s warn true",
  ]);
});

test("the panel counts clients, shows why one is stuck, and at most a hundred rows", () => {
  const panel = clientsPanel();
  panel.update(live([client(1, "a (x:1)", { waits: [wait(1, 86)] })], [left("b (x:2)", "lost", 90)]));
  const text = panel.node.textContent;
  assert.match(text, /^Clients1 connected, 1 left/);
  assert.match(text, /it is full/);
  panel.update(live(Array.from({ length: 250 }, (_, id) => client(id, `a (x:${id})`))));
  assert.equal(panel.node.querySelectorAll("li").length, 100);
  assert.match(panel.node.textContent, /150 more$/);
  panel.update(live(Array.from({ length: 150 }, (_, id) => client(id, `a (x:${id})`, { waits: [wait(1, 86)] }))));
  assert.match(panel.node.textContent, /50 more$/, "they may be stuck, too");
  panel.update(live([]));
  assert.match(panel.node.textContent, /No client is connected/);
});

test("a client has the name of its token, and what it may do", () => {
  const panel = clientsPanel();
  const token = "evil\u202e<b>";
  panel.update(live([client(1, "a (x:1)", { token: "actors", may: "use" }), client(2, "b (x:2)", { token, may: "view" }), client(3, "c (x:3)", { may: "admin" }), client(4, "d (x:4)")], [left("e (x:5)", "lost", 90)]));
  const rows = panel.node.querySelectorAll("li").map((row) => row.textContent);
  assert.match(rows[0], /token actors \(use\)/);
  assert.match(rows[1], /<b> \(view\)/);
  assert.doesNotMatch(rows[1], /\u202e/);
  assert.match(rows[2], /role admin/, "it has a certificate");
  for (const row of rows.slice(3)) assert.doesNotMatch(row, /token|role/);
});
