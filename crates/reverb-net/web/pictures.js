// Pictures and film strips of a column, on canvases: one pixel for each element.

import { el, setText } from "./core.js";
import { pager } from "./texts.js";
import { frameOffset } from "./views.js";

const FRAMES_A_PAGE = 64;
const ONE_PIXELS = 256;
const STRIP_PIXELS = 128;
// Pictures of small whole numbers, such as kinds of cells, would be black.
const DARK = 32;

/** Draws a column by a layout of `views.js`. Frames are drawn when they come into view. */
export function pictureView(data, layout, name) {
  const count = layout.frames.reduce((product, [length]) => product * length, 1);
  const scale = data.dtype === "uint8" ? 1 : 255;
  const range = data.range();
  let stretch = range && range.high > 0 && range.high * scale < DARK ? 255 / range.high : scale;
  const isDark = stretch !== scale;
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watch.unobserve(target);
      paint(target, data, layout, stretch);
    }
  }, { rootMargin: "200px" });
  const list = el("ol", { class: "frames" });
  const draw = (from) => {
    watch.disconnect();
    const shown = Math.min(FRAMES_A_PAGE, count - from);
    list.replaceChildren(...Array.from({ length: shown }, (_, i) => frame(from + i)));
    for (const canvas of list.querySelectorAll("canvas")) watch.observe(canvas);
  };
  const frame = (i) => {
    const [height, width] = [layout.y[0], layout.x[0]];
    const zoom = Math.max(1, Math.floor((count > 1 ? STRIP_PIXELS : ONE_PIXELS) / Math.max(height, width)));
    const title = `${name}, ${count > 1 ? `frame ${i + 1} of ${count}, ` : ""}${width} × ${height} pixels`;
    const canvas = el("canvas", { width, height, role: "img", "aria-label": title, "data-frame": i, style: { width: `${width * zoom}px` } });
    return el("li", null, canvas, count > 1 && el("span", { class: "small muted", "aria-hidden": "true" }, placeOf(layout.frames, i)));
  };
  const again = isDark && el("button", {
    class: "small", "aria-pressed": "true",
    on: {
      click: () => {
        stretch = stretch === scale ? 255 / range.high : scale;
        again.setAttribute("aria-pressed", String(stretch !== scale));
        setText(again, stretch === scale ? "Stretch contrast" : "Contrast stretched");
        for (const canvas of list.querySelectorAll("canvas")) paint(canvas, data, layout, stretch);
      },
    },
  }, "Contrast stretched");
  const node = el("div", null, again, pager(count, FRAMES_A_PAGE, "frames", draw),
    el("div", count > 1 ? { class: "film", tabindex: 0, role: "region", "aria-label": `${name}, frames` } : null, list));
  draw(0);
  return { node, unmount: () => watch.disconnect() };
}

/** The place of a frame on the axes that count frames: `5`, or `2 · 5`. */
function placeOf(frames, i) {
  const places = [];
  for (const [length] of [...frames].reverse()) {
    if (length > 1) places.unshift(i % length);
    i = Math.floor(i / length);
  }
  return places.join(" · ");
}

function paint(canvas, data, { frames, y, x, c }, stretch) {
  const from = frameOffset(frames, Number(canvas.dataset.frame));
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(x[0], y[0]);
  for (let row = 0, to = 0; row < y[0]; row++) {
    for (let column = 0; column < x[0]; column++, to += 4) {
      const place = from + row * y[1] + column * x[1];
      for (let channel = 0; channel < 3; channel++) {
        pixels.data[to + channel] = data.number(c[0] === 1 ? place : place + channel * c[1]) * stretch;
      }
      pixels.data[to + 3] = c[0] === 4 ? data.number(place + 3 * c[1]) * stretch : 255;
    }
  }
  context.putImageData(pixels, 0, 0);
}
