"""Tests the managers of quire.vllm.offload with stand-ins for vLLM: host memory alone, and above a folder.

usage: vllm_offload_managers.py VERSION CASE...
"""

import os
import sys
import tempfile

from vllm_connector_halves import IS_NEWER, raises, wait
from vllm_offload_support import Log, keys, names, put_newer, put_older

import numpy as np
import quire
from quire._core import TieredOffload, mark_written
from quire.vllm import offload

if IS_NEWER:
    from quire.vllm._offload_v0_32 import EmptyTiers, LedgerOffloadingManager, NumberedSpec
    from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadPolicy
    from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
else:
    from quire.vllm._offload_copies import NumberedSpec
    from vllm.v1.kv_offload.mediums import CPULoadStoreSpec


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


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
