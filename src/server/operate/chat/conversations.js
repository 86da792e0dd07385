// Keeps conversations in the browser's storage: a list with names, and one entry per conversation. The list is bounded by its number and by the
// characters of all conversations; the oldest conversations are removed first.
//
// A conversation is {id, name, changed, messages}. A message of a user is {role: "user", text, images: [{name, url}], audio: name}.
// An answer is {role: "assistant", text, thoughts, thinkMs, calls, finish, model, figures}. `finish` is a finish_reason of the server, "stopped"
// (by the user) or "interrupted".
const MAX_CONVERSATIONS = 200;
const MAX_STORED = 4_000_000;  // characters; browsers allow about 5 million per site
const MAX_STORED_IMAGE = 300_000;
const LIST_KEY = "quire-conversations", ENTRY_KEY = "quire-conversation-";

const isText = value => typeof value === "string";

// Returns the message if it has the form above, or null. The storage may have been written by another version of the page.
function checkedMessage(message) {
  if (message?.role === "user" && isText(message.text)) {
    const images = (Array.isArray(message.images) ? message.images : []).filter(image => isText(image?.name) && (image.url === null || isImageUrl(image.url)));
    return {role: "user", text: message.text, images, audio: isText(message.audio) ? message.audio : null};
  }
  if (message?.role !== "assistant" || !isText(message.text)) return null;
  return {...message, thoughts: isText(message.thoughts) ? message.thoughts : "", finish: isText(message.finish) ? message.finish : "interrupted",
          calls: (Array.isArray(message.calls) ? message.calls : []).filter(Boolean)};
}

const isImageUrl = url => isText(url) && /^data:image\/(?:png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]*$/.test(url);

const nameOf = messages => {
  const first = messages.find(message => message.role === "user");
  const text = (first?.text || first?.audio || first?.images?.[0]?.name || "").replace(/\s+/g, " ").trim();
  return text.length > 60 ? text.slice(0, 59).trim() + "…" : text || "New chat";
};

// The form in which a conversation is stored: without large images.
const storedForm = conversation => JSON.stringify({...conversation, messages: conversation.messages.map(message => message.images
  ? {...message, images: message.images.map(image => image.url?.length > MAX_STORED_IMAGE ? {name: image.name, url: null} : image)} : message)});

class Conversations {
  constructor(storage) { this.storage = storage; }

  // Returns [{id, name, changed, size}], the newest first.
  list() {
    try {
      const list = JSON.parse(this.storage.getItem(LIST_KEY));
      return list.filter(entry => isText(entry.id) && isText(entry.name)).sort((a, b) => b.changed - a.changed);
    } catch { return []; }
  }

  load(id) {
    try {
      const {name, changed, messages} = JSON.parse(this.storage.getItem(ENTRY_KEY + id));
      const checked = messages.map(checkedMessage);
      return checked.every(Boolean) ? {id, name, changed, messages: checked} : null;
    } catch { return null; }
  }

  // Stores the conversation, and removes the oldest ones until there is room. Returns false if it is too large for the storage.
  save(conversation) {
    const text = storedForm(conversation), entry = {id: conversation.id, name: conversation.name, changed: conversation.changed, size: text.length};
    let others = this.list().filter(one => one.id !== entry.id);
    const isFull = () => others.length >= MAX_CONVERSATIONS || others.reduce((sum, one) => sum + one.size, text.length) > MAX_STORED;
    for (;;) {
      while (others.length && isFull()) others = this.dropOldest(others);
      try {
        if (text.length > MAX_STORED) throw new Error("too large");
        this.storage.setItem(ENTRY_KEY + entry.id, text);
        this.storage.setItem(LIST_KEY, JSON.stringify([entry, ...others]));
        return true;
      } catch {
        if (text.length > MAX_STORED || !others.length) return false;
        others = this.dropOldest(others);
      }
    }
  }

  dropOldest(others) {
    this.storage.removeItem(ENTRY_KEY + others[others.length - 1].id);
    return others.slice(0, -1);
  }

  remove(id) {
    this.storage.removeItem(ENTRY_KEY + id);
    this.storage.setItem(LIST_KEY, JSON.stringify(this.list().filter(entry => entry.id !== id)));
  }
}

const randomId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
const newConversation = () => ({id: randomId(), name: "New chat", changed: Date.now(), messages: []});

// Returns the JSON text of a conversation, with messages as in a request.
const exportedForm = conversation => JSON.stringify({
  name: conversation.name, changed: new Date(conversation.changed).toISOString(),
  messages: conversation.messages.map(message => message.role === "user" ? {role: "user", content: contentOf(message)} : {
    role: "assistant", content: message.text, ...(message.thoughts ? {reasoning_content: message.thoughts} : {}),
    ...(message.calls.length ? {tool_calls: message.calls} : {}), finish_reason: message.finish ?? null, model: message.model})}, null, 2) + "\n";

// Returns the content of a user's message for a request: text, or parts if the message has images.
function contentOf(message) {
  const images = (message.images ?? []).filter(image => image.url);
  if (!images.length) return message.text;
  return [...images.map(image => ({type: "image_url", image_url: {url: image.url}})), ...(message.text ? [{type: "text", text: message.text}] : [])];
}
