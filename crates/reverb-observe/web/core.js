// What every module of the page uses: requests, elements, and numbers for people.
//
// Text of users (names, messages) reaches the page as text nodes and attributes only, never as markup.

/** @typedef {Record<string, any>} Attrs */
/** @typedef {Node | string | number | boolean | null | undefined} One */
/** @typedef {One | (One | One[])[]} Child */

import { presented } from "./session.js";

const SVG = "http://www.w3.org/2000/svg";
const REQUEST_MILLISECONDS = 8000;

/** A refused or failed request. `status` is 0 if no answer arrived. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/**
 * Requests a path such as `tables` below `api/v1/`, and returns the response. Throws ApiError, also if it takes longer.
 * @param {string} path
 */
export async function fetchApi(path, milliseconds = REQUEST_MILLISECONDS) {
  const url = new URL(`api/v1/${path.replace(/^\/?(api\/v1\/)?/, "")}`, document.baseURI);
  let response;
  try {
    response = await fetch(url, { ...presented(), cache: "no-store", signal: AbortSignal.timeout(milliseconds) });
  } catch (error) {
    throw new ApiError(0, `the server does not answer: ${reasonOf(error)}`);
  }
  if (!response.ok) {
    const text = (await response.text().catch(() => "")).trim().slice(0, 400);
    throw new ApiError(response.status, text || response.statusText || `HTTP status ${response.status}`);
  }
  return response;
}

/** Requests a document below `api/v1/`. Throws ApiError. @param {string} path @returns {Promise<any>} */
export async function api(path) {
  const response = await fetchApi(path);
  try {
    return await response.json();
  } catch (error) {
    throw new ApiError(0, `the answer to ${path} is not JSON: ${reasonOf(error)}`);
  }
}

/** The sentence of a failed request. The API sends it as `{"error": …}`. */
export function reason(/** @type {any} */ error) {
  try {
    return JSON.parse(error.message).error ?? error.message;
  } catch {
    return error.message;
  }
}

const reasonOf = (/** @type {unknown} */ error) => (error instanceof Error ? error.message : String(error));

/**
 * Makes an HTML element. `attrs`: `class`, `title`, `aria-label`…; `on: {click: f}` adds listeners, `style: {…}` sets
 * properties, `true` sets an empty attribute, and `false`, `null` and `undefined` none. Children are nodes or text.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attrs | null} [attrs]
 * @param {Child[]} children
 */
export function el(tag, attrs, ...children) {
  return build(document.createElement(tag), attrs, children);
}

/**
 * Makes an SVG element, like `el`.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attrs | null} [attrs]
 * @param {Child[]} children
 */
export function svg(tag, attrs, ...children) {
  return build(document.createElementNS(SVG, tag), attrs, children);
}

/** A value below its label, in a list of facts. @param {string} label @param {Attrs | null} [attrs] @param {Child[]} children */
export function fact(label, attrs, ...children) {
  const value = el("dd", attrs, ...children);
  return { value, node: el("div", null, el("dt", { class: "label small muted" }, label), value) };
}

/** The name of a table, which leads to its details. `update(number, name)`. */
export function tableLink() {
  const text = el("bdi", { class: "user" });
  const node = el("a", { class: "table-name" }, text);
  const update = (/** @type {number} */ number, /** @type {string} */ name) => {
    setUserText(text, name);
    setAttrs(node, { href: `#/tables/${number}` });
  };
  return { node, update };
}

/** What the browser has stored for the page; `null` if it has nothing, or may store nothing. @param {string} key */
export function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Stores a choice for later visits. Where storage is forbidden, it lasts as long as the page. @param {string} key @param {string} value */
export function store(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It lasts as long as the page.
  }
}

/** Copies text to the clipboard. Returns whether the browser allowed it. @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP from another machine there is no clipboard, but the older command still works.
    const field = el("textarea", { class: "hidden", "aria-hidden": "true" }, text);
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}

/** Calls `draw` once for each element that is observed, when it is about to come into view. @param {string} rootMargin @param {(node: any) => void} draw */
export function onceInView(rootMargin, draw) {
  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      watch.unobserve(target);
      draw(target);
    }
  }, { rootMargin });
  return watch;
}

