// Pages of what is too long to be shown at once.

import { el, number, setText } from "./core.js";

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
  };
  const button = (label, text, move) => el("button", { class: "small", "aria-label": `${label} ${things}`, on: { click: () => (turn(from + move), show(from)) } }, text);
  const back = button("Previous", "←", -size);
  const on = button("Next", "→", size);
  turn(0);
  return el("div", { class: "pager" }, back, on, where);
}
