// The page: its header, the overview, the detail of a table, and what is shown when the server does not answer.


import { sparkline } from "./charts.js";
import {
  ZONE,
  byteRate,
  bytes,
  duration,
  el,
  fact,
  inZone,
  number,
  rate,
  setAttrs,
  setQuantity,
  setText,
  setUserText,
  store,
  svg,
  time,
} from "./core.js";
import { detailView } from "./detail.js";
import { Live } from "./live.js";
import { clientsPanel, memoryPanel, waitsPanel } from "./panels.js";
import { checkpointsPanel, logPanel, progressView } from "./storage.js";
import { tablesView } from "./tables.js";

const live = new Live();
const main = part("#main");
const header = headerView(part("#header"));
const notices = noticesView(part("#notices"));
/** @type {ReturnType<typeof overview> | ReturnType<typeof detailView> | undefined} */
let view;

/** An element of `index.html`. @param {string} selector */
function part(selector) {
  const found = document.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return found;
}

/** @param {HTMLElement} node */
function headerView(node) {
  const state = el("span", { class: "state-word row" });
  const version = el("span", { class: "muted" });
  const address = el("bdi", { class: "mono user" });
  const [host, up, memory, connections] = ["Host", "Up", "Memory", "Connections"].map((label) => fact(label));
  node.append(
    el(
      "a",
      { class: "brand row", href: "#/", "aria-label": "Reverb, overview" },
      mark(),
      el("span", {}, "Reverb"),
      version,
    ),
    el("div", { class: "where row" }, state, address),
    el("dl", { class: "server-facts wrap end" }, host.node, up.node, memory.node, connections.node),
    themeButton(),
  );
  /** @param {Live} live */
  const update = ({ server, goneSince, checkpoints }) => {
    const word = goneSince === undefined ? (server?.state ?? "connecting") : "disconnected";
    const unsaved = word === "serving" && Boolean(checkpoints?.last_error);
    setText(state, word[0].toUpperCase() + word.slice(1) + (unsaved ? ", saves fail" : ""));
    setAttrs(state, { class: `state-word row ${unsaved ? "unsaved" : word}` });
    if (!server) return;
    setText(version, server.version);
    const [first = `pid ${server.pid}`] = server.addresses;
    setUserText(address, first);
    setAttrs(address, { title: server.addresses.join("\n") });
    setUserText(host.value, server.hostname ? `${server.hostname}:${server.pid}` : `pid ${server.pid}`);
    setQuantity(up.value, duration(server.now - server.started_at));
    setAttrs(up.value, { title: `since ${time(server.started_at)}, ${ZONE}` });
    setQuantity(memory.value, bytes(server.resident_bytes));
    setText(connections.value, number(server.connections, 0));
  };
  return { update };
}

/** The mark: an impulse and its echoes. */
function mark() {
  const bars = [14, 9, 6, 3].map((height, index) =>
    svg("rect", { x: index * 4.5, y: 8 - height / 2, width: 2.5, height, rx: 1.25 }),
  );
  return svg("svg", { viewBox: "0 0 17 16", width: 17, height: 16, "aria-hidden": "true", class: "mark" }, bars);
}

function themeButton() {
  const root = document.documentElement;
  const names = { auto: "System", light: "Light", dark: "Dark" };
  const next = { auto: "light", light: "dark", dark: "auto" };
  const name = el("span");
  const node = el("button", { type: "button", class: "quiet theme row" }, themeIcon(), name);
  const show = () => {
    const theme = root.dataset.theme ?? "auto";
    setText(name, names[theme]);
    setAttrs(node, { "aria-label": `Theme: ${names[theme]}. Change to ${names[next[theme]]}`, title: "Theme" });
  };
  node.addEventListener("click", () => {
    const theme = next[root.dataset.theme ?? "auto"];
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    store("reverb-theme", theme);
    show();
  });
  show();
  return node;
}

