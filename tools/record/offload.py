"""Records the answers of vLLM V1's CPU offloading managers (v0.19.0) to random calls.

Needs vllm 0.19.0.
core_offload_test replays this record, or the record that QUIRE_OFFLOAD_RECORD names. Each line is a call and its keys, then "=" and its
result. Keys are numbers: `3-6` is 3 4 5 6, and `-` is an empty list. "|" separates lists.
  new POLICY SLOTS THRESHOLD TRACKED    makes a manager; THRESHOLD 0 turns the reuse filter off
  lookup, load, loaded, touch, store, stored, failed    the calls of the manager; a store returns keys, slots and evicted keys, or `none`
  peek N, take                          reads up to N events from take_events, or all events; an event is + or - and its keys
  state                                 the lists of the policy (oldest first), ARC's target size, and the filter's key:count
"""
import itertools
import random

from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.reuse_manager import FilterReusedOffloadingManager

from . import files

# Slots, store threshold, number of tracked keys, number of chains of keys, share of stores that have a key twice.
MANAGERS = [(0, 0, 1, 3, 0), (6, 0, 1, 4, 0), (24, 0, 1, 6, 0), (24, 0, 1, 30, 0.03), (16, 2, 12, 5, 0), (20, 3, 200, 6, 0)]


def text(numbers):
    """Returns the numbers as text. A run of consecutive numbers becomes first-last."""
    runs = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "-"


def key(number):
    return number.to_bytes(32, "little")


def number(block_hash):
    return int.from_bytes(block_hash, "little")


class Recorder:
    def __init__(self, draw, policy, slots, threshold, tracked, chains, twice):
        self.draw, self.slots, self.chains, self.twice = draw, slots, chains, twice
        self.cpu = CPUOffloadingManager(16, slots, policy, enable_events=True)
        self.filter = FilterReusedOffloadingManager(self.cpu, threshold, tracked) if threshold else None
        self.manager = self.filter or self.cpu
        self.loading, self.storing = [], []
        self.lines = [f"new {policy} {slots} {threshold} {tracked}"]

    def keys(self):
        """Returns a part of a chain of keys, like the prefix of a request. The keys are shuffled in 10 % of the calls."""
        chain, length = self.draw.randrange(self.chains), self.draw.randrange(1, max(2, self.slots // 2))
        start = self.draw.choice([0, 0, 0, self.draw.randrange(length)])
        keys = [64 * chain + i for i in range(start, start + length)]
        if self.draw.random() < 0.1:
            self.draw.shuffle(keys)
        return keys

    def note(self, verb, keys, result=None):
        self.lines.append(f"{verb} {text(keys)}" + (f" = {result}" if result is not None else ""))

    def prefix(self):
        keys = self.keys()
        hashes = [key(k) for k in keys]
        hits = self.manager.lookup(hashes)
        self.note("lookup", keys, hits)
        if self.draw.random() < 0.7:
            self.manager.touch(hashes)
            self.note("touch", keys)
        if hits and self.draw.random() < 0.6 and len(self.loading) < 4:
            spec = self.manager.prepare_load(hashes[:hits])
            self.note("load", keys[:hits], text(spec.block_ids.tolist()))
            self.loading.append(keys[:hits])
        if self.draw.random() < 0.7 and len(self.storing) < 4:
            self.store(keys)

    def store(self, keys):
        if self.draw.random() < self.twice:  # in vLLM, a store that has a key twice loses a slot for good
            keys = keys + keys[:1]
        output = self.manager.prepare_store([key(k) for k in keys])
        if output is None:
            self.note("store", keys, "none")
            return
        stored = [number(k) for k in output.block_hashes_to_store]
        lists = (stored, output.store_spec.block_ids.tolist(), [number(k) for k in output.block_hashes_evicted])
        self.note("store", keys, " | ".join(map(text, lists)))
        # The manager completes a store with all requested keys, or only with the stored keys.
        self.storing.append(keys if self.draw.random() < 0.3 else stored)

    def complete(self):
        transfers = self.draw.choice([self.loading, self.storing, self.storing])
        if not transfers:
            return
        keys = transfers.pop(self.draw.randrange(len(transfers)))
        hashes = [key(k) for k in keys]
        if transfers is self.loading:
            self.manager.complete_load(hashes)
            self.note("loaded", keys)
        else:
            success = self.draw.random() < 0.85
            self.manager.complete_store(hashes, success)
            self.note("stored" if success else "failed", keys)

    def events(self):
        count = self.draw.choice([1, 2, None])
        events = [("-" if e.removed else "+") + text(map(number, e.block_hashes))
                  for e in itertools.islice(self.manager.take_events(), count)]
        self.lines.append(("take" if count is None else f"peek {count}") + " = " + " | ".join(events))

    def state(self):
        policy = self.cpu._policy
        lists = [policy.blocks] if hasattr(policy, "blocks") else [policy.t1, policy.t2, policy.b1, policy.b2]
        parts = [text(map(number, keys)) for keys in lists] + [float(getattr(policy, "target_t1_size", 0)).hex()]
        if self.filter:
            parts.append(" ".join(f"{number(k)}:{count}" for k, count in self.filter.counts.items()))
        self.lines.append("state = " + " | ".join(parts))

    def run(self, calls):
        while len(self.lines) < calls:
            kind = self.draw.random()
            if kind < 0.5:
                self.prefix()
            elif kind < 0.93:
                self.complete()
            elif kind < 0.98:
                self.events()
            else:
                self.state()
        self.state()
        return self.lines


OUT = "offload.txt.xz"
OPTIONS = {"calls": (350, "calls to each manager"), "seed": (1, "seed of the calls")}


def main(out, calls, seed):
    draw = random.Random(seed)
    lines = []
    for policy in ("lru", "arc"):
        for slots, threshold, tracked, chains, twice in MANAGERS:
            lines += Recorder(draw, policy, slots, threshold, tracked, chains, twice).run(calls if slots else 30)
    files.write_lines(out, lines)
