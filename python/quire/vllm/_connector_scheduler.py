"""The scheduler's half of quire.vllm.Connector: what is loaded for whom, and what is stored. On the engine's thread; it moves no byte and waits
for nothing.

Which blocks host memory has, and who goes, is decided by the core's ledgers (quire.OffloadManager, quire.TieredOffload). Here stands what vLLM's
OffloadingConnectorScheduler keeps: which block of which request is where, which jobs are under way. A job ends here when all workers have said
that it is over; a block is found from then on.
"""

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_events import BlockRemoved, BlockStored

from quire.vllm._connector_costs import Costs, NoCosts
from quire.vllm._connector_meta import ConnectorMetadata, Job
from quire.vllm._connector_names import ABSENT, BELOW, COMING, REACHABLE, STORED, Names, end_of_hit, first_needed, wanted
from quire.vllm._connector_vllm import ConnectorStats
from quire.vllm._offload_trouble import Reporter

NULL_BLOCK = 0
_MOST_FAILURES = 2  # loads of a request that came to nothing; no third is begun
_EARLY_AT_ONCE = 4  # requests that are looked at in a step before their turn


def _wants_all_computed(request) -> bool:
    """Log probabilities of its prompt are made of rows that are computed."""
    return bool(getattr(request, "skip_reading_prefix_cache", False))


@dataclass
class Tracked:
    request: object
    blocks: list  # by group, those of its table; what a window has passed is still in it
    next_stored: int = 0  # the first offloaded block that is not decided upon
    loads: set = field(default_factory=set)  # jobs
    stores: set = field(default_factory=set)
    num_failed: int = 0
    has_ended: bool = False


@dataclass
class UnderWay:
    job: Job
    tracked: Tracked
    names: list[bytes]
    remaining: int  # workers
    is_load: bool
    bad: set = field(default_factory=set)  # blocks that could not be loaded
    is_lost: bool = False  # a load of which nothing counts: its request begins anew


