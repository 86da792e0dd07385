// The page: requests frames while it is visible, shows one of them, and can be paused and stepped.
const history_ = new History();
const view = {paused: false, painted: 0, arrived: 0, ageing: 0, tableAt: 0, interval: 250, curve: null};
const PERIOD_MS = 1000 / 32;
const motion = matchMedia("(prefers-reduced-motion: reduce)");
let calm = motion.matches;

const headers = () => { const key = sessionStorage.getItem("quire-key"); return key ? {Authorization: "Bearer " + key} : {}; };
const failure = async response => { try { return (await response.json()).error.message; } catch { return response.status + " " + response.statusText; } };

function say(state, text) {
  document.body.className = state;
  if (by("said").textContent !== text) by("said").textContent = text;
}

// Adds an answer of the server to the history, and shows it if the page is live.
function take(told) {
  const follow = !view.paused, frame = history_.take(told, follow, glow);
  if (!frame) return;
  takeRequests(frame, told.request_fields);
  figuresOf(history_);
  by("scrub").max = history_.frames.length - 1;
  if (!follow) {
    by("scrub").value = history_.at;
    return;
  }
  view.arrived = performance.now();
  showFrame();
}

async function poll() {
  let wait = view.interval;
  if (!document.hidden && !by("key-dialog").open) {
    const since = history_.frames.length ? history_.frames[history_.frames.length - 1].told.frame : 0;
    try {
      const response = await fetch("v1/watch?since=" + since, {headers: headers(), cache: "no-store"});
      if (response.ok) {
        take(await response.json());
        view.failed = "";
      } else {
        const why = await failure(response);
        if (response.status === 401) askForKey(why);
        view.failed = why;
        wait = 3000;
      }
    } catch { view.failed = "the server does not respond"; wait = 2000; }
    if (view.failed) say("lost", view.failed);
  }
  setTimeout(poll, wait);
}

const nameOfModel = async () => {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (response.ok) by("model").textContent = (await response.json()).data[0].id;
  } catch { /* The status line reports the error. */ }
};

function askForKey(why) {
  if (sessionStorage.getItem("quire-key") || why) by("key-why").textContent = why;
  if (!by("key-dialog").open) by("key-dialog").showModal();
}

// Shows the current frame of history_. Does not paint the canvases that move; paint() does.
function showFrame() {
  const frame = history_.frame;
  if (!frame) return;
  map.dirty = lanes.dirty = true;
  showTiles(history_);
  showQueues(frame);
  showTiers(history_);
  showCauses(history_);
  shrinkLanes(frame.time);
  showMoment();
  const engine = frame.told.engine;
  by("map-note").textContent = `${whole(engine.blocks)} blocks of ${frame.told.block_size} tokens, ${share(frame.figures.kv)} in use`;
  by("map-canvas").setAttribute("aria-label", `The KV cache: ${whole(engine.blocks)} blocks, ${whole(engine.blocks - engine.free_blocks)} in use, ${whole(engine.free_blocks)} free or cached`);
  by("lanes-note").textContent = `${whole(engine.running)} running, ${whole(frame.figures.waiting)} waiting, ${whole(engine.pinned)} pinned`;
  by("lanes-canvas").setAttribute("aria-label", `Requests of the last ${lanes.span / 60} minutes: ${by("lanes-note").textContent}`);
  tellPointed();
  if (by("table-box").open && performance.now() - view.tableAt > 1000) showTable();
}

function showMoment() {
  const frame = history_.frame, newest = history_.frames[history_.frames.length - 1], ago = newest.time - frame.time, scrub = by("scrub");
  scrub.value = history_.at;
  const text = view.paused || ago > 0.5 ? (ago < 0.05 ? "now, paused" : "−" + seconds(ago)) : "live";
  by("moment").textContent = text;
  scrub.setAttribute("aria-valuetext", text);
  if (!view.failed) say(view.paused ? "past" : "live", view.paused ? "paused: " + text : "live");
}

const momentShown = () => view.paused || !history_.frame ? history_.frame?.time ?? 0 : history_.frame.time + Math.min(1, (performance.now() - view.arrived) / 1000);