function themeIcon() {
  const circle = svg("circle", { cx: 7, cy: 7, r: 5.5, fill: "none", stroke: "currentColor", "stroke-width": 1.5 });
  const half = svg("path", { d: "M7 1.5A5.5 5.5 0 0 1 7 12.5Z", fill: "currentColor" });
  return svg("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, circle, half);
}

/** What is above the content: a lost server, a refused request, saves that fail, a checkpoint that loads. */
/** @param {HTMLElement} node */
function noticesView(node) {
  // The words that change once are announced; the seconds that tick are not.
  const words = el("span", { role: "status" });
  const ticking = el("span", { class: "end", "aria-hidden": "true" });
  const gone = el("div", { class: "notice wrap gone" }, words, ticking);
  const refused = el("div", { class: "notice wrap" });
  const unsaved = el("div", { class: "notice wrap", role: "status" });
  const progress = progressView("Loading a checkpoint");
  const loading = el(
    "div",
    { class: "panel load-panel" },
    progress.node,
    el("p", { class: "muted" }, "Clients can connect as soon as it is loaded."),
  );
  node.append(gone, refused, unsaved, loading);
  /** @param {Live} live */
  const update = ({ server, goneSince, errors, checkpoints }) => {
    const lost = goneSince !== undefined;
    document.body.classList.toggle("lost", lost);
    setText(
      words,
      lost ? `The server has not answered since ${time(goneSince / 1000)}. The page reconnects by itself.` : "",
    );
    setText(ticking, lost ? duration((Date.now() - goneSince) / 1000) : "");
    const [name, error] = lost ? [] : (Object.entries(errors)[0] ?? []);
    refused.hidden = !error;
    if (error)
      setUserText(
        refused,
        `The server refused the request for “${name}”${error.status ? ` (${error.status})` : ""}: ${error.message}`,
      );
    const saves = lost ? undefined : checkpoints;
    unsaved.hidden = !saves?.last_error;
    if (saves?.last_error) {
      const kept = saves.checkpoints.length > 0 ? "what is newer than the latest checkpoint" : "everything";
      setUserText(unsaved, `The latest save failed: ${inZone(saves.last_error)}. A restart would lose ${kept}.`);
    }
    const load = !lost && server?.state === "loading" ? server.loading : null;
    loading.hidden = !load;
    if (server && load) progress.update(load, server.now);
  };
  return { update };
}

function overview() {
  const heading = el("h1", { class: "hidden", tabindex: "-1" }, "Overview");
  const all = tiles();
  const tables = tablesView();
  const panels = [waitsPanel(), clientsPanel(), memoryPanel(), checkpointsPanel(), logPanel()];
  const welcome = welcomeView();
  const node = el(
    "div",
    { class: "view grid" },
    heading,
    all.node,
    welcome.node,
    tables.node,
    el("div", { class: "panels grid" }, panels.map((panel) => panel.node)),
  );
  /** @param {Live} state */
  const update = (state) => {
    for (const view of [all, welcome, tables, ...panels]) view.update(state);
  };
  return { node, heading, update, unmount() {}, name: () => "" };
}

/** Says how to begin, as long as nothing was ever inserted. */
function welcomeView() {
  const code = el("code");
  const node = el(
    "section",
    { class: "panel welcome grid", "aria-labelledby": "welcome" },
    el("div", {}, el("h2", { id: "welcome" }, "Waiting for the first insert"),
      el("p", { class: "muted" }, "An actor connects and inserts like this:")),
    el("pre", { tabindex: "0", role: "group", "aria-label": "Example" }, code),
  );
  /** @param {Live} live */
  const update = ({ server, tables }) => {
    node.hidden = server?.state !== "serving" || !tables?.length || tables.some(({ inserts }) => inserts > 0);
    if (node.hidden || !server || !tables) return;
    const address = server.addresses[0] ?? "localhost:8000";
    const name = JSON.stringify(tables[0].name.length > 40 ? "…" : tables[0].name);
    setText(
      code,
      `client = reverb.Client("${address}")\nclient.insert([observation, action, reward], priorities={${name}: 1.0})`,
    );
  };
  return { node, update };
}

/** What flows: label, words, format of a rate, totals. @type {[string, string, (rate: number | undefined) => string, (live: Live) => number[]][]} */
const FLOWS = [
  ["Inserts", "Inserts", rate, (live) => live.sum("inserts")],
  ["Samples", "Samples", rate, (live) => live.sum("samples")],
  ["Received", "Bytes received", byteRate, (live) => live.history.receive_bytes],
  ["Sent", "Bytes sent", byteRate, (live) => live.history.transmit_bytes],
];

function tiles() {
  // Only the first tables have a history, so only their rates are known.
  const firstTables = el("p", { class: "small muted" });
  const tile = (label, options = {}) => {
    const { node, value } = fact(label, { class: "big tile-value nowrap" });
    const spark = sparkline({ area: true, seconds: 120, ...options });
    setAttrs(node, { class: "panel tile" });
    node.append(el("dd", { class: "tile-spark" }, spark.node));
    return { value, spark, node };
  };
  const items = tile("Items", { seconds: 300 });
  const flows = FLOWS.map(([label]) => tile(label));
  const all = [items, ...flows].map((one) => one.node);
  const node = el("section", { "aria-label": "Whole server" }, el("dl", { class: "tiles grid" }, all), firstTables);
  /** @param {Live} state */
  const update = (state) => {
    const { history, tables } = state;
    if (!tables) return;
    const known = history.tables.size;
    setText(firstTables, known < tables.length && known > 0 ? `Inserts and samples of the first ${known} tables.` : "");
    const total = tables.reduce((sum, table) => sum + table.items, 0);
    setText(items.value, number(total, 0));
    items.spark.update(
      state.values(state.sum("items"), 300),
      `Items in the last five minutes, now ${number(total, 0)}`,
    );
    for (const [index, [, what, format, totalsOf]] of FLOWS.entries()) {
      const totals = totalsOf(state);
      const now = format(state.rate(totals));
      setQuantity(flows[index].value, now);
      flows[index].spark.update(state.rates(totals, 120), `${what} per second in the last two minutes, now ${now}`);
    }
  };
  return { node, update };
}

function show() {
  const table = /^#\/tables\/(\d+)$/.exec(location.hash);
  const first = view === undefined;
  view?.unmount();
  view = table ? detailView(Number(table[1])) : overview();
  main.replaceChildren(view.node);
  update();
  if (!first) {
    scrollTo(0, 0);
    view.heading.focus({ preventScroll: true });
  }
}

function update() {
  header.update(live);
  notices.update(live);
  document.body.classList.toggle("ready", live.server !== undefined);
  view?.update(live);
  const where = live.server?.addresses[0] ?? location.host;
  const parts = [view?.name(), where, "Reverb"].filter(Boolean);
  const title = parts.join(" · ");
  if (document.title !== title) document.title = title;
}

part(".skip").addEventListener("click", (event) => {
  // The fragment names the view, so the link must not change it.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
live.listen(update);
show();
live.start();
