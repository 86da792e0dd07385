"""A simulated server for the dashboard: it simulates requests on a KV cache and reports them in the format of GET /v1/watch. Used for
screenshots and to measure how fast the page draws. The simulation has no scheduler."""
import base64
import collections
import http.server
import json
import random
import threading
import time

CACHED, LOADING, STORING = 1, 2, 4
FIELDS = ["id", "name", "tenant", "state", "waits_for", "arrival_s", "prompt_tokens", "tokens", "computed_tokens", "cached_tokens", "tier_tokens",
          "preemptions", "blocks"]
BLOCK = 16


def varint(out, value):
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


class Request:
    def __init__(self, id, now, rng, most_tokens):
        self.id, self.arrival, self.rng = id, now, rng
        self.name = f"chatcmpl-{rng.getrandbits(64):016x}{id:08x}"
        self.tenant = rng.choice(["", "", "", "acme", "lab"])
        self.family = rng.randrange(24)
        self.prompt = rng.randrange(most_tokens // 8, most_tokens)
        self.answer = rng.randrange(20, 900)
        self.computed = self.written = self.preemptions = 0
        self.cached = -1
        self.tier = 0
        self.blocks, self.shared = [], 0
        self.state, self.cause = "queued", "next_step"
        self.until = 0.0


class Play:
    """A simulation in which `running` of `running + waiting` requests run at the same time, on a cache of `num_blocks` blocks."""

    def __init__(self, num_blocks=6000, running=24, waiting=9, seed=1, tiers=True, prompt_rate=4096):
        self.rng, self.n, self.most_running, self.most = random.Random(seed), num_blocks, running, running + waiting
        self.prompt_rate = prompt_rate
        self.most_tokens = max(64, int(num_blocks * BLOCK * 0.9 / running))
        self.owner, self.used, self.word = [0] * num_blocks, [0.0] * num_blocks, [0] * num_blocks  # word: hits, holders, flags
        self.free = collections.deque(range(1, num_blocks))
        self.changed = [0] * num_blocks
        self.families = {}  # family -> blocks of its shared prefix
        self.all, self.next_id, self.frame, self.first, self.tiers = [], 0, 0, int(time.time()) * 16, tiers
        self.now, self.started = 1000.0, time.monotonic()
        self.count = collections.Counter()
        self.missed, self.waited, self.preempted = collections.Counter(), collections.Counter(), collections.Counter()
        self.storing = []
        self.lock = threading.Lock()

    def touch(self, block, holders, flags=None, hit=False, owner=None):
        hits, old, kept = self.word[block] if self.word[block] != 0 else (0, 0, 0)
        self.word[block] = (min(65535, hits + hit), max(0, old + holders), kept if flags is None else flags)
        self.used[block] = self.now
        if owner is not None:
            self.owner[block] = owner
        self.changed[block] = self.frame

    def take_block(self, request):
        while self.free:
            block = self.free.popleft()
            if self.word[block] == 0 or self.word[block][1] == 0:
                if self.word[block] != 0 and self.word[block][2] & CACHED:
                    self.count["evicted"] += 1
                self.word[block] = (0, 1, 0)
                self.owner[block], self.used[block], self.changed[block] = request.id + 1, self.now, self.frame
                return block
        return 0

    def release(self, request):
        for block in reversed(request.blocks):
            self.touch(block, -1)
            if self.word[block][1] == 0:
                self.free.append(block)
        request.blocks = []

    def admit(self, request):
        family = self.families.get(request.family, [])
        begin = [b for b in family if self.word[b] != 0 and self.word[b][2] & CACHED][:request.prompt // BLOCK // 2]
        for block in begin:
            self.touch(block, 1, hit=True)
        request.blocks = list(begin)
        request.cached = len(begin) * BLOCK
        self.count["query"] += request.prompt
        self.count["hit"] += request.cached
        if self.tiers and self.rng.random() < 0.2:
            request.state, request.cause, request.until = "loading", "loading", self.now + self.rng.uniform(0.4, 2.0)
            request.tier = min(request.prompt - request.cached, self.rng.randrange(1, 12) * BLOCK)
            for _ in range(request.tier // BLOCK):
                block = self.take_block(request)
                if block:
                    self.touch(block, 0, flags=LOADING)
                    request.blocks.append(block)
        else:
            request.state, request.cause = "prefill", None
        missed = request.prompt - request.cached - request.tier
        for cause, part in (("never_stored", 0.6), ("diverged", 0.2), ("evicted", 0.15)):
            self.missed[cause] += int(missed * part)
        self.missed["partial_block"] += request.prompt % BLOCK
        self.count["tier_hit"] += request.tier
        request.computed = request.cached + request.tier

    def step(self, elapsed):
        self.now += elapsed
        self.frame += 1
        while len(self.all) < self.most and self.rng.random() < max(0.9, 1 - 9 / self.most):
            self.all.append(Request(self.next_id, self.now, self.rng, self.most_tokens))
            self.next_id += 1
        running = [r for r in self.all if r.state in ("prefill", "decode")]
        for request in [r for r in self.all if r.state in ("queued", "preempted")]:
            if len(running) < self.most_running and len(self.free) > request.prompt // BLOCK:
                self.admit(request)
                running.append(request)
            else:
                request.cause = "no_slot" if len(running) >= self.most_running else "lack_of_blocks"
                self.waited[request.cause] += elapsed
        chunk = int(self.prompt_rate * elapsed)
        for request in list(self.all):
            if request.state == "loading" and self.now > request.until:
                for block in request.blocks:
                    self.touch(block, 0, flags=CACHED)
                request.state, request.cause = "prefill", None
            elif request.state == "prefill" and chunk > 0:
                step = min(chunk, max(64, int(request.prompt * 0.25)), request.prompt - request.computed)
                request.computed += step
                chunk -= step
                self.grow(request)
                if request.computed >= request.prompt:
                    request.state = "decode"
                    self.count["prompt"] += request.prompt
                    self.families[request.family] = request.blocks[:request.prompt // BLOCK]
            elif request.state == "decode":
                step = max(1, int(self.rng.uniform(20, 60) * elapsed))
                request.written += step
                request.computed += step
                self.count["written"] += step
                if not self.grow(request) and len(running) > 1:
                    self.release(request)
                    request.state, request.computed, request.cause = "preempted", 0, "lack_of_blocks"
                    request.preemptions += 1
                    self.count["preemptions"] += 1
                    self.preempted["lack_of_blocks"] += 1
                elif request.written >= request.answer:
                    self.release(request)
                    if self.rng.random() < 0.1:
                        request.state, request.until = "pinned", self.now + 4
                    else:
                        self.all.remove(request)
            elif request.state == "pinned" and self.now > request.until:
                self.all.remove(request)
        for block in self.storing:
            if self.word[block] != 0 and self.word[block][2] & STORING:
                self.touch(block, 0, flags=CACHED)
        drawn = self.rng.sample(range(1, self.n), self.n // 50) if self.tiers else []
        self.storing = [b for b in drawn if self.word[b] != 0 and self.word[b][2] == CACHED and self.word[b][1]]
        for block in self.storing:
            self.touch(block, 0, flags=CACHED | STORING)
        self.count["steps"] += int(30 * elapsed)

    def grow(self, request):
        for block in request.blocks[-3:]:
            if not self.word[block][2] & CACHED and len(request.blocks) * BLOCK <= request.computed:
                self.touch(block, 0, flags=CACHED)
        while len(request.blocks) * BLOCK < request.computed:
            block = self.take_block(request)
            if block == 0:
                return False
            if (len(request.blocks) + 1) * BLOCK <= request.computed:
                self.touch(block, 0, flags=CACHED)
            request.blocks.append(block)
        return True

    def changes(self, since):
        out, end, i = bytearray(), 0, 0
        now = int(self.now * 10)
        while i < self.n:
            if self.changed[i] <= since:
                i += 1
                continue
            value = (self.owner[i], int(self.used[i] * 10), self.word[i])
            j = i + 1
            while j < self.n and self.changed[j] > since and (self.owner[j], int(self.used[j] * 10), self.word[j]) == value:
                j += 1
            hits, holders, flags = value[2] if value[2] != 0 else (0, 0, 0)
            for number in (i - end, j - i, flags, min(holders, 255), hits, value[0], now - value[1] + 1 if value[1] else 0):
                varint(out, number)
            i = end = j
        return base64.b64encode(bytes(out)).decode()

    def watch(self, since):
        since -= self.first
        if not 0 < since <= self.frame:
            since = 0
        held = sum(1 for w in self.word if w != 0 and w[1])
        running = sum(r.state in ("prefill", "decode") for r in self.all)
        rows = [[r.id, r.name, r.tenant, r.state, None if r.state in ("prefill", "decode", "pinned") else r.cause, r.arrival, r.prompt,
                 r.prompt + r.written, r.computed, r.cached, r.tier, r.preemptions, len(r.blocks)] for r in self.all]
        count = self.count
        engine = {"running": running, "waiting": sum(r.state in ("queued", "preempted", "loading") for r in self.all),
                  "pinned": sum(r.state == "pinned" for r in self.all), "blocks": self.n - 1, "free_blocks": self.n - 1 - held, "open_transfers": 0,
                  "paused": False, "admission_stopped": False, "steps": count["steps"], "forks": 0, "preemptions": count["preemptions"],
                  "evicted_blocks": count["evicted"], "prompt_tokens": count["prompt"], "prompt_tokens_cached": count["hit"],
                  "generation_tokens": count["written"], "query_tokens": count["query"], "hit_tokens": count["hit"], "tier_query_tokens": count["query"],
                  "tier_hit_tokens": count["tier_hit"], "ended": {"stop": 0, "length": 0, "abort": 0, "error": 0}}
        tiers = [{"tier": "disk", "slots": 20000, "used_slots": min(20000, 3000 + count["evicted"]), "unread_slots": 0,
                  "loaded_bytes": count["tier_hit"] * 23040, "stored_bytes": count["query"] * 9000, "loaded_tokens": count["tier_hit"],
                  "loads_left_out": 0, "stores_left_out": 0}] if self.tiers else []
        return {"object": "watch", "frame": self.first + self.frame, "since": self.first + since if since else None, "time_s": round(self.now, 3),
                "interval_ms": 250, "block_size": BLOCK, "engine": engine, "missed_tokens": dict(self.missed),
                "waited_s": {k: round(v, 3) for k, v in self.waited.items()}, "preemptions_by_cause": dict(self.preempted), "tiers": tiers,
                "request_fields": FIELDS, "requests": rows, "requests_left_out": 0, "blocks": {"count": self.n, "changes": self.changes(since)}}

    def explain(self, name):
        prompt = next((r.prompt for r in self.all if r.name == name), 700)
        cached, tier = prompt // 3 // BLOCK * BLOCK, prompt // 9 // BLOCK * BLOCK
        missed = prompt - cached - tier
        text = {"no_slot": "all batch slots were in use (--max-num-seqs)", "next_step": "it arrived while a step was running",
                "diverged": "the prompt diverges from the cached prefix",
                "evicted": "their blocks were evicted for other requests", "partial_block": "only full blocks are cached"}
        one = {"state": "admitted", "summary": f"waited 2.413 s, most of it because {text['no_slot']}; {cached + tier} of {prompt} prompt tokens did "
               f"not need to be computed, {missed - missed // 3} were missed because {text['diverged']}", "waited_s": 2.413,
               "waits": [{"cause": "no_slot", "text": text["no_slot"], "seconds": 2.36, "steps": 71},
                         {"cause": "next_step", "text": text["next_step"], "seconds": 0.053, "steps": 0}],
               "waited_again_s": 0, "waits_again": [], "blocked_by": None,
               "prompt": {"tokens": prompt, "cached": cached, "from_tiers": tier, "shared": 0, "missed": missed,
                          "missed_by_cause": {"diverged": missed - missed // 3, "evicted": missed // 3}},
               "misses": [{"cause": "diverged", "text": text["diverged"], "first_token": cached + tier, "tokens": missed - missed // 3,
                           "differs_at": cached + tier + 3, "before": "in the harbour of", "own": " Lisbon, where", "stored": " Genoa, when"},
                          {"cause": "evicted", "text": text["evicted"], "first_token": prompt - missed // 3, "tokens": missed // 3, "step": 8123,
                           "by": None}], "num_preemptions": 0, "preemptions": []}
        return {"object": "request.explanation", "id": name, "requests": [one]}

    def curve(self):
        block_bytes, now = BLOCK * 23040, self.n - 1
        factors = sorted([2 ** (i / 2) for i in range(-6, 9)] + ([20000 / now] if self.tiers and now < 20000 else []))
        rates = [0.1 + 0.6 * (1 - 0.5 ** (factor / 1.5)) for factor in factors]
        rows = [{"label": "now" if factor == 1 else "now + disk" if factor == 20000 / now else None, "bytes": int(now * factor) * block_bytes,
                 "blocks": int(now * factor), "factor": factor, "hit_rate": rate, "saved_prefill_tokens_per_s": 9000 * (rate - rates[factors.index(1)]),
                 "saved_prefill_seconds_per_s": 1.8 * (rate - rates[factors.index(1)])} for factor, rate in zip(factors, rates)]
        return {"object": "cache.curve", "block_size": BLOCK, "block_bytes": block_bytes, "blocks": now, "seconds": round(self.now - 1000.0, 1),
                "curves": [{"tenant": None, "requests": 100, "prompt_tokens": self.count["query"], "rows": rows}]}


def serve(play, page):
    """Starts an HTTP server with this simulation and this page on a free port. Returns its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path, _, query = self.path.partition("?")
            kind = "application/json"
            if path == "/dashboard":
                body, kind = page, "text/html; charset=utf-8"
            elif path == "/v1/watch":
                with play.lock:
                    body = json.dumps(play.watch(int(query.partition("=")[2] or 0))).encode()
            elif path.endswith("/explain"):
                body = json.dumps(play.explain(path.split("/")[3])).encode()
            elif path == "/v1/cache/curve":
                body = json.dumps(play.curve()).encode()
            elif path == "/v1/models":
                body = b'{"data":[{"id":"SmolLM2-135M-Instruct"}]}'
            else:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def run(play, interval=0.25):
    """Advances the simulation in real time, in a separate thread."""

    def go():
        while True:
            began = time.monotonic()
            with play.lock:
                play.step(interval)
            time.sleep(max(0.01, interval - (time.monotonic() - began)))

    threading.Thread(target=go, daemon=True).start()
