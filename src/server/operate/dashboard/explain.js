// Shows the answer of GET /v1/requests/{id}/explain in words and bars. Sets all strings as text, never as HTML, because some come from
// clients.
const asked = {id: null, timer: 0, answer: ""};

async function explain(id) {
  asked.id = id;
  clearTimeout(asked.timer);
  const track = lanes.tracks.get(id), box = by("explained");
  if (!track) return closeExplained();
  box.hidden = false;
  by("explained-title").textContent = "Explanation";
  let said;
  try {
    if (!track.name) throw new Error("This request has no name, because it did not arrive over HTTP.");
    const response = await fetch("v1/requests/" + encodeURIComponent(track.name) + "/explain", {headers: headers()});
    if (response.status === 404 && track.tenant) throw new Error(`This request belongs to tenant ${track.tenant}. Its explanation requires the key of that tenant.`);
    if (!response.ok) throw new Error(await failure(response));
    said = await response.json();
  } catch (error) { said = {failed: error.message}; }
  if (asked.id !== id) return;
  const text = JSON.stringify(said);
  if (text !== asked.answer || said.failed) { asked.answer = text; showExplained(track, said); }
  if (!track.ends && !document.hidden) asked.timer = setTimeout(() => explain(id), 2000);
}

function closeExplained() {
  asked.id = null; asked.answer = "";
  clearTimeout(asked.timer);
  by("explained").hidden = true;
  choose(null);
}

function showExplained(track, said) {
  const body = make(null, "div");
  make(body, "p", (track.name || "request " + track.id) + (track.tenant ? ", tenant " + track.tenant : ""), "who");
  if (said.failed) {
    make(body, "p", wordsOfTrack(track, track.ends || Infinity), "summary");
    make(body, "p", said.failed, "note");
  }
  (said.requests || []).forEach((one, i) => {
    if (said.requests.length > 1) make(body, "h3", `Choice ${i + 1}`);
    showOne(body, one, track.name);
  });
  by("explained-body").replaceChildren(body);
}

function showOne(body, one, name) {
  make(body, "p", one.summary.charAt(0).toUpperCase() + one.summary.slice(1) + ".", "summary");
  const prompt = one.prompt, tokens = value => whole(value) + (value === 1 ? " token" : " tokens");
  if (prompt.tokens > 0) {
    make(body, "h3", `Sources of its ${tokens(prompt.tokens)} of prompt`);
    const missed = Object.entries(prompt.missed_by_cause).sort((a, b) => b[1] - a[1]);
    const entries = [["found in memory", prompt.cached, colour.cached], ["loaded from tiers", prompt.from_tiers, colour.loading], ["shared with its parent", prompt.shared, colour.shared],
      ...missed.map(([cause, count], i) => ["computed: " + (MISSES[cause] || cause), count, mix(colour.missed, colour.card, Math.min(0.75, i * 0.17))])].filter(entry => entry[1] > 0).map(entry => [...entry, tokens(entry[1])]);
    showBar(body, entries, "Prompt tokens of the request");
    showRows(body, entries);
  }
  showWaits(body, "It waited " + seconds(one.waited_s), one.waits);
  if (one.waits_again.length) showWaits(body, "It waited again " + seconds(one.waited_again_s), one.waits_again);
  if (one.blocked_by && one.blocked_by !== name) make(body, "p", "Last blocked by " + one.blocked_by, "who");
  if (one.misses.length) {
    make(body, "h3", "Missed tokens, in order");
    const list = make(body, "dl", undefined, "rows");
    for (const miss of one.misses) {
      make(list, "dt", miss.text + (miss.step !== undefined ? ` (in step ${miss.step}${miss.by ? ", for " + miss.by : ""})` : ""));
      make(list, "dd", `${whole(miss.first_token)}–${whole(miss.first_token + miss.tokens - 1)}`);
      if (miss.differs_at !== undefined) make(body, "blockquote", `From token ${whole(miss.differs_at)} on: …${miss.before}▸${miss.own}…` + (miss.stored !== undefined ? ` — stored: …${miss.stored}…` : ""));
    }
  }
  if (one.num_preemptions) {
    make(body, "h3", one.num_preemptions === 1 ? "Preempted once" : `Preempted ${one.num_preemptions} times`);
    showRows(body, one.preemptions.map(gone => [gone.text + (gone.by ? ", for " + gone.by : ""), 1, colour.preempted, (gone.swapped_out ? "swapped out, " : "") + `${tokens(gone.lost_tokens)} to recompute`]));
  }
}

function showWaits(body, title, waits) {
  make(body, "h3", title);
  const entries = waits.map((wait, i) => [wait.text, wait.seconds, mix(colour.queued, colour.fg, Math.max(0, 0.5 - i * 0.15)), seconds(wait.seconds)]);
  if (entries.length) { showBar(body, entries, title); showRows(body, entries); }
}

// Chooses a request: highlights its blocks and its lane, and shows its explanation. With null, chooses no request.
function choose(id) {
  lanes.chosen = id;
  map.owner = id === null ? 0 : (id >>> 0) + 1;
  map.dirty = lanes.dirty = true;
  if (id !== null) explain(id);
  else if (asked.id !== null) closeExplained();
}
