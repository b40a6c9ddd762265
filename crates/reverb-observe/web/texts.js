// Text, tokens, single values and plain numbers of a column, by pages.

import { el, number, plural, setText, visible } from "./core.js";
import { placesOn } from "./values.js";

const TEXTS_A_PAGE = 50;
const CHARACTERS = 4000;
const TOKENS_A_PAGE = 2000;
const NUMBERS_A_PAGE = 400;
const NUMBERS_A_ROW = 8;

/** The strings of a column. Line ends and tabs stay; other characters that cannot be seen are shown as code points. */
export function textView(data, shape) {
  return paged(data.length, TEXTS_A_PAGE, "texts", (from, to) =>
    el("ol", { class: "rows" }, range(from, to, (i) =>
      el("li", null, data.length > 1 && el("span", { class: "small muted" }, indexOf(shape, i)), textBlock(data.text(i))))));
}

function textBlock(text) {
  const block = el("div", { class: "text mono", dir: "auto" });
  const show = (count) => {
    const parts = text.slice(0, count).split(/([\n\t]+)/).map((part, i) => (i % 2 ? part : visible(part)));
    const more = text.length > count && el("button", { class: "small", on: { click: () => show(count * 10) } }, `Show more of ${plural(text.length, "character")}`);
    block.replaceChildren(parts.join(""), ...(more ? ["… ", more] : []));
    if (text === "") block.replaceChildren(el("span", { class: "muted" }, "empty text"));
  };
  show(CHARACTERS);
  return block;
}

/** Token ids as running text. */
export function tokensView(data) {
  return paged(data.length, TOKENS_A_PAGE, "tokens", (from, to) =>
    el("div", { class: "text mono" }, range(from, to, (i) => data.text(i)).join(" ")));
}

/** A single value. */
export function scalarView(data) {
  return { node: el("p", { class: "value mono" }, data.text(0)) };
}

/** All numbers of a column, exactly. */
export function numbersView(data, shape) {
  const width = Math.min(NUMBERS_A_ROW, shape.at(-1) ?? 1);
  return paged(data.length, NUMBERS_A_PAGE, "numbers", (from, to) => {
    const rows = range(0, Math.ceil((to - from) / width), (row) => {
      const start = from + row * width;
      return el("tr", null, el("th", { class: "muted", scope: "row" }, indexOf(shape, start)),
        range(start, Math.min(to, start + width), (i) => el("td", null, data.text(i))));
    });
    return el("div", { class: "scroll numbers mono", tabindex: 0, role: "group", "aria-label": "Numbers" },
      el("table", null, el("tbody", null, rows)));
  });
}

function paged(count, size, things, draw) {
  const body = el("div");
  const show = (from) => body.replaceChildren(draw(from, Math.min(count, from + size)));
  show(0);
  return { node: el("div", null, pager(count, size, things, show), body) };
}

const range = (from, to, make) => Array.from({ length: Math.max(0, to - from) }, (_, i) => make(from + i));

/** The index of an element on all axes: `[2, 0]`. */
function indexOf(shape, i) {
  return `[${placesOn(shape, i).join(", ")}]`;
}

/** Buttons that turn pages; null if there is one page only. `show(from)` shows the page that begins there. */
export function pager(count, size, things, show) {
  if (count <= size) return null;
  let from = 0;
  const where = el("span", { class: "small muted", role: "status" });
  const turn = (to) => {
    from = to;
    setText(where, `${number(from, 0)} to ${number(Math.min(count, from + size) - 1, 0)} of ${number(count, 0)} ${things}`);
    back.disabled = from === 0;
    on.disabled = from + size >= count;
    return from;
  };
  const button = (label, text, move) => el("button", { class: "small", "aria-label": `${label} ${things}`, on: { click: () => show(turn(from + move)) } }, text);
  const back = button("Previous", "←", -size);
  const on = button("Next", "→", size);
  turn(0);
  return el("div", { class: "pager row baseline" }, back, on, where);
}
