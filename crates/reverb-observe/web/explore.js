// Plots whose values are read with the pointer or the arrow keys.

import { el, setAttrs, setText } from "./core.js";

/**
 * @typedef {object} Places What a plot has to tell. It is read anew each time, so that it may change.
 * @property {number} count Number of places.
 * @property {string} label What the plot shows.
 * @property {(i: number) => string} text What is at a place.
 * @property {(i: number) => void} show Marks a place; -1 marks nothing.
 * @property {(share: number) => number} [placeAt] The place at a share of the width; by default they are of equal width.
 */

const NOTHING = "\u00a0";

/** Makes a plot readable: `node` becomes a slider over its places. Returns the element in which the text appears. @param {HTMLElement} node @param {Places} places */
export function explorable(node, places) {
  const { readout, refresh } = exploring(node, places, 0);
  refresh((at) => at);
  return readout;
}

/**
 * The same for a plot that changes: `refresh(moved)` writes what is there now. `moved(i, isMarked)` is the place that `i` has got,
 * and whether it is marked.
 * @param {HTMLElement} node @param {Places} places
 */
export function exploring(node, places, at = Number.MAX_SAFE_INTEGER) {
  const readout = el("p", { class: "readout end", "aria-hidden": "true" }, NOTHING);
  let isMarked = false;
  const write = () => {
    setText(readout, isMarked ? places.text(at) : NOTHING);
    setAttrs(node, {
      "aria-label": places.label, "aria-valuemax": places.count - 1, "aria-valuenow": at, "aria-valuetext": places.text(at),
    });
    places.show(isMarked ? at : -1);
  };
  const mark = (/** @type {number} */ i) => {
    isMarked = i >= 0 && places.count > 0;
    if (isMarked) at = clamp(i, places.count);
    write();
  };
  const refresh = (/** @type {(at: number, isMarked: boolean) => number} */ moved) => {
    node.hidden = places.count === 0;
    if (node.hidden) return;
    at = clamp(moved(at, isMarked), places.count);
    write();
  };
  const placeAt = (/** @type {number} */ share) => places.placeAt?.(share) ?? Math.floor(share * places.count);
  setAttrs(node, {
    role: "slider", tabindex: 0, "aria-label": places.label, "aria-valuemin": 0, "aria-valuenow": 0, hidden: places.count === 0,
    on: {
      pointermove: (event) => {
        const box = node.getBoundingClientRect();
        mark(Math.max(0, placeAt((event.clientX - box.left) / box.width)));
      },
      pointerleave: () => mark(-1),
      focus: () => node.matches(":focus-visible") && mark(at),
      blur: () => mark(-1),
      keydown: (event) => {
        const step = Math.max(1, Math.round(places.count / 20));
        const moves = {
          ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
          PageDown: at - step, PageUp: at + step, Home: 0, End: places.count - 1,
        };
        if (!(event.key in moves)) return;
        event.preventDefault();
        mark(Math.max(0, moves[event.key]));
      },
    },
  });
  return { readout, refresh };
}

const clamp = (/** @type {number} */ i, /** @type {number} */ count) => Math.max(0, Math.min(count - 1, i));
