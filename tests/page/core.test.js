import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./dom.js";

const core = await page("core.js");
const { el, reason } = core;

/** Tests a function by a table of `[arguments, expected]`. */
function cases(name, make, table) {
  test(name, () => {
    for (const [values, expected] of table) assert.equal(make(...values), expected, `${name}(${values.map(String)})`);
  });
}

cases("numbers are written with separators, and few digits", core.number, [
  [[1234567], "1,234,567"],
  [[0.254], "0.25"],
  [[0.254, 1], "0.3"],
  [[1234.56], "1,235"],
  [[-0.5], "−0.5"],
  [[0], "0"],
  [[0.0001], "1.0e−4"],
  [[3e15], "3.0e+15"],
  [[Number.POSITIVE_INFINITY], "∞"],
  [[Number.NEGATIVE_INFINITY], "−∞"],
  [[null], "–"],
  [[undefined], "–"],
  [[Number.NaN], "–"],
]);

cases("compact numbers have five characters at most", core.compact, [
  [[987], "987"],
  [[9.96], "10.0"],
  [[999.6], "1.00k"],
  [[1234567], "1.23M"],
  [[45600], "45.6k"],
  [[999499], "999k"],
  [[-1500], "−1.50k"],
  [[1e18], "1000P"],
  [[null], "–"],
]);

cases("sizes have binary units", core.bytes, [
  [[0], "0 B"],
  [[512], "512 B"],
  [[1000], "0.98 KiB"],
  [[3.1 * 2 ** 30], "3.10 GiB"],
  [[64 * 2 ** 20], "64.0 MiB"],
  [[2 ** 70], "1048576 PiB"],
  [[null], "–"],
]);

cases("rates are by second", core.rate, [
  [[0], "0 /s"],
  [[0.25], "0.25 /s"],
  [[5.55], "5.6 /s"],
  [[12345], "12.3k /s"],
  [[undefined], "–"],
]);
cases("rates of bytes are by second", core.byteRate, [
  [[2 ** 20], "1.00 MiB/s"],
  [[undefined], "–"],
]);

cases("time spans have two units at most", core.duration, [
  [[0], "0 s"],
  [[-1], "0 s"],
  [[0.0000121], "13 µs"],
  [[0.012], "12 ms"],
  [[0.9996], "1.0 s"],
  [[9.94], "9.9 s"],
  [[9.96], "10 s"],
  [[125], "2 min 05 s"],
  [[12000], "3 h 20 min"],
  [[5 * 86400 + 3 * 3600], "5 d 3 h"],
  [[null], "–"],
]);

cases("shares are cut, not rounded up", core.percent, [
  [[0], "0 %"],
  [[0.004], "0.4 %"],
  [[0.999], "99 %"],
  [[1], "100 %"],
  [[null], "–"],
  [[0 / 0], "–"],
]);

cases("counts have their nouns", core.plural, [
  [[1, "item"], "1 item"],
  [[0, "item"], "0 items"],
  [[2000, "entry", "entries"], "2,000 entries"],
]);

cases("what cannot be seen in a text is shown", core.visible, [
  [["plain – ä 漢 🙂"], "plain – ä 漢 🙂"],
  [["a\u202eb\u0000"], "a\\u{202e}b\\u{0}"],
]);

test("times are those of the viewer, with the date if it is another day", () => {
  const now = new Date();
  assert.match(core.time(now.getTime() / 1000), /^\d\d:\d\d:\d\d$/);
  assert.match(core.time(0), /^19(69|70)-\d\d-\d\d \d\d:\d\d:\d\d$/);
  assert.equal(core.time(null), "–");
});

