"""The workers' half of quire.vllm.Connector: it copies what the scheduler's half has decided, and says what is over.

Stores of a step begin with the next one, as in vLLM's connector, so that they are no part of the step that has computed them. Before a step
writes to blocks whose stores are under way it waits for these (`fences`). Loads and stores have a thread each: a load waits for no store.
"""

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec

from quire.vllm._connector_meta import ConnectorStats, Job, WorkerMetadata
from quire.vllm._offload_copies import HostCopyHandler, NumberedSpec
from quire.vllm._offload_pages import copier_of
from quire.vllm._offload_v0_19 import QuireOffloadingSpec


def _two_copiers(kv_caches, region, factor):
    """(device to host, host to device)"""
    return HostCopyHandler(copier_of(kv_caches, region), factor, True), LayerCopyHandler(copier_of(kv_caches, region), factor)


class ConnectorSpec(QuireOffloadingSpec):
    """The same memory, folder and options as OffloadingConnector's with quire's spec."""

    host_handlers = staticmethod(_two_copiers)


class LayerCopyHandler(HostCopyHandler):
    """Loads, also tensor by tensor: then a job is over when all its parts are."""

    FIRST_PART = 1 << 40  # numbers of parts lie above those of jobs

    def __init__(self, copier, factor):
        super().__init__(copier, factor, to_host=False)
        self._last, self._parts = self.FIRST_PART, {}  # part -> job

    def submit_parts(self, job: Job, num_tensors: int) -> list[int]:
        """By tensor, in their order; each is waited for by its number."""
        parts = []
        for tensor in range(num_tensors):
            self._last += 1
            self._parts[self._last] = job.id
            self.copier.submit(self._last, False, job.blocks, _pages(job, self.factor), tensors=[tensor])
            parts.append(self._last)
        return parts

    def get_finished(self):
        whole, parts = [], {}
        for result in super().get_finished():
            if (job := self._parts.pop(result.job_id, None)) is None:
                whole.append(result)
                continue
            result.job_id = job
            if job in parts:
                parts[job].transfer_size += result.transfer_size
                parts[job].transfer_time += result.transfer_time
            else:
                parts[job] = result
        return [*whole, *parts.values()]


def _pages(job: Job, factor: int) -> list[int]:
    pages = [slot * factor + part for slot in job.slots for part in range(factor)]
    return pages[len(pages) - len(job.blocks) :]


class _Catcher(OffloadingConnectorWorker):
    """vLLM's way from KV caches of any layout to rows of bytes."""

    def _register_handlers(self, kv_caches):
        self.caught = kv_caches