/** The head of a table. @param {string[]} names @param {(column: number) => string | false} [classOf] */
export function tableHead(names, classOf = () => false) {
  return el("thead", null, el("tr", null, names.map((name, i) => el("th", { scope: "col", class: classOf(i) }, name))));
}

/** @template {Element} Made @param {Made} node @param {Attrs | null | undefined} attrs @param {Child[]} children */
function build(node, attrs, children) {
  setAttrs(node, attrs);
  for (const child of /** @type {One[]} */ (children.flat(2))) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(typeof child === "object" ? child : String(child));
    }
  }
  return node;
}

/**
 * Sets attributes as `el` does. Writes only what differs, so that the page's observers rest.
 * @param {any} node
 * @param {Attrs | null} [attrs]
 */
export function setAttrs(node, attrs) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    } else if (value === false || value === null || value === undefined) {
      node.removeAttribute(name);
    } else {
      const text = value === true ? "" : String(value);
      if (node.getAttribute(name) !== text) node.setAttribute(name, text);
    }
  }
}

/** Sets the text of an element, if it differs. @param {Element} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Sets a number and its unit, such as `3.1 GiB`, in two spans: the unit is quieter.
 * @param {HTMLElement} node
 * @param {string} text
 */
export function setQuantity(node, text) {
  if (node.dataset.quantity === text) return;
  node.dataset.quantity = text;
  const cut = text.lastIndexOf(" ");
  if (cut < 0) node.replaceChildren(text);
  else node.replaceChildren(text.slice(0, cut), el("span", { class: "unit" }, ` ${text.slice(cut + 1)}`));
}

/**
 * Makes the children of `parent` follow `values`: keeps the nodes of keys that stay, so that focus and selection stay.
 * `create(value)` returns `{node, update(value)}`.
 * @template Value
 * @template {{node: Element, update: (value: Value) => void}} View
 * @param {Element} parent
 * @param {Value[]} values
 * @param {(value: Value) => unknown} keyOf
 * @param {(value: Value) => View} create
 * @returns {View[]} The views in the order of the values.
 */
export function reconcile(parent, values, keyOf, create) {
  const old = reconciled.get(parent) ?? new Map();
  const kept = new Map();
  let place = parent.firstChild;
  for (const value of values) {
    const key = keyOf(value);
    const view = old.get(key) ?? create(value);
    kept.set(key, view);
    view.update(value);
    if (view.node === place) place = view.node.nextSibling;
    else parent.insertBefore(view.node, place);
  }
  for (const [key, view] of old) if (!kept.has(key)) view.node.remove();
  reconciled.set(parent, kept);
  return [...kept.values()];
}

/** What `reconcile` has put into an element. @type {WeakMap<Element, Map<unknown, any>>} */
const reconciled = new WeakMap();

/** Text of users in one line: isolated, so that marks of direction stay inside, cut by the layout, whole in `title`. */
export function userText(/** @type {string} */ text, /** @type {"bdi" | "h4"} */ tag = "bdi") {
  const node = el(tag, { class: "user" });
  setUserText(node, text);
  return node;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Sets text of users; what cannot be seen is shown as a code point. At most 300 characters are laid out. @param {Element} node @param {string} text */
export function setUserText(node, text) {
  const seen = visible(text);
  const short = seen.length > 300 ? `${seen.slice(0, 300)}…` : seen;
  setText(node, short);
  setAttrs(node, { title: seen.slice(0, 2000) });
}

/** Replaces control characters, marks of direction and characters without width by `\u{202e}` and the like. @param {string} text */
export function visible(text) {
  return String(text).replace(UNSEEN, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const formats = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits }));
const none = "–";

/** @typedef {number | null | undefined} Maybe */

