"""Records random histories of vLLM's scheduler (v0.19.0) with its OffloadingConnector. core_connect_test plays them on quire's core.

Needs vllm 0.19.0. core_connect_test plays the default file, or the file that QUIRE_OFFLOAD_HISTORIES names. `--show SEED` prints the text of one
history. core_connect_test prints quire's text if a history differs.

The scheduler, both sides of the connector, the spec, manager, policies and filter are vLLM's. No data is copied: the recorder draws the
step at which each transfer ends. Each line is a history: its configuration, then steps.
  aID,MAX_TOKENS,PRIORITY,ADAPTER,FAMILY:END,...   adds a request; its token at position p comes from the first family whose END is above p,
                                  the output tokens come from the last family; adapter 0 is the base model
  xID                             aborts the request
  r1, r0                          resets the prefix cache: r1 preempts running requests, r0 resets only if no request holds blocks
  s                               schedules a step
  dID:COUNT,...                   the worker proposes these numbers of draft tokens for these requests
  uJOB.JOB../ID:ACCEPTED..=DIGEST applies the result of the oldest plan: the transfers that end with it, in order;
                                  the numbers of accepted draft tokens, if the plan had draft tokens; two digits of the digest so far
The line ends with = and the whole digest. The record omits histories in which vLLM stops with an assertion: vLLM frees blocks twice if a
request that has stored blocks is aborted during a load.
"""
import collections
import random
import traceback

from oracle import config as oracle_config
from oracle import parties, requests, stage
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.sampling_params import SamplingParams
from vllm.v1.kv_cache_interface import KVCacheTensor
from vllm.v1.kv_offload.factory import OffloadingSpecFactory
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec
from vllm.v1.kv_offload.worker.worker import OffloadingHandler, TransferResult
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from . import files

BLOCK = 4
POSITIONS = 4096  # number of different tokens of a family, one for each position
FNV, PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
FIXED = {
    "max_num_scheduled_tokens": None, "chunked_prefill": True,
    "long_prefill_token_threshold": 0, "disable_chunked_mm_input": False, "connector": "OffloadingConnector", "load_failure": "fail",
    "encoder_budget": 0, "encoder_cache": 0, "encoder_decoder": False, "cache_block_size": BLOCK, "scheduler_block_size": BLOCK,
    "hash": "sha256", "mamba_mode": "none", "pp": 1, "dcp": 1, "pcp": 1, "routed_experts": False, "multimodal": False, "kv_metrics": 0.0,
    "mfu": False, "kv_events": False, "ec_connector": False, "mm_max_tokens": 0, "queue_depth": 1, "v2_runner": False,
    "int_hashes": False, "reasoning": 0, "include_finished_set": False, "log_stats": False, "groups": [{"kind": "full", "block_size": BLOCK}],
}


class Copies(OffloadingHandler):
    """A handler that copies nothing. `open` lists the jobs that have begun, and `over` lists the jobs that get_finished() reports next."""

    def __init__(self):
        self.open, self.over, self.numbers = [], [], {}

    def transfer_async(self, job_id, spec):
        self.open.append(job_id)
        self.numbers[job_id] = len(self.numbers)  # quire also numbers transfers in the order in which they begin
        return True

    def get_finished(self):
        results = [TransferResult(job_id=job, success=True) for job in self.over]
        for job in self.over:
            self.open.remove(job)
        self.over = []
        return results

    def wait(self, job_ids):
        self.over += [job for job in self.open if job in job_ids and job not in self.over]


class Digest:
    def __init__(self, show):
        self.value, self.show = FNV, show

    def add(self, text):
        for byte in text.encode():
            self.value = ((self.value ^ byte) * PRIME) & MASK
        if self.show:
            print(text)