function paint(clock) {
  requestAnimationFrame(paint);
  // Paints about thirty times per second, or four times if the user prefers reduced motion or if nothing moves.
  const isBusy = history_.frame && (history_.frame.requests?.length > 0 || lanes.ended.length > 0) && !view.paused;
  const most = calm || !isBusy ? 240 : PERIOD_MS;
  if (!map.dirty && !lanes.dirty && map.glow.size === 0 && clock - view.painted < most) return;
  if (clock - view.painted < PERIOD_MS || !history_.frame) return;
  view.painted = Math.max(view.painted + PERIOD_MS, clock - PERIOD_MS);  // a late image does not delay the following images
  const time = momentShown();
  // In this mode, colours depend on age, so they change even if no block changes.
  if (map.mode === "heat" && clock - view.ageing > 1000) { map.dirty = true; view.ageing = clock; }
  drawMap(history_, time);
  drawLanes(time);
  lanes.dirty = false;
  page.painted++;
}

function tellPointed() {
  if (!history_.frame) return;
  if (map.at) by("map-told").textContent = wordsOfBlock(history_, map.at, history_.frame.time);
  const track = lanes.tracks.get(lanes.pointed ?? lanes.chosen);
  if (track) by("lanes-told").textContent = wordsOfTrack(track, history_.frame.time);
}

function showTable() {
  view.tableAt = performance.now();
  const time = history_.frame.time, focused = document.activeElement?.dataset?.id, rows = [];
  const here = [...lanes.tracks.values()].filter(track => track.begins <= time && (!track.ends || track.ends > time)).slice(0, 200);
  for (const track of here) {
    const row = make(null, "tr"), part = partAt(track, time), button = make(make(row, "td"), "button", track.name || "request " + track.id);
    button.type = "button";
    button.dataset.id = track.id;
    button.onclick = () => chooseAndShow(track.id);
    for (const text of [STATES[part.state]?.[1] || part.state, part.cause ? WAITS[part.cause] || part.cause : "", whole(track.row.prompt), track.row.cached >= 0 ? whole(track.row.cached) : "", whole(Math.max(0, track.row.tokens - track.row.prompt)), whole(track.row.blocks)]) make(row, "td", text);
    rows.push(row);
  }
  by("table").replaceChildren(...rows);
  if (focused) by("table").querySelector(`[data-id="${focused}"]`)?.focus();
}

function chooseAndShow(id) {
  choose(lanes.chosen === id ? null : id);
  tellPointed();
  if (lanes.chosen !== null && matchMedia("(max-width: 64rem)").matches) by("explained").scrollIntoView({behavior: calm ? "auto" : "smooth", block: "nearest"});
}

function pause(paused) {
  view.paused = paused;
  by("pause").setAttribute("aria-pressed", paused);
  by("pause").textContent = paused ? "Resume" : "Pause";
  if (!paused) { history_.seek(history_.frames.length - 1); view.arrived = performance.now(); }
  showFrame();
}

function goTo(at) {
  if (!history_.frame) return;
  if (!view.paused) { view.paused = true; by("pause").setAttribute("aria-pressed", true); by("pause").textContent = "Resume"; }
  history_.seek(at, history_.frames.length && Math.abs(at - history_.at) === 1 ? glow : undefined);
  showFrame();
}

const THEMES = {auto: "system setting", light: "light", dark: "dark"};
function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  localStorage.setItem("quire-theme", theme);
  by("theme").textContent = {auto: "Auto", light: "Light", dark: "Dark"}[theme];
  by("theme").setAttribute("aria-label", "Colours: " + THEMES[theme]);
  refresh();
}

// Redraws everything. Called after colours or sizes have changed.
function refresh() {
  readColours();
  map.count = -1;
  showMapLegend();
  showLanesLegend();
  showFrame();
  drawCurve(view.curve);
}

// Polls the curve of hit rates, unless the server does not collect one (status 400).
async function pollCurve() {
  let response;
  if (!document.hidden && !by("key-dialog").open) {
    try {
      response = await fetch("v1/cache/curve", {headers: headers()});
      view.curve = response.ok ? rowsOfCurve(await response.json()) : null;
    } catch { view.curve = null; }
    drawCurve(view.curve);
  }
  if (response?.status !== 400) setTimeout(pollCurve, view.curve ? 15000 : 3000);
}
