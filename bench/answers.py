#!/usr/bin/env python3
"""Checks the explanations of a crowded server on a real model, with tiers, swap, forks, grammars, clients that disconnect, and preemptions.
The run is recorded in a journal and a trace. Afterwards the explanations are compared with both:

- quire replay repeats every decision of the journal;
- each request has an explanation with the right sums of waits and of missed tokens by cause, no cause is unnamed, and the totals equal
  /metrics;
- each "evicted in step n for r" is an eviction in the trace, in that step and for that request.

Fails if one of these checks fails, or if the run had too few of the required events.
"""
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import machine

TOPICS = ("rivers", "bridges", "clocks", "maps", "bees", "glass", "salt", "tides", "roofs", "letters", "wells", "boats")
FORM = {"type": "json_schema", "json_schema": {"name": "record", "schema": {
    "type": "object", "properties": {"place": {"type": "string", "maxLength": 20}, "open": {"type": "boolean"}}, "required": ["place", "open"],
    "additionalProperties": False}}}
# Events that a run must have; a run without one of them proves nothing.
MUST_MEET = ("preempted", "swapped in", "loaded from dram", "loaded from disk", "forked", "left", "forms", "evictions told")


def prompt(rng):
    topic = rng.choice(TOPICS)
    text = f"Here is all that there is to know about {topic}, told slowly and with many examples. " * rng.choice((2, 4, 8, 12))
    return text + (f"Chapter {rng.randrange(4)}." if rng.random() < 0.7 else f"Note {rng.random()}.")


def body(rng):
    """Returns the path and body of a streamed chat or completion, and the number of events after which the client disconnects (None:
    never)."""
    fields = {"stream": True, "max_tokens": rng.choice((2, 8, 8, 24, 100)), "seed": rng.randrange(100)}
    kind = rng.random()
    if kind < 0.1:
        return "/v1/chat/completions", {**fields, "messages": [{"role": "user", "content": prompt(rng)}], "response_format": FORM, "max_tokens": 40}, None
    fields["prompt"] = prompt(rng)
    if kind < 0.2:
        fields.update(n=3, temperature=1.0)
    return "/v1/completions", fields, rng.randrange(1, 8) if kind > 0.9 else None


class Client:
    def __init__(self, port, seed):
        self.port, self.rng = port, random.Random(seed)

    def ask(self):
        """Sends a request. Returns the id and the kind of the answer."""
        path, fields, leaves_after = body(self.rng)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:300]}")
        name, num_events = None, 0
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            name = name or json.loads(line[6:])["id"]
            num_events += 1
            if leaves_after is not None and num_events >= leaves_after:
                break
        connection.close()
        kind = "forms" if "response_format" in fields else "forked" if fields.get("n", 1) > 1 else "left" if leaves_after else "plain"
        return name, kind


def counted(text, name, **labels):
    wanted = "".join(rf'(?=[^}}]*{key}="{value}")' for key, value in labels.items())
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{{wanted}[^}}]*\}})? (\S+)$", text, re.MULTILINE))


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
        return answer.read().decode()


class Evictions:
    """Data of a trace: for each step, the requests for which blocks were evicted, and for each name, the request ids."""

    def __init__(self, path):
        self.by_step, self.ids = collections.defaultdict(set), collections.defaultdict(set)
        for line in self.lines(f"{path}.steps.jsonl"):
            if '"block_evicted"' in line:
                record = json.loads(line)
                self.by_step[record["step"]].add(int(record["beneficiary"]))
        for line in self.lines(f"{path}.requests.jsonl"):
            record = json.loads(line)
            self.ids[record["quire"]["name"]].add(int(record["req_id"]))

    @staticmethod
    def lines(path):
        for one in sorted(pathlib.Path(path).parent.glob(pathlib.Path(path).name + "*")):
            with open(one, encoding="utf-8") as file:
                yield from file

    def has(self, step, name):
        return bool(self.by_step[step]) if name is None else bool(self.by_step[step] & self.ids[name])


def check_request(facts, totals, wrong):
    told = facts["prompt"]
    missed = told["missed_by_cause"]
    if told["cached"] + told["from_tiers"] + told["shared"] + told["missed"] != told["tokens"] and facts["state"] != "waiting":
        wrong.append(("tokens do not add up", facts))
    if sum(missed.values()) != told["missed"]:
        wrong.append(("misses do not add up", facts))
    for key in ("waits", "waits_again"):
        total = facts["waited_s" if key == "waits" else "waited_again_s"] or 0.0
        if abs(sum(wait["seconds"] for wait in facts[key]) - total) > 1e-4:
            wrong.append((f"{key} do not add up", facts))
        totals["unnamed"] += sum(wait["cause"] in ("none", "") for wait in facts[key])
        for wait in facts[key]:
            totals["wait", wait["cause"]] += 1
    totals["unnamed"] += sum(fact["cause"] in ("none", "") for fact in facts["preemptions"] + facts["misses"])
    for cause, tokens in missed.items():
        totals["miss", cause] += tokens
    totals["missed"] += told["missed"]
    totals["preemptions"] += facts["num_preemptions"]


