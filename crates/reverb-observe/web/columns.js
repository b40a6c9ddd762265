// The columns of one item, each in the view that fits it. The bytes of a column are requested when it scrolls into view.

import { ApiError, bytes, el, fetchApi, number, onceInView, plural, reason, setText, userText } from "./core.js";
import { barsView, heatView, lineView, makeFollow, pictureView } from "./drawings.js";
import { numbersView, scalarView, textView, tokensView } from "./texts.js";
import { decode, sizeOf, viewsOf } from "./values.js";

// The server sends no more of a column.
const MOST_BYTES = 16 * 2 ** 20;
const COLUMNS_A_STEP = 60;
// Of the largest column through a slow tunnel.
const READ_MILLISECONDS = 120_000;

const DRAW = {
  picture: (view, data, column) => pictureView(data, view, column.name),
  line: (view, data, column, follow) => lineView(data, view, column.name, follow),
  bars: (_, data, column) => barsView(data, column.name),
  heat: (view, data, column) => heatView(data, view.rows, view.columns, column.name),
  text: (_, data, column) => textView(data, column.shape),
  tokens: (_, data) => tokensView(data),
  scalar: (_, data) => scalarView(data),
  numbers: (_, data, column) => numbersView(data, column.shape),
};

/**
 * Shows the columns of an item of `/items`. `listed` are the items beside which it stands: of a column whose length is open,
 * their lengths are shown, too.
 * @param {TableDocument} table @param {ItemDocument} item @param {ItemDocument[]} listed
 */
export function columnsView(table, item, listed) {
  const turns = makeTurns();
  const follow = makeFollow();
  const panels = new Map();
  const watch = onceInView("300px", (panel) => panels.get(panel).load());
  const list = el("div", { class: "columns" });
  const more = el("button", { on: { click: () => add() } });
  const node = el("div", null, list, more);
  const add = () => {
    const from = panels.size;
    for (const column of item.columns.slice(from, from + COLUMNS_A_STEP)) {
      const panel = columnPanel(table, item, column, lengthsView(table, item, column, listed), turns, follow);
      panels.set(panel.node, panel);
      list.append(panel.node);
      watch.observe(panel.node);
    }
    const rest = item.columns.length - panels.size;
    setText(more, `Show more of ${number(item.columns.length, 0)} columns`);
    more.hidden = rest === 0;
  };
  add();
  const unmount = () => {
    watch.disconnect();
    turns.end();
    for (const panel of panels.values()) panel.unmount();
  };
  return { node, unmount };
}

/** @param {TableDocument} table @param {ItemDocument} item @param {ItemColumnDocument} column */
function columnPanel(table, item, column, lengths, turns, follow) {
  let shown = null;
  const count = column.shape.reduce((product, length) => product * length, 1);
  const size = sizeOf(column.dtype) === undefined ? null : count * sizeOf(column.dtype);
  const title = userText(column.name || "value", "h4");
  const choice = el("div", { class: "choice end", role: "group", "aria-label": "View of the column" });
  const body = el("div", { class: "column-body" }, el("p", { class: "small muted" }, "Loading…"));
  const kind = [column.dtype, column.shape.join(" × "), size === null ? "" : bytes(size)].filter(Boolean).join(", ");
  const node = el("section", { class: "column", "data-column": column.number },
    el("header", { class: "wrap" }, title, el("span", { class: "small muted" }, kind), choice), lengths, body);

  const state = (strong, text, again) =>
    body.replaceChildren(el("div", { class: "state" }, el("strong", null, strong), el("p", null, text),
      again && el("button", { on: { click: load } }, "Try again")));

  const open = (views, at, data) => {
    shown?.unmount?.();
    for (const [i, button] of [...choice.children].entries()) button.setAttribute("aria-pressed", String(i === at));
    shown = DRAW[views[at].kind](views[at], data, { ...column, name: title.textContent }, follow);
    node.dataset.view = views[at].kind;
    body.replaceChildren(shown.node);
  };

  async function load() {
    if (count === 0) return state("No values", `The column has the shape ${column.shape.join(" × ")}.`);
    if (size !== null && size > MOST_BYTES) return state("Too large to show", `The column has ${bytes(size)}; at most ${bytes(MOST_BYTES)} of one are shown.`);
    try {
      const data = decode(column.dtype, await turns.take(() => read(table, item, column)));
      if (column.dtype !== "string" && data.length !== count) throw new Error(`expected ${count} values, got ${data.length}`);
      const views = viewsOf(column, seriesAxes(table, column), data);
      choice.replaceChildren(...(views.length < 2 ? [] : views.map((view, i) => el("button", { on: { click: () => open(views, i, data) } }, view.label))));
      open(views, 0, data);
    } catch (error) {
      if (error instanceof Ended) return;
      if (error instanceof ApiError && error.status === 404) state("The item is gone", "It left the table after the list was read.");
      else if (error instanceof ApiError && error.status === 413) state("Too large to show", reason(error));
      else state("The column cannot be read", reason(error), true);
    }
  }
  return { node, load, unmount: () => shown?.unmount?.() };
}

