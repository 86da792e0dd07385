// Runs scripts of the chat page in node, with the few functions of a document that they call. Reads {scripts, call, arguments} from standard
// input, and writes the results of `call` for each list of arguments.
"use strict";
const vm = require("node:vm");

const escaped = text => text.replace(/&/g, "&amp;").replace(/\u00a0/g, "&nbsp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

class Text {
  constructor(text) { this.text = text; }
  get html() { return escaped(this.text); }
  get textContent() { return this.text; }
}

class Element {
  constructor(tag) { this.tag = tag; this.attributes = new Map(); this.nodes = []; this.dataset = {}; }
  append(...nodes) { for (const node of nodes) { node.parent = this; this.nodes.push(node); } }
  setAttribute(name, value) { this.attributes.set(name, String(value)); }
  set className(value) { this.setAttribute("class", value); }
  set textContent(text) { this.nodes = text ? [new Text(text)] : []; }
  get textContent() { return this.nodes.map(node => node.textContent).join(""); }
  get children() { return this.nodes.filter(node => node instanceof Element); }
  get childElementCount() { return this.children.length; }
  get lastElementChild() { return this.children[this.childElementCount - 1]; }
  remove() { this.parent.nodes.splice(this.parent.nodes.indexOf(this), 1); }
  addEventListener() {}
  get inner() { return this.nodes.map(node => node.html).join(""); }
  get html() {
    const attributes = [...this.attributes].map(([name, value]) => ` ${name}="${value.replace(/&/g, "&amp;").replace(/"/g, "&quot;")}"`).join("");
    return `<${this.tag}${attributes}>` + (["br", "hr", "img"].includes(this.tag) ? "" : `${this.inner}</${this.tag}>`);
  }
}

// A browser's storage with a limit of characters.
class Storage {
  constructor(limit) { this.limit = limit; this.items = new Map(); }
  getItem(key) { return this.items.get(key) ?? null; }
  removeItem(key) { this.items.delete(key); }
  setItem(key, value) {
    let size = key.length + value.length;
    for (const [name, item] of this.items) if (name !== key) size += name.length + item.length;
    if (size > this.limit) throw new Error("QuotaExceededError");
    this.items.set(key, value);
  }
}

const input = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const context = vm.createContext({document: {createElement: tag => new Element(tag), createTextNode: text => new Text(text)}, Storage, TextDecoderStream, ReadableStream, console});
for (const script of input.scripts) vm.runInContext(script, context);
const call = vm.runInContext(input.call, context);
(async () => {
  const results = [];
  for (const one of input.arguments) results.push(await call(...one));
  process.stdout.write(JSON.stringify(results));
})();
