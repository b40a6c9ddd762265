// Panels of the overview: checkpoints, and the recent lines of the log.

import {
  bytes,
  duration,
  el,
  number,
  percent,
  plural,
  reconcile,
  setAttrs,
  setQuantity,
  setText,
  setUserText,
  time,
} from "./core.js";
import { bar } from "./charts.js";
import { nothing, panel } from "./panels.js";

/** The progress of a load or save. `update(progress, now)`. */
export function progressView(title) {
  const share = el("span", { class: "big" });
  const sizes = el("span", { class: "muted" });
  const full = bar();
  const path = el("bdi", { class: "user mono small muted" });
  const node = el(
    "div",
    { class: "progress" },
    el("div", { class: "progress-head" }, el("span", {}, title), share, sizes),
    full.node,
    path,
  );
  const update = (progress, now) => {
    const { done_bytes: done, total_bytes: total, since } = progress;
    const part = total ? Math.min(1, done / total) : undefined;
    setQuantity(share, part === undefined ? "" : percent(part));
    const spent = now - since;
    const left = part > 0.02 && part < 1 && spent > 1 ? `, about ${duration((spent / part) * (1 - part))} left` : "";
    setText(sizes, total ? `${bytes(done)} of ${bytes(total)}${left}` : `${bytes(done)} so far`);
    full.update(part ?? 0, `${title}: ${part === undefined ? bytes(done) : percent(part)}`);
    setUserText(path, progress.path);
  };
  return { node, update };
}

/** The checkpoints in the folder, the next one and the running one. `update(live)`. */
export function checkpointsPanel() {
  const next = el("span", { class: "muted small" });
  const { node, body } = panel("checkpoints", "Checkpoints", next);
  const quiet = nothing("No checkpoint yet", "client.checkpoint() saves one.");
  const failed = el("p", { class: "notice bad" });
  const saving = progressView("Saving");
  const rows = el("tbody");
  const heads = ["Checkpoint", "Saved", "Size", "Took", "Verified"];
  const table = el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((name, index) =>
            el(
              "th",
              {
                scope: "col",
                class: index === 0 ? "" : index === 2 || index === 3 ? "number narrow-hidden" : "number",
              },
              name,
            ),
          ),
        ),
      ),
      rows,
    ),
  );
  const folder = el("bdi", { class: "user mono small muted folder" });
  body.append(failed, saving.node, quiet, table, folder);
  const update = (live) => {
    const { checkpoints: state, server } = live;
    if (!state || !server) return;
    const now = server.now;
    const due = state.next_due_at === null ? null : state.next_due_at - now;
    const every = state.interval_seconds === null ? "" : `every ${duration(state.interval_seconds)}`;
    setText(next, due === null ? every : `next in ${duration(Math.max(0, due))}, ${every}`.replace(/, $/, ""));
    failed.hidden = !state.last_error;
    if (state.last_error) setUserText(failed, `The latest save failed: ${state.last_error}`);
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

function checkpointRow() {
  const name = el("bdi", { class: "user mono small" });
  const restored = el("span", { class: "tag" }, "loaded at start");
  const [age, size, took] = ["", " narrow-hidden", " narrow-hidden"].map((hidden) =>
    el("td", { class: `number${hidden}` }),
  );
  const verified = el("span", { class: "tag" });
  const node = el(
    "tr",
    {},
    el("th", { scope: "row" }, el("div", { class: "two-lines" }, name, restored)),
    age,
    size,
    took,
    el("td", { class: "number" }, verified),
  );
  const update = (saved) => {
    setText(name, saved.path.split("/").filter(Boolean).at(-1) ?? saved.path);
    setAttrs(name, { title: saved.path });
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
  const { node, body } = panel("log", "Log", filter, choice);
  const quiet = nothing("No lines", "Warnings and events of the server appear here.");
  const rows = el("ol", { class: "log bounded", tabindex: "0", "aria-label": "Lines, newest first" });
  body.append(quiet, rows);
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

function logRow(line) {
  const message = el("bdi", { class: "message" });
  setUserText(message, line.message);
  const tone = { warning: "tag warn", error: "tag bad" }[line.level] ?? "tag";
  const at = el("time", { datetime: new Date(line.at * 1000).toISOString() }, time(line.at));
  const node = el("li", { class: line.level }, at, el("span", { class: tone }, line.level), message);
  return { node, update() {} };
}