class SchedulerHalf:
    def __init__(self, spec, windows, options):
        manager = spec.get_manager()
        self.native, self._windows, self._options = manager.native, windows, options
        self.has_disk = hasattr(self.native, "bring_up")
        self._num_workers = spec.vllm_config.parallel_config.world_size
        self._block_size, self._factor = spec.gpu_block_size[0], spec.block_size_factor
        self._tokens = self._block_size * self._factor  # of an offloaded block
        self._names = Names(len(windows), self._factor)
        self._has_windows = any(windows)
        self._joins = options.join_loads or not spec.vllm_config.cache_config.enable_prefix_caching
        self.costs = Costs() if options.policy == "measured" else NoCosts()
        self._reporter = Reporter() if self.has_disk else None
        self.stats = ConnectorStats()
        self._requests: dict[str, Tracked] = {}
        self._jobs: dict[int, UnderWay] = {}
        self._last_job, self._step = 0, 0
        self._sources: dict[int, int] = {}  # block -> the last job that stores it
        self._loading = Counter()  # names
        self._doomed = set()  # names whose load failed, and which others load
        self._matched = {}  # request -> (local tokens of its last match, tokens that were declined)
        self._loads, self._held = [], []  # for the next step
        self._early = {}  # requests that are queued and were not looked at
        self._early_blocks = {}  # request -> blocks that come up for it, until it has its turn
        self._told, self._removed = set(), []  # with KV events: what is stored, as far as they say

    # What vLLM's scheduler asks.

    def match(self, request, num_local: int):
        """get_num_new_matched_tokens"""
        self._early.pop(request.request_id, None)
        self._matched[request.request_id] = (num_local, 0)
        if _wants_all_computed(request):
            return 0, False
        num, start = self._num_loadable(request), num_local // self._tokens
        names = self._names.of_all(request, 0, num)
        self.native.touch([name for block in zip(*names) for name in block])
        tracked = self._requests.get(request.request_id)
        if num * self._tokens < num_local + self._tokens or (tracked is not None and tracked.num_failed >= _MOST_FAILURES):
            return 0, False
        names = [own[start:] for own in names]
        self._count([name for block in zip(*names) for name in block])
        places = self._places(names)
        reach = self._end(places, start, REACHABLE) if self.has_disk else start
        if reach > start:
            below = self._num_below(places, start, reach)
            if below and self._pays(names, start, reach, num_local, below) and self._bring_up(names, start, reach):
                return None, False
            places = self._places(names) if below else places
        end = self._end(places, start, (STORED,))
        num_tokens = end * self._tokens - num_local
        if num_tokens < self._tokens:
            return 0, False
        if not self._pays(names, start, end, num_local, 0):
            self._matched[request.request_id] = (num_local, num_tokens)
            return 0, False
        if self._loading and any(name in self._loading for name in wanted(names, self._windows, start, end, self._tokens)):
            if not self._joins:
                return None, False
        return num_tokens, not self._options.layer_by_layer

    def allocated(self, request, blocks, num_external: int) -> None:
        """update_state_after_alloc"""
        name = request.request_id
        self._early.pop(name, None)
        self._early_blocks.pop(name, None)
        tracked = self._requests.get(name)
        if tracked is None or tracked.has_ended:  # or another one of that name
            tracked = self._requests[name] = Tracked(request, [])
            self.native.use([one for own in zip(*self._names.of_all(request, 0, request.num_tokens // self._tokens)) for one in own])
        tracked.blocks = [[] for _ in self._windows]  # they come with the plan
        num_local, num_declined = self._matched.pop(name, (0, 0))
        self.stats.count("declined_tokens", num_declined)
        if num_external:
            self._plan_load(tracked, blocks.get_block_ids(), num_local, num_external)

    def build_meta(self, output):
        """build_connector_meta"""
        self._step += 1
        meta = ConnectorMetadata(self._step, output.total_num_scheduled_tokens > 0, loads=self._loads, held=self._held)
        self._loads, self._held = [], []
        meta.fences = self._fences(self._take_blocks(output), meta.loads)
        meta.stores = self._decide_stores(output)
        self._note_step(output)
        if self.has_disk:
            self.costs.look_at_disk(self.native.stats())
            self._bring_up_early()
        return meta

    def update(self, output) -> None:
        """update_connector_output"""
        if output.invalid_block_ids:
            self._note_bad(output.invalid_block_ids)
        meta = output.kv_connector_worker_meta
        if meta is None:
            return
        for id in meta.failed_stores:
            self._jobs[id].bad.add(id)
        for id in meta.failed_loads:
            self._jobs[id].is_lost = True
        for id, number in meta.over.items():
            under_way = self._jobs[id]
            under_way.remaining -= number
            if under_way.remaining <= 0:
                self._end_job(id, under_way)
        for num_blocks, seconds in meta.copies:
            self.costs.copied(num_blocks, seconds)
        if meta.step is not None:
            self.costs.step_ends(meta.step)

    def finished(self, request) -> bool:
        """request_finished; True: its blocks stay until a worker names it as sent."""
        name = request.request_id
        for waiting in (self._early, self._early_blocks, self._matched):
            waiting.pop(name, None)
        tracked = self._requests.get(name)
        if tracked is None or tracked.has_ended:
            return False
        tracked.has_ended = True
        is_held = bool(tracked.stores) and not tracked.loads  # vLLM itself keeps the blocks of one that is being loaded
        if is_held:
            self._held.append(name)
        self._forget_if_over(name, tracked)
        return is_held

    def heard_of(self, request) -> None:
        """It has been queued."""
        if self.has_disk and self._options.early_loads and not _wants_all_computed(request):
            self._early[request.request_id] = request

    def reset(self) -> None:
        self._names.begin_anew()
        if self._told:
            self._removed.append(list(self._told))
            self._told.clear()

    def events(self):
        if self._reporter is not None:
            self._reporter.report(self.native)
        medium = "CPU"
        removed, self._removed = self._removed, []
        for hashes in removed:
            yield BlockRemoved(block_hashes=hashes, medium=medium)
        for names, is_removed in self.native.take_events():
            hashes = self._names.hashes(names)
            if is_removed:
                hashes = [one for one in hashes if one in self._told]
                self._told.difference_update(hashes)
                if hashes:
                    yield BlockRemoved(block_hashes=hashes, medium=medium)
            else:
                self._told.update(hashes)
                yield BlockStored(block_hashes=hashes, parent_block_hash=None, token_ids=[], lora_id=None, block_size=self._tokens,
                                  medium=medium, lora_name=None)  # fmt: skip

    # What can be loaded.

    def _num_loadable(self, request) -> int:
        """The last token runs anew; its window begins a token earlier than that of the next one. A step needs a token to compute."""
        keeps_one = self._has_windows or self._options.layer_by_layer
        return max(0, request.num_tokens - keeps_one) // self._tokens

    def _places(self, names: list) -> list:
        places = [self.native.find(own) for own in names]
        if self._doomed:
            places = [[ABSENT if name in self._doomed else place for name, place in zip(*both)] for both in zip(names, places)]
        return places

    def _end(self, places, start, good) -> int:
        return end_of_hit(places, self._windows, start, self._tokens, good)

    def _num_below(self, places, start, end) -> int:
        return sum(place in (COMING, BELOW) for place in wanted(places, self._windows, start, end, self._tokens))

    def _pays(self, names, start, end, num_local, num_below) -> bool:
        num_blocks = len(wanted(names, self._windows, start, end, self._tokens)) + self._loading.total()
        return self.costs.load_pays(end * self._tokens - num_local, num_blocks, num_below)

    def _bring_up(self, names, start, end) -> bool:
        names = wanted(names, self._windows, start, end, self._tokens)
        self.native.touch(names)  # those that are there do not go for the others
        return self.native.bring_up(names)

    def _count(self, names) -> None:
        if self.has_disk:
            self.native.count(names)
        else:
            self.native.lookup(names)

    def _bring_up_early(self) -> None:
        """In the order of the queue, into a quarter of host memory at most."""
        room = self.native.num_slots // 4 - sum(self._early_blocks.values())
        for name, request in list(self._early.items())[:_EARLY_AT_ONCE]:
            names = self._names.of_all(request, 0, self._num_loadable(request))
            places = self._places(names)
            end = self._end(places, 0, REACHABLE)
            number = self._num_below(places, 0, end)
            if number > room:
                return
            del self._early[name]  # its turn comes, or all of it is up
            if number and self._pays(names, 0, end, 0, number) and self._bring_up(names, 0, end):
                self._early_blocks[name] = number
                self.stats.count("early_blocks", number)
                room -= number

    # Loads.

    def _plan_load(self, tracked, ids, num_local, num_external) -> None:
        first, end = num_local // self._block_size, (num_local + num_external) // self._block_size
        job = Job(self._new_id(), tracked.request.request_id, [], [], first=first, in_step=self._options.layer_by_layer)
        names = []
        for group, window in enumerate(self._windows):
            begin = max(first, first_needed(window, end * self._block_size, self._block_size))
            # All that vLLM has given blocks for: whatever is not null it takes for computed from now on.
            begin = min((at for at in range(first, end) if ids[group][at] != NULL_BLOCK), default=end) if window else begin
            own = self._names.of(tracked.request, group, begin // self._factor, end // self._factor)
            job.slots += self.native.prepare_load(own)
            job.blocks += ids[group][begin:end]
            names += own
        if any(name in self._loading for name in names):
            self.stats.count("joined_loads", 1)
        self._loading.update(names)
        tracked.loads.add(job.id)
        tracked.next_stored = end // self._factor
        self._jobs[job.id] = UnderWay(job, tracked, names, self._num_workers, is_load=True)
        self._loads.append(job)
        self.stats.count("loaded_tokens", num_external)

    def _note_bad(self, blocks) -> None:
        for under_way in self._jobs.values():
            if under_way.is_load:
                under_way.bad |= blocks.intersection(under_way.job.blocks)

    def _end_job(self, id, under_way) -> None:
        del self._jobs[id]
        job, names, tracked = under_way.job, under_way.names, under_way.tracked
        if under_way.is_load:
            tracked.loads.discard(id)
            self._loading -= Counter(names)
            self.native.complete_load(names)
            if under_way.is_lost:
                self._drop_all(tracked, under_way)
            elif under_way.bad:
                self._drop_bad(tracked, under_way)
            for name in self._doomed.intersection(names):
                self._discard(name)
        else:
            tracked.stores.discard(id)
            self.native.complete_store(names, not under_way.bad)
            for block in job.blocks:
                if self._sources.get(block) == id:
                    del self._sources[block]
        self._forget_if_over(job.request, tracked)

    def _drop_bad(self, tracked, under_way) -> None:
        """They are computed again, and stored anew. One group: of several no vLLM knows failed loads by block."""
        job = under_way.job
        tracked.num_failed += 1
        self.stats.count("failed_blocks", len(under_way.bad))
        for at, block in enumerate(job.blocks):
            if block in under_way.bad:
                index = (job.first + at) // self._factor
                tracked.next_stored = min(tracked.next_stored, index)
                self._discard(under_way.names[index - job.first // self._factor])

    def _drop_all(self, tracked, under_way) -> None:
        tracked.num_failed += 1
        self.stats.count("failed_blocks", len(under_way.job.blocks))
        tracked.next_stored = 0
        for name in under_way.names:
            self._discard(name)

    def _discard(self, name) -> None:
        if name in self._loading:
            self._doomed.add(name)
        else:
            self._doomed.discard(name)
            self.native.discard(name)

    # Stores.

    def _take_blocks(self, output) -> list[int]:
        """The tables of requests in the plan; which blocks it writes to."""
        written = []
        for new in output.scheduled_new_reqs:
            written += self._take_table(new.req_id, new.block_ids, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for name, blocks, num_computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
            if blocks is None:
                continue
            if name in cached.resumed_req_ids:
                written += self._take_table(name, blocks, num_computed)
                continue
            for own, new in zip(self._requests[name].blocks, blocks):
                own += new
                written += new
        return written

    def _take_table(self, name, blocks, num_computed) -> list[int]:
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
            # With asynchronous scheduling some tokens are not known yet.
            num_tokens = min(request.num_computed_tokens + output.num_scheduled_tokens[name], request.num_tokens)
            end = num_tokens // self._tokens
            if end > tracked.next_stored and (job := self._store(tracked, end)) is not None:
                jobs.append(job)
        return jobs

    def _store(self, tracked, end: int) -> Job | None:
        request, held = tracked.request, {}  # name -> (group, offloaded block)
        names = self._names.of_all(request, tracked.next_stored, end)
        gone = [first_needed(window, request.num_computed_tokens, self._block_size) for window in self._windows]
        for at in range(tracked.next_stored, end):
            for group, own in enumerate(names):
                if at >= gone[group]:
                    held[own[at - tracked.next_stored]] = (group, at)
        store = self.native.prepare_store(list(held))
        if store is None:
            return None  # they are asked for again with the next full block
        tracked.next_stored = end
        stored, slots, *numbers, _ = store
        if not stored:
            return None
        job = Job(self._new_id(), request.request_id, [], list(slots), numbers=list(numbers[0]) if numbers else [])
        for name in stored:
            group, at = held[name]
            job.blocks += tracked.blocks[group][at * self._factor : (at + 1) * self._factor]
        self.native.touch([name for own in zip(*self._names.of_all(request, 0, end)) for name in own])
        self._sources.update(dict.fromkeys(job.blocks, job.id))
        tracked.stores.add(job.id)
        self._jobs[job.id] = UnderWay(job, tracked, stored, self._num_workers, is_load=False)
        return job

    # Both.

    def _new_id(self) -> int:
        self._last_job += 1
        return self._last_job

    def _note_step(self, output) -> None:
        num_prompt = 0
        for name, number in output.num_scheduled_tokens.items():
            request = self._requests[name].request
            num_prompt += max(0, min(number, request.num_prompt_tokens - request.num_computed_tokens))
        self.costs.step_begins(self._step, output.total_num_scheduled_tokens, num_prompt)

    def _forget_if_over(self, name, tracked) -> None:
        if tracked.has_ended and not tracked.stores and not tracked.loads and self._requests.get(name) is tracked:
            del self._requests[name]
