"""Tests the halves of quire.vllm.Connector alone; run by vLLM's Python, or with stand-ins for a version of vLLM (test_vllm_connector.py).

usage: vllm_connector_halves.py [0.19.0|0.32.0] CASE...
"""

import random
import sys
import tempfile
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np

if sys.argv[1] in ("0.19.0", "0.32.0"):
    import oracle_vllm

    oracle_vllm.install(sys.argv.pop(1))

from vllm.v1.outputs import KVConnectorOutput

import quire
from quire.vllm._connector_costs import STALE_S, LoadCosts
from quire.vllm._connector_meta import WorkerMetadata
from quire.vllm._connector_keys import STORED, OffloadKeys, end_of_hit, first_needed, needed_keys
from quire.vllm._connector_options import options_of, windows_of
from quire.vllm._connector_scheduler import SchedulerHalf
from quire.vllm._connector_vllm import SUPPORTS_FAILED_REQUESTS as IS_NEWER
from quire.vllm._connector_vllm import ConnectorStats, check_supported, record_disk_transfers

BLOCK = 16


def raises(text, call, kind=ValueError):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
    else:
        raise AssertionError(f"nothing was raised; expected: {text}")


def options():
    """Unknown options and invalid values are refused by name."""
    size = {"cpu_bytes_to_use": 1 << 20}
    raises("option 'cpu_bytes' does not exist; use one of cpu_bytes_to_use, block_size,", lambda: options_of({"cpu_bytes": 5}))
    raises("cpu_bytes_to_use: is not set", lambda: options_of({}))
    raises("cpu_bytes_to_use: '8GB' is not a whole number", lambda: options_of({"cpu_bytes_to_use": "8GB"}))
    raises("policy: is 'guess'; use measured or exact", lambda: options_of({**size, "policy": "guess"}))
    raises("join_loads: 1 is not a boolean", lambda: options_of({**size, "join_loads": 1}))
    raises("block_size: True is not a whole number", lambda: options_of({**size, "block_size": True}))
    given = options_of({**size, "eviction_policy": "arc", "store_threshold": 2, "disk_path": "/x", "disk_bytes_to_use": 1, "disk_model_id": "m"})
    assert (given.policy, given.join_loads, given.early_loads, given.layer_by_layer) == ("measured", True, True, False)


def refusals():
    """Unsupported parts of this vLLM's caches are refused by name."""
    import torch
    from vllm.v1 import kv_cache_interface as kinds

    size = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}
    extra = {"cpu_bytes_to_use": 1 << 20}
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra),
    )

    def served(*specs, marked=(), **changes):
        groups = [SimpleNamespace(kv_cache_spec=spec, host_resident=False, enable_kv_transfer=True, is_eagle_group=spec in marked) for spec in specs]
        cache = SimpleNamespace(kv_cache_groups=groups, hisparse_host_num_blocks=None, hash_block_size=BLOCK)
        for name, value in changes.items():
            setattr(cache if hasattr(cache, name) else groups[0], name, value)
        windows = windows_of(config, cache, extra)
        check_supported(config, cache, options_of(extra))
        return windows

    whole, window = kinds.FullAttentionSpec(**size), kinds.SlidingWindowSpec(**size, sliding_window=40)
    assert served(whole, window) == [0, 40]
    chunked = kinds.ChunkedLocalAttentionSpec(**size, attention_chunk_size=32)
    raises("does not support layers of ChunkedLocalAttentionSpec; it supports full attention and sliding windows", lambda: served(chunked))
    larger = kinds.FullAttentionSpec(**{**size, "block_size": 2 * BLOCK})
    raises("cache groups with different block sizes ([16, 32] tokens)", lambda: served(whole, larger))
    if not IS_NEWER:
        return
    later = "under vLLM 0.32.0; "
    raises(f"does not support HiSparse {later}leave it out", lambda: served(whole, hisparse_host_num_blocks=5))
    raises(f"cache groups that vLLM does not pass to connectors {later}use vLLM's", lambda: served(whole, enable_kv_transfer=False))
    raises(f"draft models with separate cache groups {later}", lambda: served(whole, window, marked=[window]))
    assert served(whole, marked=[whole]) == [0]
    raises(f"layers of RSWASpec {later}", lambda: served(kinds.RSWASpec(**size, rswa_window=40)))
    raises(f"layers of HiddenStateCacheSpec {later}", lambda: served(kinds.HiddenStateCacheSpec(**size)))
    wider = kinds.SlidingWindowSpec(**size, sliding_window=40, extra_retained_tokens=2)
    raises(f"sliding windows that keep more tokens than they attend to {later}", lambda: served(wider))
    raises(f"blocks of 16 tokens with a hash block size of 8 {later}", lambda: served(whole, hash_block_size=8))
    for name in ("canonical_layout", "offload_prompt_only", "self_describing_kv_events", "blocks_per_chunk", "cache_policy_module_path"):
        raises(f"option {name!r} does not exist; use one of", lambda: options_of({**extra, name: 1}))


