// What charts share: a plot whose values are read with the pointer or the arrow keys.

import { el, setAttrs, setText } from "./core.js";

/**
 * Makes a plot readable: `node` becomes a slider over `count` places. `text(i)` says what is there, and `show(i)` marks it;
 * -1 marks nothing. Returns the element in which the text appears.
 */
export function explorable(node, { count, label, text, show }) {
  const readout = el("p", { class: "readout", "aria-hidden": "true" }, "\u00a0");
  let at = 0;
  const mark = (i) => {
    if (i >= 0) at = i;
    setText(readout, i < 0 ? "\u00a0" : text(i));
    setAttrs(node, { "aria-valuenow": at, "aria-valuetext": text(at) });
    show(i);
  };
  setAttrs(node, {
    role: "slider",
    tabindex: 0,
    "aria-label": label,
    "aria-valuemin": 0,
    "aria-valuemax": count - 1,
    "aria-valuenow": 0,
    "aria-valuetext": text(0),
    on: {
      pointermove: (event) => {
        const box = node.getBoundingClientRect();
        mark(clamp(Math.floor(((event.clientX - box.left) / box.width) * count), count));
      },
      pointerleave: () => mark(-1),
      focus: () => node.matches(":focus-visible") && mark(at),
      blur: () => mark(-1),
      keydown: (event) => {
        const step = Math.max(1, Math.round(count / 20));
        const places = {
          ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
          PageDown: at - step, PageUp: at + step, Home: 0, End: count - 1,
        };
        if (!(event.key in places)) return;
        event.preventDefault();
        mark(clamp(places[event.key], count));
      },
    },
  });
  return readout;
}

const clamp = (i, count) => Math.min(count - 1, Math.max(0, i));

/** A path through points, with coordinates in tenths. */
export function path(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${round(x)} ${round(y)}`).join("");
}

export const round = (value) => Math.round(value * 10) / 10;
