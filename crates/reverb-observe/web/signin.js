// The page asks for a token where the server needs one.

/** @import { Live } from "./live.js" */

import { el, setUserText } from "./core.js";
import { readers } from "./session.js";

/** Why a token may not be sent from here, and what to do. */
const ANYONE = [
  "This page came over http, which anyone on the way can read, so it takes no token. Open it over https: start the server with TLS, by Server(tls=) or --tls-cert and --tls-key.",
  "Or open it as localhost, through an SSH tunnel: ssh -L 8080:localhost:PORT HOST.",
];
const HERE =
  "This page came over http from this machine, so the token is sent unencrypted. Administrators of the machine can read it, and so can a program of any of its users that listens at this port in place of the server. Over https, none but the server reads it.";
const KEPT = "The page keeps the token until it is reloaded or closed, and stores it nowhere.";

/** The view that asks for a token, or says why it does not. @param {Live} live @param {{protocol: string, hostname: string}} place */
export function signInView(live, place) {
  const heading = el("h1", { tabindex: "-1" }, "Sign in");
  const why = el("p", { id: "sign-in-why", role: "alert" });
  const way = readers(place);
  const field = el("input", {
    id: "token", type: "password", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true, "aria-describedby": "sign-in-why sign-in-kept",
  });
  const button = el("button", { type: "submit" }, "Sign in");
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = field.value.trim();
    field.value = "";
    if (!/^[!-~]+$/.test(text)) {
      setUserText(why, "A token has only visible ASCII characters, and no space.");
      return field.focus();
    }
    button.disabled = true;
    await live.signIn(text);
    button.disabled = false;
    if (live.signedOut !== undefined) field.focus();
  };
  const form = el("form", { class: "sign-in-form row wrap", on: { submit } }, el("label", { for: "token" }, "Token"), field, button);
  const notes = way === "anyone" ? ANYONE : way === "here" ? [HERE, KEPT] : [KEPT];
  const node = el("section", { class: "panel sign-in grid", "aria-label": "Sign in" }, heading, why,
    el("div", { id: "sign-in-kept", class: "muted" }, notes.map((note) => el("p", {}, note))),
    way === "anyone" ? null : form);
  /** @param {Live} live */
  const update = ({ signedOut }) => setUserText(why, signedOut ?? "");
  return { node, heading, update, unmount() {}, name: () => "Sign in", isSignIn: true };
}
