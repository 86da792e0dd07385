"""Tests quire.vllm.offload with stand-ins for vLLM: its managers, specs, copies, host memory, fingerprints and reports.

usage: vllm_offload_alone.py VERSION CASE...
"""

import fcntl
import logging
import mmap
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

from vllm_connector_halves import IS_NEWER, raises, wait
from vllm_connector_pair import NUM_BLOCKS, PAGE, SIZE, kv_config, vllm_config

import numpy as np
import quire
import torch
from quire._core import BlockCopier, TieredOffload, mark_written
from quire.vllm import _fingerprint as fingerprint
from quire.vllm import _host_region as region
from quire.vllm import _offload_checks as checks
from quire.vllm import _offload_pages as pages
from quire.vllm import offload
from quire.vllm._host_region import HostRegion
from vllm.platforms import current_platform

if IS_NEWER:
    from oracle_vllm.offload_newer import Config, HostRegister
    from quire.vllm._offload_v0_32 import COUNTERS, DeviceCopyWorker, EmptyTiers, HostCopyWorker, LedgerOffloadingManager, NumberedSpec
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
    from vllm.v1.kv_offload.base import (
        CanonicalKVCacheRef,
        CanonicalKVCaches,
        CanonicalKVCacheTensor,
        GPULoadStoreSpec,
        LookupResult,
        Medium,
        OffloadPolicy,
    )
    from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
else:
    from quire.vllm._offload_copies import HostCopyHandler, NumberedSpec, device_handlers
    from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec
    from vllm.v1.kv_offload.spec import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor


class Log(logging.Handler):
    """Collects what quire.vllm logs."""

    def __init__(self):
        super().__init__()
        self.texts = []
        checks.logger.handlers, checks.logger.propagate = [self], False
        checks.logger.setLevel(logging.INFO)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


def names(*numbers, size=32):
    return [bytes([number]) * size for number in numbers]


def keys(*numbers, size=32, group=0):
    return [name + group.to_bytes(4, "big") for name in names(*numbers, size=size)]


