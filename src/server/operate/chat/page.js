// The list of conversations, the settings, keys and buttons. The page starts at the end of this file.
const fitHeight = text => { text.style.height = "auto"; text.style.height = text.scrollHeight + 2 + "px"; };
const isSendKey = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;

function showConversations() {
  const list = conversations.list(), focused = document.activeElement?.dataset?.action, focusedId = document.activeElement?.closest("li")?.dataset.id;
  by("conversations").replaceChildren(...list.map(conversationItem));
  setText(by("side-note"), list.length ? "Conversations are kept in this browser only." : "No conversations yet. They are kept in this browser only.");
  if (focusedId) by("conversations").querySelector(`li[data-id="${CSS.escape(focusedId)}"] [data-action="${focused}"]`)?.focus();
}

function conversationItem(entry) {
  const item = make(null, "li"), isCurrent = entry.id === chat.conversation.id;
  item.dataset.id = entry.id;
  const name = actionButton(item, entry.name, "", () => {
    const conversation = isCurrent ? chat.conversation : conversations.load(entry.id);
    if (!conversation) return notice("This conversation cannot be read.");
    if (!isCurrent) openConversation(conversation);
    closeSide();
    by("text").focus();
  });
  name.className = "name";
  name.title = entry.name;
  if (isCurrent) { item.className = "current"; name.setAttribute("aria-current", "true"); }
  const exporter = actionButton(item, "Export", "Export as JSON: " + entry.name, () => exportConversation(entry.id));
  const remover = actionButton(item, "Delete", "Delete: " + entry.name, button => {
    // The first click asks, the second deletes.
    if (button.dataset.asked) return removeConversation(entry.id);
    button.dataset.asked = "yes";
    button.textContent = "Really?";
    button.setAttribute("aria-label", "Really delete: " + entry.name);
  });
  remover.addEventListener("blur", () => { delete remover.dataset.asked; remover.textContent = "Delete"; remover.setAttribute("aria-label", "Delete: " + entry.name); });
  [["open", name], ["export", exporter], ["delete", remover]].forEach(([action, button]) => { button.dataset.action = action; });
  return item;
}

function removeConversation(id) {
  if (id === chat.conversation.id) openConversation(newConversation());
  attempt(() => conversations.remove(id), null);
  showConversations();
  by("text").focus();
}

function exportConversation(id) {
  const conversation = id === chat.conversation.id ? chat.conversation : conversations.load(id);
  if (!conversation) return notice("This conversation cannot be read.");
  const link = document.createElement("a"), url = URL.createObjectURL(new Blob([exportedForm(conversation)], {type: "application/json"}));
  link.href = url;
  link.download = conversation.name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") + ".json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The list is next to the conversation on wide screens, and opens over it on narrow ones.
const isSideOpen = () => document.body.classList.contains("side-open");
function openSide() {
  document.body.classList.add("side-open");
  by("side-open").setAttribute("aria-expanded", "true");
  by("shade").hidden = false;
  document.querySelector(".column").inert = true;
  by("side-close").focus();
}
function closeSide() {
  if (!isSideOpen()) return;
  document.body.classList.remove("side-open");
  by("side-open").setAttribute("aria-expanded", "false");
  by("shade").hidden = true;
  document.querySelector(".column").inert = false;
  by("side-open").focus();
}

async function showModels() {
  try {
    chat.models = await models();
    setText(by("model-name"), modelCard()?.id ?? "");
  } catch (error) {
    chat.models = [];
    setText(by("model-name"), error.status === 401 ? "API key required: see Settings" : error.message);
  }
  const select = by("model"), several = chat.models.length > 1;
  select.hidden = !several;
  by("model-name").hidden = several;
  select.replaceChildren(...chat.models.map(card => { const option = make(null, "option", card.id); option.value = card.id; return option; }));
  if (several) select.value = modelCard().id;
  showAttachButton();
}

const FIELDS = {system: "set-system", temperature: "set-temperature", maxTokens: "set-max-tokens"};

function openSettings(focus = "set-system") {
  for (const [name, id] of Object.entries(FIELDS)) by(id).value = chat.settings[name];
  by("set-key").value = session.getItem(API_KEY) ?? "";
  if (!by("settings").open) by("settings").showModal();
  by(focus).focus();
}

function storeSettings() {
  attempt(() => local.setItem(SETTINGS_KEY, JSON.stringify(chat.settings)), null);
}

function closeSettings() {
  for (const [name, id] of Object.entries(FIELDS)) chat.settings[name] = by(id).value.trim();
  storeSettings();
  const key = by("set-key").value.trim(), isChanged = key !== (session.getItem(API_KEY) ?? "");
  by("set-key").value = "";
  if (!isChanged) return;
  if (key) session.setItem(API_KEY, key); else session.removeItem(API_KEY);
  showModels();
}

const THEMES = {auto: ["Auto", "system setting"], light: ["Light", "light"], dark: ["Dark", "dark"]};
function setTheme(theme) {
  const [name, label] = THEMES[theme] ?? THEMES.auto;
  if (theme in THEMES && theme !== "auto") document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  attempt(() => local.setItem(THEME_KEY, theme), null);
  by("theme").textContent = name;
  by("theme").setAttribute("aria-label", "Colours: " + label);
}

by("form").addEventListener("submit", event => { event.preventDefault(); if (chat.running) stopAnswer(); else sendMessage(); });
by("text").addEventListener("input", () => { fitHeight(by("text")); notice(""); });
by("text").addEventListener("keydown", event => { if (isSendKey(event)) { event.preventDefault(); sendMessage(); } });
by("new").addEventListener("click", () => { if (chat.conversation.messages.length) openConversation(newConversation()); closeSide(); by("text").focus(); });
by("side-open").addEventListener("click", () => isSideOpen() ? closeSide() : openSide());
by("side-close").addEventListener("click", closeSide);
by("shade").addEventListener("click", closeSide);
by("settings-open").addEventListener("click", () => openSettings());
by("settings").addEventListener("close", closeSettings);
by("set-reset").addEventListener("click", () => { for (const id of Object.values(FIELDS)) by(id).value = ""; });
by("model").addEventListener("change", () => { chat.settings.model = by("model").value; storeSettings(); showAttachButton(); });
by("theme").addEventListener("click", () => { const all = Object.keys(THEMES); setTheme(all[(all.indexOf(local.getItem(THEME_KEY) ?? "auto") + 1) % all.length]); });
by("to-end").addEventListener("click", scrollToEnd);
by("log").addEventListener("scroll", showToEnd);
addEventListener("keydown", event => {
  if (event.key !== "Escape" || event.defaultPrevented || by("settings").open) return;
  if (isSideOpen()) closeSide(); else stopAnswer();
});
addEventListener("pagehide", () => { if (chat.running) save(); });
addEventListener("storage", event => { if (event.key === LIST_KEY) showConversations(); });

setTheme(attempt(() => local.getItem(THEME_KEY), "auto"));
openConversation(attempt(() => conversations.load(session.getItem("quire-current")), null) ?? newConversation());
showModels();
