"""Records the results of vLLM's KVCacheManager (0.19.0) under random use, for tests/core/kv/recorded_test.cpp.

    PYTHONPATH=tools VLLM_PYTHON -m oracle.kv_cases --cases N --seed S [--full] | xz > tests/golden/kv/cases.txt.xz

Each line is a call, its answer, and a digest of the state after it (with --full the state itself). A small substitute of the scheduler
makes the calls in orders that occur in practice. A case ends when vLLM stops with an assertion.
"""

import argparse
import os
import random
import struct
import sys
import traceback
from math import gcd
from types import SimpleNamespace

os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"
os.environ["VLLM_CONFIGURE_LOGGING"] = "0"

from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec  # noqa: E402

from .config import kv_spec  # noqa: E402
from .kv_case_text import block_hash, event_text, fnv, hash_bytes, short  # noqa: E402


def make_spec(kind, size, a, b):
    """Returns a spec. `a`: the window, chunk or sink of the kind in tokens; `b`: speculative blocks."""
    kind, _, mode = kind.partition("_")
    return kv_spec({"kind": "sliding" if kind == "window" else kind, "block_size": size, "window": a, "chunk": a, "sink": a // size, "mode": mode, "spec_blocks": b})


class Case:
    def __init__(self, rng, full):
        self.rng = rng
        self.full = full
        self.lines = []
        self.requests = []
        self.next_id = 0
        self.hits = {}
        self.configure()

    # --- Configurations

    def configure(self):
        rng = self.rng
        size = rng.choice([1, 2, 3, 4, 4, 4])
        self.caching = rng.random() < 0.85
        self.eagle = rng.random() < 0.25
        self.spec = rng.choice([0, 0, 1, 2])
        window = ("window", size, rng.choice([1, 2, 3, 5, 8, 9, 12]), 0)
        window2 = ("window", size, rng.choice([4, 6, 7]), 0)
        chunked = ("chunked", size, rng.choice([2, 4, 6, 8, 12]), 0)
        full = ("full", size, 0, 0)
        mla = ("mla", size, 0, 0)
        mamba = ("mamba_" + rng.choice(["all", "align", "align"]), size, 0, self.spec)
        sink = ("sink", size, size * rng.choice([1, 2]), 0)
        big = size * rng.choice([2, 3])
        shapes = [
            [full], [mla], [sink], [window], [chunked], [mamba],
            [full, window], [window, full], [full, window, window], [full, chunked], [full, mamba], [mamba, full],
            [full, mamba, mamba], [full, window, mamba], [window, mamba], [full, window, window2], [mla, full],
            [full, mla, window], [sink, window], [mamba, mamba, ("full", size, 0, 0), window],
            [("full", big, 0, 0), window], [full, ("window", big, rng.choice([5, 8, 13]), 0)],
            [("full", big, 0, 0), ("mamba_all", size, 0, self.spec)], [full, ("mamba_align", big, 0, self.spec)],
            [("full", big, 0, 0), mla, ("window", size * 2, 7, 0)],
        ]
        self.groups = list(rng.choice(shapes))
        if not self.caching and rng.random() < 0.4:
            self.groups = rng.choice([[], [full, ("cross", size, 0, 0)], [("mamba_none", 64, 0, self.spec)], [full, full],
                                      [window, ("cross", 3, 0, 0), mamba]])
        kinds = {g[0] for g in self.groups}
        sizes = {g[1] for g in self.groups}
        if "chunked" in kinds or ("window" in kinds and len(sizes) > 1):
            self.eagle = False
        self.dcp, self.pcp = 1, 1
        if len(self.groups) == 1 and kinds & {"full", "mla"} and rng.random() < 0.3:
            self.dcp, self.pcp = rng.choice([(2, 1), (1, 2), (2, 2)])
        self.align = "mamba_align" in kinds
        # With two kinds of full attention, a hit may be longer than reported. With external tokens, vLLM would then take a negative number
        # of blocks, which corrupts its count of free blocks.
        self.external = not self.align and len({g for g in self.groups if g[0] in ("full", "mla", "sink")}) < 2
        self.align_size = max((g[1] for g in self.groups), default=1)
        factor = self.dcp * self.pcp
        self.hash_size = gcd(*sizes) * factor if sizes else size
        self.events = rng.random() < 0.4
        self.max_len = 64
        self.num_blocks = rng.choice([8, 12, 16, 24, 40, 64]) + 2 * len(self.groups)
        config = KVCacheConfig(
            num_blocks=self.num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], make_spec(*g)) for i, g in enumerate(self.groups)],
        )
        self.zeroing = config.needs_kv_cache_zeroing
        self.manager = KVCacheManager(
            config, self.max_len, self.hash_size, enable_caching=self.caching, use_eagle=self.eagle, log_stats=True,
            enable_kv_cache_events=self.events, dcp_world_size=self.dcp, pcp_world_size=self.pcp,
        )
        self.lines.append(
            f"config {self.num_blocks} {self.max_len} {self.hash_size} {int(self.caching)} {int(self.eagle)} {int(self.events)} "
            f"{self.dcp} {self.pcp} {len(self.groups)} " + " ".join(" ".join(map(str, g)) for g in self.groups)
        )
        streams = rng.choice([1, 2])
        self.streams = [[rng.randrange(3) for _ in range(self.max_len)] for _ in range(streams)]

    # --- Requests

    def new_request(self):
        rng = self.rng
        stream = rng.choice(self.streams)
        shared = rng.choice([0, 4, 8, 12, 16, 20, 24, 32, 40])
        length = rng.randrange(1, 48)
        tokens = [stream[i] if i < shared else rng.randrange(3) for i in range(length)]
        lora = rng.random() < 0.2
        salt = "salt" if rng.random() < 0.1 else None
        features, at = [], 0
        while rng.random() < 0.3 and at < length - 2:
            offset = rng.randrange(at, length - 1)
            size = rng.randrange(1, length - offset)
            features.append((f"mm{rng.randrange(3)}", offset, size))
            at = offset + size
        request = SimpleNamespace(
            request_id=f"r{self.next_id}", all_token_ids=tokens, num_tokens=length, num_computed_tokens=0, num_preemptions=0,
            block_hashes=[], skip_reading_prefix_cache=rng.random() < 0.05, cache_salt=salt, prompt_embeds=None,
            lora_request=SimpleNamespace(adapter_id=7, name="adapter", lora_name="adapter") if lora else None,
            mm_features=[SimpleNamespace(identifier=i, mm_position=SimpleNamespace(offset=o, length=n)) for i, o, n in features],
            index=self.next_id, state="waiting", hash_values=[], drafts=0, encoder=rng.randrange(0, 10),
        )
        self.next_id += 1
        self.extend_hashes(request)
        self.requests.append(request)
        mm = " ".join(f"{i} {o} {n}" for i, o, n in features)
        self.lines.append(
            f"request {request.index} {int(request.skip_reading_prefix_cache)} {int(lora)} {salt or '-'} {len(features)} {mm} "
            f"{length} " + " ".join(map(str, tokens))
        )

    def extend_hashes(self, request):
        size = self.hash_size
        while (len(request.hash_values) + 1) * size <= request.num_tokens:
            at = len(request.hash_values)
            parent = request.hash_values[-1] if request.hash_values else 0
            value = block_hash(parent, request.all_token_ids[at * size : (at + 1) * size])
            request.hash_values.append(value)
            request.block_hashes.append(hash_bytes(value))

    def append(self, request, count):
        tokens = [self.rng.randrange(3) for _ in range(count)]
        request.all_token_ids.extend(tokens)
        request.num_tokens += count
        self.extend_hashes(request)
        self.lines.append(f"tokens {request.index} " + " ".join(map(str, tokens)))

    # --- Calls

    def state(self) -> str:
        pool = self.manager.block_pool
        free = ",".join(str(b.block_id) for b in pool.free_block_queue.get_all_free_blocks())
        refs = ",".join(str(b.ref_cnt) for b in pool.blocks[1:])
        names = ",".join(
            f"{b.block_id}:{short(b.block_hash[:-4])}g{int.from_bytes(b.block_hash[-4:], 'big')}"
            for b in pool.blocks if b.block_hash is not None
        )
        requests = ";".join(
            f"{r.index}" + "".join(
                "[" + ",".join(str(b.block_id) for b in m.req_to_blocks.get(r.request_id, ())) + "|"
                + str(m.num_cached_block.get(r.request_id, "-")) + "]"
                for m in self.manager.coordinator.single_type_managers
            )
            for r in self.requests
        )
        return f"free={free} refs={refs} names={names} requests={requests}"

    def record(self, call, answer):
        if call.split()[0] in ("usage", "stats", "zero", "common", "events"):
            self.lines.append(f"{call} = {answer} # -")  # these calls do not change the state
            return
        state = self.state()
        self.lines.append(f"{call} = {answer} # " + (state if self.full else f"{fnv(state.encode()):016x}"))

    @staticmethod
    def ids(blocks) -> str:
        return "".join("[" + ",".join(str(b.block_id) for b in group) + "]" for group in blocks)

    def find(self, r):
        blocks, count = self.manager.get_computed_blocks(r)
        shared = blocks is self.manager.empty_kv_cache_blocks
        self.record(f"find {r.index} {r.num_preemptions}", f"{count} {'shared' if shared else self.ids(blocks.blocks)}")
        return blocks, count

    def fits(self, r, hit, local, external, encoder):
        answer = self.manager.can_fit_full_sequence(
            r, num_new_computed_tokens=local, new_computed_blocks=hit, num_external_computed_tokens=external,
            num_encoder_tokens=encoder,
        )
        self.record(f"fits {r.index} {r.num_computed_tokens} {local} {external} {encoder} {int(hit is not None)}", int(answer))
        return answer

    def allocate(self, r, new, hit=None, local=0, lookahead=0, external=0, delay=False, encoder=0):
        call = (f"allocate {r.index} {r.num_computed_tokens} {new} {local} {lookahead} {external} {int(delay)} {encoder} "
                f"{int(hit is not None)}")
        blocks = self.manager.allocate_slots(
            r, new, num_new_computed_tokens=local, new_computed_blocks=hit, num_lookahead_tokens=lookahead,
            num_external_computed_tokens=external, delay_cache_blocks=delay, num_encoder_tokens=encoder,
        )
        self.record(call, "none" if blocks is None else self.ids(blocks.blocks))
        return blocks is not None

    def free(self, r):
        self.manager.free(r)
        self.record(f"free {r.index}", "-")

    def simple(self, name, call):
        call()
        self.record(name, "-")

    # --- A substitute of the scheduler

    def aligned_split(self, r, new, start):
        """Ends chunks of a prefill at the ends of blocks if mamba states are aligned, as the scheduler does."""
        if not self.align or start >= r.num_tokens:
            return new
        size = self.align_size
        last = r.num_tokens - r.num_tokens % size
        if self.eagle:
            last = max(last - size, 0)
        if start + new < last:
            return new // size * size
        if start < last < start + new:
            return last - start
        return new

    def step(self):
        rng, manager = self.rng, self.manager
        self.simple("step", manager.new_step_starts)
        scheduled = []
        for r in [r for r in self.requests if r.state == "running"]:
            if r.state != "running":
                continue
            drafts = rng.randrange(0, self.spec + 1) if r.num_computed_tokens >= r.num_tokens - 1 else 0
            new = min(r.num_tokens + drafts - r.num_computed_tokens, self.max_len - 1 - r.num_computed_tokens)
            if new > 3 and rng.random() < 0.4:
                new = rng.randrange(1, new)
            new = self.aligned_split(r, new, r.num_computed_tokens)
            if new <= 0:
                continue
            while not (done := self.allocate(r, new, lookahead=self.spec if self.eagle else 0)):
                victims = [v for v in self.requests if v.state == "running"]
                self.preempt(victims[-1])
                if victims[-1] is r:
                    break
            if not done:
                break
            scheduled.append((r, new))
        self.admit(scheduled)
        running = [r for r in self.requests if r.state == "running"]
        if running:
            counts = manager.get_num_common_prefix_blocks(running[0].request_id)
            self.record(f"common {running[0].index}", ",".join(map(str, counts)))
        if self.zeroing:
            self.record("zero", ",".join(map(str, manager.take_new_block_ids())))
        for r, new in scheduled:
            if r.state == "running":
                r.num_computed_tokens += new
        self.outputs([(r, new) for r, new in scheduled if r.state == "running"])
        if self.events and rng.random() < 0.5:
            self.record("events", "; ".join(map(event_text, manager.take_events())))
        if rng.random() < 0.2:
            stats = manager.make_prefix_cache_stats()
            self.record("stats", f"{int(stats.reset)} {stats.requests} {stats.queries} {stats.hits} {stats.preempted_requests} "
                        f"{stats.preempted_queries} {stats.preempted_hits}")
        self.record("usage", struct.unpack("<Q", struct.pack("<d", manager.usage))[0])

    def preempt(self, r):
        self.free(r)
        r.state, r.num_computed_tokens = "waiting", 0
        r.num_preemptions += 1

    def admit(self, scheduled):
        rng = self.rng
        for r in [r for r in self.requests if r.state == "remote" and rng.random() < 0.5]:
            # The transfer has ended: its blocks are cached, and the request continues after them.
            if r.num_computed_tokens == r.num_tokens:
                r.num_computed_tokens -= 1
            if self.caching:
                call = f"cache {r.index} {r.num_computed_tokens}"
                self.manager.cache_blocks(r, r.num_computed_tokens)
                self.record(call, "-")
            r.state = "arrived"
        for r in [r for r in self.requests if r.state in ("waiting", "arrived")]:
            if rng.random() < 0.1:
                continue
            hit, local, external, delay = None, 0, 0, False
            if r.num_computed_tokens == 0:
                hit, local = self.find(r)
                if self.external and rng.random() < 0.2:
                    external = rng.randrange(0, r.num_tokens - local)
                    delay = external > 0 and rng.random() < 0.5
            start = r.num_computed_tokens + local + external
            new = 0 if delay else r.num_tokens - start
            if new > 3 and rng.random() < 0.5:
                new = rng.randrange(1, new)
            if not delay:
                new = self.aligned_split(r, new, start)
                if new <= 0:
                    break
            encoder = r.encoder if any(g[0] == "cross" for g in self.groups) else 0
            if rng.random() < 0.7 and not self.fits(r, hit, local, external, encoder):
                if rng.random() < 0.5:
                    break
                continue
            lookahead = self.spec if self.eagle and r.num_computed_tokens else 0
            if not self.allocate(r, new, hit, local, lookahead, external, delay, encoder):
                break
            r.num_computed_tokens = start
            if delay:
                r.state = "remote"
            else:
                r.state = "running"
                scheduled.append((r, new))

    def outputs(self, scheduled):
        rng = self.rng
        for r, new in scheduled:
            if r.num_computed_tokens < r.num_tokens:
                continue
            drafts = r.num_computed_tokens - r.num_tokens
            accepted = rng.randrange(0, drafts + 1)
            r.num_computed_tokens -= drafts - accepted
            if r.num_tokens + accepted + 1 >= self.max_len or rng.random() < 0.15:
                self.finish(r)
            else:
                self.append(r, accepted + 1)
                if self.caching and rng.random() < 0.2:
                    self.manager.cache_blocks(r, r.num_computed_tokens)
                    self.record(f"cache {r.index} {r.num_computed_tokens}", "-")

    def finish(self, r):
        if self.rng.random() < 0.3:
            self.manager.remove_skipped_blocks(r.request_id, r.num_tokens)
            self.record(f"skip {r.index} {r.num_tokens}", "-")
        self.free(r)
        r.state = "finished"

    def rare(self):
        rng = self.rng
        if rng.random() < 0.04:
            ids = sorted(rng.sample(range(1, self.num_blocks), 3))
            for block in ids:
                self.manager.evict_blocks({block})
            self.record("evict " + " ".join(map(str, ids)), "-")
        if rng.random() < 0.04:
            if rng.random() < 0.5:
                for r in self.requests:
                    if r.state in ("running", "remote", "arrived"):
                        self.preempt(r)
            self.record("reset", int(self.manager.reset_prefix_cache()))
        live = [r for r in self.requests if r.state != "finished"]
        if live and rng.random() < 0.05:
            self.finish(rng.choice(live))
        self.lines.extend(f"gone {r.index}" for r in self.requests if r.state == "finished")
        self.requests = [r for r in self.requests if r.state != "finished"]

    def run(self, steps):
        try:
            for _ in range(steps):
                while len(self.requests) < 6 and self.rng.random() < 0.5:
                    self.new_request()
                self.step()
                self.rare()
        except AssertionError as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.lines.append("end")  # vLLM stopped here
            print(f"assertion at {os.path.basename(place.filename)}:{place.lineno} {place.line}", file=sys.stderr)
            return False
        self.lines.append("end")
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    stopped = 0
    for i in range(args.cases):
        case = Case(random.Random(f"{args.seed}/{i}"), args.full)
        stopped += not case.run(args.steps)
        print("\n".join(case.lines))
    print(f"{args.cases} cases, {stopped} ended with an assertion of vLLM", file=sys.stderr)


if __name__ == "__main__":
    main()