def draw_settings(draw):
    slots, factor = draw.choice((0, 2, 6, 12, 20, 40, 60)), draw.choice((1, 1, 1, 2, 3))
    return {
        "num_blocks": draw.randrange(12, 50), "max_num_seqs": draw.randrange(2, 7), "max_num_batched_tokens": draw.choice((16, 24, 40, 64)),
        "async": draw.random() < 0.5, "prefix_caching": draw.random() < 0.85, "reserve_full_isl": draw.random() < 0.5,
        "factor": factor, "slots": slots, "eviction_policy": draw.choice(("lru", "arc")), "store_threshold": draw.choice((0, 0, 0, 0, 1, 2, 3)),
        "max_tracker_size": draw.choice((3, 10, 64_000)),
        "policy": draw.choice(("fcfs", "fcfs", "priority")), "max_loras": draw.choice((0, 0, 1, 2)), "num_spec_tokens": draw.choice((0, 0, 1, 3)),
    }


class History:
    def __init__(self, seed, show=False):
        self.draw = random.Random(seed)
        self.settings = draw_settings(self.draw)
        self.digest = Digest(show)
        self.words = ["h", str(seed)] + [str(int(v) if isinstance(v, bool) else v) for v in self.settings.values()]
        self.hasher = None
        self.scheduler = self.make_scheduler()
        connector = self.scheduler.connector
        self.half = connector.connector_scheduler
        manager = self.half.manager
        self.cpu = getattr(manager, "_backing", manager)
        self.cpu.events = []
        connector.take_events = lambda: ()  # the recorder reads the events from self.cpu.events
        self.copies = Copies()
        self.preempted = []  # requests that the current step preempts, in order
        preempt = self.scheduler._preempt_request
        self.scheduler._preempt_request = lambda request, timestamp: (self.preempted.append(request.request_id), preempt(request, timestamp))[1]
        self.worker = self.make_worker(connector)
        self.numbers, self.num_numbered = {}, collections.Counter()  # number of each block hash; count of numbered hashes per request
        self.parts = {}  # name of a request -> its families and their ends
        self.plans = collections.deque()
        self.ended = []  # requests that ended since the last plan, in order
        self.not_submitted = []  # stores that the worker begins with the next plan

    def make_scheduler(self):
        s = self.settings
        config = {**FIXED, **s, "max_model_len": 32 * BLOCK, "spec": "ngram" if s["num_spec_tokens"] else "none"}
        oracle_config.prepare(config)
        self.hasher = oracle_config.block_hasher(config)
        arguments = oracle_config.scheduler_arguments(config, stage.Side("stock", 1, {}))
        vllm_config, cache = arguments["vllm_config"], arguments["kv_cache_config"]
        cache.kv_cache_tensors = [KVCacheTensor(size=0, shared_by=["layer0"])]
        page = cache.kv_cache_groups[0].kv_cache_spec.page_size_bytes
        extra = {"cpu_bytes_to_use": max(1, page * s["factor"] * s["slots"]), "block_size": BLOCK * s["factor"],
                 **{key: s[key] for key in ("eviction_policy", "store_threshold", "max_tracker_size")}}
        vllm_config.kv_transfer_config.kv_connector_extra_config = extra
        vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = True
        vllm_config.parallel_config.world_size = 1
        self.vllm_config, self.cache = vllm_config, cache
        return oracle_config.stock_scheduler(arguments)

    def make_worker(self, connector):
        worker = OffloadingConnectorWorker(OffloadingSpecFactory.create_spec(self.vllm_config, self.cache))
        # Both directions share one handler, so that its list of ended transfers keeps the order across directions.
        worker.worker.register_handler(GPULoadStoreSpec, CPULoadStoreSpec, self.copies)
        worker.worker.register_handler(CPULoadStoreSpec, GPULoadStoreSpec, self.copies)
        return worker

    def token(self, name, position):
        family = next((f for f, end in self.parts[name] if position < end), self.parts[name][-1][0])
        return family * POSITIONS + position

    # Steps of a history

    def add(self):
        draw, name = self.draw, str(len(self.parts) + 1)
        limit = min(20 * BLOCK, (self.settings["num_blocks"] - 3) * BLOCK)
        first = draw.randrange(1, limit)
        parts = [(draw.randrange(3), first)]
        if draw.random() < 0.5:
            parts.append((10 + draw.randrange(12), min(limit, first + draw.randrange(1, 12))))
        self.parts[name] = parts
        max_tokens = draw.randrange(1, draw.choice((3, 20)))
        prompt = [self.token(name, p) for p in range(parts[-1][1])]
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        priority = draw.randrange(3) if self.settings["policy"] == "priority" else 0
        adapter = draw.randrange(4) if self.settings["max_loras"] else 0
        request = Request(request_id=name, prompt_token_ids=prompt, sampling_params=params, pooling_params=None, arrival_time=float(len(self.parts)),
                          block_hasher=self.hasher, priority=priority, lora_request=requests.lora(adapter) if adapter else None)
        self.scheduler.add_request(request)
        self.words.append(f"a{name},{max_tokens},{priority},{adapter}," + ",".join(f"{family}:{end}" for family, end in parts))

    def abort(self):
        names = [name for name, request in self.scheduler.requests.items() if not request.is_finished() and not self.crashes_vllm(request)]
        if names:
            name = self.draw.choice(names)
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.ended.append(name)
            self.words.append(f"x{name}")

    def reset(self):
        # vLLM stops with an assertion if a request that does not run holds blocks, and often if tokens are in flight.
        held = [r for r in self.scheduler.requests.values() if r.status != RequestStatus.RUNNING]
        preempts = not self.settings["async"] and not any(self.scheduler.kv_cache_manager.get_block_ids(r.request_id)[0] for r in held)
        self.scheduler.reset_prefix_cache(reset_running_requests=preempts)
        self.words.append(f"r{preempts:d}")

    def crashes_vllm(self, request):
        return request.status == RequestStatus.WAITING_FOR_REMOTE_KVS and request.request_id in self.half._reqs_being_stored

    def schedule(self):
        self.preempted = []
        output = self.scheduler.schedule()
        assert set(self.preempted) == (output.preempted_req_ids or set())
        rows = []
        for name, count in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            num_drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
            rows.append((name, request.num_computed_tokens, count, not request.is_prefill_chunk, num_drafts))
        ended, self.ended = self.ended, []
        self.number_blocks(rows)
        self.plans.append((output, rows, ended))
        self.words.append("s")
        text = " ".join(f"{name}:{end - count}+{count}" for name, end, count, *_ in rows)
        self.digest.add(f"plan {text} preempted {' '.join(self.preempted)} free {self.num_free()}\n")
        meta = output.kv_connector_metadata
        for name, spec in self.not_submitted:
            self.tell("store", name, spec[0].block_ids, spec[1].block_ids, 0)
        self.not_submitted = list(meta.reqs_to_store.items())
        for name, (source, target) in meta.reqs_to_load.items():
            self.tell("load", name, target.block_ids, source.block_ids, target.block_indices[0] % self.settings["factor"])
        self.tell_events()

    def tell(self, what, name, blocks, slots, start):
        self.digest.add(f"{what} {name} blocks {' '.join(map(str, blocks))} slots {' '.join(map(str, slots))} from {start}\n")

    def tell_events(self):
        removed = [e for e in self.cpu.events if e.removed]
        stored = sorted(self.numbers[h] for e in self.cpu.events if not e.removed for h in e.block_hashes)
        self.cpu.events.clear()
        for event in removed:
            self.digest.add(f"removed {' '.join(str(self.numbers[h]) for h in event.block_hashes)}\n")
        if stored:
            self.digest.add(f"stored {' '.join(map(str, stored))}\n")

    def number_blocks(self, rows):
        """Numbers the block hashes in the order of their first use, so that the numbers do not depend on the hash function."""
        for name, *_ in rows:
            hashes = self.scheduler.requests[name].block_hashes
            for block_hash in hashes[self.num_numbered[name] :]:
                self.numbers.setdefault(block_hash, len(self.numbers))
            self.num_numbered[name] = len(hashes)

    def num_free(self):
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def apply(self, everything=False):
        output, rows, ended = self.plans.popleft()
        self.words.append("u" + ".".join(map(str, self.run_worker(output, everything))))
        sending, receiving = self.finished
        accepted = {name: self.draw.randrange(num_drafts + 1) for name, *_, num_drafts in rows if num_drafts}
        if accepted:
            self.words[-1] += "/" + ".".join(f"{name}:{count}" for name, count in accepted.items())
        sampled = [self.sample(name, accepted.get(name, 0)) if samples else [] for name, _, _, samples, _ in rows]
        names = [name for name, *_ in rows]
        outputs = self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=sampled, logprobs=None,
            prompt_logprobs_dict={}, pooler_output=None,
            kv_connector_output=KVConnectorOutput(finished_sending=self.in_order(sending, ended), finished_recving=self.in_order(receiving, ())),
        ))
        done = [o.request_id for group in outputs.values() for o in group.outputs if o.finish_reason is not None]
        self.ended += done
        self.digest.add(f"ended {' '.join(done)} free {self.num_free()}\n")
        self.tell_events()
        self.words[-1] += f"={self.digest.value & 0xFF:02x}"
        if self.settings["num_spec_tokens"] and not self.settings["async"] and rows:
            self.find_drafts([name for name, _, _, samples, _ in rows if samples and name in self.scheduler.requests])

    def sample(self, name, num_accepted):
        request = self.scheduler.requests.get(name)
        first = request.num_tokens if request else 0
        return [self.token(name, first + i) for i in range(num_accepted + 1)]

    def find_drafts(self, names):
        counts = [self.draw.randrange(self.settings["num_spec_tokens"] + 1) for _ in names]
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[0] * count for count in counts]))
        if names:
            self.words.append("d" + ",".join(f"{name}:{count}" for name, count in zip(names, counts)))

    def run_worker(self, output, everything):
        """Runs the worker's part of a step and ends some of the transfers in flight. Returns the numbers of the ended transfers, in order."""
        meta = output.kv_connector_metadata
        if output.preempted_req_ids:
            self.worker.handle_preemptions(meta)
        self.worker.start_kv_transfers(meta)
        if output.total_num_scheduled_tokens:
            self.worker.prepare_store_kv(meta)
        share = self.draw.choice((0.1, 0.5, 0.9))
        more = [job for job in self.copies.open if job not in self.copies.over and (everything or self.draw.random() < share)]
        self.draw.shuffle(more)
        over = self.copies.over = self.copies.over + more
        self.order = [self.worker._jobs[job][0] for job in over]
        over = [self.copies.numbers[job] for job in over]
        self.finished = self.worker.get_finished(output.finished_req_ids)
        return over

    def in_order(self, names, ended):
        """Returns the names in the order of the ends of their last transfers, then in the order of `ended`. vLLM keeps the names in sets,
        whose order depends on the hashes of the names."""
        last_ends = list(dict.fromkeys(reversed(self.order)))[::-1]
        return list(dict.fromkeys(name for name in (*last_ends, *ended) if name in names))

    def is_over(self):
        return not (self.scheduler.requests or self.plans or self.not_submitted or self.copies.open)

    def run(self):
        draw, depth = self.draw, 2 if self.settings["async"] else 1
        num_requests, add_share = draw.randrange(3, 10), draw.choice((0.2, 0.6))
        reset_share = draw.choice((0, 0, 0.1))
        for step in range(70):
            while len(self.parts) < num_requests and draw.random() < add_share:
                self.add()
            if draw.random() < 0.06:
                self.abort()
            if draw.random() < reset_share:
                self.reset()
            if len(self.plans) < depth and (not self.plans or draw.random() < 0.8):
                self.schedule()
            else:
                self.apply(everything=step > 55)
            if len(self.parts) == num_requests and self.is_over():
                break
        while self.plans:
            self.apply()
        return " ".join(self.words) + f" ={self.digest.value:016x}"


OUT = "offload_connector.txt.xz"
OPTIONS = {"histories": (2000, "number of histories to record"), "seed": (1, "seed of the first history"),
           "show": (-1, "print the text of the history with this seed and record nothing")}


def main(out, histories, seed, show):
    parties.install_once()
    stage.CLOCK.side = None
    if show >= 0:
        print(History(show, show=True).run())
        return
    lines, stopped = [], collections.Counter()
    while len(lines) < histories:
        try:
            lines.append(History(seed).run())
        except AssertionError as error:
            stopped[str(error)[:60] or traceback.extract_tb(error.__traceback__)[-1].line] += 1
        seed += 1
    files.write_lines(out, lines)
    print(f"seeds up to {seed - 1}; vLLM stopped: {dict(stopped)}")
