// Shows one answer: the model's thoughts, the text, calls of tools, the reason of its end, and figures.
const by = id => document.getElementById(id);
const whole = value => Math.round(value).toLocaleString("en");
const duration = ms => ms < 1000 ? Math.round(ms) + " ms" : ms < 60_000 ? (ms / 1000).toFixed(1) + " s" : Math.floor(ms / 60_000) + " min " + Math.round(ms % 60_000 / 1000) + " s";
const rate = value => value < 100 ? value.toFixed(1) : whole(value);
const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

function figuresText(figures) {
  if (!figures?.answer) return "";
  const parts = [counted(figures.answer, "token")];
  // After a few milliseconds, the speed is that of the network.
  if (figures.answer > 1 && figures.decodeMs > 20) parts.push(rate((figures.answer - 1) * 1000 / figures.decodeMs) + " tokens/s");
  if (figures.firstMs > 0) parts.push("first token after " + duration(figures.firstMs));
  parts.push(`prompt ${counted(figures.prompt, "token")}, ${whole(figures.cached)} cached`);
  return parts.join(" · ");
}

const ENDS = {
  content_filter: "A content filter ended this answer.",
  tool_calls: "The model calls tools. This page does not run tools.",
  repetition: "The server ended this answer because the text repeats itself.",
  abort: "The server aborted this answer.",
  error: "This answer ended with an error.",
  stopped: "Stopped.",
  interrupted: "This answer was interrupted before its end."};

const fillsContext = (message, context) => !!context && message.figures?.prompt + message.figures?.answer >= context - 1;

// Returns why the answer ended, or "" if the model ended it. `context`: the model's maximum number of tokens.
function endText(message, context) {
  if (message.finish !== "length") return message.finish === "stop" ? "" : ENDS[message.finish] ?? `The answer ended: ${message.finish}.`;
  const count = message.figures?.answer, cut = count ? `Cut at ${counted(count, "token")}` : "Cut";
  const where = message.thoughts && !message.text ? ", before the answer began" : "";
  if (fillsContext(message, context)) return `${cut}${where}: the context of ${whole(context)} tokens is full. Start a new chat.`;
  return `${cut}${where}: raise the limit to get a longer answer.`;
}

const lastLine = text => text.slice(-400).trimEnd().split("\n").pop().replace(/^[\s>*#-]+/, "");
const callText = call => `${call.name}(${call.arguments})`;

class AnswerView {
  constructor(parent, message, label) {
    this.message = message;
    this.article = make(parent, "article", undefined, "turn answer");
    make(this.article, "h3", label, "hidden");
    this.thoughts = make(this.article, "details", undefined, "thoughts");
    const summary = make(this.thoughts, "summary");
    this.thoughtState = make(summary, "span");
    this.thoughtLine = make(summary, "span", undefined, "line");
    this.thoughtText = make(this.thoughts, "div", undefined, "thought-text");
    this.body = make(this.article, "div", undefined, "markdown");
    this.markdown = new MarkdownView(this.body);
    this.calls = make(this.article, "pre", undefined, "calls");
    this.calls.setAttribute("tabindex", "0");
    this.waiting = make(this.article, "p", undefined, "waiting");
    this.bar = make(this.article, "progress");
    this.bar.setAttribute("aria-label", "Prompt computed");
    this.end = make(this.article, "p", undefined, "end");
    this.foot = make(this.article, "div", undefined, "foot");
    this.figures = make(this.foot, "span", undefined, "figures");
    this.numAnnounced = 0;
    this.wasThinking = false;
  }

  // `progress` of a running answer: {elapsedMs, thinkMs, prompt} (`prompt`: see promptState() or null); null: the answer has ended.
  show(progress, context) {
    const {message} = this, isThinking = !!progress && !!message.thoughts && !message.text && !message.calls.length;
    this.showThoughts(progress, isThinking);
    this.numStable = this.markdown.show(message.text, !!progress);
    this.body.hidden = this.copy.hidden = !message.text;
    this.calls.hidden = !message.calls.length;
    setText(this.calls, message.calls.map(callText).join("\n"));
    this.waiting.hidden = !progress || !!(message.text || message.thoughts || message.calls.length);
    setText(this.waiting, this.waiting.hidden ? "" : `${progress.prompt?.text ?? "Waiting for the first token"}, ${(progress.elapsedMs / 1000).toFixed(1)} s`);
    this.bar.hidden = this.waiting.hidden || !progress.prompt?.total;
    if (!this.bar.hidden) { this.bar.max = progress.prompt.total; this.bar.value = progress.prompt.done; }
    setText(this.end, progress ? "" : endText(message, context));
    this.end.hidden = !this.end.textContent;
    setText(this.figures, figuresText(message.figures));
    this.article.classList.toggle("running", !!progress);
    this.article.classList.toggle("writing", !!progress && !!message.text);
  }

  showThoughts(progress, isThinking) {
    const {message} = this;
    this.thoughts.hidden = !message.thoughts;
    if (!message.thoughts) return;
    if (this.wasThinking && !isThinking) this.thoughts.open = false;
    this.wasThinking = isThinking;
    const time = progress ? progress.thinkMs : message.thinkMs;
    setText(this.thoughtState, isThinking ? `Thinking, ${Math.floor(time / 1000)} s` : time > 500 ? "Thought for " + duration(time) : "Thoughts");
    setText(this.thoughtLine, isThinking ? lastLine(message.thoughts) : "");
    setText(this.thoughtText, message.thoughts.trim());
  }

  // Passes the text of blocks that have become complete to `announce`, so that a screen reader reads them one time.
  announceBlocks(announce) {
    for (; this.numAnnounced < this.numStable; ++this.numAnnounced) announce(this.markdown.textOfBlock(this.numAnnounced));
  }
}

// Changes the text only if it differs: a change would end a selection.
const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// A small button that reports what happened on itself for a moment.
function actionButton(parent, text, label, act) {
  const button = make(parent, "button", text, "plain");
  button.setAttribute("type", "button");
  if (label) button.setAttribute("aria-label", label);
  button.addEventListener("click", () => act(button));
  return button;
}