def hits():
    """Compares the loadable prefix with its rule: all blocks of full attention, and of windows the blocks that they still cover."""
    rng = random.Random(4)
    for _ in range(3000):
        windows = [rng.choice([0, 0, 5, 16, 33, 64]) for _ in range(rng.randint(1, 3))]
        start, number = rng.randrange(4), rng.randrange(12)
        places = [[STORED if rng.random() < 0.8 else rng.choice([0, 2, 4]) for _ in range(number)] for _ in windows]
        right = start
        for end in range(start + 1, start + number + 1):
            seen = [range(max(start, first_needed(window, end * BLOCK, BLOCK)), end) for window in windows]
            if all(places[group][at - start] == STORED for group, own in enumerate(seen) for at in own):
                right = end
        assert end_of_hit(places, windows, start, BLOCK, (STORED,)) == right, (windows, start, places)
        assert set(needed_keys(places, windows, start, right, BLOCK)) <= {STORED}
    request = SimpleNamespace(block_hashes=[bytes([i]) * 32 for i in range(6)])
    names = OffloadKeys(2, 1)
    first, second = names.keys_by_group(request, 0, 6)
    assert first == request.block_hashes and not set(first) & set(second) and names.of(request, 1, 2, 4) == second[2:4]
    names.start_again()
    assert not set(names.of(request, 0, 0, 6)) & {*first, *second} and names.hashes(names.of(request, 0, 0, 6)) == first
    assert OffloadKeys(1, 2).of(request, 0, 0, 3) == request.block_hashes[1::2]
    short = OffloadKeys(1, 1)
    assert short.hashes(short.of(SimpleNamespace(block_hashes=[b"12345678"]), 0, 0, 1)) == [b"12345678"]


def costs():
    """A load that takes longer than computing is not started; unknown or old measurements are tried."""
    now = [0.0]
    measured = LoadCosts(lambda: now[0])
    assert measured.is_load_faster(1000, 10, 0), "nothing is measured"
    measured.begin_step(1, 1000, 1000)
    now[0] = 1.0
    measured.end_step(1)  # 1 ms per token
    assert measured.is_load_faster(1000, 10, 0), "no load is measured"
    measured.copied(10, 1.0)  # 100 ms per block
    assert measured.is_load_faster(1000, 10, 0) and not measured.is_load_faster(999, 10, 0) and not measured.is_load_faster(1000, 11, 0)
    assert measured.is_load_faster(1000, 5, 3), "the disk's speed is not measured"
    measured.add_disk_reads({"num_read": 10, "reading_s": 2.0})  # 200 ms per block
    assert measured.is_load_faster(1000, 6, 2) and not measured.is_load_faster(1000, 6, 3)
    now[0] += STALE_S + 1
    assert measured.is_load_faster(1, 10, 3), "an old measurement must be tried again"
    measured.begin_step(2, 64, 20)
    now[0] += 50
    measured.end_step(2)
    measured.copied(10, 1.0)
    assert not measured.is_load_faster(100, 5, 0), "a decode step must not affect the prefill speed"


def half_of(native, windows=(0,), **given):
    config = SimpleNamespace(parallel_config=SimpleNamespace(world_size=1), cache_config=SimpleNamespace(enable_prefix_caching=True))
    spec = SimpleNamespace(get_manager=lambda: SimpleNamespace(native=native), vllm_config=config, gpu_block_size=(BLOCK,) * len(windows),
                           block_size_factor=1)  # fmt: skip
    return SchedulerHalf(spec, list(windows), options_of({"cpu_bytes_to_use": 1, "policy": "exact", **given}))


