// Settings of the user. They are kept in the browser, except the API key, which is kept until the tab is closed. A setting that the user leaves
// empty is not sent, so that the server's default applies.
const SETTINGS_KEY = "quire-settings", API_KEY = "quire-key", THEME_KEY = "quire-theme";  // the dashboard uses the same key and theme
const NO_SETTINGS = {system: "", temperature: "", maxTokens: "", model: ""};

// Returns what `read` returns, or `otherwise` if the browser does not allow storage.
const attempt = (read, otherwise) => { try { return read() ?? otherwise; } catch { return otherwise; } };

// A storage that lasts until the page is closed. Used if the browser does not allow storage.
class MemoryStorage {
  constructor() { this.items = new Map(); }
  getItem(key) { return this.items.get(key) ?? null; }
  setItem(key, value) { this.items.set(key, value); }
  removeItem(key) { this.items.delete(key); }
}

const local = attempt(() => window.localStorage, new MemoryStorage()), session = attempt(() => window.sessionStorage, new MemoryStorage());

function readSettings() {
  const stored = attempt(() => JSON.parse(local.getItem(SETTINGS_KEY)), {});
  return Object.fromEntries(Object.keys(NO_SETTINGS).map(name => [name, isText(stored[name]) ? stored[name] : ""]));
}

// Returns the fields of a request that the settings determine.
function settingFields(settings) {
  const fields = {};
  if (settings.model) fields.model = settings.model;
  if (settings.temperature !== "" && Number.isFinite(Number(settings.temperature))) fields.temperature = Number(settings.temperature);
  if (Number(settings.maxTokens) > 0) fields.max_completion_tokens = Number(settings.maxTokens);
  return fields;
}

const headers = () => { const key = session.getItem(API_KEY); return key ? {Authorization: "Bearer " + key} : {}; };
