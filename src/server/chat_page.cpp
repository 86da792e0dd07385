#include "server/chat_page.h"

namespace quire {

std::string_view chat_page_html() {
  // Text of users and models is only ever set through textContent.
  static constexpr std::string_view kHtml = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>quire</title>
<style>
:root { color-scheme: light dark; --bg: #fbfaf8; --fg: #1f1e1c; --soft: #75716a; --line: #e4e0d8; --user: #efebe3; --accent: #8a4b2a; --card: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --bg: #1a1917; --fg: #ebe8e2; --soft: #9a958c; --line: #35322d; --user: #2b2925; --accent: #d99a6c; --card: #22201d; }
}
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; background: var(--bg); color: var(--fg);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
header, main, footer { width: 100%; max-width: 48rem; margin: 0 auto; padding: 0 1.25rem; }
header { display: flex; align-items: baseline; gap: .75rem; padding-top: 1rem; padding-bottom: .75rem; border-bottom: 1px solid var(--line); }
header h1 { margin: 0; font: 600 1.25rem/1.2 Georgia, "Noto Serif", serif; letter-spacing: .01em; }
#model { color: var(--soft); font-size: .875rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; flex: 1; }
main { flex: 1; overflow-y: auto; padding-top: 1.25rem; padding-bottom: 1.25rem; }
.hint { color: var(--soft); margin: 18vh 0 0; text-align: center; }
.hint b { display: block; color: var(--fg); font: 400 1.75rem/1.3 Georgia, "Noto Serif", serif; margin-bottom: .25rem; }
.turn { margin: 0 0 1.25rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.user { width: fit-content; max-width: 85%; margin-left: auto; padding: .5rem .9rem; border-radius: 1rem 1rem .25rem 1rem; background: var(--user); }
.note { color: var(--soft); font-size: .8125rem; margin-top: .3rem; font-variant-numeric: tabular-nums; }
.error { color: #b3261e; }
@media (prefers-color-scheme: dark) { .error { color: #f2b8b5; } }
.writing::after { content: ""; display: inline-block; width: .5em; height: 1em; margin-left: .1em; vertical-align: -.15em; background: var(--accent);
  animation: blink 1s steps(2) infinite; }
@keyframes blink { to { opacity: 0; } }
footer { padding-bottom: 1rem; }
form { display: flex; gap: .5rem; align-items: flex-end; padding: .5rem; border: 1px solid var(--line); border-radius: 1rem; background: var(--card); }
form:focus-within { border-color: var(--accent); }
textarea { flex: 1; resize: none; border: 0; outline: 0; padding: .4rem .5rem; max-height: 12rem; background: none; color: inherit; font: inherit; }
button { border: 0; border-radius: .65rem; padding: .5rem 1rem; background: var(--accent); color: var(--bg); font: 600 .9375rem/1.4 inherit;
  font-family: inherit; cursor: pointer; }
button.plain { background: none; color: var(--soft); padding: .25rem .5rem; font-weight: 400; font-size: .875rem; }
button.plain:hover { color: var(--fg); }
button:focus-visible, summary:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
details { margin-top: .5rem; color: var(--soft); font-size: .875rem; }
summary { cursor: pointer; width: fit-content; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .6rem; padding: .6rem 0; }
label { display: block; }
input { display: block; width: 100%; margin-top: .15rem; padding: .35rem .5rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--card); color: var(--fg); font: inherit; }
label.wide { grid-column: 1 / -1; }
</style>
</head>
<body>
<header><h1>quire</h1><span id="model"></span><button class="plain" id="clear" type="button">New chat</button></header>
<main id="log" aria-live="polite"><p class="hint"><b>Ask something.</b>Enter sends, Shift+Enter starts a new line.</p></main>
<footer>
<form id="form">
<textarea id="text" rows="1" placeholder="Message" aria-label="Message" autofocus></textarea>
<button id="send" type="submit">Send</button>
</form>
<details>
<summary>Settings</summary>
<div class="settings">
<label>Temperature<input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
<label>Longest answer, tokens<input id="max_tokens" type="number" min="1" step="1" value="512"></label>
<label>Key, if the server asks for one<input id="key" type="password" autocomplete="off"></label>
<label class="wide">System message<input id="system" type="text"></label>
</div>
</details>
</footer>
<script>
"use strict";
const $ = id => document.getElementById(id);
const log = $("log"), text = $("text"), send = $("send"), hint = log.firstElementChild;
let messages = [], running = null;

function headers() {
  const key = $("key").value.trim();
  return key ? {"Content-Type": "application/json", "Authorization": "Bearer " + key} : {"Content-Type": "application/json"};
}

function add(parent, className, content) {
  const element = document.createElement("div");
  element.className = className;
  element.textContent = content;
  parent.append(element);
  return element;
}

function follow(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function resize() {
  text.style.height = "auto";
  text.style.height = text.scrollHeight + "px";
}

function setRunning(controller) {
  running = controller;
  send.textContent = controller ? "Stop" : "Send";
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      yield JSON.parse(part.slice(6));
    }
  }
}

async function failure(response) {
  try { return (await response.json()).error.message; } catch { return response.status + " " + response.statusText; }
}

function figures(usage, start, first) {
  if (!usage || !first) return "";
  const seconds = (performance.now() - first) / 1000;
  const speed = usage.completion_tokens > 1 && seconds > 0 ? ((usage.completion_tokens - 1) / seconds).toFixed(1) + " tokens/s, " : "";
  return usage.completion_tokens + " tokens, " + speed + "first after " + Math.round(first - start) + " ms; prompt " + usage.prompt_tokens +
    " tokens, " + usage.prompt_tokens_details.cached_tokens + " cached";
}

async function ask(question) {
  hint.remove();
  add(log, "turn user", question);
  messages.push({role: "user", content: question});
  const turn = add(log, "turn", ""), body = add(turn, "writing", ""), note = add(turn, "note", "");
  log.scrollTop = log.scrollHeight;
  const controller = new AbortController(), conversation = messages;
  setRunning(controller);
  const system = $("system").value.trim(), start = performance.now();
  let answer = "", usage = null, first = 0;
  try {
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), signal: controller.signal, body: JSON.stringify({
      messages: system ? [{role: "system", content: system}, ...messages] : messages, stream: true,
      stream_options: {include_usage: true, continuous_usage_stats: true},
      temperature: Number($("temperature").value), max_completion_tokens: Number($("max_tokens").value) || undefined})});
    if (!response.ok) throw new Error(await failure(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      const delta = event.choices[0]?.delta?.content;
      if (!delta) continue;
      first = first || performance.now();
      answer += delta;
      follow(() => { body.textContent = answer; note.textContent = figures(usage, start, first); });
    }
  } catch (error) {
    if (error.name !== "AbortError") add(turn, "error", error.message);
    else note.textContent = (figures(usage, start, first) + "  Stopped.").trim();
  }
  body.classList.remove("writing");
  if (answer) conversation.push({role: "assistant", content: answer});
  else conversation.pop();
  if (running === controller) setRunning(null);
}

function submit() {
  if (running) return running.abort();
  const question = text.value.trim();
  if (!question) return;
  text.value = "";
  resize();
  ask(question);
}

$("form").addEventListener("submit", event => { event.preventDefault(); submit(); });
text.addEventListener("input", resize);
text.addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) submit(); }
});
$("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  log.replaceChildren(hint);
  text.focus();
});
async function showModel() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    $("model").textContent = response.ok ? (await response.json()).data[0].id : "needs a key: see Settings";
  } catch { $("model").textContent = "the server does not answer"; }
}
$("key").addEventListener("change", showModel);
showModel();
</script>
</body>
</html>
)html";
  return kHtml;
}

}  // namespace quire
