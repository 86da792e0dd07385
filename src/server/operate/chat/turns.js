// Shows the turns of the conversation, with the buttons to copy, edit and regenerate.
function showTurns() {
  by("turns").replaceChildren();
  chat.conversation.messages.forEach(showTurn);
  by("welcome").hidden = chat.conversation.messages.length > 0;
  showLastActions();
}

function showTurn(message) {
  if (message.role === "user") return showUserTurn(message);
  const view = new AnswerView(by("turns"), message, "Answer");
  view.actions = make(view.foot, "span", undefined, "actions");
  view.copy = actionButton(view.actions, "Copy", "Copy the answer", button => copyText(message.text, button));
  view.show(null, contextOfModel());
  return view;
}

function showUserTurn(message) {
  const article = make(by("turns"), "article", undefined, "turn user");
  make(article, "h3", "You", "hidden");
  const bubble = make(article, "div", undefined, "bubble");
  for (const image of message.images) {
    if (image.url) showImage(bubble, image);
    else make(bubble, "p", `${image.name}: too large to be kept in the browser. Attach it again.`, "note");
  }
  if (message.audio) make(bubble, "p", message.audio, "file");
  if (message.text) make(bubble, "div", message.text, "text");
  const actions = make(make(article, "div", undefined, "foot"), "span", undefined, "actions");
  actionButton(actions, "Copy", "Copy your message", button => copyText(message.text, button));
  actionButton(actions, "Edit", "Edit your message; the turns after it are removed", () => editTurn(message, article));
}

// Replaces a message of the user by a form. Sending it removes the turns after the message.
function editTurn(message, article) {
  if (chat.running) return;
  const form = make(null, "form", undefined, "edit"), text = make(form, "textarea");
  text.setAttribute("aria-label", "Your message");
  text.value = message.text;
  const buttons = make(form, "p", undefined, "buttons");
  const close = () => { form.replaceWith(article); article.querySelector(".actions").lastElementChild.focus(); };
  actionButton(buttons, "Cancel", "", close);
  make(buttons, "button", "Send");
  form.addEventListener("submit", event => { event.preventDefault(); if (text.value.trim() || message.images.length) sendEdited(message, text.value.trim()); });
  form.addEventListener("keydown", event => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (isSendKey(event) && event.target === text) { event.preventDefault(); form.requestSubmit(); }
  });
  text.addEventListener("input", () => fitHeight(text));
  article.replaceWith(form);
  fitHeight(text);
  text.focus();
}

// The last answer can be generated again. A question without an answer can be sent again.
function showLastActions() {
  for (const old of by("turns").querySelectorAll(".regenerate")) old.remove();
  const {messages} = chat.conversation, last = messages[messages.length - 1];
  if (chat.running || !last || chat.failure) return;
  const actions = [...by("turns").querySelectorAll(".turn .actions")].pop();
  if (!actions) return;
  const isAnswer = last.role === "assistant";
  actionButton(actions, isAnswer ? "Regenerate" : "Answer", isAnswer ? "Regenerate the answer" : "Request an answer", regenerate).classList.add("regenerate");
  const end = by("turns").lastElementChild.querySelector(".end");
  if (isAnswer && last.finish === "length" && !fillsContext(last, contextOfModel()) && end && !end.querySelector("button")) {
    end.append(" ");
    actionButton(end, "Settings", "Open the settings to raise the limit", () => openSettings("set-max-tokens"));
  }
}

function showFailure(error) {
  chat.failure = error;
  const box = by("failure");
  box.replaceChildren();
  if (!error) return;
  make(box, "p", error.message);
  const buttons = make(box, "p", undefined, "buttons");
  actionButton(buttons, "Retry", "", regenerate);
  if (error.status === 401 || error.status === 403) actionButton(buttons, "Settings", "Open the settings to give an API key", () => openSettings("set-key"));
}

// Scrolls to the end after a change, if the end was visible before it.
function follow(change) {
  const log = by("log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  showToEnd();
}

function showToEnd() {
  const log = by("log");
  by("to-end").hidden = log.scrollHeight - log.scrollTop - log.clientHeight < 200;
}

function scrollToEnd() {
  by("log").scrollTop = by("log").scrollHeight;
  showToEnd();
}

// Announces a text to screen readers. Old texts are removed, so that they are not found twice in the page.
function announce(text) {
  if (!text) return;
  make(by("said"), "p", text);
  while (by("said").childElementCount > 8) by("said").firstElementChild.remove();
}
