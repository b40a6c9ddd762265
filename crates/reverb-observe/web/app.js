// The page: its header, the overview, the detail of a table, and what is shown when the server does not answer.


import { clientsPanel } from "./clients.js";
import {
  ZONE,
  duration,
  el,
  fact,
  number,
  rate,
  reason,
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
import { memoryPanel } from "./panels.js";
import { signInView } from "./signin.js";
import { checkpointsPanel, logPanel, progressView } from "./storage.js";
import { tablesView } from "./tables.js";
import { lineChart } from "./timeline.js";
import { verdictTitle, verdictView } from "./verdict.js";

const live = new Live();
const main = part("#main");
const header = headerView(part("#header"));
const notices = noticesView(part("#notices"));
/** @type {ReturnType<typeof overview> | ReturnType<typeof detailView> | ReturnType<typeof signInView> | undefined} */
let view;

/** An element of `index.html`. @param {string} selector */
function part(selector) {
  const found = document.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return found;
}

/** @param {HTMLElement} node */
function headerView(node) {
  const version = el("span", { class: "muted" });
  const address = el("bdi", { class: "mono user" });
  const [who, host, up] = ["Signed in", "Host", "Up"].map((label) => fact(label));
  node.append(
    el("a", { class: "brand row", href: "#/", "aria-label": "Reverb, overview" }, mark(), el("span", {}, "Reverb"), version),
    el("div", { class: "where row" }, address),
    el("dl", { class: "server-facts wrap end" }, who.node, host.node, up.node),
    themeButton(),
  );
  /** @param {Live} live */
  const update = ({ role, server }) => {
    who.node.hidden = !role?.token;
    if (role?.token) setUserText(who.value, `as ${role.token} (${role.role})`);
    if (!server) return;
    setText(version, server.version);
    const [first = `pid ${server.pid}`] = server.addresses;
    setUserText(address, first);
    setAttrs(address, { title: server.addresses.join("\n") });
    setUserText(host.value, server.hostname ? `${server.hostname}:${server.pid}` : `pid ${server.pid}`);
    setQuantity(up.value, duration(server.now - server.started_at));
    setAttrs(up.value, { title: `since ${time(server.started_at)}, ${ZONE}` });
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

/** What is above the content: the verdict, a refused request, a checkpoint that loads. @param {HTMLElement} node */
function noticesView(node) {
  const verdict = verdictView();
  const refused = el("div", { class: "notice wrap" });
  const progress = progressView("Loading a checkpoint");
  const loading = el(
    "div",
    { class: "panel load-panel" },
    progress.node,
    el("p", { class: "muted" }, "Clients can connect as soon as it is loaded."),
  );
  node.append(verdict.node, refused, loading);
  /** @param {Live} live */
  const update = (live) => {
    const { server, goneSince, errors } = live;
    const lost = goneSince !== undefined;
    document.body.classList.toggle("lost", lost);
    verdict.update(live);
    const [name, error] = lost ? [] : (Object.entries(errors)[0] ?? []);
    refused.hidden = !error;
    if (error)
      setUserText(
        refused,
        `The server refused the request for “${name}”${error.status ? ` (${error.status})` : ""}: ${reason(error)}`,
      );
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
  const clients = clientsPanel();
  const panels = [memoryPanel(), checkpointsPanel(), logPanel()];
  const welcome = welcomeView();
  const node = el(
    "div",
    { class: "view grid" },
    heading,
    welcome.node,
    el("div", { class: "first grid" }, all.node, clients.node, tables.node),
    el("div", { class: "panels grid" }, panels.map((panel) => panel.node)),
  );
  /** @param {Live} state */
  const update = (state) => {
    for (const view of [all, welcome, clients, tables, ...panels]) view.update(state);
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

/** The tiles: label, what its line is called, the number now, the line, its format. @type {[string, string, (live: Live) => string, (live: Live) => [number, number][], (value: number) => string][]} */
const TILES = [
  ["Items", "items", (live) => number((live.tables ?? []).reduce((sum, { items }) => sum + items, 0), 0), (live) => live.values(live.sum("items")), (value) => number(value, 0)],
  ["Inserts", "inserts", (live) => rate(live.rate(live.sum("inserts"))), (live) => live.rates(live.sum("inserts")), rate],
  ["Samples", "samples", (live) => rate(live.rate(live.sum("samples"))), (live) => live.rates(live.sum("samples")), rate],
];

function tiles() {
  // Only the first tables have a history, so only their rates are known.
  const firstTables = el("p", { class: "small muted" });
  const all = TILES.map(([label]) => {
    const { node, value } = fact(label, { class: "big tile-value nowrap" });
    const chart = lineChart({ height: 104 });
    setAttrs(node, { class: "panel tile" });
    node.append(el("dd", {}, chart.node));
    return { node, value, chart };
  });
  const node = el("section", { class: "whole", "aria-label": "Whole server" }, el("dl", { class: "tiles grid" }, all.map((tile) => tile.node)), firstTables);
  /** @param {Live} state */
  const update = (state) => {
    const { history, tables } = state;
    if (!tables) return;
    const known = history.tables.size;
    setText(firstTables, known < tables.length && known > 0 ? `Inserts and samples of the first ${known} tables.` : "");
    for (const [index, [label, name, now, line, format]] of TILES.entries()) {
      const { value, chart } = all[index];
      const text = now(state);
      setQuantity(value, text);
      chart.update({ lines: [{ name, points: line(state), format }], events: state.events, span: state.span }, `${label}, now ${text}`);
    }
  };
  return { node, update };
}

function show() {
  const table = /^#\/tables\/(\d+)$/.exec(location.hash);
  const first = view === undefined;
  view?.unmount();
  if (live.signedOut !== undefined) view = signInView(live, location);
  else view = table ? detailView(Number(table[1])) : overview();
  main.replaceChildren(view.node);
  fill();
  if (!first) {
    scrollTo(0, 0);
    view.heading.focus({ preventScroll: true });
  }
}

/** Whether the page asks for a token. */
const asks = () => view !== undefined && "isSignIn" in view;

function update() {
  if (asks() === (live.signedOut !== undefined)) fill();
  else show();
}

function fill() {
  header.update(live);
  notices.update(live);
  document.body.classList.toggle("ready", live.server !== undefined);
  view?.update(live);
  const where = live.server?.addresses[0] ?? location.host;
  const parts = [verdictTitle(live), view?.name(), where, "Reverb"].filter(Boolean);
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
