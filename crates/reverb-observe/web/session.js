// The token of this page. It is kept in this variable alone: in no storage and in no address, so it is gone on reload.

let token = "";

/** Presents a token with all requests from now on. @param {string} text */
export function present(text) {
  token = text;
}

export function forget() {
  token = "";
}

/** Whether the page presents a token. */
export function hasToken() {
  return token !== "";
}

/** What a request has because of the token. No other address gets it, not even one that the server names. @returns {RequestInit} */
export function presented() {
  return token === "" ? {} : { headers: { Authorization: `Bearer ${token}` }, redirect: "error" };
}

/** Who can read a token on its way to where the page came from: `nobody`, programs of this machine (`here`), or whoever is on the way (`anyone`). @param {{protocol: string, hostname: string}} place */
export function readers({ protocol, hostname }) {
  if (protocol === "https:") return "nobody";
  const isHere = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  return isHere ? "here" : "anyone";
}