/** A number: `1,234,567`, `0.25`. With `digits`, at most that many after the point. @param {Maybe} value */
export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return none;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size > 0 && (size < 10 ** -digits || size >= 1e15)) return value.toExponential(1).replace("-", "−");
  return (size >= 1000 ? whole : formats[Math.min(digits, 3)]).format(value).replace("-", "−");
}

/** A number in at most five characters: `1.23M`, `45.6k`, `987`. @param {Maybe} value @returns {string} */
export function compact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return number(value);
  const [size, unit] = scaled(Math.abs(value), ["", "k", "M", "G", "T", "P"], 1000, Number.isInteger(value) ? 0 : 1);
  return `${value < 0 ? "−" : ""}${size}${unit}`;
}

/**
 * A size in the first unit that needs at most three digits, or in the last, and that unit. `digits` are after the point.
 * @param {number} size @param {string[]} units @param {number} base @param {number} digits
 * @returns {[string, string]}
 */
function scaled(size, [unit, ...larger], base, digits) {
  const text = size.toFixed(size >= 99.95 ? 0 : digits);
  if (Number(text) < 1000 || larger.length === 0) return [text, unit];
  return scaled(size / base, larger, base, size / base >= 9.995 ? 1 : 2);
}

/** A size: `3.10 GiB`, `512 B`. @param {Maybe} value */
export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return none;
  return scaled(value, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024, 0).join(" ");
}

/** A rate: `1,234 /s`, `0.25 /s`, `12.3k /s`. @param {Maybe} value */
export function rate(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return none;
  return `${value > 0 && value < 10 ? number(value, value < 1 ? 2 : 1) : compact(Math.round(value))} /s`;
}

/** A rate of bytes: `1.20 MiB/s`. @param {Maybe} value */
export function byteRate(value) {
  const text = bytes(value);
  return text === none ? none : `${text}/s`;
}

/** How far a log is synced. @param {{ sync_age_seconds: number }} log */
export function synced({ sync_age_seconds: age }) {
  return age ? `unsynced for ${duration(age)}` : "all synced";
}

/** A time span: `12 ms`, `3.4 s`, `2 min 05 s`, `3 h 20 min`, `5 d 3 h`. @param {Maybe} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return none;
  const span = Math.max(0, seconds);
  if (span === 0) return "0 s";
  if (span < 0.001) return `${Math.ceil(span * 1e6)} µs`;
  if (span < 0.9995) return `${Math.round(span * 1000)} ms`;
  if (span < 9.95) return `${span.toFixed(1)} s`;
  const whole = Math.round(span);
  if (whole < 60) return `${whole} s`;
  const two = (count) => String(count).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A time in the viewer's zone, `14:03:12`; with the date if it is not today. `seconds` are since the Unix epoch. @param {Maybe} seconds */
export function time(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return none;
  const date = new Date(seconds * 1000);
  // Swedish is written as ISO 8601.
  if (date.toDateString() === new Date().toDateString()) return date.toLocaleTimeString("sv");
  return date.toLocaleString("sv");
}

const STAMP = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)/g;

/** Writes the times of a text, such as those in names of checkpoints, in the viewer's zone, as all others are. @param {string} text */
export function inZone(text) {
  return text.replace(STAMP, (stamp) => time(Date.parse(stamp.replace(/(\.\d{3})\d+/, "$1")) / 1000));
}

/** The name of the viewer's zone. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A button that copies a text; `what` says what that is. @param {string} what @param {() => string} text */
export function copyButton(what, text) {
  const words = `Copy ${what}`;
  const click = async () => {
    setText(node, (await copy(text())) ? "Copied" : "The browser refused");
    setTimeout(() => setText(node, words), 2000);
  };
  const node = el("button", { type: "button", class: "small", on: { click } }, words);
  return node;
}

/** A share: `12 %`, `0.4 %`. @param {Maybe} share */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return none;
  const value = share * 100;
  return `${value > 0 && value < 1 ? value.toFixed(1) : Math.floor(value)} %`;
}

/** Writes `1 item`, `2 items`. @param {number} count @param {string} one */
export function plural(count, one, many = `${one}s`) {
  return `${number(count, 0)} ${count === 1 ? one : many}`;
}