def request_of(name, num_blocks, seed=0):
    hashes = [(seed * 1000 + i).to_bytes(4, "big") * 8 for i in range(num_blocks)]
    return SimpleNamespace(request_id=name, block_hashes=hashes, num_tokens=num_blocks * BLOCK + 3, num_prompt_tokens=num_blocks * BLOCK + 3,
                           num_computed_tokens=0)  # fmt: skip


def blocks_of(*ids):
    return SimpleNamespace(get_block_ids=lambda: tuple(list(own) for own in ids))


def plan_of(new=(), cached=()):
    """new: (request, block ids by group, tokens); cached: (request, new block ids by group or None, tokens)"""
    rows = [SimpleNamespace(req_id=one.request_id, block_ids=ids, num_computed_tokens=one.num_computed_tokens) for one, ids, _ in new]
    running = SimpleNamespace(req_ids=[one.request_id for one, _, _ in cached], new_block_ids=[ids for _, ids, _ in cached],
                              num_computed_tokens=[one.num_computed_tokens for one, _, _ in cached], resumed_req_ids=set())  # fmt: skip
    numbers = {one.request_id: number for one, _, number in (*new, *cached)}
    return SimpleNamespace(scheduled_new_reqs=rows, scheduled_cached_reqs=running, num_scheduled_tokens=numbers,
                           total_num_scheduled_tokens=sum(numbers.values()))  # fmt: skip


def over(*jobs, bad=()):
    return KVConnectorOutput(invalid_block_ids=set(bad), kv_connector_worker_meta=WorkerMetadata(over=Counter(jobs)))


def computed(half, request, ids, is_stored=True):
    """Runs a request's prompt to its end and finishes its stores."""
    assert half.match(request, 0) == (0, False)
    half.allocated(request, blocks_of(*ids), 0)
    meta = half.build_meta(plan_of(new=[(request, ids, request.num_tokens)]))
    held = half.finished(request)
    if is_stored:
        half.update(over(*(job.id for job in meta.stores)))
    return meta, held


def moves():
    """Stores, loads, writes to blocks that are being stored, and requests that share a load or wait for it."""
    half = half_of(quire.OffloadManager(32))
    meta, held = computed(half, request_of("a", 3), ([5, 6, 7, 8],), is_stored=False)
    assert held and [(job.blocks, job.slots) for job in meta.stores] == [([5, 6, 7], [0, 1, 2])]
    assert half.match(request_of("b", 3), 0) == (0, False), "the store is not finished"
    other = request_of("c", 2, seed=1)
    half.allocated(other, blocks_of([9, 6, 10]), 0)
    later = half.build_meta(plan_of(new=[(other, ([9, 6, 10],), other.num_tokens)]))
    assert later.fences == [meta.stores[0].id] and later.held == ["a"], "block 6 is written while it is being stored"
    half.update(over(meta.stores[0].id, later.stores[0].id))
    b, d = request_of("b", 3), request_of("d", 3)
    assert half.match(b, 0) == (3 * BLOCK, True) and half.match(d, BLOCK) == (2 * BLOCK, True)
    half.match(b, BLOCK)
    half.allocated(b, blocks_of([20, 21, 22]), 2 * BLOCK)
    loads = half.build_meta(plan_of()).loads
    assert [(job.blocks, job.slots, job.first) for job in loads] == [([21, 22], [1, 2], 1)]
    assert half.match(d, 0) == (3 * BLOCK, True), "the request must share the running load"
    half._joins_loads = False
    assert half.match(d, 0) == (None, False), "the request must wait until the load ends"
    half.update(over(loads[0].id))
    assert half.match(d, 0) == (3 * BLOCK, True)
    d.skip_reading_prefix_cache = True
    assert half.match(d, 0) == (0, False), "the request needs all rows of its prompt"
    d.skip_reading_prefix_cache = False
    half.reset()
    assert half.match(d, 0) == (0, False)
    for request in (b, other):
        half.finished(request)
    assert not half._requests and not half._jobs and not half._sources


