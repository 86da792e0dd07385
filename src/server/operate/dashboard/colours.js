// Converts the colours of the style sheet for canvases, and defines the words for states and causes.
const STATES = {
  arrived: ["queued", "arrived, not scheduled yet"], queued: ["queued", "queued"], grammar: ["held", "grammar not compiled yet"], input: ["held", "session without input"],
  loading: ["loading", "loading blocks from a tier"], prefill: ["prefill", "computing its prompt"], decode: ["decode", "generating its answer"],
  preempted: ["preempted", "preempted, queued again"], pinned: ["pinned", "finished; its blocks are kept for the next turn of its job"]};
const WAITING = ["queued", "grammar", "loading", "input", "preempted"];  // states of requests that do not run
const WAITS = {
  next_step: "the next step", lack_of_blocks: "free blocks", no_slot: "a batch slot", no_tokens: "the token budget of the step", preempting: "running requests that need blocks",
  pressure: "KV cache usage to fall", paused: "the engine to be resumed", grammar: "its grammar", loading: "blocks from a tier", connector: "a connector's answer",
  adapter: "an adapter slot", input: "its next input", reset: "a reset", failed_transfer: "a failed load", expired: "an expired pin", replaced: "a later turn", job_over: "the end of its job"};
const MISSES = {
  never_stored: "new to the cache", diverged: "diverges from the cached prefix", evicted: "evicted", forgotten: "removed, content in doubt", reset: "removed by a reset",
  behind_a_miss: "after a missing block", last_token: "last token", other_group: "not kept by another cache group", partial_block: "partial block", load_failed: "load failed",
  not_looked_up: "not looked up"};

const colour = {};  // keys are names; values are [r, g, b]
let owners = [], quietOwners = [], heats = [];

const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;  // in the byte order of ImageData
const cssOf = new Map();  // cached texts of colours, because each image needs thousands
function css([r, g, b], alpha = 1) {
  if (alpha !== 1) return `rgb(${r} ${g} ${b} / ${alpha})`;
  const key = r << 16 | g << 8 | b;
  let text = cssOf.get(key);
  if (text === undefined) cssOf.set(key, text = `rgb(${r} ${g} ${b})`);
  return text;
}

// Converts OKLCH to RGB. Colours with equal OKLCH lightness look equally bright in all hues.
function oklch(l, c, h) {
  const a = c * Math.cos(h), b = c * Math.sin(h);
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map(v => v ** 3);
  return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z]
    .map(v => Math.round(255 * Math.max(0, Math.min(1, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055))));
}

const OWNERS = 64, HEATS = 64;
const ownerIndex = id => (Math.imul(id >>> 0, 0x9E3779B1) >>> 26);  // maps neighbouring ids to distant colours
const ownerColour = id => owners[ownerIndex(id)];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["bg", "card", "fg", "soft", "line", "accent", "free", "cached", "used", "shared", "loading", "storing", "queued", "held", "prefill", "decode", "preempted", "pinned", "missed"]) {
    const text = style.getPropertyValue("--" + name).trim();
    colour[name] = [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16));
  }
  const dark = colour.bg[0] < 128;
  owners = Array.from({length: OWNERS}, (_, i) => oklch(dark ? 0.74 : 0.66, 0.13, i / OWNERS * 2 * Math.PI));
  quietOwners = owners.map(one => mix(one, colour.free, dark ? 0.68 : 0.62));
  // The first colour is for blocks in use, the last one for blocks that have not been used for a long time.
  heats = Array.from({length: HEATS}, (_, i) => {
    const cold = i / (HEATS - 1);
    return dark ? oklch(0.86 - 0.58 * cold, 0.15 * (1 - cold) + 0.03, 1.45 - 2.9 * cold) : oklch(0.55 + 0.33 * cold, 0.17 * (1 - cold) + 0.02, 0.55 + 0.9 * cold);
  });
}

// Returns the index of the colour for an age in seconds. Half of the colours cover about the last thirty seconds.
const heatIndex = age => Math.min(HEATS - 1, Math.floor(Math.log2(1 + age / 2) / Math.log2(1 + 300) * HEATS));

const make = (parent, tag, text, className) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
};
const by = id => document.getElementById(id);
const whole = value => Math.round(value).toLocaleString("en");
const bytes = value => { let unit = 0; for (; value >= 1024 && unit < 5; ++unit) value /= 1024; return (unit && value < 100 ? value.toFixed(1) : Math.round(value)) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]; };
const seconds = value => value < 1 ? Math.round(value * 1000) + " ms" : value < 100 ? value.toFixed(1) + " s" : Math.floor(value / 60) + " min " + Math.round(value % 60) + " s";
const share = value => (100 * value).toFixed(value < 0.0995 && value > 0 ? 1 : 0) + " %";

// Matches the resolution of a canvas to the screen. Returns its drawing context, in CSS pixels, and `resized`: whether the canvas is now
// blank.
function fit(canvas, width, height) {
  const ratio = devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(height * ratio);
  const resized = canvas.width !== w || canvas.height !== h;
  if (resized) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return {context, resized};
}

function legend(list, entries) {
  list.replaceChildren(...entries.map(([of, text, ramp]) => {
    const item = make(null, "li"), mark = make(item, "i", undefined, ramp ? "ramp" : "");
    mark.style.setProperty("--of", ramp ? of : css(of));
    item.append(text);
    return item;
  }));
}
