// A look at the items of a table: a list of a few, and one of them opened. Nothing is drawn from the table.

/** @import { Live } from "./live.js" */

import { columnsView } from "./columns.js";
import { ApiError, bytes, copyButton, duration, el, fact, fetchApi, number, plural, reason, setAttrs, setText, setUserText, tableHead, time } from "./core.js";
import { panel } from "./panels.js";

const COUNT = 20;
const ORDERS = { newest: "Newest", oldest: "Oldest", highest: "Highest priority" };
// A clock that differs by less is the same clock: the header of an answer has whole seconds.
const SAME_CLOCK_SECONDS = 2;

/** @typedef {{item: ItemDocument, columns: ReturnType<typeof columnsView>, facts: HTMLElement}} Opened */

/** Shows items of a table in an element, to those whose role may see what is in them. @param {Element} element */
export function mountItems(element) {
  /** @type {Items | undefined} */
  let items;
  const words = el("p", { class: "state" });
  const closed = panel("items", "Items", null, "body");
  closed.body.append(words);
  /** @param {TableDocument} table @param {Live} live */
  const update = (table, { role }) => {
    if (role?.role !== "view") {
      items ??= new Items(element, table);
      return items.update(table);
    }
    items?.unmount();
    items = undefined;
    setUserText(words, `What is in items needs role use; the token “${role.token}” has role view.`);
    if (closed.node.parentNode !== element) element.replaceChildren(closed.node);
  };
  return { update, unmount: () => items?.unmount() };
}

/** Shows items of a table in an element. */
class Items {
  /** @param {Element} element @param {TableDocument} table */
  constructor(element, table) {
    this.table = table;
    this.order = "newest";
    /** @type {ReturnType<Items["row"]>[]} */
    this.rows = [];
    this.request = 0;
    /** @type {Opened | null} */
    this.opened = null;
    this.clockAhead = 0;
    this.insertsAtLoad = table.inserts;
    this.orders = Object.entries(ORDERS).map(([order, label]) =>
      el("button", { "aria-pressed": String(order === this.order), on: { click: () => this.choose(order) } }, label));
    this.key = el("input", { type: "text", inputmode: "numeric", placeholder: "Key of an item", "aria-label": "Key of an item", autocomplete: "off", spellcheck: "false" });
    this.news = el("span", { class: "small muted" });
    this.state = el("div", { class: "state", role: "status" });
    this.body = el("tbody", { on: { keydown: (event) => this.move(event) } });
    this.list = el("div", { class: "item-list" }, el("table", null,
      el("caption", { class: "hidden" }, "Items; the arrow keys go from one to the next"),
      tableHead(["Key", "Priority", "Sampled", "Age", "Size"], (column) => column > 0 && "number"),
      this.body));
    this.detail = el("section", { class: "item-detail", "aria-label": "Item" });
    const { node, body } = panel("items", "Items", null, "body");
    body.append(this.bar(), this.state, el("div", { class: "item-panes grid" }, this.list, this.detail));
    element.replaceChildren(node);
    this.load();
  }

  bar() {
    const submit = (event) => {
      event.preventDefault();
      const key = this.key.value.trim();
      if (/^\d{1,20}$/.test(key)) this.load(key);
      else this.say("Not a key", `Expected a whole number in decimal digits, got “${key.slice(0, 80)}”.`);
    };
    return el("div", { class: "item-bar wrap" },
      el("div", { class: "choice", role: "group", "aria-label": "Items shown" }, this.orders),
      el("form", { class: "row", role: "search", on: { submit } }, this.key, el("button", { type: "submit" }, "Find")),
      el("button", { on: { click: () => this.load(this.shownKey) } }, "Refresh"), this.news);
  }

  choose(order) {
    this.order = order;
    this.key.value = "";
    this.load();
  }

  /** Reads the list, or one item by its key. @param {string | null} [key] */
  async load(key = null) {
    const request = ++this.request;
    this.isPoor = false;
    const query = key === null ? `order=${this.order}&count=${COUNT}` : `key=${key}`;
    this.shownKey = key;
    for (const [i, order] of Object.keys(ORDERS).entries()) setAttrs(this.orders[i], { "aria-pressed": String(key === null && order === this.order) });
    if (this.rows.length === 0) this.say("Loading items…");
    const inserts = this.table.inserts;
    try {
      const answer = await fetchApi(`tables/${this.table.number}/items?${query}`);
      const { items } = await answer.json();
      if (request !== this.request) return;
      this.setClock(answer.headers.get("date"));
      this.insertsAtLoad = inserts;
      this.show(items, key);
    } catch (error) {
      if (request !== this.request) return;
      if (error instanceof ApiError && error.status === 404 && key !== null) this.showNone(key);
      else this.fail("The items cannot be read", reason(error));
    }
  }