def failures():
    """Blocks that fail to load are forgotten, computed blocks are stored again, and a request starts no third load."""
    half = half_of(quire.OffloadManager(32))
    computed(half, request_of("a", 4), ([5, 6, 7, 8, 9],))
    b = request_of("b", 4)
    assert half.match(b, 0) == (4 * BLOCK, True)
    half.allocated(b, blocks_of([20, 21, 22, 23]), 4 * BLOCK)
    half.update(over(half.build_meta(plan_of()).loads[0].id, bad=[22]))
    assert half.match(request_of("c", 4), 0) == (2 * BLOCK, True), "the third block is forgotten"
    b.num_computed_tokens = 2 * BLOCK
    half.allocated(b, blocks_of([20, 21, 22, 23, 24]), 0)
    meta = half.build_meta(plan_of(new=[(b, ([20, 21, 22, 23, 24],), 2 * BLOCK + 3)]))
    assert [job.blocks for job in meta.stores] == [[22]], "only this block is missing"
    half.update(over(meta.stores[0].id))
    assert half.match(request_of("c", 4), 0) == (4 * BLOCK, True)
    assert half.match(b, 0)[0] == 4 * BLOCK
    half.allocated(b, blocks_of([20, 21, 22, 23]), 4 * BLOCK)
    half.update(over(half.build_meta(plan_of()).loads[0].id, bad=[20, 21, 22, 23]))
    half.reset()
    computed(half, request_of("e", 4), ([5, 6, 7, 8, 9],))
    assert half.match(b, 0) == (0, False) and half.match(request_of("f", 4), 0)[0] == 4 * BLOCK


def lost():
    """A failed load of several groups is lost as a whole: its request starts from scratch, and its blocks are stored again."""
    half = half_of(quire.OffloadManager(64), windows=(0, 2 * BLOCK))
    computed(half, request_of("a", 4), ([5, 6, 7, 8, 9], [15, 16, 17, 18, 19]))
    b, again = request_of("b", 4), ([30, 31, 32, 33, 34], [40, 41, 42, 43, 44])
    assert half.match(b, 0) == (4 * BLOCK, True)
    half.allocated(b, blocks_of([20, 21, 22, 23], [0, 0, 24, 25]), 4 * BLOCK)
    load = half.build_meta(plan_of()).loads[0]
    assert load.blocks == [20, 21, 22, 23, 24, 25]
    half.update(KVConnectorOutput(kv_connector_worker_meta=WorkerMetadata(over=Counter([load.id]), failed_loads={load.id})))
    assert half.stats.counted()["failed_blocks"] == 6
    assert half.match(b, 0) == (0, False), "no block of the failed load may hit"
    half.allocated(b, blocks_of(*again), 0)
    meta = half.build_meta(plan_of(new=[(b, again, b.num_tokens)]))
    assert [job.blocks for job in meta.stores] == [[30, 31, 32, 42, 33, 43]], "the window stores its missing blocks too"
    half.update(over(meta.stores[0].id))
    assert half.match(request_of("c", 4), 0) == (4 * BLOCK, True)
    assert half._requests["b"].num_failed == 1 and half.match(b, 0) == (4 * BLOCK, True), "a second load may begin"


def windows():
    """Loads only blocks that a window still covers, and does not store blocks that it has passed."""
    half = half_of(quire.OffloadManager(64), windows=(0, 2 * BLOCK))
    a = request_of("a", 6)
    half.match(a, 0)
    half.allocated(a, blocks_of([], []), 0)
    first = half.build_meta(plan_of(new=[(a, ([1, 2, 3, 4], [11, 12, 13, 14]), 4 * BLOCK)]))
    assert first.stores[0].blocks == [1, 11, 2, 12, 3, 13, 4, 14]
    half.update(over(first.stores[0].id))
    a.num_computed_tokens = 4 * BLOCK
    second = half.build_meta(plan_of(cached=[(a, ([5, 6, 7], [15, 16, 17]), 2 * BLOCK + 3)]))
    half.update(over(second.stores[0].id))
    b = request_of("b", 6)
    assert half.match(b, 0) == (6 * BLOCK, True)
    half.allocated(b, blocks_of([21, 22, 23, 24, 25, 26], [0, 0, 0, 0, 35, 36]), 6 * BLOCK)
    load = half.build_meta(plan_of()).loads[0]
    assert load.blocks == [21, 22, 23, 24, 25, 26, 35, 36]
    half.update(over(load.id))


