// The current conversation and the answer that is being generated. At most one answer runs; opening another conversation stops it.
const SAVE_PERIOD_MS = 2000;  // a reload during an answer loses at most this much of it

const conversations = new Conversations(local);
const chat = {conversation: newConversation(), running: null, failure: null, models: [], settings: readSettings(), savedAt: 0};

const modelCard = () => chat.models.find(card => card.id === chat.settings.model) ?? chat.models[0];
const inputsOfModel = () => modelCard()?.inputs ?? ["text"];
const contextOfModel = () => modelCard()?.context ?? 0;

function notice(text) { setText(by("notice"), text); }

function save() {
  const {conversation} = chat;
  if (!conversation.messages.length) return;
  conversation.name = nameOf(conversation.messages);
  chat.savedAt = performance.now();
  const isSaved = attempt(() => conversations.save(conversation), false);
  if (!isSaved) notice("This conversation is too large to be kept in the browser. It is lost when you close the page.");
}

function sendMessage() {
  if (chat.running) return;
  const text = by("text").value.trim();
  if (!accepts("text") && !attachments.audio) return notice("Attach an audio file first.");
  if (!text && !attachments.images.length && !attachments.audio) return;
  const message = {role: "user", text, images: attachments.images, audio: attachments.audio?.name ?? null};
  if (attachments.audio) audioFiles.set(message, attachments.audio);
  attachments.images = [];
  attachments.audio = null;
  by("text").value = "";
  fitHeight(by("text"));
  showAttachments();
  chat.conversation.messages.push(message);
  by("welcome").hidden = true;
  showUserTurn(message);
  answer();
}

// Removes the messages after the edited one and requests a new answer.
function sendEdited(message, text) {
  const {messages} = chat.conversation, edited = {...message, text}, at = messages.indexOf(message);
  if (audioFiles.has(message)) audioFiles.set(edited, audioFiles.get(message));
  messages.splice(at, messages.length - at, edited);
  showFailure(null);
  showTurns();
  answer();
  by("text").focus();
}

function regenerate() {
  if (chat.running) return;
  const {messages} = chat.conversation;
  while (messages.length && messages[messages.length - 1].role === "assistant") messages.pop();
  showFailure(null);
  showTurns();
  if (messages.length) answer();
  by("text").focus();
}

function stopAnswer() { chat.running?.controller.abort(); }

// An answer that failed or was stopped before its first token is not a part of the conversation.
function dropIfEmpty(conversation, message) {
  if (!message.text && !message.thoughts && !message.calls.length) conversation.messages = conversation.messages.filter(one => one !== message);
}

function changesFor(messages, run) {
  if (accepts("text")) return answerTo(messages, chat.settings, run);
  const last = messages[messages.length - 1], file = audioFiles.get(last);
  if (!file) throw new ServerError("The browser does not keep audio. Attach the file again.", 0);
  return transcriptOf(file, last.text, chat.settings, run);
}

// Adds a piece of a tool call, which a stream sends by index.
function addCall(calls, piece) {
  const call = calls[piece.index ?? 0] ??= {name: "", arguments: ""};
  call.name += piece.function?.name ?? "";
  call.arguments += piece.function?.arguments ?? "";
}

// Adds one change of a stream to the answer, with its times.
function addChange(run, change) {
  const {message} = run, now = performance.now();
  if (change.text || change.thoughts || change.calls.length) run.first ??= now;
  message.text += change.text;
  message.thoughts += change.thoughts;
  for (const piece of change.calls) addCall(message.calls, piece);
  if (message.thoughts && !message.text) message.thinkMs = now - run.first;
  if (change.finish) message.finish = change.finish;
  if (change.usage) {
    message.figures = {answer: change.usage.completion_tokens, prompt: change.usage.prompt_tokens, cached: change.usage.prompt_tokens_details?.cached_tokens ?? 0,
                       firstMs: run.first ? run.first - run.start : 0, decodeMs: run.first ? now - run.first : 0};
  }
}

function showRun(run) {
  run.frame = 0;
  const now = performance.now(), {message} = run;
  const thinkMs = message.text ? message.thinkMs : run.first ? now - run.first : 0;
  if (message.thoughts && !run.isThinkingSaid) { run.isThinkingSaid = true; announce("The model is thinking."); }
  follow(() => run.view.show({elapsedMs: now - run.start, thinkMs, prompt: run.prompt}, contextOfModel()));
  run.view.announceBlocks(announce);
  if (now - chat.savedAt > SAVE_PERIOD_MS) save();
}

// Requests an answer to the conversation and shows it while it arrives.
async function answer() {
  const {conversation} = chat, question = [...conversation.messages];
  const message = {role: "assistant", text: "", thoughts: "", thinkMs: 0, calls: [], finish: "interrupted", model: modelCard()?.id ?? "", figures: null};
  conversation.messages.push(message);
  conversation.changed = Date.now();
  showFailure(null);
  notice("");
  const controller = new AbortController();
  const run = {message, controller, signal: controller.signal, id: "chat-" + randomId(), start: performance.now(), first: undefined, frame: 0, prompt: null};
  setRunning(run);
  run.view = showTurn(message);
  showRun(run);
  scrollToEnd();
  const request = () => { run.frame ||= requestAnimationFrame(() => showRun(run)); };
  const timer = setInterval(request, 100);
  watchPrompt(run);
  save();
  showConversations();
  let failed = null;
  try {
    for await (const change of changesFor(question, run)) { addChange(run, change); request(); }
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped"; else failed = error;
  }
  clearInterval(timer);
  cancelAnimationFrame(run.frame);
  finish(run, conversation, failed);
}

function finish(run, conversation, failed) {
  const {message, view} = run;
  if (chat.running === run) setRunning(null);
  if (failed || message.finish === "stopped") dropIfEmpty(conversation, message);
  conversation.changed = Date.now();
  if (conversation !== chat.conversation) return;
  follow(() => {
    if (conversation.messages.includes(message)) view.show(null, contextOfModel()); else view.article.remove();
    if (failed) showFailure(failed);
    showLastActions();
  });
  view.announceBlocks(announce);
  if (!failed && !view.end.hidden) announce(view.end.textContent);
  save();
  showConversations();
}

function setRunning(run) {
  chat.running = run;
  by("send").textContent = run ? "Stop" : "Send";
  document.body.classList.toggle("busy", !!run);
  showLastActions();
}

// Makes another conversation the current one. A running answer is stopped and stays as far as it came.
function openConversation(conversation) {
  if (chat.running) {
    const {message} = chat.running;
    stopAnswer();
    message.finish = "stopped";
    dropIfEmpty(chat.conversation, message);
    save();
    setRunning(null);
  }
  chat.conversation = conversation;
  attempt(() => session.setItem("quire-current", conversation.id), null);
  showFailure(null);
  notice("");
  showTurns();
  showConversations();
  scrollToEnd();
}
