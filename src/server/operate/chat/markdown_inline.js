// Parses the text of one block: emphasis, code spans, links and line breaks. Returns a list of nodes.
// A node is {type: "text", text}, {type: "code", text}, {type: "break"}, {type: "link", href, children}, or {type, children} with the type
// emphasis, strong or deleted.
const MAX_OPENERS = 24;  // nested emphasis; further delimiters are text
const MAX_RUN = 6;       // longest run of "*" that is a delimiter
const MAX_ADDRESS = 2048;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const SAFE_LINK = /^(?:https?:\/\/|mailto:)[^\s<>"\u0000-\u0020\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+$/i;
const BARE_LINK = /https?:\/\/[^\s<>[\]`|\\"]+/y;
const ANGLE_LINK = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/iy;
const LINE_BREAK = /<br ?\/?>/iy;
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = {amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'"};
const PLAIN = /[^\\\n`<&[\]!*_~h]+/y;
const SPACE = /^\s?$/;  // also matches the empty text before the first and after the last character
const PUNCTUATION = /[\p{P}\p{S}]/u;

const matchAt = (pattern, text, at) => { pattern.lastIndex = at; return pattern.exec(text); };

// Returns the address without trailing punctuation, as in a sentence, and without a bracket that the address does not open.
function trimmedLink(address) {
  for (;;) {
    const last = address[address.length - 1];
    if (/[?!.,:;*_~'"]/.test(last)) address = address.slice(0, -1);
    else if (last === ")" && address.split(")").length > address.split("(").length) address = address.slice(0, -1);
    else return address;
  }
}

// Reads "(address "title")" at the position. Returns null if the text has another form; `isCut`: the text ends within the address.
function destinationAt(text, at) {
  let i = at + 1, depth = 0;
  while (text[i] === " " || text[i] === "\n") ++i;
  const start = i, isAngled = text[i] === "<";
  for (const limit = Math.min(text.length, at + MAX_ADDRESS); i < limit; ++i) {
    const c = text[i];
    if (isAngled ? c === ">" || c === "\n" : c === " " || c === "\n") break;
    if (!isAngled && c === "(" && ++depth > 32) return null;
    if (!isAngled && c === ")" && depth-- === 0) break;
  }
  const href = isAngled ? text.slice(start + 1, i) : text.slice(start, i);
  if (isAngled) i += text[i] === ">" ? 1 : 0;
  const rest = /^[ \n]*(?:"[^"]*"|'[^']*')?[ \n]*\)/.exec(text.slice(i, i + 1000));
  if (rest) return {href, next: i + rest[0].length};
  return i >= text.length ? {isCut: true} : null;
}

// Finds code spans. Each run of backticks is found one time, so that a text of many runs takes linear time.
class CodeSpans {
  constructor(text) {
    this.positions = new Map();
    for (const run of text.matchAll(/`+/g)) {
      const length = run[0].length;
      if (!this.positions.has(length)) this.positions.set(length, []);
      this.positions.get(length).push(run.index);
    }
    this.used = new Map();
  }

  // Returns the position of the run that closes a run of this length, or -1.
  closeAfter(at, length) {
    const all = this.positions.get(length) ?? [];
    let i = this.used.get(length) ?? 0;
    while (i < all.length && all[i] <= at) ++i;
    this.used.set(length, i);
    return i < all.length ? all[i] : -1;
  }
}

// Builds the nested emphasis of CommonMark from delimiters and nodes in order. A frame is an opening delimiter and the nodes after it.
class Emphasis {
  frames = [{mark: "", count: 0, nodes: []}];
  get top() { return this.frames[this.frames.length - 1]; }
  add(node) { this.top.nodes.push(node); }

  text(text) {
    const last = this.top.nodes[this.top.nodes.length - 1];
    if (last?.type === "text") last.text += text; else this.add({type: "text", text});
  }

  // Turns the frames above `index` into text.
  flatten(index) {
    const target = this.frames[index];
    for (const frame of this.frames.splice(index + 1)) {
      target.nodes.push({type: "text", text: frame.mark.repeat(frame.count)});
      for (const node of frame.nodes) target.nodes.push(node);
    }
  }

  opener(mark, count, isBoth) {
    for (let i = this.frames.length - 1; i > 0; --i) {
      const frame = this.frames[i];
      if (frame.mark !== mark) continue;
      if (mark === "~" ? frame.count === count : !((isBoth || frame.isBoth) && (frame.original + count) % 3 === 0 && (frame.original % 3 || count % 3))) return i;
    }
    return 0;
  }

  delimiter(mark, count, canOpen, canClose) {
    const original = count;
    while (count > 0 && canClose) {
      const index = this.opener(mark, original, canOpen && canClose);
      if (!index) break;
      this.flatten(index);
      const frame = this.top, used = mark === "~" ? count : Math.min(2, count, frame.count);
      const node = {type: mark === "~" ? "deleted" : used === 2 ? "strong" : "emphasis", children: frame.nodes};
      frame.count -= used;
      count -= used;
      if (frame.count > 0) { frame.nodes = [node]; continue; }
      this.frames.pop();
      this.add(node);
    }
    if (!count) return;
    if (canOpen && this.frames.length <= MAX_OPENERS) this.frames.push({mark, count, original, isBoth: canOpen && canClose, nodes: []});
    else this.text(mark.repeat(count));
  }

    // Returns the nodes. `open`: emphasis that is not closed yet ends here.
  finish(open) {
    while (open && this.frames.length > 1) {
      const {mark, count, nodes} = this.frames.pop();
      if (nodes.length) this.add({type: mark === "~" ? "deleted" : count > 1 ? "strong" : "emphasis", children: nodes});
    }
    this.flatten(0);
    return this.frames[0].nodes;
  }
}

// Returns for each "[" that has a matching "]" the position of the latter.
function matchingBrackets(text) {
  const open = [], matches = new Map();
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\") ++i;
    else if (text[i] === "[") open.push(i);
    else if (text[i] === "]" && open.length) matches.set(open.pop(), i);
  }
  return matches;
}

class InlineParser {
  // `inLink`: the text is the label of a link, so it has no links.
  constructor(text, open, inLink) {
    this.source = open ? text.replace(/[*_~`]{1,3}$/, "") : text;  // the next characters decide what these are
    this.open = open;
    this.inLink = inLink;
    this.at = 0;
    this.spans = new CodeSpans(this.source);
    this.brackets = matchingBrackets(this.source);
    this.out = new Emphasis();
  }

  parse() {
    while (this.at < this.source.length) this.step();
    return this.out.finish(this.open);
  }

  step() {
    const text = this.source, at = this.at, c = text[at], plain = matchAt(PLAIN, text, at);
    if (plain) { this.out.text(plain[0]); this.at += plain[0].length; return; }
    if (c === "\\" && text[at + 1] === "\n") { this.out.add({type: "break"}); this.at += 2; return; }
    if (c === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) { this.out.text(text[at + 1]); this.at += 2; return; }
    if (c === "\n") { this.out.add({type: "break"}); ++this.at; return; }
    if (c === "`") return this.code();
    if (c === "*" || c === "_" || c === "~") return this.run(c);
    if ((c === "[" || (c === "!" && text[at + 1] === "[")) && this.link(c === "!" ? at + 1 : at, c === "!")) return;
    if (c === "<" && this.angle()) return;
    const entity = c === "&" && matchAt(ENTITY, text, at);
    if (entity) { this.out.text(ENTITIES[entity[1]]); this.at += entity[0].length; return; }
    if (c === "h" && !this.inLink && !/\w/.test(text[at - 1] ?? "") && this.bare()) return;
    this.out.text(c);
    ++this.at;
  }

  code() {
    const length = /^`+/.exec(this.source.slice(this.at, this.at + 64))[0].length, begin = this.at + length;
    const close = this.spans.closeAfter(this.at, length), end = close < 0 && this.open ? this.source.length : close;
    this.at = begin;
    if (end < begin) { this.out.text("`".repeat(length)); return; }
    if (end === begin) return;
    let text = this.source.slice(begin, end).replace(/\n/g, " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim()) text = text.slice(1, -1);
    this.out.add({type: "code", text});
    this.at = Math.min(end + length, this.source.length);
  }

  // A run of delimiters opens or closes emphasis, as the characters around it say (CommonMark: "left-flanking", "right-flanking").
  run(mark) {
    let end = this.at;
    while (this.source[end] === mark) ++end;
    const count = end - this.at, before = this.source[this.at - 1] ?? "", after = this.source[end] ?? "";
    const isLeft = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
    const isRight = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
    const isUnderscore = mark === "_";
    const canOpen = isLeft && (!isUnderscore || !isRight || PUNCTUATION.test(before));
    const canClose = isRight && (!isUnderscore || !isLeft || PUNCTUATION.test(after));
    if (count > MAX_RUN || (mark === "~" && count > 2)) this.out.text(mark.repeat(count)); else this.out.delimiter(mark, count, canOpen, canClose);
    this.at = end;
  }

  // Reads a link or an image whose label begins at the bracket. Returns false if the text is not a link, or if its address is not safe.
  link(bracket, isImage) {
    const end = this.brackets.get(bracket);
    if (end === undefined || this.source[end + 1] !== "(" || (this.inLink && !isImage)) return false;
    const found = destinationAt(this.source, end + 1), label = this.source.slice(bracket + 1, end);
    if (!found || (found.isCut && !this.open) || (!found.isCut && !SAFE_LINK.test(found.href))) return false;
    const nodes = new InlineParser(label, false, true).parse();
    // While the address arrives, and within a link, only the label is shown. An image is never loaded: it becomes a link.
    if (found.isCut || this.inLink) for (const node of nodes) this.out.add(node);
    else this.out.add({type: "link", href: found.href, children: nodes.length ? nodes : [{type: "text", text: found.href}]});
    this.at = found.isCut ? this.source.length : found.next;
    return true;
  }

  angle() {
    const lineBreak = matchAt(LINE_BREAK, this.source, this.at);
    if (lineBreak) { this.out.add({type: "break"}); this.at += lineBreak[0].length; return true; }
    const link = matchAt(ANGLE_LINK, this.source, this.at);
    if (!link || this.inLink || !SAFE_LINK.test(link[1])) return false;
    this.out.add({type: "link", href: link[1], children: [{type: "text", text: link[1]}]});
    this.at += link[0].length;
    return true;
  }

  bare() {
    const found = matchAt(BARE_LINK, this.source, this.at), href = found && trimmedLink(found[0]);
    if (!href || !/^https?:\/\/./.test(href) || !SAFE_LINK.test(href)) return false;
    this.out.add({type: "link", href, children: [{type: "text", text: href}]});
    this.at += href.length;
    return true;
  }
}

const parseInline = (text, open = false) => new InlineParser(text, open, false).parse();