  /** @param {ItemDocument[]} items @param {string | null} key */
  show(items, key) {
    if (items.length === 0) return this.showNone(key);
    const hadFocus = this.body.contains(document.activeElement);
    const kept = items.findIndex((item) => item.key === this.opened?.item.key);
    this.state.hidden = true;
    this.list.hidden = false;
    this.rows = items.map((item, i) => this.row(item, i));
    this.body.replaceChildren(...this.rows.map((row) => row.node));
    this.tick();
    this.open(Math.max(0, kept), hadFocus);
  }

  /** @param {ItemDocument} item @param {number} i */
  row(item, i) {
    const button = el("button", { class: "quiet mono", tabindex: -1, title: `Item ${item.key}`, on: { click: () => this.open(i, true) } }, item.key);
    const age = el("td", { class: "number small", title: time(item.inserted_at) });
    const node = el("tr", null, el("th", { scope: "row" }, button),
      el("td", { class: "number small" }, number(item.priority, 3)), el("td", { class: "number small" }, number(item.times_sampled, 0)),
      age, el("td", { class: "number small" }, bytes(item.bytes)));
    return { item, node, button, age };
  }

  open(at, takesFocus = false) {
    for (const [i, { node, button }] of this.rows.entries()) {
      setAttrs(node, { class: i === at && "open" });
      setAttrs(button, { tabindex: i === at ? 0 : -1, "aria-current": i === at && "true" });
    }
    const { item, button } = this.rows[at];
    if (takesFocus) button.focus();
    if (this.opened?.item.key === item.key) {
      this.opened.item = item;
      this.fill(this.opened);
      return;
    }
    this.opened?.columns.unmount();
    const columns = columnsView(this.table, item, this.rows.map((row) => row.item));
    const facts = el("dl", { class: "facts grid" });
    this.opened = { item, columns, facts };
    this.fill(this.opened);
    this.detail.hidden = false;
    this.detail.replaceChildren(
      el("header", { class: "rows" },
        el("div", { class: "row wrap" }, el("h3", null, "Item ", el("span", { class: "mono whole" }, item.key)), copyButton("key", () => item.key)), facts),
      item.columns.length === 0 ? el("p", { class: "state" }, "The item has no columns.") : columns.node);
  }

  /** @param {Opened} opened */
  fill({ item, facts: list }) {
    const facts = {
      Priority: item.priority === null ? "not a finite number" : String(Number(item.priority.toPrecision(7))),
      "Times sampled": number(item.times_sampled, 0), Inserted: time(item.inserted_at), Size: bytes(item.bytes), Columns: number(item.columns.length, 0),
    };
    list.replaceChildren(...Object.entries(facts).map(([name, value]) => fact(name, null, value).node));
  }

  move(event) {
    const at = this.rows.findIndex(({ button }) => button === event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.rows.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    if (to >= 0 && to < this.rows.length) this.open(to, true);
  }

  /** @param {TableDocument} table */
  update(table) {
    this.table = table;
    this.tick();
    // A list that was empty, or that could not be read, is read again.
    if (this.isPoor && this.shownKey === null && table.items > 0) this.load();
  }

  tick() {
    const now = Date.now() / 1000 + this.clockAhead;
    for (const { item, age } of this.rows) setText(age, duration(Math.max(0, Math.round(now - item.inserted_at))).replace(".0 s", " s"));
    const more = this.table.inserts - this.insertsAtLoad;
    setText(this.news, more > 0 ? `${plural(more, "insert")} since this list` : "");
  }

  setClock(date) {
    const ahead = date ? (Date.parse(date) - Date.now()) / 1000 : 0;
    this.clockAhead = Math.abs(ahead) > SAME_CLOCK_SECONDS ? ahead : 0;
  }

  say(strong, text = "") {
    this.state.hidden = false;
    this.state.replaceChildren(el("strong", null, strong), text);
  }

  /** @param {string | null} key */
  showNone(key) {
    if (key === null) this.fail("No items", "The table is empty.");
    else this.fail("No such item", `No item has the key ${key}. It may have left the table.`);
  }

  fail(strong, text) {
    this.clear();
    this.isPoor = true;
    this.say(strong, text);
  }

  clear() {
    this.opened?.columns.unmount();
    this.opened = null;
    this.rows = [];
    this.body.replaceChildren();
    this.list.hidden = true;
    this.detail.hidden = true;
  }

  unmount() {
    this.request++;
    this.clear();
  }
}
