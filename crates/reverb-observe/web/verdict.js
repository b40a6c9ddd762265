// What the page says first: whether the server works, and whether something could be lost. Also the title of the tab.

/** @import { Live } from "./live.js" */

import { bytes, duration, el, inZone, percent, plural, reconcile, setAttrs, setUserText, synced, time } from "./core.js";

/** How long after a restore the page speaks of it. */
const RESTORE_SECONDS = 600;

/** @typedef {{level: string, line: string, told: string}} Said A level as the verdict has it, a line, and what of it is read aloud when it changes. */
/** @typedef {{key: string, text: string, tone?: string, title?: string}} Fact */

/** The verdict above all views. `update(live)`. */
export function verdictView() {
  const line = el("p", { class: "verdict-line" });
  const dot = el("span", { class: "dot", "aria-hidden": "true" });
  // The seconds in the line tick; only what changes otherwise is read aloud.
  const aloud = el("p", { class: "hidden", role: "status" });
  const facts = el("ul", { class: "verdict-facts wrap small" });
  const node = el("section", { class: "panel verdict", "aria-label": "Verdict" }, el("div", { class: "row baseline" }, dot, line), facts, aloud);
  let told = "";
  /** @param {Live} live */
  const update = (live) => {
    const said = verdictOf(live);
    setAttrs(node, { "data-level": said.level });
    setUserText(line, said.line);
    if (told !== said.told) {
      told = said.told;
      setUserText(aloud, said.line);
    }
    reconcile(facts, factsOf(live), ({ key }) => key, factView);
  };
  return { node, update };
}

function factView() {
  const node = el("li");
  /** @param {Fact} fact */
  const update = ({ text, tone, title }) => {
    setUserText(node, text);
    setAttrs(node, { class: tone ?? "", title: title ?? null });
  };
  return { node, update };
}

/** What is said of the server as a whole. @param {Live} live @returns {Said} */
export function verdictOf({ server, goneSince, verdict }) {
  const plain = (/** @type {string} */ level, /** @type {string} */ line, told = line) => ({ level, line, told });
  if (goneSince !== undefined) {
    const gone = `the server has not answered since ${time(goneSince / 1000)}. The page reconnects by itself.`;
    return plain("alarm", `Disconnected ${duration((Date.now() - goneSince) / 1000)}: ${gone}`, `Disconnected: ${gone}`);
  }
  if (!server) return plain("quiet", "Connecting");
  if (server.state === "loading") {
    const { done_bytes: done = 0, total_bytes: total = null } = server.loading ?? {};
    return plain("quiet", `Loading a checkpoint${total ? `: ${percent(done / total)}` : ""}`, "Loading a checkpoint");
  }
  if (server.state === "stopping") return plain("warning", "Stopping: clients are sent away");
  if (!verdict) return plain("quiet", "Serving");
  const { state, level, tables, troubles } = verdict;
  return plain(level, inZone(verdict.line), JSON.stringify([state, level, tables, troubles.map(({ kind }) => kind)]));
}

/** The words of a line before its names: `Stalled 1 min 26 s`. For the title of the tab. @param {Live} live */
export function verdictTitle(live) {
  const { level, line } = verdictOf(live);
  const [words] = line.split(":");
  return ["warning", "alarm"].includes(level) ? `● ${words}` : words;
}

/** Whether something could be lost: saves, a restore, memory, clients. @param {Live} live @returns {Fact[]} */
function factsOf(live) {
  if (live.goneSince !== undefined || live.server?.state !== "serving") return [];
  return [saves(live), changes(live), restore(live), memory(live), clients(live)].filter((fact) => fact !== undefined);
}

/** @param {Live} live @returns {Fact | undefined} */
export function saves({ server, checkpoints }) {
  if (!server || !checkpoints) return undefined;
  const { checkpoints: [latest], last_error: error, next_due_at: next } = checkpoints;
  const lost = latest ? `what is newer than ${time(latest.saved_at)}` : "everything";
  // A log has what is newer.
  const [toldLost, title] = checkpoints.log ? ["", undefined] : [`: a restart would lose ${lost}`, `A restart would lose ${lost}`];
  if (error) return { key: "saves", tone: "bad", text: `The latest save failed${toldLost}`, title: inZone(error) };
  if (!latest) return { key: "saves", text: `No checkpoint yet${toldLost}` };
  const due = next === null ? "" : `, next in ${duration(Math.max(0, next - server.now))}`;
  return { key: "saves", text: `Saved ${duration(server.now - latest.saved_at)} ago${due}`, title };
}

/** @param {Live} live @returns {Fact | undefined} */
export function changes({ checkpoints }) {
  const log = checkpoints?.log;
  if (!log) return undefined;
  const told = (/** @type {string} */ text, tone = "") => ({ key: "changes", text, ...(tone && { tone }) });
  if (log.failure) return { ...told("The log is closed: inserts, deletes and resets are refused", "bad"), title: inZone(log.failure) };
  if (log.is_disk_low) return told("The disk has too little free space for the log and a checkpoint", "bad");
  return told(`Changes are logged (${log.mode}), ${synced(log)}`);
}

/** @param {Live} live @returns {Fact | undefined} */
export function restore({ server, checkpoints, events }) {
  const event = events.findLast(({ kind }) => kind === "restore");
  if (!server || !event || server.now - event.at > RESTORE_SECONDS) return undefined;
  const { restored_saved_at: saved = null, log = null } = checkpoints ?? {};
  const title = saved === null || log ? undefined : `What was newer than ${time(saved)} is lost`;
  return { key: "restore", tone: "strong", text: `Restarted ${duration(server.now - event.at)} ago: ${event.text}`, title };
}

/** @param {Live} live @returns {Fact | undefined} */
function memory({ server }) {
  if (!server || server.resident_bytes === null) return undefined;
  const { resident_bytes: used, memory_limit_bytes: limit } = server;
  return { key: "memory", text: `Memory ${bytes(used)}${limit === null ? "" : ` of ${bytes(limit)}`}` };
}

/** @param {Live} live @returns {Fact | undefined} */
export function clients({ clients: known }) {
  if (!known) return undefined;
  const lost = known.left.filter(({ how }) => how !== "closed").length;
  const text = plural(known.clients.length, "client");
  return lost === 0 ? { key: "clients", text } : { key: "clients", tone: "strong", text: `${text}, ${lost} lost in the last 10 min` };
}
