// Shows requests as lanes: the states of each request over time, collected frame by frame. After a request has ended, its lane is reused.
// The memory is limited: the oldest requests are removed.
const MOST_TRACKS = 6000, MOST_PARTS = 400, KEPT_S = 330;
const lanes = {tracks: new Map(), ended: [], free: [], height: 0, span: 120, row: 6, chosen: null, pointed: null, seen: 0, last_s: 0, dirty: true};
const LABEL = 15;

const nameOf = id => { const track = lanes.tracks.get(id >>> 0) || lanes.lowIds?.get(id >>> 0); return track ? track.name || "request " + track.id : "request " + id; };
lanes.lowIds = new Map();  // keys are the low 32 bits of request ids, as in blocks

function takeRequests(frame, fields) {
  const at = {};
  fields.forEach((name, i) => { at[name] = i; });
  const seen = ++lanes.seen, last_s = lanes.last_s, isGap = frame.time - last_s > 3;  // the page did not poll in between
  lanes.last_s = frame.time;
  for (const row of frame.requests) {
    const id = row[at.id];
    let track = lanes.tracks.get(id);
    if (!track || track.ends) {  // after a restart, the server's ids begin again
      track = {id, name: row[at.name], tenant: row[at.tenant], lane: laneFor(), parts: [], begins: frame.time, ends: 0, arrival: row[at.arrival_s]};
      lanes.tracks.set(id, track);
      lanes.lowIds.set(id >>> 0, track);
    }
    const state = row[at.state], cause = row[at.waits_for], computed = row[at.computed_tokens];
    track.seen = seen;
    track.row = {prompt: row[at.prompt_tokens], tokens: row[at.tokens], computed, cached: row[at.cached_tokens], tier: row[at.tier_tokens], preemptions: row[at.preemptions], blocks: row[at.blocks]};
    const last = track.parts[track.parts.length - 1];
    // Each chunk of a prompt becomes a separate part.
    const goesOn = last && !isGap && last.state === state && last.cause === cause && (state !== "prefill" || last.computed === computed);
    if (last && !isGap) last.to = frame.time;
    if (!goesOn) {
      track.parts.push({state, cause, computed, from: frame.time, to: frame.time});
      if (track.parts.length > MOST_PARTS) track.parts.splice(0, 2, {...track.parts[1], from: track.parts[0].from});
    }
  }
  for (const track of lanes.tracks.values()) {
    if (track.seen === seen || track.ends) continue;
    track.ends = isGap ? last_s : frame.time;
    track.parts[track.parts.length - 1].to = track.ends;
    lanes.free.push(track.lane);
    lanes.ended.push(track);
  }
  while (lanes.ended.length && (lanes.tracks.size > MOST_TRACKS || lanes.ended[0].ends < frame.time - KEPT_S)) {
    const gone = lanes.ended.shift();
    if (lanes.tracks.get(gone.id) === gone) lanes.tracks.delete(gone.id);
    if (lanes.lowIds.get(gone.id >>> 0) === gone) lanes.lowIds.delete(gone.id >>> 0);
  }
  lanes.dirty = true;
}

// Returns the uppermost free lane, or adds one.
function laneFor() {
  if (lanes.free.length === 0) return lanes.height++;
  let best = 0;
  for (let i = 1; i < lanes.free.length; ++i) if (lanes.free[i] < lanes.free[best]) best = i;
  return lanes.free.splice(best, 1)[0];
}

// Removes the lowest lanes if they were empty during the whole shown time.
function shrinkLanes(time) {
  let most = 0;
  for (const track of lanes.tracks.values()) if (!track.ends || track.ends > time - lanes.span) most = Math.max(most, track.lane + 1);
  if (most < lanes.height && [...lanes.tracks.values()].every(track => track.ends || track.lane < most)) {
    lanes.height = most;
    lanes.free = lanes.free.filter(lane => lane < most);
  }
}

function drawLanes(time) {
  const box = by("lanes"), canvas = by("lanes-canvas"), width = box.clientWidth, height = box.clientHeight;
  if (width === 0) return;
  const rows = Math.max(lanes.height, 1);
  lanes.row = Math.max(4, Math.min(22, Math.floor((height - LABEL) / rows)));
  const tall = Math.max(height, rows * lanes.row + LABEL);
  if (lanes.tall !== tall) { by("lanes-rows").style.height = tall + "px"; lanes.tall = tall; }
  const {context} = fit(canvas, width, height), top = box.scrollTop, begin = time - lanes.span, scale = width / lanes.span;
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  drawClock(context, width, height, scale);
  const gap = lanes.row >= 8 ? 2 : 1;
  for (const track of lanes.tracks.values()) {
    const y = track.lane * lanes.row - top;
    if (y > height - LABEL || y + lanes.row < 0 || (track.ends && track.ends < begin) || track.begins > time) continue;
    drawTrack(context, track, {y, high: lanes.row - gap, begin, time, scale, width});
  }
}

