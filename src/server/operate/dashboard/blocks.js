// The block map, with one cell per block. Draws a small image with one pixel per block and enlarges it. Between two frames, colours only
// the blocks again that have changed, glow or pulse.
const map = {mode: "owner", columns: 1, rows: 1, cell: 1, width: 0, picture: null, pixels: null, small: null, mask: null, glow: new Map(), dirty: true, moving: [], at: 0, owner: 0};
const GLOW_MS = 900;

// Chooses the largest cells that fit. Cells have a whole number of screen pixels, so that all cells are equally large.
function layMap(count) {
  const box = by("map"), ratio = devicePixelRatio || 1, width = Math.floor(box.clientWidth * ratio);
  if (width === 0) return;
  const most = Math.min(180 + count / 60, 520, innerHeight * 0.6) * ratio;
  let cell = Math.max(1, Math.min(Math.floor(22 * ratio), Math.floor(Math.sqrt(width * most / Math.max(count, 1)))));
  while (cell > 1 && Math.ceil(count / Math.floor(width / cell)) * cell > most) --cell;
  const columns = Math.floor(width / cell), rows = Math.max(1, Math.ceil(count / columns));
  Object.assign(map, {cell, columns, rows, width, ratio, count, dirty: true});
  const canvas = by("map-canvas");
  canvas.width = columns * cell; canvas.height = rows * cell;
  canvas.style.width = columns * cell / ratio + "px"; canvas.style.height = rows * cell / ratio + "px";
  map.small = new OffscreenCanvas(columns, rows);
  map.picture = new ImageData(columns, rows);
  map.pixels = new Uint32Array(map.picture.data.buffer);
  map.mask = cell >= 4 ? gaps(cell) : null;
}

// Returns a tile that covers the gaps between cells of the image.
function gaps(cell) {
  const tile = new OffscreenCanvas(cell, cell), context = tile.getContext("2d");
  const gap = cell >= 12 ? 2 : 1, size = cell - gap;
  context.fillStyle = css(colour.card);
  context.fillRect(0, 0, cell, cell);
  context.globalCompositeOperation = "destination-out";
  context.beginPath();
  context.roundRect(0, 0, size, size, cell >= 8 ? Math.min(4, size / 4) : 0);
  context.fill();
  return tile;
}

// Returns the colour of block `i` in the shown state; `now` is in tenths of a second.
function colourOf(state, i, now) {
  const k = i * FIELDS, owner = state[k], used = state[k + 1], bits = state[k + 2], holders = holdersOf(bits);
  const flags = bits & 255, isFree = holders === 0 && !(flags & CACHED);
  let rgb;
  if (map.mode === "heat") rgb = isFree ? colour.free : holders ? heats[0] : heats[used ? heatIndex((now - used + 1) / 10) : HEATS - 1];
  else if (flags & LOADING) rgb = colour.loading;
  else if (flags & STORING && map.mode === "state") rgb = colour.storing;
  else if (isFree) rgb = colour.free;
  else if (map.mode === "state") rgb = holders === 0 ? colour.cached : holders > 1 ? colour.shared : colour.used;
  else if (!owner) rgb = holders ? colour.held : colour.cached;
  else rgb = holders ? ownerColour(owner - 1) : quietOwners[ownerIndex(owner - 1)];
  if (map.owner && owner !== map.owner && !isFree) rgb = mix(rgb, colour.card, 0.78);
  return rgb;
}

function glow(block) {
  if (map.glow.size < 20000 && !calm) map.glow.set(block, performance.now());
}

