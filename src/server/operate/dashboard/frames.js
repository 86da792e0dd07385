// Stores frames of GET /v1/watch: three numbers per block of the newest and of the shown frame, and the changes of the last minutes'
// frames, up to a limit in bytes. A change is stored as old XOR new, so that it can be applied forwards and backwards.
const FIELDS = 3;  // per block: owner + 1; last use, in tenths of a second + 1; hits, holders and flags
const CACHED = 1, LOADING = 2, STORING = 4;
const MOST_BYTES = 48 << 20, MOST_FRAMES = 1500;

const holdersOf = word => (word >>> 8) & 255;
const hitsOf = word => word >>> 16;

// Calls `run(first, end, owner, lastUse, word)` for each run of equal blocks.
function readChanges(text, time, run) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const now = Math.floor(time * 10);
  let at = 0, block = 0;
  const number = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    block += number();
    const first = block;
    block += number();
    const flags = number(), holders = number(), hits = number(), owner = number(), age = number();
    run(first, block, owner >>> 0, age ? now - age + 2 : 0, (hits << 16 | holders << 8 | flags) >>> 0);
  }
}

// A growing list of 32-bit numbers.
class Numbers {
  constructor() { this.all = new Uint32Array(1024); this.size = 0; }
  push(a, b, c, d) {
    if (this.size + 4 > this.all.length) { const old = this.all; this.all = new Uint32Array(old.length * 2); this.all.set(old); }
    this.all[this.size++] = a; this.all[this.size++] = b; this.all[this.size++] = c; this.all[this.size++] = d;
  }
  take() { const taken = this.all.slice(0, this.size); this.size = 0; return taken; }
}

class History {
  constructor() { this.frames = []; this.at = -1; this.bytes = 0; this.count = 0; this.newest = new Uint32Array(0); this.shown = new Uint32Array(0); this.scratch = new Numbers(); }

  get live() { return this.at === this.frames.length - 1; }
  get frame() { return this.frames[this.at]; }

  // Adds an answer of the server. Returns the new frame, or null if the answer has no frame. If `follow` is set and the newest frame is
  // shown, shows the new frame, and calls `changed(block)` for each block that differs.
  take(told, follow, changed) {
    if (!told.engine) return null;
    // The answer comes from another server, or from a restarted machine, so older frames are dropped.
    const newestFrame = this.frames[this.frames.length - 1];
    if (told.blocks.count !== this.count || (newestFrame && told.time_s < newestFrame.time)) {
      this.count = told.blocks.count;
      this.frames = []; this.at = -1; this.bytes = 0;
      this.newest = new Uint32Array(this.count * FIELDS);
      this.shown = new Uint32Array(this.count * FIELDS);
    }
    const wasLive = this.live, next = this.newest, scratch = this.scratch;
    let touched = null;  // used if the answer has all blocks: blocks that are not listed are in their initial state
    if (told.since === null) touched = new Uint8Array(this.count);
    const set = (i, owner, used, word) => {
      const k = i * FIELDS, a = next[k] ^ owner, b = next[k + 1] ^ used, c = next[k + 2] ^ word;
      if (!(a | b | c)) return;
      scratch.push(i, a, b, c);
      next[k] = owner; next[k + 1] = used; next[k + 2] = word;
    };
    readChanges(told.blocks.changes, told.time_s, (first, end, owner, used, word) => {
      for (let i = first; i < end; ++i) { set(i, owner, used, word); if (touched) touched[i] = 1; }
    });
    if (touched) for (let i = 0; i < this.count; ++i) if (!touched[i]) set(i, 0, 0, 0);
    const {requests, blocks, ...head} = told;
    const frame = {time: told.time_s, told: head, requests, delta: scratch.take()};
    this.frames.push(frame);
    this.bytes += frame.delta.byteLength + 6000;
    while (this.frames.length > 2 && (this.bytes > MOST_BYTES || this.frames.length > MOST_FRAMES)) this.drop();
    const before = this.frames[this.frames.length - 2];
    // The lanes store the data that they need from the rows. The rows of all frames would need too much memory.
    if (before) before.requests = null;
    if (follow && wasLive) this.seek(this.frames.length - 1, changed);
    return frame;
  }

  // Removes the oldest frame. If this frame is shown, shows the next one instead.
  drop() {
    if (this.at === 0) this.seek(1);
    this.bytes -= this.frames[0].delta.byteLength + 6000;
    this.frames.shift();
    --this.at;
  }

  // Shows another frame, and calls `changed(block)` for each block that differs.
  seek(to, changed) {
    to = Math.max(0, Math.min(this.frames.length - 1, to));
    const apply = delta => {
      for (let k = 0; k < delta.length; k += 4) {
        const at = delta[k] * FIELDS;
        this.shown[at] ^= delta[k + 1]; this.shown[at + 1] ^= delta[k + 2]; this.shown[at + 2] ^= delta[k + 3];
        if (changed) changed(delta[k]);
      }
    };
    while (this.at < to) apply(this.frames[++this.at].delta);
    while (this.at > to) apply(this.frames[this.at--].delta);
  }

  // Returns the frame `seconds` before frame `at` (default: the shown frame), or the oldest frame.
  before(seconds, at = this.at) {
    let low = 0, high = at;
    const time = this.frames[at].time - seconds;
    while (low < high) { const middle = (low + high) >> 1; if (this.frames[middle].time < time) low = middle + 1; else high = middle; }
    return this.frames[low];
  }
}
