// Makes elements from parsed Markdown. Text of models becomes text nodes only; attributes get fixed values, except the addresses of links, which
// parseInline() has checked.
const INLINE_TAGS = {emphasis: "em", strong: "strong", deleted: "del", code: "code"};

const make = (parent, tag, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
};

function showInline(parent, nodes) {
  for (const node of nodes) {
    if (node.type === "text") { parent.append(document.createTextNode(node.text)); continue; }
    if (node.type === "break") { make(parent, "br"); continue; }
    if (node.type === "link") {
      const link = make(parent, "a");
      link.setAttribute("href", node.href);
      link.setAttribute("title", node.href);
      link.setAttribute("target", "_blank");
      link.setAttribute("rel", "noopener noreferrer nofollow");
      showInline(link, node.children);
      continue;
    }
    const element = make(parent, INLINE_TAGS[node.type], node.text);
    if (node.children) showInline(element, node.children);
  }
}

// The block with its language and a button that copies it.
function showCode(parent, block) {
  const figure = make(parent, "figure", undefined, "code"), head = make(figure, "figcaption");
  make(head, "span", block.language.slice(0, 40) || "text");
  const copy = make(head, "button", "Copy");
  copy.setAttribute("type", "button");
  copy.addEventListener("click", () => copyText(block.text, copy));
  const pre = make(figure, "pre");
  pre.setAttribute("tabindex", "0");  // can be scrolled with the keyboard
  make(pre, "code", block.text);
}

// Browsers have no clipboard for pages without TLS from other machines, but they copy a selected text.
function copySelected(text, button) {
  const area = make(document.body, "textarea", text, "hidden");
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  button.focus();
  return isCopied;
}

async function copyText(text, button) {
  let isCopied = true;
  try { await navigator.clipboard.writeText(text); } catch { isCopied = copySelected(text, button); }
  const said = isCopied ? "Copied" : "Not allowed by the browser";
  const before = button.dataset.label ??= button.textContent;
  button.textContent = said;
  clearTimeout(button.timer);
  button.timer = setTimeout(() => { button.textContent = before; }, 1500);
}

function showList(parent, block) {
  const list = make(parent, block.isOrdered ? "ol" : "ul");
  if (block.isOrdered && block.start !== 1) list.setAttribute("start", block.start);
  for (const item of block.items) {
    const element = make(list, "li");
    if (item.task !== null) element.append(document.createTextNode(item.task ? "\u2611 " : "\u2610 "));
    item.blocks.forEach((child, i) => {
      // In a tight list, the text of an item is not a paragraph.
      if (child.type === "paragraph" && (!block.isLoose || (item.task !== null && i === 0))) showInline(element, parseInline(child.text, child.isOpen));
      else showBlock(element, child);
    });
  }
}

function showTable(parent, block) {
  const box = make(parent, "div", undefined, "scroll");
  box.setAttribute("tabindex", "0");
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Table");
  const table = make(box, "table"), align = (cell, i) => { if (block.align[i]) cell.className = block.align[i]; };
  const head = make(make(table, "thead"), "tr");
  block.header.forEach((text, i) => {
    const cell = make(head, "th");
    cell.setAttribute("scope", "col");
    align(cell, i);
    showInline(cell, parseInline(text, block.isOpen));
  });
  if (!block.rows.length) return;
  const body = make(table, "tbody");
  for (const row of block.rows) {
    const line = make(body, "tr");
    row.forEach((text, i) => { const cell = make(line, "td"); align(cell, i); showInline(cell, parseInline(text, block.isOpen)); });
  }
}

// The page's own headings are h1 to h3, so headings of answers begin with h4.
function showBlock(parent, block) {
  if (block.type === "paragraph") showInline(make(parent, "p"), parseInline(block.text, block.isOpen));
  else if (block.type === "heading") showInline(make(parent, "h" + Math.min(6, Math.max(4, block.level + 1)), undefined, "level-" + block.level), parseInline(block.text, block.isOpen));
  else if (block.type === "code") showCode(parent, block);
  else if (block.type === "list") showList(parent, block);
  else if (block.type === "table") showTable(parent, block);
  else if (block.type === "rule") make(parent, "hr");
  else { const quote = make(parent, "blockquote"); for (const child of block.blocks) showBlock(quote, child); }
}

// Shows Markdown in an element, also while it is streamed: only elements of changed blocks are replaced, so that a selection stays.
class MarkdownView {
  constructor(parent) {
    this.parent = parent;
    this.keys = [];
    this.shown = "=";
    this.numStable = 0;
  }

  // Returns the number of blocks that further text does not change.
  show(text, open) {
    const shown = (open ? "+" : "=") + text;
    if (shown === this.shown) return this.numStable;
    this.shown = shown;
    const blocks = parseMarkdown(text, open), keys = blocks.map(block => (block.isOpen ? "+" : "=") + block.source);
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) ++same;
    while (this.parent.childElementCount > same) this.parent.lastElementChild.remove();
    for (const block of blocks.slice(same)) showBlock(this.parent, block);
    this.keys = keys;
    this.numStable = open ? Math.max(0, blocks.length - 1) : blocks.length;
    return this.numStable;
  }

  textOfBlock(index) { return this.parent.children[index]?.textContent ?? ""; }
}