// Draws the map. Returns whether something was drawn.
function drawMap(history, time) {
  if (history.count !== map.count || !map.pixels) layMap(Math.max(0, history.count));
  if (!map.pixels) return false;
  const now = Math.floor(time * 10), state = history.shown, pixels = map.pixels, clock = performance.now();
  if (map.dirty) {
    map.moving = [];
    for (let i = 1; i < history.count; ++i) {
      pixels[i - 1] = word(colourOf(state, i, now));
      if (state[i * FIELDS + 2] & (LOADING | STORING)) map.moving.push(i);
    }
  } else if (map.glow.size === 0 && map.moving.length === 0) {
    return false;
  }
  const pulse = calm ? 0 : 0.35 * (0.5 + 0.5 * Math.sin(clock / 260));
  for (const i of map.moving) pixels[i - 1] = word(mix(colourOf(state, i, now), colour.fg, pulse));
  for (const [i, since] of map.glow) {
    const age = (clock - since) / GLOW_MS;
    pixels[i - 1] = word(mix(colourOf(state, i, now), colour.fg, age >= 1 ? 0 : 0.45 * (1 - age) ** 2));
    if (age >= 1) map.glow.delete(i);
  }
  map.dirty = false;
  map.small.getContext("2d").putImageData(map.picture, 0, 0);
  const canvas = by("map-canvas"), context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.drawImage(map.small, 0, 0, canvas.width, canvas.height);
  if (map.mask) { context.fillStyle = context.createPattern(map.mask, "repeat"); context.fillRect(0, 0, canvas.width, canvas.height); }
  if (map.at > 0 && map.at < history.count) {
    const x = (map.at - 1) % map.columns * map.cell, y = Math.floor((map.at - 1) / map.columns) * map.cell, pad = Math.max(1, Math.round(map.ratio));
    context.strokeStyle = css(colour.fg);
    context.lineWidth = 2 * pad;
    context.strokeRect(x - pad, y - pad, Math.max(map.cell, 3 * pad) + pad, Math.max(map.cell, 3 * pad) + pad);
  }
  return true;
}

// Returns the number of the block under the pointer, or 0.
function blockAt(event) {
  const box = by("map-canvas").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) * map.ratio / map.cell), row = Math.floor((event.clientY - box.top) * map.ratio / map.cell);
  const block = row * map.columns + column + 1;
  return column >= 0 && column < map.columns && row >= 0 && block < map.count ? block : 0;
}

function wordsOfBlock(history, block, time) {
  const k = block * FIELDS, state = history.shown, owner = state[k], used = state[k + 1], bits = state[k + 2], holders = holdersOf(bits), flags = bits & 255;
  const who = owner ? nameOf(owner - 1) : "";
  let text = `Block ${block}: `;
  if (flags & LOADING) text += "being loaded for " + (who || "a request");
  else if (holders > 1) text += `shared by ${holders === 255 ? "255 or more" : holders} requests, including ${who}`;
  else if (holders === 1) text += "in use by " + (who || "a request");
  else if (flags & CACHED) text += "free, and cached" + (who ? ", last held by " + who : "");
  else text += "free and empty";
  if (flags & STORING) text += ", being stored";
  if (holders && !(flags & CACHED)) text += ", not full yet";
  const hits = hitsOf(bits);
  if (holders || flags & CACHED) text += hits ? `; hit ${hits === 65535 ? "65,535 times or more" : hits === 1 ? "once" : whole(hits) + " times"}` : "; not hit yet";
  if (!holders && used) text += `, used ${seconds(Math.max(0, time - (used - 1) / 10))} ago`;
  return text + ".";
}

function countBlocks(history) {
  let free = 0, cached = 0, used = 0, shared = 0, loading = 0, storing = 0;
  for (let i = 1; i < history.count; ++i) {
    const bits = history.shown[i * FIELDS + 2], holders = holdersOf(bits);
    if (bits & LOADING) ++loading; else if (bits & STORING) ++storing;
    if (holders > 1) ++shared; else if (holders) ++used; else if (bits & CACHED) ++cached; else ++free;
  }
  return {free, cached, used, shared, loading, storing};
}

function showMapLegend() {
  const ramp = `linear-gradient(90deg, ${[0, 8, 16, 24, 32, 40, 48, 56, 63].map(i => css(heats[i])).join(",")})`;
  const hues = `linear-gradient(90deg, ${[0, 8, 16, 24, 32, 40, 48, 56].map(i => css(owners[i])).join(",")})`, quiet = `linear-gradient(90deg, ${[0, 8, 16, 24, 32, 40, 48, 56].map(i => css(quietOwners[i])).join(",")})`;
  legend(by("map-legend"), {
    owner: [[hues, "in use, one colour per request", true], [quiet, "cached, last held by that request", true], [colour.free, "free"], [colour.loading, "being loaded"]],
    state: [[colour.used, "in use"], [colour.shared, "shared"], [colour.cached, "cached"], [colour.free, "free"], [colour.loading, "being loaded"], [colour.storing, "being stored"]],
    heat: [[ramp, "used now … ten minutes ago, or not since this page was opened", true], [colour.free, "free"]]}[map.mode]);
}
