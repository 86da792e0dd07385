"""The scheduler side of quire.vllm.Connector: decides which blocks are loaded for which request, and which are stored. It runs on the
engine's thread, moves no bytes and does not wait.

The core's ledgers (quire.OffloadManager, quire.TieredOffload) decide which blocks are in host memory and which are evicted. This file
tracks what vLLM's OffloadingConnectorScheduler tracks: the blocks of each request, and the jobs in flight. A job has ended when all workers
have reported its end; its blocks can be found from then on.
"""

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_events import BlockRemoved, BlockStored

from quire.vllm._connector_costs import LoadCosts, AlwaysLoad
from quire.vllm._connector_meta import ConnectorMetadata, Job
from quire.vllm._connector_keys import ABSENT, ON_DISK, LOADING, REACHABLE, STORED, OffloadKeys, end_of_hit, first_needed, needed_keys
from quire.vllm._connector_vllm import ConnectorStats
from quire.vllm._offload_checks import DiskProblemLogger

NULL_BLOCK = 0
_MAX_FAILED_LOADS = 2  # after this many failed loads, nothing more is loaded for the request
_MAX_EARLY_PER_STEP = 4  # maximum number of queued requests that a step examines before their turn


def _wants_all_computed(request) -> bool:
    """Returns whether every token must be computed, because log probabilities of the prompt need them."""
    return bool(getattr(request, "skip_reading_prefix_cache", False))


@dataclass
class TrackedRequest:
    request: object
    blocks: list  # by group: the blocks of the request's table, including blocks that a window has passed
    next_stored: int = 0  # the first offloaded block without a decision
    loads: set = field(default_factory=set)  # jobs
    stores: set = field(default_factory=set)
    num_failed: int = 0
    has_ended: bool = False


@dataclass
class InFlightJob:
    job: Job
    tracked: TrackedRequest
    keys: list[bytes]
    remaining: int  # number of workers in which the job has not ended
    is_load: bool
    bad: set = field(default_factory=set)  # blocks that could not be loaded; not empty for a failed store
    has_failed_entirely: bool = False  # the load failed as a whole: its request starts from scratch


