// Panels of the overview: checkpoints, and the recent lines of the log.

/** @import { Live } from "./live.js" */

import {
  ZONE,
  bytes,
  copyButton,
  duration,
  el,
  inZone,
  number,
  percent,
  plural,
  reconcile,
  setAttrs,
  setQuantity,
  setText,
  setUserText,
  synced,
  tableHead,
  time,
} from "./core.js";
import { bar } from "./charts.js";
import { nothing, panel } from "./panels.js";

/** The progress of a load or save. `update(progress, now)`. */
export function progressView(title) {
  const share = el("span", { class: "big" });
  const sizes = el("span", { class: "muted end" });
  const full = bar();
  const path = el("bdi", { class: "user mono small muted" });
  const node = el(
    "div",
    { class: "progress rows" },
    el("div", { class: "progress-head wrap baseline" }, el("span", {}, title), share, sizes),
    full.node,
    path,
  );
  /** @param {ProgressDocument} progress @param {number} now */
  const update = (progress, now) => {
    const { done_bytes: done, total_bytes: total, since } = progress;
    const part = total ? Math.min(1, done / total) : 0;
    setQuantity(share, total ? percent(part) : "");
    const spent = now - since;
    const left = part > 0.02 && part < 1 && spent > 1 ? `, about ${duration((spent / part) * (1 - part))} left` : "";
    setText(sizes, total ? `${bytes(done)} of ${bytes(total)}${left}` : `${bytes(done)} so far`);
    full.update(part, `${title}: ${total ? percent(part) : bytes(done)}`);
    setUserText(path, inZone(progress.path));
    setAttrs(path, { title: progress.path });
  };
  return { node, update };
}

/** The checkpoints in the folder, the next one and the running one. `update(live)`. */
export function checkpointsPanel() {
  const next = el("span", { class: "muted small" });
  const { node, body } = panel("checkpoints", "Checkpoints", el("div", { class: "end" }, next));
  const quiet = nothing("No checkpoint yet", "client.checkpoint() saves one.");
  const failed = el("p", { class: "notice wrap" });
  const closed = el("p", { class: "notice wrap" });
  const log = el("p", { class: "muted small" });
  const saving = progressView("Saving");
  const rows = el("tbody");
  const head = tableHead(["Checkpoint", "Saved", "Size", "Took", "Verified"], (column) => CELLS[column]);
  const table = el("div", { class: "scroll" }, el("table", {}, head, rows));
  const folder = el("bdi", { class: "user mono small muted folder" });
  body.append(failed, closed, saving.node, quiet, table, log, folder);
  /** @param {Live} live */
  const update = (live) => {
    const { checkpoints: state, server } = live;
    if (!state || !server) return;
    const now = server.now;
    const due = state.next_due_at === null ? null : state.next_due_at - now;
    const every = state.interval_seconds === null ? "" : `every ${duration(state.interval_seconds)}`;
    setText(next, due === null ? every : `next in ${duration(Math.max(0, due))}, ${every}`.replace(/, $/, ""));
    failed.hidden = !state.last_error;
    if (state.last_error) setUserText(failed, `The latest save failed: ${inZone(state.last_error)}`);
    closed.hidden = !state.log?.failure;
    if (state.log?.failure) setUserText(closed, `The log is closed: ${inZone(state.log.failure)}`);
    log.hidden = !state.log;
    if (state.log) setText(log, logged(state.log));
    saving.node.hidden = !state.saving;
    if (state.saving) saving.update(state.saving, now);
    quiet.hidden = state.checkpoints.length > 0 || Boolean(state.saving);
    table.hidden = state.checkpoints.length === 0;
    const entries = state.checkpoints
      .slice(0, 8)
      .map((saved) => ({ ...saved, now, restored: saved.path === state.restored_from }));
    reconcile(rows, entries, ({ path }) => path, checkpointRow);
    const failures = state.saves_failed ? `, ${number(state.saves_failed, 0)} failed` : "";
    const counts = state.saves_ok || failures ? ` · ${plural(state.saves_ok, "save")}${failures}` : "";
    setUserText(folder, `${state.path}${counts}`);
    folder.hidden = !state.path;
  };
  return { node, update };
}