class WorkerHalf:
    def __init__(self, spec, kv_cache_config):
        self._spec, self._config = spec, kv_cache_config
        self._is_plain = len(kv_cache_config.kv_cache_groups) == 1
        self._step = 0
        self._due = []  # stores of the last step
        self._loads: dict[int, Job] = {}  # under way
        self._stores: dict[str, set[int]] = {}  # by request
        self._held = set()  # requests that have ended
        self._in_step: dict[int, list[int]] = {}  # job -> its parts, by tensor
        self._bad, self._received = set(), set()
        self._meta, self.stats = WorkerMetadata(), ConnectorStats()

    # The KV cache.

    def register(self, kv_caches: dict) -> None:
        catcher = _Catcher(self._spec)
        catcher.register_kv_caches(kv_caches)
        self._meet(catcher.caught)

    def register_cross_layers(self, kv_cache, attn_backend) -> None:
        catcher = _Catcher(self._spec)
        catcher.register_cross_layers_kv_cache(kv_cache, attn_backend)
        self._meet(catcher.caught)

    def _meet(self, caches) -> None:
        (_, _, self.to_host), (_, _, self.to_device) = self._spec.get_handlers(caches)
        self._num_tensors = len(caches.tensors)
        self._tensors_of = {}  # layer -> the tensors that it reads
        entries = self._config.kv_cache_tensors  # of each as many tensors: one, or keys and values
        per_entry = self._num_tensors // max(1, len(entries))
        for i, entry in enumerate(entries if per_entry * len(entries) == self._num_tensors else ()):
            for layer in entry.shared_by:
                self._tensors_of[layer] = range(i * per_entry, (i + 1) * per_entry)

    # A step.

    def begin(self, meta) -> None:
        """Before the step writes to anything; once."""
        if meta.step == self._step:
            return
        self._step = meta.step
        for job in self._due:
            self._start_store(job)
        self._due = meta.stores
        if meta.fences:
            self.to_host.wait(meta.fences)
        for job in meta.loads:
            self._start_load(job)
        self._held.update(meta.held)

    def _start_store(self, job: Job) -> None:
        self._stores.setdefault(job.request, set()).add(job.id)
        target = NumberedSpec(job.slots, job.numbers) if job.numbers else CPULoadStoreSpec(job.slots)
        if not self.to_host.transfer_async(job.id, (GPULoadStoreSpec(job.blocks, (len(job.blocks),)), target)):
            self._end_store(job.id, job.request, False)

    def _start_load(self, job: Job) -> None:
        self._loads[job.id] = job
        if job.in_step:
            self._in_step[job.id] = self.to_device.submit_parts(job, self._num_tensors)
        elif not self.to_device.transfer_async(job.id, (CPULoadStoreSpec(job.slots), self._target(job))):
            self._end_load(job.id, False)

    @staticmethod
    def _target(job: Job):
        return GPULoadStoreSpec(job.blocks, (len(job.blocks),), (job.first,))

    def wait_for_layer(self, layer: str) -> None:
        if self._in_step:
            self.to_device.wait([parts[i] for parts in self._in_step.values() for i in self._tensors_of.get(layer, range(len(parts)))])

    def end_loads_in_step(self) -> None:
        if self._in_step:
            self.to_device.wait([part for parts in self._in_step.values() for part in parts])

    # What is over.

    def finished(self) -> tuple[set[str], set[str]]:
        """(requests whose stores are over, requests whose loads are)"""
        self.end_loads_in_step()
        for result in self.to_host.get_finished():
            self._note(result)
            request = next(name for name, jobs in self._stores.items() if result.job_id in jobs)
            self._end_store(result.job_id, request, result.success)
        for result in self.to_device.get_finished():
            self._note(result)
            self._meta.copies.append((len(self._loads[result.job_id].blocks), result.transfer_time or 0.0))
            self._end_load(result.job_id, result.success)
        due = {job.request for job in self._due}
        sent = {name for name in self._held if not self._stores.get(name) and name not in due}
        self._held -= sent
        received, self._received = self._received, set()
        return sent, received

    def _end_store(self, id, request, is_good) -> None:
        jobs = self._stores[request]
        jobs.discard(id)
        if not jobs:
            del self._stores[request]
        self._meta.over[id] += 1
        if not is_good:
            self._meta.failed_stores.add(id)

    def _end_load(self, id, is_good) -> None:
        job = self._loads.pop(id)
        self._in_step.pop(id, None)
        self._meta.over[id] += 1
        if not job.in_step:
            self._received.add(job.request)
        if is_good:
            return
        if job.in_step or not self._is_plain:  # what has read them is wrong, or vLLM does not know of such loads
            raise RuntimeError(f"KV blocks of request {job.request} could not be copied from host memory")
        self._bad.update(job.blocks)

    def _note(self, result) -> None:
        if result.transfer_time and result.transfer_size is not None:
            self.stats.record_transfer(result.transfer_size, result.transfer_time, result.transfer_type)

    def take_bad(self) -> set[int]:
        bad, self._bad = self._bad, set()
        return bad

    def take_meta(self, has_computed: bool) -> WorkerMetadata | None:
        meta, self._meta = self._meta, WorkerMetadata()
        meta.step = self._step if has_computed else None
        return None if meta.is_empty() else meta

    def take_stats(self) -> ConnectorStats | None:
        stats, self.stats = self.stats, ConnectorStats()
        return None if stats.is_empty() else stats