class SchedulerHalf:
    def __init__(self, spec, windows, options):
        manager = spec.get_manager()
        self.native, self._windows, self._options = manager.native, windows, options
        self.has_disk = hasattr(self.native, "bring_up")
        self._num_workers = spec.vllm_config.parallel_config.world_size
        self._block_size, self._factor = spec.gpu_block_size[0], spec.block_size_factor
        self._tokens = self._block_size * self._factor  # tokens per offloaded block
        self._keys = OffloadKeys(len(windows), self._factor)
        self._has_windows = any(windows)
        self._joins_loads = options.join_loads or not spec.vllm_config.cache_config.enable_prefix_caching
        self.costs = LoadCosts() if options.policy == "measured" else AlwaysLoad()
        self._reporter = DiskProblemLogger() if self.has_disk else None
        self.stats = ConnectorStats()
        self._requests: dict[str, TrackedRequest] = {}
        self._jobs: dict[int, InFlightJob] = {}
        self._last_job, self._step = 0, 0
        self._sources: dict[int, int] = {}  # block -> the last job that stores it
        self._loading = Counter()  # key -> number of jobs that load it
        self._failed_keys = set()  # keys whose load failed while other jobs are still loading them
        self._matched = {}  # request -> (local tokens of its last match, declined tokens)
        self._loads, self._held = [], []  # for the next step
        self._early = {}  # queued requests that were not examined yet
        self._early_blocks = {}  # request -> number of blocks read from disk for it before its turn
        self._reported_hashes, self._removed = set(), []  # with KV events: hashes reported as stored, and hashes to report as removed

    # Methods that vLLM's scheduler calls, through _connector.py.

    def match(self, request, num_local: int):
        """Implements vLLM's get_num_new_matched_tokens: returns the number of tokens to load, or None for "ask again", and whether the load is
        asynchronous.
        """
        self._early.pop(request.request_id, None)
        self._matched[request.request_id] = (num_local, 0)
        if _wants_all_computed(request):
            return 0, False
        num, start = self._num_loadable(request), num_local // self._tokens
        keys = self._keys.keys_by_group(request, 0, num)
        self.native.touch([key for block in zip(*keys) for key in block])
        tracked = self._requests.get(request.request_id)
        if num * self._tokens < num_local + self._tokens or (tracked is not None and tracked.num_failed >= _MAX_FAILED_LOADS):
            return 0, False
        keys = [own[start:] for own in keys]
        self._count([key for block in zip(*keys) for key in block])
        states = self._find_states(keys)
        reach = self._end(states, start, REACHABLE) if self.has_disk else start
        if reach > start:
            below = self._num_below(states, start, reach)
            if below and self._is_load_faster(keys, start, reach, num_local, below) and self._read_from_disk(keys, start, reach):
                return None, False
            states = self._find_states(keys) if below else states
        end = self._end(states, start, (STORED,))
        num_tokens = end * self._tokens - num_local
        if num_tokens < self._tokens:
            return 0, False
        if not self._is_load_faster(keys, start, end, num_local, 0):
            self._matched[request.request_id] = (num_local, num_tokens)
            return 0, False
        if self._loading and any(key in self._loading for key in needed_keys(keys, self._windows, start, end, self._tokens)):
            if not self._joins_loads:
                return None, False
        return num_tokens, not self._options.layer_by_layer

    def allocated(self, request, blocks, num_external: int) -> None:
        """Implements vLLM's update_state_after_alloc: plans the load into the allocated blocks."""
        name = request.request_id
        self._early.pop(name, None)
        self._early_blocks.pop(name, None)
        tracked = self._requests.get(name)
        if tracked is None or tracked.has_ended:  # or another request with the same name
            tracked = self._requests[name] = TrackedRequest(request, [])
            self.native.use([key for block in zip(*self._keys.keys_by_group(request, 0, request.num_tokens // self._tokens)) for key in block])
        tracked.blocks = [[] for _ in self._windows]  # filled when the plan arrives
        num_local, num_declined = self._matched.pop(name, (0, 0))
        self.stats.count("declined_tokens", num_declined)
        if num_external:
            self._plan_load(tracked, blocks.get_block_ids(), num_local, num_external)

    def build_meta(self, output):
        """Implements vLLM's build_connector_meta: decides the stores, and returns the copies for the workers."""
        self._step += 1
        meta = ConnectorMetadata(self._step, output.total_num_scheduled_tokens > 0, loads=self._loads, held=self._held)
        self._loads, self._held = [], []
        meta.fences = self._fences(self._update_block_tables(output), meta.loads)
        meta.stores = self._decide_stores(output)
        self._begin_step_measurement(output)
        if self.has_disk:
            self.costs.add_disk_reads(self.native.stats())
            self._read_early_from_disk()
        return meta

    def update(self, output) -> None:
        """Implements vLLM's update_connector_output: takes the reports of the workers about copies."""
        if output.invalid_block_ids:
            self._add_bad_blocks(output.invalid_block_ids)
        meta = output.kv_connector_worker_meta
        if meta is None:
            return
        for id in meta.failed_stores:
            self._jobs[id].bad.add(id)
        for id in meta.failed_loads:
            self._jobs[id].has_failed_entirely = True
        for id, number in meta.over.items():
            in_flight = self._jobs[id]
            in_flight.remaining -= number
            if in_flight.remaining <= 0:
                self._end_job(id, in_flight)
        for num_blocks, seconds in meta.copies:
            self.costs.copied(num_blocks, seconds)
        if meta.step is not None:
            self.costs.end_step(meta.step)

    def finished(self, request) -> bool:
        """Implements vLLM's request_finished: returns whether the blocks must be kept until a worker reports the request as sent."""
        name = request.request_id
        for waiting in (self._early, self._early_blocks, self._matched):
            waiting.pop(name, None)
        tracked = self._requests.get(name)
        if tracked is None or tracked.has_ended:
            return False
        tracked.has_ended = True
        is_held = bool(tracked.stores) and not tracked.loads  # vLLM itself keeps the blocks of a request that is being loaded
        if is_held:
            self._held.append(name)
        self._remove_if_ended(name, tracked)
        return is_held

    def on_queued(self, request) -> None:
        """Called when a request was queued. Remembers the request for an early read from disk."""
        if self.has_disk and self._options.early_loads and not _wants_all_computed(request):
            self._early[request.request_id] = request

    def reset(self) -> None:
        self._keys.start_again()
        if self._reported_hashes:
            self._removed.append(list(self._reported_hashes))
            self._reported_hashes.clear()

    def events(self):
        if self._reporter is not None:
            self._reporter.report(self.native)
        medium = "CPU"
        removed, self._removed = self._removed, []
        for hashes in removed:
            yield BlockRemoved(block_hashes=hashes, medium=medium)
        for keys, is_removed in self.native.take_events():
            hashes = self._keys.hashes(keys)
            if is_removed:
                hashes = [one for one in hashes if one in self._reported_hashes]
                self._reported_hashes.difference_update(hashes)
                if hashes:
                    yield BlockRemoved(block_hashes=hashes, medium=medium)
            else:
                self._reported_hashes.update(hashes)
                yield BlockStored(block_hashes=hashes, parent_block_hash=None, token_ids=[], lora_id=None, block_size=self._tokens,
                                  medium=medium, lora_name=None)  # fmt: skip

    # Finding blocks that can be loaded.

    def _num_loadable(self, request) -> int:
        """Returns how many offloaded blocks of the request may be loaded. With windows, the last token does not count: it is computed
        again, and its window begins one token earlier than the window of the next token. With layer_by_layer, it does not count because the
        step needs a token to compute.
        """
        keeps_one = self._has_windows or self._options.layer_by_layer
        return max(0, request.num_tokens - keeps_one) // self._tokens

    def _find_states(self, keys: list) -> list:
        states = [self.native.find(own) for own in keys]
        if self._failed_keys:
            states = [[ABSENT if key in self._failed_keys else state for key, state in zip(*both)] for both in zip(keys, states)]
        return states

    def _end(self, states, start, good) -> int:
        return end_of_hit(states, self._windows, start, self._tokens, good)

    def _num_below(self, states, start, end) -> int:
        return sum(state in (LOADING, ON_DISK) for state in needed_keys(states, self._windows, start, end, self._tokens))

    def _is_load_faster(self, keys, start, end, num_local, num_below) -> bool:
        num_blocks = len(needed_keys(keys, self._windows, start, end, self._tokens)) + self._loading.total()
        return self.costs.is_load_faster(end * self._tokens - num_local, num_blocks, num_below)

    def _read_from_disk(self, keys, start, end) -> bool:
        keys = needed_keys(keys, self._windows, start, end, self._tokens)
        self.native.touch(keys)  # keeps stored blocks from being evicted while the other blocks are read
        return self.native.bring_up(keys)

    def _count(self, keys) -> None:
        if self.has_disk:
            self.native.count(keys)
        else:
            self.native.lookup(keys)

    def _read_early_from_disk(self) -> None:
        """Reads blocks of queued requests from disk, in the order of the queue, into at most a quarter of host memory."""
        room = self.native.num_slots // 4 - sum(self._early_blocks.values())
        for name, request in list(self._early.items())[:_MAX_EARLY_PER_STEP]:
            keys = self._keys.keys_by_group(request, 0, self._num_loadable(request))
            states = self._find_states(keys)
            end = self._end(states, 0, REACHABLE)
            number = self._num_below(states, 0, end)
            if number > room:
                return
            del self._early[name]  # not examined again before its turn
            if number and self._is_load_faster(keys, 0, end, 0, number) and self._read_from_disk(keys, 0, end):
                self._early_blocks[name] = number
                self.stats.count("early_blocks", number)
                room -= number

    # Loads.

    def _plan_load(self, tracked, ids, num_local, num_external) -> None:
        first, end = num_local // self._block_size, (num_local + num_external) // self._block_size
        job = Job(self._new_id(), tracked.request.request_id, [], [], first=first, in_step=self._options.layer_by_layer)
        keys = []
        for group, window in enumerate(self._windows):
            begin = max(first, first_needed(window, end * self._block_size, self._block_size))
            # Loads all blocks that vLLM has allocated for the load, because vLLM counts each block that is not null as computed from now
            # on.
            begin = min((at for at in range(first, end) if ids[group][at] != NULL_BLOCK), default=end) if window else begin
            own = self._keys.of(tracked.request, group, begin // self._factor, end // self._factor)
            job.slots += self.native.prepare_load(own)
            job.blocks += ids[group][begin:end]
            keys += own
        if any(key in self._loading for key in keys):
            self.stats.count("joined_loads", 1)
        self._loading.update(keys)
        tracked.loads.add(job.id)
        tracked.next_stored = end // self._factor
        self._jobs[job.id] = InFlightJob(job, tracked, keys, self._num_workers, is_load=True)
        self._loads.append(job)
        self.stats.count("loaded_tokens", num_external)

    def _add_bad_blocks(self, blocks) -> None:
        for in_flight in self._jobs.values():
            if in_flight.is_load:
                in_flight.bad |= blocks.intersection(in_flight.job.blocks)

    def _end_job(self, id, in_flight) -> None:
        del self._jobs[id]
        job, keys, tracked = in_flight.job, in_flight.keys, in_flight.tracked
        if in_flight.is_load:
            tracked.loads.discard(id)
            self._loading -= Counter(keys)
            self.native.complete_load(keys)
            if in_flight.has_failed_entirely:
                self._drop_load(tracked, in_flight)
            elif in_flight.bad:
                self._drop_bad_blocks(tracked, in_flight)
            for key in self._failed_keys.intersection(keys):
                self._discard(key)
        else:
            tracked.stores.discard(id)
            self.native.complete_store(keys, not in_flight.bad)
            for block in job.blocks:
                if self._sources.get(block) == id:
                    del self._sources[block]
        self._remove_if_ended(job.request, tracked)

    def _drop_bad_blocks(self, tracked, in_flight) -> None:
        """Drops bad blocks, so that they are computed and stored again. Only called with one group, because no version of vLLM handles
        failed loads by block with several groups."""
        job = in_flight.job
        tracked.num_failed += 1
        self.stats.count("failed_blocks", len(in_flight.bad))
        for at, block in enumerate(job.blocks):
            if block in in_flight.bad:
                index = (job.first + at) // self._factor
                tracked.next_stored = min(tracked.next_stored, index)
                self._discard(in_flight.keys[index - job.first // self._factor])

    def _drop_load(self, tracked, in_flight) -> None:
        tracked.num_failed += 1
        self.stats.count("failed_blocks", len(in_flight.job.blocks))
        tracked.next_stored = 0
        for key in in_flight.keys:
            self._discard(key)

    def _discard(self, key) -> None:
        if key in self._loading:
            self._failed_keys.add(key)
        else:
            self._failed_keys.discard(key)
            self.native.discard(key)

    # Stores.

    def _update_block_tables(self, output) -> list[int]:
        """Updates the block tables of the requests in the plan. Returns the blocks to which the plan writes."""
        written = []
        for new in output.scheduled_new_reqs:
            written += self._set_block_table(new.req_id, new.block_ids, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for name, blocks, num_computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if blocks is None:
                continue
            if name in cached.resumed_req_ids:
                written += self._set_block_table(name, blocks, num_computed)
                continue
            for own, new in zip(self._requests[name].blocks, blocks):
                own += new
                written += new
        return written

    def _set_block_table(self, name, blocks, num_computed) -> list[int]:
        self._requests[name].blocks = [list(own) for own in blocks]
        return [block for own in blocks for block in own[num_computed // self._block_size :]]

    def _fences(self, written, loads) -> list[int]:
        if not self._sources:
            return []
        blocks = [*written, *(block for load in loads for block in load.blocks)]
        return sorted({self._sources[block] for block in blocks if block in self._sources})

    def _decide_stores(self, output) -> list[Job]:
        jobs = []
        for name in (*(new.req_id for new in output.scheduled_new_reqs), *output.scheduled_cached_reqs.req_ids):
            tracked = self._requests[name]
            request = tracked.request
            # With asynchronous scheduling, some tokens are not known yet.
            num_tokens = min(request.num_computed_tokens + output.num_scheduled_tokens[name], request.num_tokens)
            end = num_tokens // self._tokens
            if end > tracked.next_stored and (job := self._store(tracked, end)) is not None:
                jobs.append(job)
        return jobs

    def _store(self, tracked, end: int) -> Job | None:
        request, held = tracked.request, {}  # held: key -> (group, offloaded block)
        keys = self._keys.keys_by_group(request, tracked.next_stored, end)
        gone = [first_needed(window, request.num_computed_tokens, self._block_size) for window in self._windows]
        for at in range(tracked.next_stored, end):
            for group, own in enumerate(keys):
                if at >= gone[group]:
                    held[own[at - tracked.next_stored]] = (group, at)
        store = self.native.prepare_store(list(held))
        if store is None:
            return None  # tried again with the next full block
        tracked.next_stored = end
        stored, slots, *numbers, _ = store
        if not stored:
            return None
        job = Job(self._new_id(), request.request_id, [], list(slots), numbers=list(numbers[0]) if numbers else [])
        for key in stored:
            group, at = held[key]
            job.blocks += tracked.blocks[group][at * self._factor : (at + 1) * self._factor]
        self.native.touch([key for own in zip(*self._keys.keys_by_group(request, 0, end)) for key in own])
        self._sources.update(dict.fromkeys(job.blocks, job.id))
        tracked.stores.add(job.id)
        self._jobs[job.id] = InFlightJob(job, tracked, stored, self._num_workers, is_load=False)
        return job

    # Jobs of both kinds.

    def _new_id(self) -> int:
        self._last_job += 1
        return self._last_job

    def _begin_step_measurement(self, output) -> None:
        num_prompt = 0
        for name, number in output.num_scheduled_tokens.items():
            request = self._requests[name].request
            num_prompt += max(0, min(number, request.num_prompt_tokens - request.num_computed_tokens))
        self.costs.begin_step(self._step, output.total_num_scheduled_tokens, num_prompt)

    def _remove_if_ended(self, name, tracked) -> None:
        if tracked.has_ended and not tracked.stores and not tracked.loads and self._requests.get(name) is tracked:
            del self._requests[name]
