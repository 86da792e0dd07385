"""Tests the specs of quire.vllm.offload with stand-ins for vLLM: options of host memory and of a folder.

usage: vllm_offload_specs.py VERSION CASE...
"""

import os
import sys
import tempfile
from pathlib import Path

from vllm_connector_halves import IS_NEWER, raises, wait
from vllm_connector_pair import PAGE, SIZE
from vllm_offload_support import Log, caches, caches_of, keys, names, put_newer, put_older, spec_engine, spec_of

from quire._core import mark_written
from quire.vllm import _host_region as region
from quire.vllm import offload
from quire.vllm._host_region import HostRegion
from vllm.platforms import current_platform

if IS_NEWER:
    from quire.vllm._offload_v0_32 import COUNTERS


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
    own = spec_of(eviction_policy="vllm_offload_support:Oldest").get_manager()
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


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