/** @param {TableDocument} table @param {ItemDocument} item @param {ItemColumnDocument} column */
async function read(table, item, column) {
  const answer = await fetchApi(`tables/${table.number}/items/${item.key}/columns/${column.number}?raw`, READ_MILLISECONDS);
  return column.dtype === "string" ? answer.json() : answer.arrayBuffer();
}

/** The axis of a column whose length the signature leaves open, as that of a `Ragged`; -1 if none is. @param {TableDocument} table @param {ItemColumnDocument} column */
export function openAxis({ signature }, { number, shape, steps }) {
  const spec = signature?.find((one) => one.number === number)?.shape;
  // The signature of single steps lacks the axis of steps.
  const isOfSteps = spec && steps !== null && spec.length + 1 === shape.length;
  return spec?.[0] === null ? (isOfSteps ? 1 : 0) : -1;
}

/** The axes of a column along which something goes on, and what their places are. @returns {Record<number, string>} */
function seriesAxes(table, column) {
  const open = openAxis(table, column);
  /** @type {Record<number, string>} */
  const axes = open < 0 ? {} : { [open]: "rows" };
  if (column.steps !== null) axes[0] = "steps";
  return axes;
}

/** The lengths that the listed items have in a column of open length, the opened one marked; `false` for other columns. @param {TableDocument} table @param {ItemDocument} item @param {ItemColumnDocument} column @param {ItemDocument[]} listed */
function lengthsView(table, item, column, listed) {
  const open = openAxis(table, column);
  if (open < 0) return false;
  const unit = open === 0 && column.steps !== null ? "step" : "row";
  const lengths = listed.map(({ columns }) => columns[column.number]?.shape[open] ?? 0);
  const text = (/** @type {number} */ i) => `item ${listed[i].key}: ${plural(lengths[i], unit)}`;
  const data = {
    length: lengths.length, number: (/** @type {number} */ i) => lengths[i], text,
    range: () => ({ low: Math.min(...lengths), high: Math.max(...lengths), lost: 0 }),
  };
  const here = `Ragged: ${plural(column.shape[open], unit)}`;
  if (listed.length < 2) return el("p", { class: "small muted" }, here);
  const { low, high } = data.range();
  const others = low === high ? plural(low, unit) : `${number(low, 0)} to ${plural(high, unit)}`;
  const words = `${here} here, ${others} in the ${plural(listed.length, "listed item")}`;
  const marked = listed.findIndex(({ key }) => key === item.key);
  return el("div", { class: "lengths" }, barsView(data, `Lengths of ${column.name}`, { words, text, marked }).node);
}

class Ended extends Error {}

/** Runs one request after the other, so that the page's own are not held up, and none after `end`. */
function makeTurns() {
  let last = Promise.resolve();
  let isOver = false;
  const next = async (work) => {
    if (isOver) throw new Ended();
    return work();
  };
  return {
    take(work) {
      last = last.catch(() => {}).then(() => next(work));
      return last;
    },
    end() {
      isOver = true;
    },
  };
}