def tiers_over(folder, numbers, slots=16):
    """Returns tiers whose folder has the blocks, while host memory has others."""
    pages, written = np.zeros((slots, 100), np.uint8), np.zeros(slots, np.uint64)
    tiers = quire._core.TieredOffload(num_slots=slots, pages=[pages], written=[written], folder=folder, budget_bytes=1 << 20, fingerprint=b"f" * 32)
    for some in (numbers, range(1000, 1000 + slots)):
        keys, at, marks, _ = tiers.prepare_store([number.to_bytes(4, "big") * 8 for number in some])
        quire._core.mark_written(written, at, marks)
        tiers.complete_store(keys)
        wait(lambda: tiers.stats()["num_written"] >= len(numbers))
    return tiers


def wait(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def early():
    """Loads a queued request's blocks from disk before they are looked up, one after the other and using at most a quarter of host memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        tiers = tiers_over(folder, range(4))
        request = request_of("a", 4)
        half = half_of(tiers, early_loads=False)
        half.on_queued(request)
        half.build_meta(plan_of())
        assert tiers.stats()["num_read"] == 0 and list(tiers.find(request.block_hashes)) == [4] * 4
        half = half_of(tiers)
        half.on_queued(request_of("long", 5, seed=7))  # none of its blocks is stored
        half.on_queued(request)
        half.build_meta(plan_of())
        wait(lambda: list(tiers.find(request.block_hashes)) == [1] * 4)
        assert half.match(request, 0) == (4 * BLOCK, True), "the lookup must not ask to retry"
        assert half.stats.counted() == {"early_blocks": 4}
        half.finished(request)
        assert not half._early and not half._early_blocks
        tiers.close()
    with tempfile.TemporaryDirectory() as folder:
        tiers = tiers_over(folder, range(5))
        half = half_of(tiers)
        half.on_queued(request_of("a", 5))
        half.build_meta(plan_of())
        assert tiers.stats()["num_read"] == 0 and half._early, "five blocks are more than a quarter of sixteen"
        assert half.match(request_of("a", 5), 0) == (None, False), "the blocks are loaded when the request is looked up"
        tiers.close()


def metrics():
    """The counters of both halves are merged, with the names of vLLM's logs and metrics."""
    from prometheus_client import CollectorRegistry, Counter as PromCounter, Gauge, Histogram, generate_latest

    from quire.vllm._connector_vllm import ConnectorPromMetrics

    worker, scheduler, third = ConnectorStats(), ConnectorStats(), ConnectorStats()
    worker.record_transfer(100, 0.5, ("CPU", "GPU"))
    scheduler.count("joined_loads", 2)
    scheduler.record_transfer(50, 0.25, ("CPU", "GPU"))
    third.count("joined_loads", 1)
    before = dict.fromkeys(["bytes_read", "reading_s", "bytes_written", "num_refused", "num_failed", "num_dropped"], 0)
    record_disk_transfers(third, before | {"bytes_read": 30, "reading_s": 0.5}, before)
    both = worker.aggregate(scheduler)
    both.aggregate(ConnectorStats(data=third.data))
    least = ConnectorStats()
    record_disk_transfers(least, before | {"bytes_read": 1, "reading_s": 0.25}, {})
    assert least.reduce()["vllm:kv_offload_disk_read_bytes" if IS_NEWER else "DISK_to_CPU_total_bytes"] == 1
    assert IS_NEWER or least.reduce()["DISK_to_CPU_total_time"] == 0.25
    load = "vllm:kv_offload_load_" if IS_NEWER else "CPU_to_GPU_total_"
    told = both.reduce()
    assert both.counted() == {"joined_loads": 3} and told[f"{load}bytes"] == 150 and told[f"{load}time"] == 0.75
    registry = CollectorRegistry()
    types = {kind: (lambda kind=kind: lambda **given: kind(registry=registry, **given))() for kind in (Gauge, PromCounter, Histogram)}
    config = SimpleNamespace(kv_transfer_config=SimpleNamespace(kv_connector_extra_config={}))
    prom = ConnectorPromMetrics(config, types, ["engine"], {0: ["0"]})
    prom.observe(both.data)
    text = generate_latest(registry).decode()
    disk = "disk_read_bytes_total{" if IS_NEWER else 'total_bytes_total{engine="0",transfer_type="DISK_to_CPU"}'
    for line in ('quire_joined_loads_total{engine="0"} 3.0', 'total_bytes_total{engine="0",transfer_type="CPU_to_GPU"} 150.0', disk):
        assert f"vllm:kv_offload_{line}" in text, text


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
