// Shows the figures of a frame and their small charts.
const FIGURES = [
  {key: "running", name: "Running", of: "decode", show: whole},
  {key: "waiting", name: "Waiting", of: "queued", show: whole},
  {key: "written", name: "Tokens generated", unit: "/s", of: "decode", show: value => value < 10 ? value.toFixed(1) : whole(value)},
  {key: "prompts", name: "Prompt tokens", unit: "/s", of: "prefill", show: whole},
  {key: "kv", name: "KV cache in use", of: "used", most: 1, show: share},
  {key: "hits", name: "Hit rate", unit: "last minute", of: "cached", most: 1, show: value => value === null ? "–" : share(value)},
  {key: "evicted", name: "Blocks evicted", unit: "/s", of: "missed", show: value => value > 0 && value < 10 ? value.toFixed(1) : whole(value)},
  {key: "preempted", name: "Preemptions", unit: "last minute", of: "preempted", show: whole}];

function makeTiles() {
  for (const figure of FIGURES) {
    const tile = make(by("tiles"), "div", undefined, "tile");
    make(tile, "p", figure.name, "name");
    const value = make(tile, "p", undefined, "value");
    figure.value = value.appendChild(document.createTextNode("–"));
    if (figure.unit) make(value, "small", figure.unit);
    figure.canvas = make(tile, "canvas");
    figure.canvas.setAttribute("role", "img");
    figure.canvas.setAttribute("aria-label", figure.name + " over the last minutes");
  }
}

// Computes the figures of the newest frame from its counters and from the counters of earlier frames.
function figuresOf(history) {
  const at = history.frames.length - 1, frame = history.frames[at], engine = frame.told.engine;
  const rate = (name, over) => {
    const before = history.before(over, at), elapsed = frame.time - before.time;
    return elapsed > 0 ? Math.max(0, (engine[name] - before.told.engine[name]) / elapsed) : 0;
  };
  const minute = history.before(60, at).told.engine, asked = engine.query_tokens - minute.query_tokens;
  const hit = engine.hit_tokens - minute.hit_tokens + engine.tier_hit_tokens - minute.tier_hit_tokens;
  frame.figures = {
    running: engine.running, written: rate("generation_tokens", 5), prompts: rate("prompt_tokens", 5),
    kv: engine.blocks ? 1 - engine.free_blocks / engine.blocks : 0, hits: asked > 0 ? Math.min(1, hit / asked) : null, evicted: rate("evicted_blocks", 5),
    preempted: engine.preemptions - minute.preemptions};
  frame.states = {}; frame.causes = {};
  const stateAt = frame.told.request_fields.indexOf("state"), causeAt = frame.told.request_fields.indexOf("waits_for");
  for (const row of frame.requests) {
    frame.states[row[stateAt]] = (frame.states[row[stateAt]] || 0) + 1;
    if (row[causeAt]) frame.causes[row[causeAt]] = (frame.causes[row[causeAt]] || 0) + 1;
  }
  // The engine also counts requests that have not reached its scheduler and therefore have no row. All figures of waiting requests use this
  // sum.
  const inRows = WAITING.reduce((sum, state) => sum + (frame.states[state] || 0), frame.told.requests_left_out);
  frame.states.arrived = Math.max(0, engine.waiting - inRows);
  frame.figures.waiting = inRows + frame.states.arrived;
}

function showTiles(history) {
  const frame = history.frame;
  for (const figure of FIGURES) {
    const text = figure.show(frame.figures[figure.key]);
    if (figure.value.data !== text) figure.value.data = text;
    drawSpark(figure, history);
  }
}

function drawSpark(figure, history) {
  const width = figure.canvas.clientWidth, height = figure.canvas.clientHeight;
  if (width === 0) return;
  const {context} = fit(figure.canvas, width, height), until = history.frame.time, begin = until - lanes.span, points = [];
  for (let i = history.at; i >= 0 && history.frames[i].time >= begin; --i)
    points.push([width - (until - history.frames[i].time) / lanes.span * width, history.frames[i].figures[figure.key] ?? 0]);
  const most = figure.most || Math.max(1, ...points.map(point => point[1])) * 1.1;
  context.clearRect(0, 0, width, height);
  context.strokeStyle = css(colour.line);
  context.beginPath(); context.moveTo(0, height - 0.5); context.lineTo(width, height - 0.5); context.stroke();
  if (points.length === 0) return;
  const y = value => height - 2 - value / most * (height - 5);
  context.beginPath();
  points.forEach(([x, value], i) => (i ? context.lineTo(x, y(value)) : context.moveTo(x, y(value))));
  context.strokeStyle = css(colour[figure.of]);
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(points[points.length - 1][0], height); context.lineTo(points[0][0], height); context.closePath();
  const wash = context.createLinearGradient(0, 0, 0, height);
  wash.addColorStop(0, css(colour[figure.of], 0.35)); wash.addColorStop(1, css(colour[figure.of], 0.03));
  context.fillStyle = wash;
  context.fill();
}