test("elements get attributes, listeners and children", () => {
  let clicks = 0;
  const node = el(
    "p",
    { class: "a", hidden: true, title: null, on: { click: () => clicks++ }, style: { left: "1px" } },
    "text",
    [1, null, [false, undefined, el("b", null, "bold")]],
  );
  node.click();
  assert.equal(clicks, 1);
  assert.deepEqual(node.attributes, { class: "a", hidden: "", "style.left": "1px" });
  assert.equal(node.textContent, "text1bold");
  core.setAttrs(node, { hidden: false, class: "b" });
  assert.deepEqual(node.attributes, { class: "b", "style.left": "1px" });
});

test("the unit of a quantity is quieter", () => {
  const node = el("span");
  core.setQuantity(node, "3.10 GiB");
  assert.equal(node.textContent, "3.10 GiB");
  assert.equal(node.querySelectorAll("span")[0].textContent, " GiB");
  core.setQuantity(node, "–");
  assert.equal(node.querySelectorAll("span").length, 0);
});

test("nodes of keys that stay are kept, in the order of the values", () => {
  const parent = el("ul");
  const update = (values) =>
    core.reconcile(parent, values, ({ key }) => key, ({ key }) => {
      const node = el("li", { id: key });
      return { node, update: ({ text }) => core.setText(node, text) };
    });
  const [a, b] = update([{ key: "a", text: "1" }, { key: "b", text: "2" }]);
  assert.equal(parent.textContent, "12");
  const views = update([{ key: "b", text: "3" }, { key: "c", text: "4" }, { key: "a", text: "5" }]);
  assert.equal(parent.textContent, "345");
  assert.equal(views[0], b);
  assert.equal(views[2], a);
  update([{ key: "c", text: "6" }]);
  assert.equal(parent.textContent, "6");
});

test("long texts of users are cut, and whole in the title", () => {
  const node = core.userText("x".repeat(500));
  assert.equal(node.textContent.length, 301);
  assert.equal(node.attributes.title.length, 500);
});

test("requests that are refused or fail are ApiErrors", async () => {
  const answers = { "api/v1/tables": { ok: true, json: async () => ({ tables: [] }) } };
  globalThis.fetch = async (url) => answers[url.pathname.slice(1)] ?? { ok: false, status: 404, text: async () => " gone " };
  assert.deepEqual(await core.api("tables"), { tables: [] });
  await assert.rejects(core.api("/api/v1/nothing"), { name: "ApiError", status: 404, message: "gone" });
  globalThis.fetch = async () => Promise.reject(new TypeError("refused"));
  await assert.rejects(core.api("tables"), { status: 0, message: "the server does not answer: refused" });
  globalThis.fetch = async () => ({ ok: true, json: async () => JSON.parse("<") });
  await assert.rejects(core.api("tables"), { status: 0, message: /^the answer to tables is not JSON: / });
});

test("times in texts are written in the viewer's zone, as all others are", () => {
  const at = Date.parse("2026-03-04T05:06:07.080Z") / 1000;
  const text = core.inZone("saved /var/lib/reverb/2026-03-04T05:06:07.080123456+00:00 in 3 s");
  assert.equal(text, `saved /var/lib/reverb/${core.time(at)} in 3 s`);
  assert.equal(core.inZone("2026-03-04T07:06:07+02:00"), core.time(at));
  assert.equal(core.inZone("table 2026-03-04"), "table 2026-03-04");
});

test("a copied text is that of the moment, and a refusal is said", async (context) => {
  context.mock.method(globalThis, "setTimeout", () => {});
  const copied = [];
  Object.defineProperty(globalThis, "navigator", { value: { clipboard: { writeText: async (text) => copied.push(text) } }, configurable: true });
  let key = "1";
  const node = core.copyButton("key", () => key);
  key = "2";
  await node.listeners.click();
  assert.deepEqual([copied, node.textContent], [["2"], "Copied"]);
});

test("the reason of a refusal is read from the answer, if it is there", () => {
  assert.equal(reason({ message: '{"error": "no such table"}' }), "no such table");
  assert.equal(reason({ message: "{}" }), "{}");
  assert.equal(reason(new Error("no answer")), "no answer");
});