def main() -> int:
    parser = machine.parser(__doc__, requests=5000, clients=24, seed=1)
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe(), flush=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-answers-"))
    port = machine.free_port()
    flags = ["--num-blocks", "64", "--max-model-len", "768", "--max-num-seqs", "8", "--max-num-batched-tokens", "512", "--no-scheduler-reserve-full-isl",
             "--kv-dram", "16MiB", "--kv-disk", folder / "kv", "--kv-disk-budget", "48MiB", "--kv-policy", "exact", "--kv-swap", "24MiB",
             "--kv-swap-choice", "always", "--journal", folder / "journal", "--trace", folder / "trace", "--explained-requests",
             str(arguments.requests * 3 + 100)]  # fmt: skip
    begin = time.monotonic()
    done = []
    with machine.Server("quire", [arguments.binary, "serve", arguments.model, "--port", str(port), *map(str, flags)], port,
                        log=folder / "log") as server:
        clients = [Client(port, arguments.seed * 1000 + i) for i in range(arguments.clients)]

        def work(client):
            mine = []
            for _ in range(arguments.requests // arguments.clients + 1):
                mine.append(client.ask())
                if client is clients[0]:
                    share = len(mine) / (arguments.requests / arguments.clients)
                    print(f"\r{share:6.1%}  {time.monotonic() - begin:5.0f} s", end="", file=sys.stderr, flush=True)
            return mine

        with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
            for mine in pool.map(work, clients):
                done += mine
        print(file=sys.stderr)
        ran_s = time.monotonic() - begin
        metrics = get(port, "/metrics")
        explained, wrong, totals, evicted = [], [], collections.Counter(), []
        for name, _ in done:
            try:
                explained += json.loads(get(port, f"/v1/requests/{name}/explain"))["requests"]
            except urllib.error.HTTPError as error:
                wrong.append((f"missing explanation: {error.code}", name))
        if server.stop() != 0:
            wrong.append(("the server", "ended badly"))
    for facts in explained:
        check_request(facts, totals, wrong)
        evicted += [(miss["step"], miss["by"]) for miss in facts["misses"] if miss["cause"] == "evicted"]
    trace = Evictions(folder / "trace")
    wrong += [("this eviction is not in the trace", one) for one in evicted if not trace.has(*one)]
    for what, told, count in (("missed tokens", totals["missed"], counted(metrics, "quire:prompt_tokens_missed_total")),
                              ("preemptions", totals["preemptions"], counted(metrics, "vllm:num_preemptions_total"))):
        if told != count:
            wrong.append((f"{what} of all explanations differs from /metrics", (told, count)))
    kinds = collections.Counter(kind for _, kind in done)
    met = {"preempted": totals["preemptions"], "swapped in": counted(metrics, "quire:kv_swap_in_requests_total"),
           "loaded from dram": counted(metrics, "quire:kv_tier_loaded_blocks_total", tier="dram"),
           "loaded from disk": counted(metrics, "quire:kv_tier_loaded_blocks_total", tier="disk"), "forked": kinds["forked"],
           "left": kinds["left"], "forms": kinds["forms"], "evictions told": len(evicted)}  # fmt: skip
    wrong += [("the run had none", what) for what in MUST_MEET if not met[what]]
    print(f"{len(done)} answers in {ran_s:.0f} s ({len(explained)} requests explained): "
          + ", ".join(f"{what} {int(number)}" for what, number in met.items()))  # fmt: skip
    for kind, unit in (("wait", "waits"), ("miss", "tokens")):
        named = sorted(((key[1], number) for key, number in totals.items() if key[0] == kind), key=lambda one: -one[1])
        print(f"{unit} by cause: " + ", ".join(f"{name} {number}" for name, number in named))
    print(f"unnamed causes: {totals['unnamed']}; evictions that the trace has: {sum(trace.has(*one) for one in evicted)} of {len(evicted)}")
    for path in sorted((folder / "journal").glob("*.qj")):
        replay_begin = time.monotonic()
        replayed = subprocess.run([arguments.binary, "replay", path, "--json"], capture_output=True, text=True, check=False)
        told = json.loads(replayed.stdout) if replayed.stdout else {}
        print(f"replay of {path.name}, {path.stat().st_size} bytes: {told.get('decisions')} decisions of {told.get('steps')} steps, "
              f"{'all identical' if told.get('identical') else 'NOT identical'}, {time.monotonic() - replay_begin:.1f} s")  # fmt: skip
        if not told.get("identical") or told.get("damage") is not None:
            wrong.append(("replay", replayed.stdout + replayed.stderr))
    for what, which in wrong[:10]:
        print(f"WRONG: {what}: {json.dumps(which)[:400]}")
    print(f"{len(wrong) + totals['unnamed']} wrong" if wrong or totals["unnamed"] else "all of it holds")
    return 1 if wrong or totals["unnamed"] else 0


if __name__ == "__main__":
    sys.exit(main())