// Draws a bar of the entries' values; showRows() writes one row per entry. An entry is [name, value, colour, text].
function showBar(box, entries, label) {
  const all = entries.filter(entry => entry[1] > 0), bar = make(box, "div", undefined, "bar");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", label + ": " + (all.map(([name, , , text]) => name + " " + text).join(", ") || "nothing"));
  for (const [, value, of] of all) {
    const part = make(bar, "span");
    part.style.flexGrow = value;
    part.style.setProperty("--of", css(of));
  }
}

function showRows(box, entries) {
  const rows = make(box, "dl", undefined, "rows");
  for (const [name, , of, text] of entries) {
    const term = make(rows, "dt");
    if (of) make(term, "i").style.setProperty("--of", css(of));
    term.append(name);
    make(rows, "dd", text);
  }
}

function showQueues(frame) {
  const box = make(null, "div"), entries = Object.entries(STATES).map(([state, [of, text]]) => [text, frame.states[state] || 0, colour[of], whole(frame.states[state] || 0)]).filter(entry => entry[1]);
  showBar(box, entries, "Requests by state");
  showRows(box, entries.length ? entries : [["Idle", 0, null, ""]]);
  const causes = Object.entries(frame.causes).sort((a, b) => b[1] - a[1]);
  if (causes.length) {
    make(box, "p", "Waiting for", "note").style.marginTop = ".6rem";
    showRows(box, causes.map(([cause, count]) => [WAITS[cause] || cause, count, null, whole(count)]));
  }
  const engine = frame.told.engine, more = frame.told.requests_left_out;
  if (engine.paused) make(box, "p", "The engine is paused.", "bad");
  if (engine.admission_stopped) make(box, "p", "No request is admitted: KV cache usage is above --kv-pressure-high.", "bad");
  if (more) make(box, "p", `${whole(more)} more waiting requests are not listed.`, "note");
  by("queues").replaceChildren(box);
}

function showTiers(history) {
  const frame = history.frame, counts = countBlocks(history), before = history.before(5), elapsed = frame.time - before.time, box = make(null, "div");
  const memory = make(box, "div", undefined, "tier"), of = text => whole(text);
  make(make(memory, "p"), "b", "Memory");
  const entries = [["in use", counts.used, colour.used, of(counts.used)], ["shared", counts.shared, colour.shared, of(counts.shared)], ["cached", counts.cached, colour.cached, of(counts.cached)], ["free", counts.free, colour.free, of(counts.free)]];
  showBar(memory, entries, "Blocks in memory");
  showRows(memory, [...entries, ...[["of these, being loaded", counts.loading, colour.loading, of(counts.loading)], ["of these, being stored", counts.storing, colour.storing, of(counts.storing)]].filter(entry => entry[1])]);
  const rate = (tier, name) => {
    const earlier = before.told.tiers.find(other => other.tier === tier.tier);
    return earlier && elapsed > 0 ? Math.max(0, (tier[name] - earlier[name]) / elapsed) : 0;
  };
  for (const tier of frame.told.tiers) {
    const part = make(box, "div", undefined, "tier"), free = Math.max(0, tier.slots - tier.used_slots - tier.unread_slots);
    make(make(part, "p"), "b", {disk: "Disk", dram: "Host memory"}[tier.tier] || tier.tier);
    showBar(part, [["with blocks", tier.used_slots, colour.storing, of(tier.used_slots)], ["not read yet", tier.unread_slots, colour.queued, of(tier.unread_slots)], ["free", free, colour.free, of(free)]], "Slots of the tier");
    showRows(part, [["slots used", 0, colour.storing, `${of(tier.used_slots)} of ${of(tier.slots)}`], ["loaded", 0, null, bytes(rate(tier, "loaded_bytes")) + "/s"], ["stored", 0, null, bytes(rate(tier, "stored_bytes")) + "/s"],
      ["tokens loaded so far", 0, null, of(tier.loaded_tokens)]]);
    if (tier.loads_left_out || tier.stores_left_out) make(part, "p", "The tier fails and is not used.", "bad");
  }
  if (frame.told.swap) {
    const swap = frame.told.swap, part = make(box, "div", undefined, "tier");
    make(make(part, "p"), "b", "Swap space for preempted requests");
    showBar(part, [["used", swap.used_slots, colour.preempted, of(swap.used_slots)], ["free", swap.slots - swap.used_slots, colour.free, ""]], "Swap slots");
    showRows(part, [["slots used", 0, colour.preempted, `${of(swap.used_slots)} of ${of(swap.slots)}`]]);
  }
  by("tiers").replaceChildren(box);
}

