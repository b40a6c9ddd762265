import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { page } from "./dom.js";

const { Live } = await page("live.js");
const { api } = await page("core.js");
const { mountItems } = await page("items.js");
const { forget, hasToken, present, presented, readers } = await page("session.js");
const { signInView } = await page("signin.js");

const TOKEN = "rvb_secret-of-learner-0123456789";
const HERE = { protocol: "http:", hostname: "localhost" };
const ANSWERS = {
  server: { server_id: "a", state: "serving" }, role: { token: "learner", role: "view" },
  tables: { tables: [] }, waits: { waits: [] }, clients: { clients: [], left: [] }, verdict: { state: "flowing", line: "Flowing" },
  history: { next: 0, times: [], receive_bytes: [], transmit_bytes: [], tables: [], events: [] },
  log: { next: 0, lines: [] }, checkpoints: { checkpoints: [] },
};

/** A server that knows tokens. Notes what it was asked. */
function server() {
  const known = { tokens: [TOKEN], requests: [], status: 401 };
  globalThis.fetch = async (url, options) => {
    known.requests.push({ url: url.href, ...options });
    if (known.tokens.some((token) => options.headers?.Authorization === `Bearer ${token}`)) {
      return { ok: true, json: async () => ANSWERS[url.pathname.split("/").pop()] };
    }
    return { ok: false, status: known.status, text: async () => JSON.stringify({ error: "no" }) };
  };
  return known;
}

/** A page whose rounds begin when the test says so. */
function started(context) {
  const timers = [];
  context.mock.method(globalThis, "setTimeout", (work) => timers.push(work));
  context.mock.method(globalThis, "clearTimeout", () => timers.splice(0));
  const live = new Live();
  live.start();
  const round = () => timers.pop()();
  return { live, timers, round };
}

afterEach(forget);

test("a token goes with each request, as a header alone, and to no other address", async () => {
  const { requests } = server();
  await assert.rejects(api("server"), { status: 401 });
  present(TOKEN);
  await api("server");
  assert.equal(requests[0].headers, undefined);
  assert.deepEqual(requests[1].headers, { Authorization: `Bearer ${TOKEN}` });
  assert.equal(requests[1].redirect, "error");
  assert.ok(requests.every(({ url }) => !url.includes("rvb_")));
  forget();
  assert.deepEqual(presented(), {});
});

test("a token may be sent over https, and over http on this machine", () => {
  for (const hostname of ["localhost", "replay.localhost", "127.0.0.1", "127.9.9.9", "[::1]"]) {
    assert.equal(readers({ protocol: "http:", hostname }), "here", hostname);
    assert.equal(readers({ protocol: "https:", hostname }), "nobody", hostname);
  }
  for (const hostname of ["replay.example", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil", "[::2]", "xlocalhost"]) {
    assert.equal(readers({ protocol: "http:", hostname }), "anyone", hostname);
    assert.equal(readers({ protocol: "https:", hostname }), "nobody", hostname);
  }
});

test("a page that needs a token asks nothing until it has one", async (context) => {
  const known = server();
  const { live, timers, round } = started(context);
  await round();
  assert.equal(live.signedOut, "This server needs a token.");
  assert.equal(timers.length, 0, "it asks no more");

  await live.signIn("rvb_wrong-0123456789");
  assert.match(live.signedOut, /does not know this token/);
  assert.equal(hasToken(), false, "a wrong token is not kept");
  assert.equal(timers.length, 0);

  await live.signIn(TOKEN);
  assert.equal(live.signedOut, undefined);
  assert.deepEqual(live.role, ANSWERS.role);
  assert.equal(live.server, ANSWERS.server);
  assert.deepEqual(live.errors, {});
  assert.equal(timers.length, 1, "it asks again");
  assert.ok(known.requests.every(({ url }) => !url.includes("rvb_")));
});

test("a token that is removed takes with it what it has shown", async (context) => {
  const known = server();
  present(TOKEN);
  const { live, timers, round } = started(context);
  await round();
  assert.equal(live.signedOut, undefined);
  known.tokens = [];
  await round();
  assert.match(live.signedOut, /does not know the token any more/);
  assert.deepEqual([live.server, live.tables, live.clients, live.log, live.role], Array(5).fill(undefined));
  assert.deepEqual([hasToken(), timers.length, live.errors], [false, 0, {}]);
});

test("a token that could not be checked is asked for again", async (context) => {
  const known = server();
  const { live, timers, round } = started(context);
  await round();
  known.status = 429;
  await live.signIn("rvb_wrong-0123456789");
  assert.equal(live.signedOut, "The server could not check the token: no");
  assert.deepEqual([hasToken(), timers.length], [false, 0]);
});

/** A page that is signed out, and notes what it is given. */
const signedOut = () => {
  const given = [];
  const signIn = async (token) => given.push(token);
  return { given, live: { signedOut: "This server needs a token.", signIn } };
};

test("a page from this machine says who could read the token, before it takes one", async () => {
  const { given, live } = signedOut();
  const view = signInView(live, HERE);
  view.update(live);
  assert.match(view.node.textContent, /This server needs a token\./);
  assert.match(view.node.textContent, /Administrators .* can read it, and so can a program of any of its users/);
  const [[field], [label], [form]] = ["input", "label", "form"].map((tag) => view.node.querySelectorAll(tag));
  assert.equal(label.getAttribute("for"), field.getAttribute("id"));
  assert.deepEqual([field.getAttribute("type"), field.getAttribute("autocomplete")], ["password", "off"]);
  field.focus = () => {};
  const submit = (text) => {
    field.value = text;
    return form.listeners.submit({ preventDefault() {} });
  };
  await submit(` ${TOKEN} `);
  assert.equal(field.value, "", "nothing stays in the field");
  for (const text of ["", "a b", "tök", "a\nb"]) await submit(text);
  assert.deepEqual(given, [TOKEN]);
  assert.match(view.node.textContent, /visible ASCII/);
});

test("a page that came over http from elsewhere takes no token, and names https", () => {
  const { live } = signedOut();
  const view = signInView(live, { protocol: "http:", hostname: "replay.example" });
  assert.equal(view.node.querySelectorAll("input").length, 0);
  assert.match(view.node.textContent, /takes no token.*https/);
  const safe = signInView(live, { protocol: "https:", hostname: "replay.example" });
  assert.equal(safe.node.querySelectorAll("input").length, 1);
  assert.doesNotMatch(safe.node.textContent, /can read it/);
});

test("items are read for roles that may see them, and for no other", async () => {
  const { requests } = server();
  const element = document.createElement("div");
  const mounted = mountItems(element);
  const table = { number: 0, inserts: 1, items: 1 };
  const view = { role: { token: "<b>eve", role: "view" } };
  mounted.update(table, view);
  mounted.update(table, view);
  assert.match(element.textContent, /needs role use; the token “<b>eve” has role view/);
  assert.deepEqual([requests.length, element.querySelectorAll("b").length], [0, 0]);
  mounted.update(table, { role: { token: "eve", role: "use" } });
  assert.equal(requests.length, 1);
  mounted.update(table, view);
  assert.match(element.textContent, /needs role use/);
  assert.equal(element.querySelectorAll("table").length, 0, "what was read is gone");
  mounted.unmount();
});