// Draws time marks every 15, 30 or 60 s before the shown moment.
function drawClock(context, width, height, scale) {
  const step = lanes.span > 200 ? 60 : lanes.span > 90 ? 30 : 15;
  for (let ago = step; ago < lanes.span; ago += step) {
    const x = Math.round(width - ago * scale) + 0.5;
    context.strokeStyle = css(colour.line);
    context.beginPath(); context.moveTo(x, 0); context.lineTo(x, height - LABEL); context.stroke();
    context.fillStyle = css(colour.soft);
    context.textAlign = "center";
    context.fillText(ago % 60 ? `−${Math.floor(ago / 60)}:${String(ago % 60).padStart(2, "0")}` : `−${ago / 60} min`, x, height - LABEL / 2);
  }
}

function drawTrack(context, track, at) {
  const dim = lanes.chosen !== null && lanes.chosen !== track.id ? 0.35 : 1;
  let first = at.width;
  for (const part of track.parts) {
    if (part.from > at.time) break;
    const to = Math.min(part.to, at.time), isOpen = !track.ends && part === track.parts[track.parts.length - 1];
    const from = at.width - (at.time - part.from) * at.scale, end = at.width - (at.time - (isOpen ? at.time : to)) * at.scale;
    if (end < 0) continue;
    first = Math.min(first, Math.max(0, from));
    const isThin = part.state === "queued" || part.state === "grammar" || part.state === "input" || part.state === "pinned";
    const high = isThin ? Math.max(1, at.high * 0.4) : at.high;
    context.globalAlpha = dim;
    context.fillStyle = css(colour[STATES[part.state]?.[0] || "held"]);
    context.fillRect(from, at.y + (at.high - high) / 2, Math.max(1, end - from - (part.state === "prefill" && !isOpen ? 0.75 : 0)), high);
  }
  // Draws the colour that the request has in the block map.
  if (at.high >= 4 && first < at.width) { context.fillStyle = css(ownerColour(track.id)); context.fillRect(first, at.y, 3, at.high); }
  context.globalAlpha = 1;
  const end = track.ends ? at.width - (at.time - Math.min(track.ends, at.time)) * at.scale : at.width;
  if (at.high >= 12 && end - first > 70) {
    const label = track.name.length > 12 ? "…" + track.name.slice(-6) : track.name || "request " + track.id;
    context.textAlign = "left";
    context.globalAlpha = dim;
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = css(colour.card, 0.75);
    context.fillStyle = css(colour.fg);
    context.strokeText(label, first + 8, at.y + at.high / 2 + 0.5);
    context.fillText(label, first + 8, at.y + at.high / 2 + 0.5);
    context.globalAlpha = 1;
  }
  if (lanes.chosen === track.id || lanes.pointed === track.id) {
    context.strokeStyle = css(lanes.chosen === track.id ? colour.accent : colour.soft);
    context.lineWidth = 1.5;
    context.strokeRect(first - 1, at.y - 0.5, Math.max(3, end - first + 1), at.high + 1);
  }
}

// Returns the request in the lane under the pointer at that time, or the nearest request in the lane.
function trackAt(event, time) {
  const box = by("lanes"), frame = box.getBoundingClientRect();
  const lane = Math.floor((event.clientY - frame.top + box.scrollTop) / lanes.row), at = time - (frame.right - event.clientX) / frame.width * lanes.span;
  let best = null, least = lanes.span / 12;
  for (const track of lanes.tracks.values()) {
    if (track.lane !== lane || track.begins > time) continue;
    const away = Math.max(track.begins - at, (track.ends || time) - at < 0 ? at - track.ends : 0, 0);
    if (away < least) { best = track; least = away; }
  }
  return best;
}

function partAt(track, time) {
  let found = track.parts[0];
  for (const part of track.parts) if (part.from <= time) found = part;
  return found;
}

function wordsOfTrack(track, time) {
  const part = partAt(track, time), row = track.row, hasEnded = track.ends && track.ends <= time;
  let text = (track.name || "Request " + track.id) + (track.tenant ? ` (${track.tenant})` : "") + ": ";
  text += hasEnded ? `ended ${seconds(time - track.ends)} ago` : STATES[part.state]?.[1] || part.state;
  if (!hasEnded && part.cause) text += `; waits for ${WAITS[part.cause] || part.cause}`;
  text += `; prompt ${whole(row.prompt)} tokens` + (row.cached >= 0 ? `, ${whole(row.cached)} of them cached` : "");
  if (row.tier > 0) text += `, ${whole(row.tier)} from tiers`;
  if (row.tokens > row.prompt) text += `; ${whole(row.tokens - row.prompt)} generated`;
  if (row.preemptions) text += `; preempted ${row.preemptions === 1 ? "once" : row.preemptions + " times"}`;
  return text + ".";
}

function showLanesLegend() {
  legend(by("lanes-legend"), [["queued", "queued"], ["loading", "loading from a tier"], ["prefill", "prefill, in chunks"], ["decode", "decode"], ["preempted", "preempted"], ["pinned", "pinned"], ["held", "waits for its grammar or input"]]
    .map(([of, text]) => [colour[of], text]));
}
