// Handles pointer, touch, keys and buttons. The page starts at the end of this file.
const page = {history: history_, lanes, map, view, take, painted: 0};
window.quire = page;

by("map-canvas").addEventListener("pointermove", event => { map.at = blockAt(event); map.dirty = true; tellPointed(); });
by("map-canvas").addEventListener("pointerdown", event => { map.touched = event.pointerType === "touch" && map.at !== blockAt(event); map.at = blockAt(event); map.dirty = true; tellPointed(); });
// The first tap on a block describes it; a second tap chooses the block's request.
by("map-canvas").addEventListener("click", event => { if (!map.touched) chooseOwner(blockAt(event)); });
by("map-canvas").addEventListener("pointerleave", () => { if (document.activeElement !== by("map")) { map.at = 0; map.dirty = true; } });
by("map").addEventListener("keydown", event => {
  const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.columns, ArrowDown: map.columns}[event.key];
  if (event.key === "Enter" && map.at) { event.preventDefault(); return chooseOwner(map.at); }
  if (!step || !history_.count) return;
  event.preventDefault();
  map.at = Math.max(1, Math.min(history_.count - 1, map.at + step));
  map.dirty = true;
  tellPointed();
});

function chooseOwner(block) {
  const owner = block && history_.count ? history_.shown[block * FIELDS] : 0, track = owner && lanes.lowIds.get(owner - 1);
  if (track) chooseAndShow(track.id); else choose(null);
}

by("lanes").addEventListener("pointermove", event => {
  const track = history_.frame && trackAt(event, momentShown());
  if ((track?.id ?? null) === lanes.pointed) return;
  lanes.pointed = track?.id ?? null;
  lanes.dirty = true;
  tellPointed();
});
by("lanes").addEventListener("pointerleave", () => { lanes.pointed = null; lanes.dirty = true; });
by("lanes").addEventListener("click", event => { const track = history_.frame && trackAt(event, momentShown()); if (track) chooseAndShow(track.id); else choose(null); });
by("lanes").addEventListener("scroll", () => { lanes.dirty = true; });
by("lanes").addEventListener("keydown", event => {
  const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (event.key === "Enter" && lanes.pointed !== null) { event.preventDefault(); return chooseAndShow(lanes.pointed); }
  if (!step || !history_.frame) return;
  event.preventDefault();
  const time = history_.frame.time, all = [...lanes.tracks.values()].filter(track => track.begins <= time && (!track.ends || track.ends > time - lanes.span)).sort((a, b) => a.lane - b.lane || b.begins - a.begins);
  if (!all.length) return;
  const at = all.findIndex(track => track.id === (lanes.pointed ?? lanes.chosen)), next = all[Math.max(0, Math.min(all.length - 1, at + step))], y = next.lane * lanes.row, box = by("lanes");
  lanes.pointed = next.id;
  if (y < box.scrollTop) box.scrollTop = y;
  if (y + lanes.row > box.scrollTop + box.clientHeight - LABEL) box.scrollTop = y + lanes.row - box.clientHeight + LABEL;
  lanes.dirty = true;
  tellPointed();
});

by("pause").addEventListener("click", () => pause(!view.paused));
by("back").addEventListener("click", () => goTo(history_.at - 1));
by("forth").addEventListener("click", () => goTo(history_.at + 1));
by("scrub").addEventListener("input", () => goTo(Number(by("scrub").value)));
addEventListener("keydown", event => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || by("key-dialog").open) return;
  if (event.target.closest("input, button, a, summary, [role=application]") && !(event.key === "Escape")) return;
  if (event.key === "ArrowLeft") goTo(history_.at - (event.shiftKey ? 20 : 1));
  else if (event.key === "ArrowRight") goTo(history_.at + (event.shiftKey ? 20 : 1));
  else if (event.key === " ") pause(!view.paused);
  else if (event.key === "Escape" && lanes.chosen !== null) choose(null);
  else return;
  event.preventDefault();
});

by("explained-close").addEventListener("click", () => { closeExplained(); by("lanes").focus(); });
by("table-box").addEventListener("toggle", () => { if (by("table-box").open && history_.frame) showTable(); });
for (const radio of document.querySelectorAll("[name=map-mode]")) radio.addEventListener("change", () => { map.mode = radio.value; map.dirty = true; showMapLegend(); });
for (const radio of document.querySelectorAll("[name=span]")) radio.addEventListener("change", () => { lanes.span = Number(radio.value); showFrame(); });
by("key-button").addEventListener("click", () => by("key-dialog").showModal());
by("key-dialog").addEventListener("close", () => {
  const key = by("key").value.trim();
  by("key").value = "";
  if (key) sessionStorage.setItem("quire-key", key);
  nameOfModel();
});
by("theme").addEventListener("click", () => { const all = Object.keys(THEMES); setTheme(all[(all.indexOf(localStorage.getItem("quire-theme") || "auto") + 1) % all.length]); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
motion.addEventListener("change", () => { calm = motion.matches; });
addEventListener("resize", () => { map.count = -1; if (history_.frame) { map.dirty = lanes.dirty = true; showTiles(history_); } drawCurve(view.curve); });

makeTiles();
setTheme(localStorage.getItem("quire-theme") || "auto");
nameOfModel();
poll();
pollCurve();
requestAnimationFrame(paint);
