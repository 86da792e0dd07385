// Parses the Markdown of an answer into a tree of blocks. The tree has only strings; markdown_view.js makes elements and text nodes from it.
// Supported: headings (#), emphasis, lists, task lists, tables, quotes, rules, links, code. All other syntax, such as HTML, stays text.
// `open` means that the text is still being streamed: unfinished code, tables, emphasis and links at its end count as complete.
const MAX_DEPTH = 16;  // nesting of quotes and lists; deeper markers are text
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
// A last line of a stream with only these characters: the next characters decide what it is.
const UNDECIDED = /^\s*(?:[-*+_~`#>|]{1,3}|\d{1,9}[.)]?)\s*$/;

const isBlank = line => !/\S/.test(line);
const indentOf = line => line.length - line.trimStart().length;

// Returns the heading in the line, or null.
function headingOf(line) {
  const match = /^ {0,3}(#{1,6})(?=\s|$)/.exec(line);
  return match && {type: "heading", level: match[1].length, text: line.slice(match[0].length).trim().replace(/(?:^|[ \t])#+$/, "").trim()};
}

function fenceOf(line) {
  const match = FENCE.exec(line);
  // The language of a fence of backticks has no backticks; otherwise the line is a code span.
  return match && !(match[1][0] === "`" && match[2].includes("`")) ? {mark: match[1], language: match[2].trim().split(/\s/)[0]} : null;
}

// Returns whether the line ends a paragraph before it.
function beginsBlock(line) {
  const item = ITEM.exec(line);
  return !!(headingOf(line) || fenceOf(line) || RULE.test(line) || QUOTE.test(line) ||
    (item && item[0].length < line.length && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)));
}

// Splits a row of a table at its unescaped bars.
function cellsOf(line) {
  const cells = [];
  let cell = "", text = line.trim();
  if (text[0] === "|") text = text.slice(1);
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") { cell += "|"; ++i; }
    else if (text[i] === "|") { cells.push(cell.trim()); cell = ""; }
    else cell += text[i];
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

const alignmentOf = cell => cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : cell.startsWith(":") ? "left" : "";

// Returns the table whose header is lines[at], or null. A header at the end of a stream is a table before its delimiter row is complete.
function tableAt(lines, at, open) {
  if (!lines[at].includes("|")) return null;
  const header = cellsOf(lines[at]), delimiters = lines[at + 1] ?? "", isLast = at + 2 >= lines.length;
  const marks = cellsOf(delimiters), isWhole = marks.length === header.length && marks.every(mark => /^:?-+:?$/.test(mark));
  const isBegun = open && isLast && lines[at].trim().startsWith("|") && /^[\s|:-]*$/.test(delimiters);
  if (!header.length || !(isWhole || isBegun)) return null;
  const table = {type: "table", align: marks.map(alignmentOf), header, rows: []};
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|") && !beginsBlock(lines[next]); ++next)
    table.rows.push(cellsOf(lines[next]).slice(0, header.length));
  return {block: table, next: Math.min(next, lines.length)};
}

function codeAt(lines, at, fence) {
  const indent = indentOf(lines[at]), text = [];
  let next = at + 1, isClosed = false;
  for (; next < lines.length && !isClosed; ++next) {
    const line = lines[next], trimmed = line.trim();
    isClosed = indentOf(line) < 4 && trimmed.length >= fence.mark.length && trimmed === fence.mark[0].repeat(trimmed.length);
    if (!isClosed) text.push(line.slice(Math.min(indent, indentOf(line))));
  }
  return {block: {type: "code", language: fence.language, text: text.join("\n"), isClosed}, next};
}

function quoteAt(lines, at, open, depth) {
  const inner = [];
  let next = at;
  for (; next < lines.length; ++next) {
    const line = lines[next];
    if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
    else if (isBlank(line) || beginsBlock(line) || isBlank(inner[inner.length - 1])) break;
    else inner.push(line);  // a paragraph in a quote may continue without ">"
  }
  return {block: {type: "quote", blocks: parseLines(inner, open && next >= lines.length, depth + 1)}, next};
}

const markOf = item => item[2][item[2].length - 1];

// Collects the lines of one list item, without its indentation.
function itemLines(lines, at, item) {
  const indent = item[1].length, body = [];
  // More than four spaces after the marker belong to the text.
  const content = indent + item[2].length + (item[3].length >= 1 && item[3].length <= 4 ? item[3].length : 1);
  body.push(lines[at].slice(content));
  let next = at + 1;
  for (; next < lines.length; ++next) {
    const line = lines[next], own = indentOf(line);
    // Models often indent a nested list by two spaces, even below "1. ".
    if (isBlank(line)) body.push("");
    else if (own >= content || (own >= indent + 2 && ITEM.test(line))) body.push(line.slice(Math.min(own, content)));
    else if (!body[body.length - 1] || ITEM.test(line) || beginsBlock(line)) break;
    else body.push(line.slice(own));
  }
  let count = body.length;
  while (count > 1 && !body[count - 1]) --count;
  return {body: body.slice(0, count), isSpaced: count < body.length, next};
}

function listAt(lines, at, open, depth) {
  const first = ITEM.exec(lines[at]), isOrdered = /\d/.test(first[2]);
  const list = {type: "list", isOrdered, start: isOrdered ? parseInt(first[2], 10) : 1, isLoose: false, items: []};
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || markOf(item) !== markOf(first) || RULE.test(lines[next])) break;
    const found = itemLines(lines, next, item), isLast = found.next >= lines.length;
    const task = /^\[([ xX])\] /.exec(found.body[0]);
    if (task) found.body[0] = found.body[0].slice(4);
    const blocks = parseLines(found.body, open && isLast, depth + 1);
    list.items.push({task: task ? task[1] !== " " : null, blocks});
    next = found.next;
    const hasNext = !isLast && ITEM.test(lines[next]) && markOf(ITEM.exec(lines[next])) === markOf(first);
    list.isLoose ||= (found.isSpaced && hasNext) || blocks.some((block, i) => i > 0 && block.isSpaced);
  }
  return {block: list, next};
}

function paragraphAt(lines, at, open, depth) {
  let next = at + 1;
  while (next < lines.length && !isBlank(lines[next]) && !(depth < MAX_DEPTH && beginsBlock(lines[next])) && !tableAt(lines, next, open)) ++next;
  return {block: {type: "paragraph", text: lines.slice(at, next).map(line => line.trim()).join("\n")}, next};
}

function blockAt(lines, at, open, depth) {
  const line = lines[at], fence = fenceOf(line), heading = headingOf(line);
  if (fence) return codeAt(lines, at, fence);
  if (heading) return {block: heading, next: at + 1};
  if (RULE.test(line)) return {block: {type: "rule"}, next: at + 1};
  if (QUOTE.test(line) && depth < MAX_DEPTH) return quoteAt(lines, at, open, depth);
  if (ITEM.test(line) && depth < MAX_DEPTH) return listAt(lines, at, open, depth);
  return tableAt(lines, at, open) ?? paragraphAt(lines, at, open, depth);
}

// `isSpaced` of a block: a blank line is before it. `source`: its text, so that a view can keep the element of a block that did not change.
function parseLines(lines, open, depth) {
  const blocks = [];
  for (let at = 0, isSpaced = false; at < lines.length;) {
    if (isBlank(lines[at])) { isSpaced = true; ++at; continue; }
    const {block, next} = blockAt(lines, at, open, depth);
    const isOpen = open && next >= lines.length;
    blocks.push({...block, isSpaced, isOpen, source: lines.slice(at, next).join("\n")});
    isSpaced = false;
    at = next;
  }
  return blocks;
}

function parseMarkdown(text, open = false) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n").map(line => line.replace(/^[ \t]+/, spaces => spaces.replace(/\t/g, "    ")));
  if (open && UNDECIDED.test(lines[lines.length - 1])) lines.pop();
  return parseLines(lines, open, 0);
}