def caches_of(*arrays, device="cpu"):
    tensors = [CanonicalKVCacheTensor(torch.Tensor(array, device=device), array.nbytes // len(array)) for array in arrays]
    return CanonicalKVCaches(tensors, [[CanonicalKVCacheRef(i, one.page_size_bytes) for i, one in enumerate(tensors)]])


# The managers.


def put_older(manager, *hashes):
    output = manager.prepare_store(list(hashes))
    manager.complete_store(output.block_hashes_to_store)
    return output.block_hashes_to_store, output.store_spec.block_ids.tolist(), output.block_hashes_evicted


def put_newer(manager, *given):
    output = manager.prepare_store(list(given), None)
    manager.complete_store(output.keys_to_store, None)
    return output.keys_to_store, output.store_spec.block_ids.tolist(), output.evicted_keys


def managers():
    """A manager gives the ledger's decisions in vLLM's form, for hashes of 32 bytes and for shorter ones."""
    (newer_manager if IS_NEWER else older_manager)()


def older_manager():
    for size in (32, 16):
        one, two, three, four = names(1, 2, 3, 4, size=size)
        manager = offload.CPUOffloadingManager(16, 3, enable_events=True)
        assert list(manager.take_events()) == [] and manager.lookup([]) == 0
        assert put_older(manager, one, two, three) == ([one, two, three], [0, 1, 2], [])
        assert manager.lookup(iter([one, two, four, three])) == 2
        spec = manager.prepare_load([two])
        assert type(spec) is CPULoadStoreSpec and spec.block_ids.tolist() == [1]
        manager.touch([one])
        assert manager.prepare_store([four, *names(5, 6, 7, size=size)]) is None
        assert put_older(manager, four) == ([four], [2], [three])
        manager.complete_load([two])
        told = [(one_.block_hashes, one_.removed, one_.block_size, one_.medium) for one_ in manager.take_events()]
        assert told == [([one, two, three], False, 16, "CPU"), ([three], True, 16, "CPU"), ([four], False, 16, "CPU")]
        output = manager.prepare_store([three])
        manager.complete_store(output.block_hashes_to_store, success=False)
        assert manager.lookup([three]) == 0 and type(output.store_spec) is CPULoadStoreSpec
        assert put_older(manager, *names(7, 8, 9, size=size))[0] and manager.lookup([two]) == 0, "a loaded block can be evicted"
    used = offload.CPUOffloadingManager(16, 4, "arc_paper")
    put_older(used, *names(1, 2, 3, 4))
    used.prepare_load(names(1))
    used.complete_load(names(1))
    assert used.native.lists[:2] == [names(2, 3, 4), names(1)], "a load counts as a use"
    rare = offload.CPUOffloadingManager(16, 4, store_threshold=2, max_tracker_size=2)
    rare.lookup(names(1))
    assert put_older(rare, *names(1)) == ([], [], [])
    rare.lookup(names(1))
    assert put_older(rare, *names(1))[0] == names(1)
    for number in (5, 6, 7):
        rare.lookup(names(number))
    assert len(rare.native.counted) == 2
    assert list(offload.CPUOffloadingManager(16, 2).take_events()) == []


def newer_manager():
    for size in (32, 16):
        one, two, three, four = keys(1, 2, 3, 4, size=size, group=7)
        make = lambda: quire.OffloadManager(3, enable_events=True)  # noqa: E731
        manager = LedgerOffloadingManager(make(), make)
        assert manager.on_new_request(None).policy is OffloadPolicy.CHUNK_LEVEL and list(manager.take_events()) == []
        assert put_newer(manager, one, two, three) == ([one, two, three], [0, 1, 2], [])
        assert manager.lookup(one, None) is LookupResult.HIT and manager.lookup(four, None) is LookupResult.MISS
        spec = manager.prepare_load(iter([two]), None)
        assert type(spec) is CPULoadStoreSpec and spec.block_ids.tolist() == [1]
        manager.touch([one], None)
        assert manager.prepare_store(keys(4, 5, 6, 7, size=size), None) is None
        assert put_newer(manager, four) == ([four], [2], [three])
        manager.complete_load([two], None)
        told = [(one_.keys, one_.removed, one_.medium) for one_ in manager.take_events()]
        assert told == [([one, two, three], False, Medium.CPU), ([three], True, Medium.CPU), ([four], False, Medium.CPU)]
        output = manager.prepare_store([three], None)
        manager.complete_store(output.keys_to_store, None, success=False)
        assert manager.lookup(three, None) is LookupResult.MISS
        put_newer(manager, *keys(7, 8, 9, size=size, group=7))
        assert manager.lookup(two, None) is LookupResult.MISS, "a loaded block can be evicted"
        put_newer(manager, one)
        manager.reset_cache()
        assert manager.lookup(one, None) is LookupResult.MISS and manager.native.num_free == 3
    used = LedgerOffloadingManager(quire.OffloadManager(4, "arc_paper"), None)
    put_newer(used, *keys(1, 2, 3, 4))
    used.prepare_load(keys(1), None)
    assert used.native.lists[1] == names(1), "a load counts as a use"
    empty = EmptyTiers()
    assert empty.lookup([b"1"]) == 0 and empty.prepare_store([b"1"]) is None and empty.take_events() == [] and empty.stats()["bytes_read"] == 0
    assert empty.touch([]) is None and empty.close() is None and empty.complete_load([]) is None and empty.complete_store([], False) is None


def tiers(folder, slots=4, **more):
    memory, written = np.zeros((slots, 64), np.uint8), np.zeros(slots, np.uint64)
    made = TieredOffload(num_slots=slots, pages=[memory], written=[written], folder=folder, budget_bytes=1 << 20, fingerprint=b"f" * 32, **more)
    return made, written


def disk():
    """A manager above a folder gives each slot a number; blocks on disk must be asked for again; a reset forgets the folder as well."""
    with tempfile.TemporaryDirectory() as folder:
        native, written = tiers(folder, enable_events=True)
        if IS_NEWER:
            manager = offload.TieredOffloadingManager(native, lambda: tiers(os.path.join(folder, "other"))[0])
            store = lambda *some: manager.prepare_store(keys(*some), None)  # noqa: E731
            complete = lambda output: manager.complete_store(output.keys_to_store, None)  # noqa: E731
            find = lambda number: manager.lookup(keys(number)[0], None)  # noqa: E731
            absent, there, later = LookupResult.MISS, LookupResult.HIT, LookupResult.RETRY
        else:
            manager = offload.TieredOffloadingManager(16, native)
            store, find = lambda *some: manager.prepare_store(names(*some)), lambda number: manager.lookup(names(number))
            complete = lambda output: manager.complete_store(output.block_hashes_to_store)  # noqa: E731
            absent, there, later = 0, 1, None
        assert store(1, 2, 3, 4, 5) is None
        output = store(1, 2, 3, 4)
        spec = output.store_spec
        assert type(spec) is NumberedSpec and spec.block_ids.tolist() == [0, 1, 2, 3] and len(spec.numbers) == 4
        mark_written(written, spec.block_ids.tolist(), spec.numbers)
        complete(output)
        assert find(1) == there and find(9) == absent
        wait(lambda: native.stats()["num_written"] == 4)
        again = store(5, 6)
        mark_written(written, again.store_spec.block_ids.tolist(), again.store_spec.numbers)
        complete(again)
        evicted = again.evicted_keys if IS_NEWER else again.block_hashes_evicted
        assert evicted == (keys(1, 2) if IS_NEWER else names(1, 2))
        assert [one.removed for one in manager.take_events()] == [False, True, False]
        assert find(1) == later
        wait(lambda: find(1) == there)
        if IS_NEWER:
            seen = manager.get_stats().reduce()
            assert seen == {f"vllm:kv_offload_disk_{name}_bytes": native.stats()[f"bytes_{name}"] for name in ("read", "written")}
            before = seen["vllm:kv_offload_disk_written_bytes"]
            wait(lambda: native.stats()["num_written"] == 6)
            seen = manager.get_stats().reduce()
            assert seen.get("vllm:kv_offload_disk_written_bytes", 0) == native.stats()["bytes_written"] - before
            third = store(7)
            mark_written(written, third.store_spec.block_ids.tolist(), third.store_spec.numbers)
            complete(third)
            wait(lambda: native.stats()["num_written"] == 7)
            assert manager.get_stats().reduce() == {"vllm:kv_offload_disk_written_bytes": native.stats()["bytes_written"] // 7}
            assert manager.get_stats().is_empty()
            manager._last_stats["bytes_written"] = 1 << 40
            os.mkdir(os.path.join(folder, "other"))
            manager.reset_cache()
            assert find(1) == absent and manager.native is not native and manager._last_stats == {}, "the new tiers count from 0"
            assert manager.get_stats().is_empty()
            raises("closed", native.stats, RuntimeError)

            def fails():
                raise ValueError("folder: is full")

            log = Log()
            manager._make = fails
            manager.reset_cache()
            assert type(manager.native) is EmptyTiers and find(1) == absent and store(1) is None
            assert log.take() == ["KV blocks are not stored on disk: disk_path: is full"]
            manager.shutdown()
        else:
            native.close()


# The specs.


def spec_of(world=1, rank=0, windows=(0,), slots=6, change=None, events=False, **extra):
    extra = {"cpu_bytes_to_use": slots * (4096 if IS_NEWER else 2 * PAGE * world), **extra}
    config = vllm_config(extra, world, rank, events)
    if change:
        change(config)
    if IS_NEWER:
        Config.current = config
        spec = offload.QuireOffloadingSpec(build_offloading_config(config, kv_config(windows)))
        spec.disk_config = config
        return spec
    return offload.QuireOffloadingSpec(config, kv_config(windows))


def caches():
    return [np.arange(NUM_BLOCKS * PAGE, dtype=np.uint8).reshape(NUM_BLOCKS, PAGE) + i for i in range(2)]


def specs():
    """The options of host memory: size, policy, threshold and events; one manager per spec."""
    spec = spec_of()
    manager = spec.get_manager()
    assert manager.native.num_slots == 6 and spec.get_manager() is manager and spec.disk_path is None
    put = put_newer if IS_NEWER else put_older
    some = keys if IS_NEWER else names
    put(manager, *some(1))
    assert list(manager.take_events()) == []
    with_events = spec_of(events=True).get_manager()
    put(with_events, *some(1))
    assert len(list(with_events.take_events())) == 1
    paper = spec_of(eviction_policy="arc_paper").get_manager()
    assert len(paper.native.lists) == 4
    own = spec_of(eviction_policy="vllm_offload_alone:Oldest").get_manager()
    put(own, *some(1, 2, 3, 4, 5, 6))
    assert put(own, *some(7))[2] == some(1)
    raises("eviction_policy", lambda: spec_of(eviction_policy="fifo").get_manager())
    if IS_NEWER:
        # A threshold of 1 stores a block at its first lookup.
        counted = spec_of(store_threshold=1, max_tracker_size=3).get_manager().native
        counted.lookup(names(1, 2, 3, 4))
        assert counted.counted == []
        raises("store_threshold: QuireOffloadingSpec does not support it under this vLLM; leave it out", lambda: spec_of(store_threshold=2))
        text = "spec_name: QuireOffloadingSpec does not support several KV cache groups under this vLLM; set --disable-hybrid-kv-cache-manager"
        raises(text, lambda: spec_of(windows=(0, 8)))
        for name in ("canonical_layout", "cache_policy_module_path"):
            raises(f"{name}: QuireOffloadingSpec does not support it; leave it out", lambda: spec_of(**{name: "x"}))
            assert spec_of(**{name: None})
        current_platform.kind = "xpu"
        raises("spec_name: QuireOffloadingSpec is not tested on Intel GPUs; use TieringOffloadingSpec", spec_of)
        current_platform.kind = "cpu"
        assert spec._uses_shared_region() is False
        defined = offload.QuireOffloadingSpec.build_metric_definitions({})
        assert set(COUNTERS) < set(defined) and len(defined) == len(COUNTERS) + 1
        assert all(defined[name].documentation == text for name, (_, text) in COUNTERS.items())
    else:
        spec = spec_of(store_threshold="2", max_tracker_size=2, block_size=2 * SIZE, slots=12)
        rare = spec.get_manager()
        assert rare.block_size == 2 * SIZE and rare.native.num_slots == 6 and put(rare, *some(1)) == ([], [], [])
        rare.lookup(names(2))
        rare.lookup(names(3))
        assert len(rare.native.counted) == 2


class Oldest(quire.connectors.EvictionPolicy):
    def __init__(self):
        self.slots = []

    def insert(self, slot, key):
        self.slots.append(slot)

    def evict(self, count, evictable, incoming):
        return [slot for slot in self.slots if slot in evictable][:count]


def folders():
    """With a folder: the options' refusals, a folder per data-parallel engine, fingerprints, and blocks that a restart finds."""
    log = Log()
    with tempfile.TemporaryDirectory() as folder:
        good = {"disk_path": folder, "disk_bytes_to_use": 1 << 20}
        raises("disk_path: must be the path of a folder", lambda: spec_of(**{**good, "disk_path": ""}))
        raises("disk_path: must be the path of a folder", lambda: spec_of(**{**good, "disk_path": 5}))
        for size in (None, 0, -1, True, "1GB"):
            text = f"disk_bytes_to_use: {size!r} is not a number of bytes; set the maximum size of the folder"
            raises(text, lambda: spec_of(**{**good, "disk_bytes_to_use": size}))
        raises("cpu_bytes_to_use: is smaller than one block", lambda: spec_of(slots=0.5, **good))
        raises("eviction_policy: a custom policy cannot be combined with disk_path", lambda: spec_of(eviction_policy="a:B", **good))

        def forgeable(config):
            config.cache_config.prefix_caching_hash_algo = "xxhash"

        def adapters(config):
            config.lora_config = object()

        for change, text in ((forgeable, "disk_path: block hashes by xxhash can be forged"), (adapters, "the name of a LoRA adapter does not identify")):
            raises(text, lambda: spec_of(change=change, **good).region(caches_of(*caches())))

        def second(config):
            config.parallel_config.data_parallel_size, config.parallel_config.data_parallel_rank = 2, 1
            config.parallel_config.data_parallel_index = 1

        assert spec_of(**good)._folder() == folder and spec_of(change=second, **good)._folder() == os.path.join(folder, "dp1")
        raises("disk_path: the host memory of worker 0 is not in /dev/shm of this machine", spec_of(**good).get_manager)

        def started(**more):
            spec = spec_of(**{**good, **more})
            memory = spec.region(caches_of(*caches()))
            return spec, memory, spec.get_manager()

        if IS_NEWER:  # the scheduler's process does not have the whole configuration: the first worker's memory carries its digest
            given = caches_of(*caches())
            plain, other = ([spec_of(world=2, rank=rank, change=change, **good)._layout(given) for rank in (0, 1)] for change in (None, bfloat16))
            assert plain[0] != other[0] and plain[1] == other[1] and plain[0].startswith(plain[1]) and plain[1].endswith(" LBHNC")

        os.environ.pop("PYTHONHASHSEED", None)
        spec, memory, manager = started(eviction_policy="arc")
        assert isinstance(manager, offload.TieredOffloadingManager) and manager.native.num_slots == 6
        assert not region._path(spec_engine(spec), 0).exists(), "the scheduler removes the names"
        if not IS_NEWER:
            assert os.environ["PYTHONHASHSEED"] == "0", "hashes must be the same in the next process"
        assert log.take()[-1].startswith(f"KV blocks on disk: {manager.native.stats()['num_places']} slots in {folder}")
        if IS_NEWER:
            output = manager.prepare_store(keys(1, 2), None)
        else:
            output = manager.prepare_store(names(1, 2))
        memory.tensors[0][:] = 5
        mark_written(memory.written, output.store_spec.block_ids.tolist(), output.store_spec.numbers)
        manager.complete_store(*([output.keys_to_store, None] if IS_NEWER else [output.block_hashes_to_store]))
        wait(lambda: manager.native.stats()["num_written"] == 2)
        assert started()[2].native is not manager.native and not isinstance(started()[2], offload.TieredOffloadingManager), "the folder is in use"
        assert all(text.startswith("KV blocks are not stored on disk: disk_path: ") for text in log.take())
        manager.native.close()
        _, memory, manager = started()
        wait(lambda: manager.native.stats()["num_held"] == 2)
        if IS_NEWER:
            table = Path(folder, "quire-table")
            assert names(1)[0] in table.read_bytes()
            manager.reset_cache()
            assert names(1)[0] not in table.read_bytes() and manager.native.stats()["num_held"] == 0, "a reset deletes the blocks on disk"
        manager.native.close()
        other = started(disk_model_id="other")[2]
        assert not isinstance(other, offload.TieredOffloadingManager) or other.native.stats()["num_held"] == 0
        if hasattr(other.native, "close"):
            other.native.close()


def bfloat16(config):
    config.model_config.dtype = "bfloat16"


def spec_engine(spec):
    return spec.config.engine_id if IS_NEWER else spec.vllm_config.kv_transfer_config.engine_id


def thresholds():
    """The options of the ledger hold above a folder as well, and each rank's memory belongs to the engine."""
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(world=2, events=True, disk_path=folder, disk_bytes_to_use=1 << 20, store_threshold=1, max_tracker_size=2, eviction_policy="lru")
        seconds = [HostRegion.create(spec_engine(spec), 1, 4, [PAGE, PAGE], "layout", True)]
        seconds.append(spec.region(caches_of(*caches())))
        manager = spec.get_manager()
        assert manager.native.num_slots == 4, "the smallest worker's memory"
        put = manager.prepare_store(*([keys(1), None] if IS_NEWER else [names(1)]))
        assert put.store_spec.numbers
        for memory in seconds:
            mark_written(memory.written, put.store_spec.block_ids.tolist(), put.store_spec.numbers)
        manager.complete_store(*([keys(1), None] if IS_NEWER else [names(1)]))
        assert [one.removed for one in manager.take_events()] == [False]
        wait(lambda: manager.native.stats()["num_written"] == 1)
        assert manager.native.stats()["bytes_written"] >= 2 * PAGE + 2 * PAGE
        manager.native.close()


def copied():
    """Copies on CPU move whole blocks between the cache and slots, in both directions, and number what is above a disk."""
    spec = spec_of(block_size=2 * SIZE, slots=12)
    arrays = caches()
    before = [array.copy() for array in arrays]
    given = caches_of(*arrays)
    gpu = lambda ids, first=0: GPULoadStoreSpec(ids, (len(ids),), (first,))  # noqa: E731
    if IS_NEWER:
        worker = spec.get_worker(given)
        assert spec.get_worker(given) is worker and type(worker) is HostCopyWorker
        store, load, done = worker.submit_store, worker.submit_load, worker.get_finished
        stop = worker.wait
    else:
        (source, target, to_host), (other, another, to_device) = spec.get_handlers(given)
        assert (source, target, other, another) == (GPULoadStoreSpec, CPULoadStoreSpec, CPULoadStoreSpec, GPULoadStoreSpec)
        assert next(iter(spec.get_handlers(given)))[2] is to_host and type(to_host) is HostCopyHandler
        store, load = (lambda number, *ends: to_host.transfer_async(number, ends)), lambda number, *ends: to_device.transfer_async(number, ends)
        done, stop = lambda: to_host.get_finished() + to_device.get_finished(), lambda jobs: (to_host.wait(jobs), to_device.wait(jobs))
    assert store(1, gpu([5, 6, 9, 1]), CPULoadStoreSpec([3, 0])) is True
    stop({1})
    (ended,) = done()
    assert (ended.job_id, ended.success, ended.transfer_size) == (1, True, 4 * 2 * PAGE) and ended.transfer_time >= 0 and done() == []
    assert IS_NEWER or ended.transfer_type == ("GPU", "CPU")
    for array in arrays:
        array[:] = 0
    assert load(2, CPULoadStoreSpec([3, 0]), gpu([20, 21, 22], 1)) is True  # from the middle of the first slot
    stop([2])
    (ended,) = done()
    assert (ended.job_id, ended.success, ended.transfer_size) == (2, True, 3 * 2 * PAGE) and (IS_NEWER or ended.transfer_type == ("CPU", "GPU"))
    for array, own in zip(arrays, before):
        assert (array[[20, 21, 22]] == own[[6, 9, 1]]).all() and not array[:20].any() and not array[23:].any()
    written = np.zeros(6, np.uint64)
    host = [np.zeros((12, PAGE), np.uint8) for _ in arrays]
    copier = BlockCopier(arrays, host, written)
    numbered = HostCopyWorker(copier, 2) if IS_NEWER else HostCopyHandler(copier, 2, True)
    ends = (gpu([20, 21]), NumberedSpec([4], [99]))
    assert numbered.submit_store(7, *ends) if IS_NEWER else numbered.transfer_async(7, ends)
    numbered.wait([7])
    assert written.tolist() == [0, 0, 0, 0, 99, 0] and (host[1][[8, 9]] == before[1][[6, 9]]).all()
    if IS_NEWER:
        assert numbered.submit_load(8, CPULoadStoreSpec([4]), gpu([0], 0))
        numbered.wait([8])
        assert (arrays[0][0] == before[0][6]).all(), "a load may end in the middle of a slot"


def devices():
    """On a device vLLM's handlers copy; a store is marked when vLLM reports it, and loads begin after all earlier work."""
    current_platform.kind = "cuda"
    arrays = caches()
    given = caches_of(*arrays, device="cuda")
    before = [array.copy() for array in arrays]
    memory = HostRegion.create(f"devices {os.getpid()}", 0, 4, [2 * PAGE, 2 * PAGE], "", False)
    gpu = lambda ids, first=0: GPULoadStoreSpec(ids, (len(ids),), (first,))  # noqa: E731
    if IS_NEWER:
        worker = DeviceCopyWorker(given, memory, 2)
        assert HostRegister.registered == {memory.address: memory.num_bytes} and worker.loads.host_memory_is_pinned
        assert worker.submit_store(1, gpu([5, 6]), NumberedSpec([3], [42])) and worker.submit_store(2, gpu([7, 8]), CPULoadStoreSpec([1]))
        assert memory.written.tolist() == [0] * 4
        assert [(one.job_id, one.transfer_size) for one in worker.get_finished()] == [(1, 4 * PAGE), (2, 4 * PAGE)]
        assert memory.written.tolist() == [0, 0, 0, 42] and worker.get_finished() == [] and not worker._written_numbers
        assert worker.submit_load(3, CPULoadStoreSpec([3]), gpu([0], 1))
        worker.wait([3])
        assert [one.job_id for one in worker.get_finished()] == [3] and worker.stores.waited == [[3]] == worker.loads.waited
        worker.shutdown()
        worker.shutdown()
        assert HostRegister.registered == {} and worker.stores.is_shut_down and worker.loads.is_shut_down
        HostRegister.works = False
        pageable = DeviceCopyWorker(given, memory, 2)
        assert not pageable.loads.host_memory_is_pinned
        pageable.shutdown()
        spec = spec_of(block_size=2 * SIZE, slots=12)
        assert type(spec.get_worker(given)) is DeviceCopyWorker
    else:
        to_host, to_device = device_handlers(given, memory, 2)
        assert torch.cuda.registered == [(memory.address, memory.num_bytes, 0)]
        assert to_host.transfer_async(1, (gpu([5, 6]), NumberedSpec([3], [42]))) and to_host.transfer_async(2, (gpu([7, 8]), CPULoadStoreSpec([1])))
        to_host.wait([1, 2])
        assert memory.written.tolist() == [0] * 4, "wait() does not mark"
        assert [(one.job_id, one.transfer_type) for one in to_host.get_finished()] == [(1, ("GPU", "CPU")), (2, ("GPU", "CPU"))]
        assert memory.written.tolist() == [0, 0, 0, 42] and not to_host._numbers
        assert to_device.transfer_async(3, (CPULoadStoreSpec([3]), gpu([0], 1))) and to_device.transfer_async(4, (CPULoadStoreSpec([1]), gpu([1, 2])))
        (stream,) = to_device._stream_pool
        assert stream.waited == [torch.cuda.current_stream()] * 2
        assert [one.job_id for one in to_device.get_finished()] == [3, 4]
        assert type(to_host).__name__ == "MarkingHandler" and type(to_device).__name__ == "OrderedHandler"
        current_platform.kind = "cpu"
        device_handlers(caches_of(*arrays, device="other"), memory, 2)
        assert len(torch.cuda.registered) == 1, "only a GPU registers the memory"
    assert (arrays[0][0] == before[0][6]).all() and (memory.tensors[1][1].reshape(2, PAGE) == before[1][[7, 8]]).all()


def layouts():
    """What the bytes of a page depend on in a worker; caches as one group."""
    given = caches_of(np.zeros((4, 2, 3), np.float16), np.zeros((4, 8), np.uint8))
    text = pages.page_layout(given)
    assert "((2, 3), \"<class 'numpy.float16'>\", 12)" in text and text.endswith("cpu AVX2 False 2.0")
    on_device = caches_of(np.zeros((4, 8), np.uint8), device="cuda")
    assert pages.page_layout(on_device).endswith("cuda device None 2.0")
    two = CanonicalKVCaches(given.tensors, [[CanonicalKVCacheRef(0, 12)], [CanonicalKVCacheRef(1, 8)]])
    one = pages.as_one_group(two)
    assert one.tensors is given.tensors and one.group_data_refs == [[CanonicalKVCacheRef(0, 12), CanonicalKVCacheRef(1, 8)]]
    assert [page.shape for page in pages.device_pages(given)] == [(4, 12), (4, 8)]


# Host memory.


def regions():
    """Two workers' files: header, slots and numbers as the scheduler's process maps them; names are forgotten; a second file is refused."""
    engine = f"regions {os.getpid()}"
    made = [HostRegion.create(engine, rank, 3, [3000, 5000], f"layout {rank}", True) for rank in range(2)]
    seen = [HostRegion.attach(engine, rank) for rank in range(2)]
    for rank, (own, other) in enumerate(zip(made, seen)):
        assert (other.num_slots, other.page_bytes, other.layout) == (3, [3000, 5000], f"layout {rank}")
        assert [tensor.shape for tensor in other.tensors] == [(3, 3000), (3, 5000)] and other.written.shape == (3,)
        for i, tensor in enumerate(own.tensors):
            tensor[:] = 10 * rank + i + 1
        own.written[:] = [7, 8, 9 + rank]
        assert [set(tensor.ravel().tolist()) for tensor in other.tensors] == [{10 * rank + 1}, {10 * rank + 2}] and other.written.tolist() == [7, 8, 9 + rank]
        path = region._path(engine, rank)
        assert path.stat().st_size == own.num_bytes == other.num_bytes and path.stat().st_mode & 0o077 == 0
        assert own.address % mmap.PAGESIZE == 0 and path.name.startswith("quire-kv-") and path.name.endswith(f"-{rank}")
        assert all(tensor.__array_interface__["data"][0] % mmap.PAGESIZE == 0 for tensor in (*own.tensors, own.written))
    raises("File exists", lambda: HostRegion.create(engine, 0, 3, [100], "", True), FileExistsError)
    HostRegion.forget(engine, 0)
    assert not region._path(engine, 0).exists() and region._path(engine, 1).exists()
    HostRegion.forget(engine, 0)
    raises("disk_path: the host memory of worker 0 is not in /dev/shm of this machine (No such file or directory); run all workers",
           lambda: HostRegion.attach(engine, 0))  # fmt: skip
    HostRegion.forget(engine, 1)
    seen[1].tensors[1][2, 4999] = 77
    assert made[1].tensors[1][2, 4999] == 77, "the memory stays without its name"
    alone = HostRegion.create(engine, 0, 2, [10], "", False)
    assert not region._path(engine, 0).exists()
    alone.tensors[0][:] = 1
    assert alone.num_bytes == region.HEADER_BYTES + 2 * 4096 == HostRegion._size(512, [8]), "whole pages are not padded"
    assert HostRegion._size(513, [8, 1]) == region.HEADER_BYTES + 2 * 4096 + 2 * 4096 + 4096


def full():
    """A worker without room is refused, with the size, and leaves no file."""
    engine, room = f"full {os.getpid()}", os.statvfs("/dev/shm")
    slots = room.f_blocks * room.f_frsize // 4096 + 10
    raises(f"cpu_bytes_to_use: /dev/shm has no room for {HostRegion._size(slots, [4096])} bytes of worker 3 (No space left on device); use a smaller value",
           lambda: HostRegion.create(engine, 3, slots, [4096], "", True))  # fmt: skip
    assert not region._path(engine, 3).exists()


HOLDER = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


def stale():
    """Files of dead processes are removed when the next file is made; files of living processes and new files stay."""
    engine = f"stale {os.getpid()}"
    dead, living, young, other = (region._path(f"{engine} {name}", 0) for name in ("dead", "living", "young", "other"))
    other = other.with_name(f"other-{os.getpid()}")
    odd = region._path(f"{engine} odd", 0)
    odd.mkdir()  # not a file that can be opened
    for path in (dead, living, young, other):
        path.write_bytes(b"x")
    old = time.time() - region.STALE_S - 1
    for path in (dead, living, other, odd):
        os.utime(path, (old, old))
    os.utime(young, (time.time() - region.STALE_S + 30,) * 2)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, living], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        HostRegion.create(engine, 0, 1, [8], "", False)
        assert [path.exists() for path in (dead, living, young, other)] == [False, True, True, True]
        holder.communicate()
        os.utime(living, (old, old))
        made = HostRegion.create(engine, 0, 1, [8], "", True)
        assert not living.exists()
        # The file itself is locked: it stays, however old it is.
        path = region._path(engine, 0)
        os.utime(path, (old, old))
        HostRegion.create(engine, 1, 1, [8], "", False)
        assert path.exists() and made.descriptor
        check = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(check, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("the file must be locked")
        except OSError:
            os.close(check)
    finally:
        holder.kill()
        odd.rmdir()
        for path in (dead, living, young, other, region._path(engine, 0)):
            path.unlink(missing_ok=True)


# Fingerprints and reports.


def fingerprints():
    """A fingerprint depends on everything that the bytes of a block depend on, and on the contents of the weights' files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "sub").mkdir()
        (path / "config.json").write_text("{}")
        raises(f"disk_path: the weights of {folder} are not in files that can be identified; set disk_model_id",
               lambda: fingerprint.weights_digest(with_model(folder), None))  # fmt: skip
        (path / "sub/b.safetensors").write_bytes(b"weights")
        (path / "a.gguf").write_bytes(b"more")
        text = fingerprint.weights_digest(with_model(folder), None)
        assert [line.split()[:2] for line in text.splitlines()] == [["a.gguf", "4"], ["b.safetensors", "7"]]
        (path / "config.json").write_text("{ }")
        assert fingerprint.weights_digest(with_model(folder), None) == text
        (path / "a.gguf").write_bytes(b"mode")
        assert fingerprint.weights_digest(with_model(folder), None) != text
        assert fingerprint.weights_digest(with_model(path / "a.gguf"), None).startswith("a.gguf 4 ")
        assert fingerprint.weights_digest(with_model(folder), "mine") == "id mine"
        dummy = with_model(folder)
        dummy.load_config.load_format = "dummy"
        assert fingerprint.weights_digest(dummy, None) == "dummy" and fingerprint.weights_digest(dummy, "mine") == "id mine"
        # A large file is read by samples, up to its last byte.
        fingerprint.WHOLE_BYTES, fingerprint.SAMPLES, fingerprint.SAMPLE_BYTES = 999, 4, 50
        data = bytearray(1000)
        digests = []
        for at in (None, 0, 49, 316, 365, 633, 950, 999, 50, 315, 366, 949):  # samples begin at 0, 316, 633 and 950
            changed = bytearray(data)
            if at is not None:
                changed[at] = 1
            (path / "a.gguf").write_bytes(changed)
            digests.append(fingerprint.weights_digest(with_model(path / "a.gguf"), None))
        assert len(set(digests[:8])) == 8 and set(digests[8:]) == {digests[0]}, "bytes between samples are not read"
        (path / "a.gguf").write_bytes(bytes(999))
        whole = fingerprint.weights_digest(with_model(path / "a.gguf"), None)
        (path / "a.gguf").write_bytes(bytes(100) + b"1" + bytes(898))
        assert fingerprint.weights_digest(with_model(path / "a.gguf"), None) != whole
    fake = SimpleNamespace(snapshot_download=lambda model, revision, local_files_only: {("there", "r", True): folder}[model, revision, local_files_only])
    sys.modules["huggingface_hub"] = fake
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m.bin").write_bytes(b"1")
        assert fingerprint.weights_digest(with_model("there", "r"), None).startswith("m.bin 1 ")
        raises("the weights of missing are not in files", lambda: fingerprint.weights_digest(with_model("missing", "r"), None))

    def digest(change=None, blocks=(16, 1), model_id="m"):
        config = with_model("m")
        if change:
            change(config)
        return fingerprint.configuration(config, list(blocks), model_id)

    def set_(part, name, value):
        return lambda config: setattr(getattr(config, part), name, value)

    changes = [
        set_("model_config", "dtype", "bfloat16"), set_("model_config", "quantization", "fp8"), set_("cache_config", "cache_dtype", "fp8"),
        set_("cache_config", "prefix_caching_hash_algo", "sha256_cbor"), set_("parallel_config", "tensor_parallel_size", 2),
        set_("parallel_config", "pipeline_parallel_size", 2), set_("parallel_config", "world_size", 2),
        set_("model_config", "hf_config", SimpleNamespace(to_dict=lambda: {"hidden_size": 9})),
        lambda config: setattr(config, "speculative_config", SimpleNamespace(model="draft")),
    ]  # fmt: skip
    all_ = [digest(), digest(blocks=(16, 2)), digest(model_id="n"), *map(digest, changes)]
    os.environ["VLLM_KV_CACHE_LAYOUT"] = "HND"
    all_.append(digest())
    del os.environ["VLLM_KV_CACHE_LAYOUT"]
    assert len(set(all_)) == len(all_) and digest() == all_[0]
    moved = set_("model_config", "hf_config", SimpleNamespace(to_dict=lambda: {"hidden_size": 8, "_name_or_path": "elsewhere", "transformers_version": "9"}))
    assert digest(moved) == all_[0], "where the model lies does not matter"
    assert len(fingerprint.combined(["a", "b"])) == 32 and fingerprint.combined(["a", "b"]) != fingerprint.combined(["ab"])


def with_model(model, revision=None):
    config = vllm_config({})
    config.model_config.model, config.model_config.revision, config.load_config.load_format = str(model), revision, "auto"
    return config


def reports():
    """Problems of the disk are logged when their number grows, at most once per period; a folder that cannot be used is one line."""
    log, told = Log(), checks.DiskProblemLogger()
    stats = dict.fromkeys([*checks.DISK_PROBLEMS, "num_held"], 0)
    native = SimpleNamespace(stats=lambda: dict(stats))
    told.report(native)
    assert log.take() == []
    stats.update(num_refused=2, num_held=5)
    told.report(native)
    assert log.take() == [], "the period is not over"
    told._next = 0.0
    told.report(native)
    assert log.take() == ["KV blocks on disk: blocks that failed verification were dropped; they are computed again (2 so far, 5 blocks held)"]
    told._next = 0.0
    told.report(native)
    assert log.take() == [] and told._next - time.monotonic() > checks.REPORT_PERIOD_S - 5
    stats.update(num_failed=1, loads_left_out=True, stores_left_out=True)
    told._next = 0.0
    told.report(native)
    assert [text.partition(" (")[0] for text in log.take()] == [f"KV blocks on disk: {checks.DISK_PROBLEMS[name]}" for name in list(checks.DISK_PROBLEMS)[1:]]

    def fails(error):
        def open_tiers():
            raise error

        return open_tiers

    assert checks.opened_or_none(lambda: 5) == 5 and log.take() == []
    assert checks.opened_or_none(fails(ValueError("budget_bytes: is 1"))) is None
    assert checks.opened_or_none(fails(NotImplementedError("folder: /a folder: b budget_bytes: c budget_bytes: d"))) is None
    text = "KV blocks are not stored on disk: "
    assert log.take() == [f"{text}disk_bytes_to_use: is 1", f"{text}disk_path: /a folder: b disk_bytes_to_use: c budget_bytes: d"], "names, not paths"
    raises("other", lambda: checks.opened_or_none(fails(KeyError("other"))), KeyError)
    assert checks.policy_of("lru") == "lru" and type(checks.policy_of("vllm_offload_alone:Oldest")).__name__ == "Oldest"


def metrics():
    """vLLM's connector with quire's spec also reports the disk's transfers (vLLM 0.19.0; later versions ask the manager)."""
    if IS_NEWER:
        assert not hasattr(offload, "QuireOffloadingConnector")
        return
    connector = offload.QuireOffloadingConnector(vllm_config({}), None)
    assert connector.get_kv_connector_stats() is None
    connector.connector_worker = SimpleNamespace(get_kv_connector_stats=lambda: "the worker's")
    assert connector.get_kv_connector_stats() == "the worker's"
    connector.connector_scheduler = SimpleNamespace(manager=offload.CPUOffloadingManager(16, 2))
    assert connector.get_kv_connector_stats() == "the worker's"
    stats = {"bytes_read": 0, "reading_s": 0.0, "bytes_written": 0}
    connector.connector_scheduler.manager = offload.TieredOffloadingManager(16, SimpleNamespace(stats=lambda: dict(stats)))
    assert connector.get_kv_connector_stats() is None
    stats.update(bytes_read=30, reading_s=0.5)
    read = lambda: {kind: [(one.op_size, one.op_time) for one in some] for kind, some in connector.get_kv_connector_stats().data.items()}  # noqa: E731
    assert read() == {"DISK_to_CPU": [(30, 0.5)]} and connector.get_kv_connector_stats() is None
    stats.update(bytes_read=50, reading_s=0.75, bytes_written=7)
    assert read() == {"DISK_to_CPU": [(20, 0.25)], "CPU_to_DISK": [(7, 0.0)]}


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