/** What the log is for, and how it is. @param {StoreLogDocument} log */
function logged(log) {
  const { mode, size_bytes: size, is_disk_low: isLow } = log;
  const state = log.failure ? "closed" : synced(log);
  return `Log (${mode}): ${bytes(size)}, ${state}${isLow ? ", too little free space" : ""}`;
}

/** A phone does not show how large a checkpoint is, nor how long it took. */
const CELLS = ["", "number", "number narrow-hidden", "number narrow-hidden", "number"];

function checkpointRow() {
  const name = el("bdi", { class: "user mono small" });
  let path = "";
  const copy = copyButton("path", () => path);
  const restored = el("span", { class: "tag" }, "loaded at start");
  const [age, size, took, verification] = CELLS.slice(1).map((name) => el("td", { class: name }));
  const verified = el("span", { class: "tag" });
  const node = el(
    "tr",
    {},
    el("th", { scope: "row" }, el("div", { class: "row wrap" }, name, copy, restored)),
    [age, size, took, verification],
  );
  verification.append(verified);
  /** @param {CheckpointDocument & {now: number, restored: boolean}} saved */
  const update = (saved) => {
    path = saved.path;
    setText(name, inZone(saved.path.split("/").filter(Boolean).at(-1) ?? saved.path));
    setAttrs(name, { title: saved.path });
    setAttrs(copy, { "aria-label": `Copy the path ${saved.path}` });
    restored.hidden = !saved.restored;
    setQuantity(age, `${duration(saved.now - saved.saved_at)} ago`);
    setAttrs(age, { title: time(saved.saved_at) });
    setQuantity(size, bytes(saved.size_bytes));
    setQuantity(took, duration(saved.duration_seconds));
    setText(verified, saved.is_verified ? "verified" : "not yet");
    setAttrs(verified, { class: saved.is_verified ? "tag good" : "tag" });
  };
  return { node, update };
}

const LEVELS = [
  ["info", "All"],
  ["warning", "Warnings"],
  ["error", "Errors"],
];
const SHOWN_LINES = 100;

/** The recent lines of the log, newest first, with a choice of the level and a filter. `update(live)`. */
export function logPanel() {
  let level = "info";
  /** @type {Live | undefined} */
  let latest;
  const ranks = LEVELS.map(([name]) => name);
  const buttons = LEVELS.map(([name, text]) => {
    const click = () => {
      level = name;
      update(latest);
    };
    return el("button", { type: "button", "data-level": name, on: { click } }, text);
  });
  const filter = el("input", { type: "search", placeholder: "Filter lines", "aria-label": "Filter lines of the log" });
  const choice = el("div", { class: "choice", role: "group", "aria-label": "Lowest level of lines" }, buttons);
  const { node, body, count } = panel("log", "Log", el("div", { class: "end wrap" }, filter, choice));
  setText(count, `times of ${ZONE}`);
  const quiet = nothing("No lines", "Warnings and events of the server appear here.");
  const rows = el("ol", { class: "log bounded", tabindex: "0", "aria-label": "Lines, newest first" });
  body.append(quiet, rows);
  /** @param {Live} [live] */
  const update = (live) => {
    latest = live;
    for (const button of buttons) setAttrs(button, { "aria-pressed": String(button.dataset.level === level) });
    if (!live) return;
    const words = filter.value.trim().toLowerCase();
    const lines = (live.log ?? []).filter(
      (line) =>
        ranks.indexOf(line.level) >= ranks.indexOf(level) && (!words || line.message.toLowerCase().includes(words)),
    );
    quiet.hidden = lines.length > 0;
    rows.hidden = lines.length === 0;
    reconcile(rows, lines.slice(-SHOWN_LINES).reverse(), ({ number: line }) => line, logRow);
  };
  filter.addEventListener("input", () => update(latest));
  return { node, update };
}

/** @param {LogLineDocument} line */
function logRow(line) {
  const message = el("bdi", { class: "message" });
  setUserText(message, inZone(line.message));
  setAttrs(message, { title: line.message });
  const tone = { warning: "tag warn", error: "tag bad" }[line.level] ?? "tag";
  const at = el("time", { class: "muted", datetime: new Date(line.at * 1000).toISOString() }, time(line.at));
  const node = el("li", { class: `grid baseline ${line.level}` }, at, el("span", { class: tone }, line.level), message);
  return { node, update() {} };
}