// Shows which prompt tokens were found in caches, why the others were missed, and why requests waited: since the server started, and in the
// last minute.
function showCauses(history) {
  const frame = history.frame, engine = frame.told.engine, minute = history.before(60).told, box = make(null, "div");
  const added = (now, before) => { const more = (now || 0) - (before || 0); return more > 0 ? ` (+${whole(more)})` : ""; };
  const found = [["found in memory", engine.hit_tokens, colour.cached, whole(engine.hit_tokens) + added(engine.hit_tokens, minute.engine.hit_tokens)],
    ["loaded from tiers", engine.tier_hit_tokens, colour.loading, whole(engine.tier_hit_tokens) + added(engine.tier_hit_tokens, minute.engine.tier_hit_tokens)]];
  const missed = Object.entries(frame.told.missed_tokens).sort((a, b) => b[1] - a[1]).map(([cause, count], i) => [MISSES[cause] || cause, count, mix(colour.missed, colour.card, Math.min(0.75, i * 0.17)), whole(count) + added(count, minute.missed_tokens[cause])]);
  showBar(box, [...found, ...missed], "Prompt tokens since the start");
  showRows(box, [...found.filter(entry => entry[1]), ...missed]);
  make(box, "p", "Since the server started; in parentheses: the last minute.", "note");
  by("misses").replaceChildren(box);
  const waits = make(null, "div"), entries = Object.entries(frame.told.waited_s).sort((a, b) => b[1] - a[1]).map(([cause, s], i) => [WAITS[cause] || cause, s, mix(colour.queued, colour.fg, Math.max(0, 0.5 - i * 0.15)), seconds(s)]);
  showBar(waits, entries, "Time waited since the start");
  showRows(waits, entries.length ? entries : [["No request has waited.", 0, null, ""]]);
  const preempted = Object.entries(frame.told.preemptions_by_cause);
  if (preempted.length) {
    make(waits, "p", "Preemptions by cause", "note").style.marginTop = ".6rem";
    showRows(waits, preempted.map(([cause, count]) => [WAITS[cause] || cause, count, colour.preempted, whole(count)]));
  }
  by("waits").replaceChildren(waits);
}

// Returns the rows for all requests in an answer of GET /v1/cache/curve (docs/curve.md), or null if the curve has no data yet.
function rowsOfCurve(answer) {
  const all = answer?.curves?.find(curve => curve.tenant === null);
  return all && all.prompt_tokens > 0 ? all.rows : null;
}

// Draws the hit rate by cache size. Every octave has the same width. Dots mark the current size and the sizes including each tier.
function drawCurve(rows) {
  by("curve").hidden = !rows;
  if (!rows) return;
  const canvas = by("curve-canvas"), width = canvas.clientWidth, height = canvas.clientHeight, {context} = fit(canvas, width, height);
  const first = Math.log2(rows[0].factor), octaves = Math.log2(rows[rows.length - 1].factor) - first, foot = 16;
  const x = row => 4 + (Math.log2(row.factor) - first) / octaves * (width - 8), y = row => 4 + (1 - row.hit_rate) * (height - foot - 8);
  context.clearRect(0, 0, width, height);
  context.fillStyle = css(colour.soft);
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = css(colour.line);
  context.beginPath(); context.moveTo(0, height - foot); context.lineTo(width, height - foot); context.stroke();
  context.strokeStyle = css(colour.cached);
  context.lineWidth = 2;
  context.beginPath();
  rows.forEach((row, i) => context[i ? "lineTo" : "moveTo"](x(row), y(row)));
  context.stroke();
  for (const row of rows.filter(row => row.label)) {
    context.fillStyle = css(row.label.startsWith("now +") ? colour.storing : colour.accent);
    context.beginPath(); context.arc(x(row), y(row), 4, 0, 2 * Math.PI); context.fill();
  }
  // Labels the smallest size, the current size and the largest size.
  const now = rows.find(row => row.label?.startsWith("now")), last = rows[rows.length - 1];
  context.fillStyle = css(colour.soft);
  for (const [row, align] of [[rows[0], "left"], [now, "center"], [last, "right"]]) {
    context.textAlign = align;
    context.fillText(bytes(row.bytes), x(row), height - 3);
  }
  const twice = rows.find(row => row.factor >= 2) || last, saved = twice.saved_prefill_seconds_per_s;
  const text = `The hit rate is ${share(now.hit_rate)} now; with ${bytes(twice.bytes - now.bytes)} more it would be ${share(twice.hit_rate)}`
    + (saved > 0 ? `, which saves ${seconds(saved)} of prefill per second.` : ".");
  if (by("curve-note").textContent !== text) by("curve-note").textContent = text;
  canvas.setAttribute("aria-label", "Hit rate by cache size. " + text);
}
