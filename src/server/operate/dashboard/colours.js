// Colours, as the style sheet has them, in the form in which canvases want them; and the words for states and causes.
const STATES = {
  queued: ["queued", "waits for its turn"], grammar: ["held", "waits for its grammar"], input: ["held", "a session that waits for input"],
  loading: ["loading", "waits for blocks from a tier"], prefill: ["prefill", "computes its prompt"], decode: ["decode", "writes its answer"],
  preempted: ["preempted", "was preempted, and waits again"], pinned: ["pinned", "has ended; its blocks stay for the next turn of its job"]};
const WAITS = {
  next_step: "the next step", lack_of_blocks: "free blocks", no_slot: "a place in the batch", no_tokens: "tokens of the step", preempting: "others, which lack blocks",
  pressure: "the pressure to fall", paused: "an operator's resume", grammar: "its grammar", loading: "blocks from a tier", connector: "a connector's answer",
  adapter: "an adapter", input: "its next input", reset: "a reset", failed_transfer: "a failed load", expired: "its pin", replaced: "a later turn", job_over: "its job"};
const MISSES = {
  never_stored: "new to the cache", diverged: "went on otherwise", evicted: "evicted for others", forgotten: "taken back, in doubt", reset: "lost in a reset",
  behind_a_miss: "behind a miss", last_token: "the last token", other_group: "not kept by a window", partial_block: "no whole block", load_failed: "could not be loaded",
  not_looked_up: "not looked up"};

const colour = {};  // name -> [r, g, b]
let owners = [], quietOwners = [], heats = [];

const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;  // as ImageData has it
const cssOf = new Map();  // thousands are asked for in every picture
function css([r, g, b], alpha = 1) {
  if (alpha !== 1) return `rgb(${r} ${g} ${b} / ${alpha})`;
  const key = r << 16 | g << 8 | b;
  let text = cssOf.get(key);
  if (text === undefined) cssOf.set(key, text = `rgb(${r} ${g} ${b})`);
  return text;
}

// OKLCH, so that all hues are equally bright.
function oklch(l, c, h) {
  const a = c * Math.cos(h), b = c * Math.sin(h);
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map(v => v ** 3);
  return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z, -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z]
    .map(v => Math.round(255 * Math.max(0, Math.min(1, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055))));
}

const OWNERS = 64, HEATS = 64;
const ownerIndex = id => (Math.imul(id >>> 0, 0x9E3779B1) >>> 26);  // of neighbours far apart
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
  // From now to long ago.
  heats = Array.from({length: HEATS}, (_, i) => {
    const cold = i / (HEATS - 1);
    return dark ? oklch(0.86 - 0.58 * cold, 0.15 * (1 - cold) + 0.03, 1.45 - 2.9 * cold) : oklch(0.55 + 0.33 * cold, 0.17 * (1 - cold) + 0.02, 0.55 + 0.9 * cold);
  });
}

// Age in seconds to a colour: half of the ramp is the last twenty seconds.
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

// A canvas as sharp as the screen: its drawing context, in CSS pixels; `resized` tells that it is blank.
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
