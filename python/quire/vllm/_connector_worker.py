"""The worker side of quire.vllm.Connector: executes the copies that the scheduler side has decided, and reports jobs that have ended.

Stores of a step begin with the next step, as in vLLM's connector, so that they do not delay the step that computed the blocks. Before a
step writes to blocks with stores in flight, it waits for these stores (`fences`). Loads and stores have separate threads, so that a load
does not wait for a store.
"""

from quire.vllm._connector_meta import Job, WorkerMetadata
from quire.vllm._connector_vllm import SUPPORTS_FAILED_REQUESTS, ConnectorStats


class WorkerHalf:
    def __init__(self, spec, kv_cache_config):
        self.spec, self._groups = spec, kv_cache_config.kv_cache_groups
        self._has_one_group = len(self._groups) == 1
        self._step, self._computes = 0, False
        self._due = []  # stores of the last step
        self._loads_due = []
        self._loads: dict[int, Job] = {}  # in flight
        self._stores: dict[str, set[int]] = {}  # stores in flight, by request
        self._held = set()  # requests that have ended
        self._in_step: dict[int, list[int]] = {}  # job -> its parts, by tensor
        self._bad, self._failed, self._received = set(), set(), set()
        self._meta, self.stats = WorkerMetadata(), ConnectorStats()

    # The KV cache.

    def register_caches(self, caches) -> None:
        """Receives the KV caches, as vLLM's CanonicalKVCaches."""
        self.copies = self.spec.copies(caches)
        self._num_tensors = len(caches.tensors)
        self._tensors_of = {}  # layer -> the tensors that it reads; a layer without an entry reads all tensors
        for group, refs in zip(self._groups, caches.group_data_refs):
            per_layer = len(refs) // len(group.layer_names)
            for i, layer in enumerate(group.layer_names if per_layer * len(group.layer_names) == len(refs) else ()):
                self._tensors_of[layer] = {ref.tensor_idx for ref in refs[i * per_layer : (i + 1) * per_layer]}

    # A step.

    def begin(self, meta) -> None:
        """Called before the step writes to any block. Only the first call in a step has an effect."""
        if meta.step == self._step:
            return
        self._step, self._computes = meta.step, meta.computes
        for job in self._due:
            self._start_store(job)
        self._due = meta.stores
        if meta.fences:
            self.copies.wait_stores(meta.fences)
        self._held.update(meta.held)
        self._loads_due = meta.loads

    def begin_loads(self, meta) -> None:
        """Begins the loads. vLLM requires them to begin after it has zeroed blocks."""
        self.begin(meta)
        loads, self._loads_due = self._loads_due, []
        for job in loads:
            self._start_load(job)

    def _start_store(self, job: Job) -> None:
        self._stores.setdefault(job.request, set()).add(job.id)
        if not self.copies.store(job):
            self._end_store(job.id, job.request, False)

    def _start_load(self, job: Job) -> None:
        self._loads[job.id] = job
        if job.in_step:
            self._in_step[job.id] = self.copies.load_parts(job, self._num_tensors)
        elif not self.copies.load(job):
            self._end_load(job.id, False)

    def wait_for_layer(self, layer: str) -> None:
        if self._in_step:
            self.copies.wait_loads([parts[i] for parts in self._in_step.values() for i in self._tensors_of.get(layer, range(len(parts)))])

    def wait_for_loads_in_step(self) -> None:
        if self._in_step:
            self.copies.wait_loads([part for parts in self._in_step.values() for part in parts])

    # Jobs that have ended.

    def finished(self) -> tuple[set[str], set[str]]:
        """Returns (ended requests without open stores, requests whose loads have ended)."""
        self.wait_for_loads_in_step()
        for over in self.copies.take_stores():
            self._note(over, ("GPU", "CPU"))
            request = next(name for name, jobs in self._stores.items() if over.job in jobs)
            self._end_store(over.job, request, over.is_successful)
        for over in self.copies.take_loads():
            self._note(over, ("CPU", "GPU"))
            self._meta.copies.append((len(self._loads[over.job].blocks), over.seconds or 0.0))
            self._end_load(over.job, over.is_successful)
        due = {job.request for job in self._due}
        sent = {name for name in self._held if not self._stores.get(name) and name not in due}
        self._held -= sent
        received, self._received = self._received, set()
        return sent, received

    def _end_store(self, id, request, is_successful) -> None:
        jobs = self._stores[request]
        jobs.discard(id)
        if not jobs:
            del self._stores[request]
        self._meta.over[id] += 1
        if not is_successful:
            self._meta.failed_stores.add(id)

    def _end_load(self, id, is_successful) -> None:
        job = self._loads.pop(id)
        self._in_step.pop(id, None)
        self._meta.over[id] += 1
        if not job.in_step:
            self._received.add(job.request)
        if is_successful:
            return
        if self._has_one_group and not job.in_step:
            self._bad.update(job.blocks)
        elif SUPPORTS_FAILED_REQUESTS and not job.in_step:
            self._failed.add(job.request)
            self._meta.failed_loads.add(id)
        else:  # a layer has read wrong blocks, or vLLM cannot handle this failure
            raise RuntimeError(f"KV blocks of request {job.request} could not be copied from host memory")

    def _note(self, over, transfer_type) -> None:
        if over.seconds and over.size is not None:
            self.stats.record_transfer(over.size, over.seconds, transfer_type)

    def take_failed_requests(self) -> set[str]:
        """Returns the requests whose loads failed as a whole, and forgets them."""
        failed, self._failed = self._failed, set()
        return failed

    def take_bad_blocks(self) -> set[int]:
        bad, self._bad = self._bad, set()
        return bad

    def take_meta(self) -> WorkerMetadata | None:
        meta, self._meta = self._meta, WorkerMetadata()
        meta.step = self._step if self._computes else None
        return None if meta.is_empty() else meta

    def take_stats(self) -> ConnectorStats | None:
        stats, self.stats = self.stats, ConnectorStats()
        return None if stats.is_empty() else stats
