// Enough of a browser to run the modules of the page in node: elements that keep what is done to them.

class FakeNode {
  parent = null;

  get parentNode() {
    return this.parent;
  }

  get nextSibling() {
    const { childNodes } = this.parent;
    return childNodes[childNodes.indexOf(this) + 1] ?? null;
  }

  remove() {
    if (this.parent) this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1);
    this.parent = null;
  }
}

class FakeText extends FakeNode {
  constructor(text) {
    super();
    this.textContent = text;
  }
}

class FakeElement extends FakeNode {
  attributes = {};
  childNodes = [];
  dataset = {};
  listeners = {};
  classes = new Set();
  hidden = false;
  value = "";

  constructor(tag) {
    super();
    this.tagName = tag;
    this.style = { setProperty: (name, value) => this.setAttribute(`style.${name}`, value) };
    this.classList = { toggle: (name, on) => (on ? this.classes.add(name) : this.classes.delete(name)) };
  }

  get children() {
    return this.childNodes.filter((node) => node instanceof FakeElement);
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }

  set textContent(text) {
    this.replaceChildren(text);
  }

  append(...nodes) {
    for (const node of nodes) this.insertBefore(node, null);
  }

  insertBefore(node, place) {
    const added = node instanceof FakeNode ? node : new FakeText(node);
    added.remove();
    added.parent = this;
    this.childNodes.splice(place ? this.childNodes.indexOf(place) : this.childNodes.length, 0, added);
  }

  replaceChildren(...nodes) {
    for (const node of [...this.childNodes]) node.remove();
    this.append(...nodes);
  }

  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }

  getAttribute(name) {
    return this.attributes[name] ?? null;
  }

  removeAttribute(name) {
    delete this.attributes[name];
  }

  toggleAttribute(name, on) {
    if (on) this.attributes[name] = "";
    else delete this.attributes[name];
  }

  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  click() {
    this.listeners.click();
  }

  /** All elements below with a tag, in the order of the document. */
  querySelectorAll(tag) {
    return this.children.flatMap((child) => [...(child.tagName === tag ? [child] : []), ...child.querySelectorAll(tag)]);
  }
}

class Observer {
  static made = [];

  constructor(callback) {
    this.callback = callback;
    Observer.made.push(this);
  }

  observe() {}
  unobserve() {}
  disconnect() {}
}

globalThis.document = {
  baseURI: "http://localhost:8000/",
  hidden: false,
  addEventListener() {},
  createElement: (tag) => new FakeElement(tag),
  createElementNS: (_, tag) => new FakeElement(tag),
};
globalThis.ResizeObserver = Observer;
globalThis.IntersectionObserver = Observer;

/** Tells the observers of sizes that an element has a width. */
export function resize(target, width) {
  for (const { callback } of Observer.made) callback([{ target, contentRect: { width } }]);
}

const PAGE = new URL("../../crates/reverb-observe/web/", import.meta.url);

/** A module of the page. */
export const page = (name) => import(new URL(name, PAGE).href);
