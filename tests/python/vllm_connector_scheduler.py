"""Tests the scheduler's half of quire.vllm.Connector with stand-ins for vLLM: when it loads, waits and stores, beyond the cases of
vllm_connector_halves.py.

usage: vllm_connector_scheduler.py VERSION CASE...
"""

import sys
import tempfile
from collections import Counter
from types import SimpleNamespace

from vllm_connector_halves import BLOCK, blocks_of, computed, half_of, over, plan_of, request_of, tiers_over, wait

import quire
from quire.vllm._connector_keys import OffloadKeys
from quire.vllm._connector_meta import WorkerMetadata
from vllm.v1.outputs import KVConnectorOutput


def exact_request(name, num_blocks, seed=0):
    """A request whose prompt ends with its last block."""
    request = request_of(name, num_blocks, seed)
    request.num_tokens = request.num_prompt_tokens = num_blocks * BLOCK
    return request


def workers():
    """A job is over when all workers have ended it, and fails if it failed on one of them."""
    half = half_of(quire.OffloadManager(32))
    half._num_workers = 2
    meta, held = computed(half, request_of("a", 2), ([5, 6, 7],), is_stored=False)
    store = meta.stores[0].id
    assert held
    half.update(over(store))
    assert half.match(request_of("b", 2), 0) == (0, False) and set(half._requests) == {"a"} and half._sources == {5: store, 6: store}
    half.update(KVConnectorOutput(kv_connector_worker_meta=WorkerMetadata(over=Counter([store]), failed_stores={store})))
    assert half.match(request_of("b", 2), 0) == (0, False), "a failed store is not found"
    assert not half._requests and not half._sources and not half._jobs
    half.update(KVConnectorOutput())
    half.update(over())
    half._num_workers = 1
    computed(half, request_of("c", 2), ([5, 6, 7],))
    assert half.match(request_of("b", 2), 0) == (2 * BLOCK, True)


def tables():
    """Stores follow the block tables of new, running and resumed requests, and begin when a block is full."""
    half = half_of(quire.OffloadManager(32))
    a = request_of("a", 6)
    half.match(a, 0)
    half.allocated(a, blocks_of([]), 0)
    first = half.build_meta(plan_of(new=[(a, ([1, 2],), 2 * BLOCK - 1)]))
    assert [job.blocks for job in first.stores] == [[1]] and first.step == 1 and first.computes and first.loads == [] == first.held
    a.num_computed_tokens = 2 * BLOCK - 1
    second = half.build_meta(plan_of(cached=[(a, None, 1)]))
    assert [job.blocks for job in second.stores] == [[2]] and second.step == 2, "the second block is full now"
    a.num_computed_tokens = 2 * BLOCK
    third = half.build_meta(plan_of(cached=[(a, ([3],), BLOCK - 1)]))
    assert third.stores == [] and third.fences == []
    half.update(over(first.stores[0].id, second.stores[0].id))
    # The request is preempted, and resumed in other blocks. The cache had the first one, which is not written to.
    a.num_computed_tokens = BLOCK
    plan = plan_of(cached=[(a, ([9, 8, 7, 6],), 3 * BLOCK)])
    plan.scheduled_cached_reqs.resumed_req_ids = {"a"}
    half._sources = {9: 77, 8: 78}
    resumed = half.build_meta(plan)
    assert resumed.fences == [78] and [job.blocks for job in resumed.stores] == [[7, 6]], "two blocks are stored already"
    assert half._requests["a"].blocks == [[9, 8, 7, 6]]
    half._sources = {5: 79, 3: 80}
    a.num_computed_tokens = 4 * BLOCK
    assert half.build_meta(plan_of(cached=[(a, ([5],), 1)])).fences == [79], "a running request writes to its new block"
    a.num_computed_tokens, half._requests["a"].blocks = 6 * BLOCK, [[9, 8, 7, 6]]
    half._sources = {}
    idle = half.build_meta(plan_of())
    assert not idle.computes and idle.stores == []
    # With asynchronous scheduling a step has tokens that are not known yet. They fill no block.
    a.num_computed_tokens = 6 * BLOCK
    half.build_meta(plan_of(cached=[(a, ([5, 4],), 3)]))
    a.num_tokens, a.num_computed_tokens = 6 * BLOCK + 15, 6 * BLOCK + 15
    assert half.build_meta(plan_of(cached=[(a, ([3],), 1)])).stores == []


def room():
    """A store without room is tried again, and blocks that are in host memory already are not stored again."""
    manager = quire.OffloadManager(2)
    half = half_of(manager)
    a = request_of("a", 3)
    half.match(a, 0)
    half.allocated(a, blocks_of([]), 0)
    assert half.build_meta(plan_of(new=[(a, ([1, 2, 3],), 3 * BLOCK)])).stores == [], "three blocks do not fit into two slots"
    assert half._requests["a"].next_stored == 0 and not half._requests["a"].stores
    half.finished(a)
    meta, _ = computed(half, request_of("b", 2), ([1, 2, 3],))
    assert [job.blocks for job in meta.stores] == [[1, 2]]
    c = request_of("c", 2)
    half.allocated(c, blocks_of([]), 0)
    assert half.build_meta(plan_of(new=[(c, ([4, 5, 6],), c.num_tokens)])).stores == [] and half._requests["c"].next_stored == 2
    assert not half.finished(c) and not half._requests, "a request without transfers is not held"


def order():
    """Blocks of looked up prompts are evicted last, and the end of a prompt before its beginning."""
    manager = quire.OffloadManager(4)
    half = half_of(manager)
    computed(half, request_of("a", 2), ([1, 2, 3],))
    computed(half, request_of("b", 2, seed=1), ([1, 2, 3],))
    half.match(request_of("x", 2), 0)
    computed(half, request_of("c", 1, seed=2), ([1, 2],))
    a, b = request_of("a", 2).block_hashes, request_of("b", 2, seed=1).block_hashes
    assert list(manager.find([*a, *b])) == [1, 1, 1, 0], "a was looked up after b was stored"
    request = request_of("x", 2)
    request.skip_reading_prefix_cache = True
    half.match(request, 0)
    computed(half, request_of("d", 2, seed=3), ([1, 2, 3],))
    assert list(manager.find([*a, *b])) == [1, 0, 0, 0], "a request that reads no cache touches nothing"
    used = quire.OffloadManager(4, "arc_paper")
    half = half_of(used)
    computed(half, request_of("a", 2), ([1, 2, 3],))
    assert used.lists[:2] == [a, []]
    again = request_of("b", 2)
    half.match(again, 0)
    half.allocated(again, blocks_of([7, 8]), 2 * BLOCK)
    assert used.lists[0] == [] and sorted(used.lists[1]) == a, "an admitted request uses its blocks"


def filtered():
    """With store_threshold only blocks that were looked up often enough are stored; a lookup counts once per block."""
    manager = quire.OffloadManager(8, store_threshold=2)
    half = half_of(manager)
    a = request_of("a", 3)
    half.match(request_of("x", 3), 0)
    assert [count for _, count in manager.counted] == [1, 1, 1]
    half.allocated(a, blocks_of([]), 0)
    assert half.build_meta(plan_of(new=[(a, ([1, 2, 3, 4],), a.num_tokens)])).stores == []
    half.finished(a)
    assert half.match(request_of("x", 2), 2 * BLOCK) == (0, False), "all of it is in the cache"
    assert [count for _, count in manager.counted] == [1, 1, 1], "a prompt with nothing to load is not counted"
    half.match(request_of("x", 3), 2 * BLOCK + 1)
    assert [count for _, count in manager.counted] == [1, 1, 1], "less than a block is left to load"
    half.match(request_of("x", 3), 2 * BLOCK)
    assert dict(manager.counted) == dict(zip(a.block_hashes, [1, 1, 2])), "blocks that the cache has are not counted"
    b = request_of("b", 3)
    half.allocated(b, blocks_of([]), 0)
    assert [job.blocks for job in half.build_meta(plan_of(new=[(b, ([1, 2, 3, 4],), b.num_tokens)])).stores] == [[3]]


def ends():
    """An ended request is held only while it has stores; a request of the same name may follow immediately."""
    half = half_of(quire.OffloadManager(32))
    assert half.finished(request_of("unknown", 2)) is False
    meta, held = computed(half, request_of("a", 2), ([1, 2, 3],), is_stored=False)
    assert held and half.finished(request_of("a", 2)) is False, "it has ended already"
    again = request_of("a", 2, seed=1)
    half.match(again, 0)
    half.allocated(again, blocks_of([]), 0)
    assert half._requests["a"].request is again and not half._requests["a"].has_ended
    later = half.build_meta(plan_of(new=[(again, ([4, 5, 6],), again.num_tokens)]))
    assert later.held == ["a"] and [job.blocks for job in later.stores] == [[4, 5]]
    half.update(over(meta.stores[0].id))
    assert set(half._requests) == {"a"}, "the second request is in flight"
    assert half.build_meta(plan_of()).held == [], "a held request is reported to the workers once"
    half.finished(again)
    half.update(over(later.stores[0].id))
    assert not half._requests
    # vLLM keeps the blocks of a request that is being loaded.
    b = request_of("b", 2)
    half.match(b, 0)
    half.allocated(b, blocks_of([7, 8]), 2 * BLOCK)
    load = half.build_meta(plan_of()).loads[0]
    assert half.finished(b) is False and set(half._requests) == {"b"} and half._loading.total() == 2
    half.update(over(load.id))
    assert not half._requests and not half._loading.total()
    half._matched["c"] = half._early["c"] = half._early_blocks["c"] = 1
    half.finished(request_of("c", 2))
    assert not half._matched and not half._early and not half._early_blocks


def limits():
    """How much of a prompt can be loaded: whole blocks, and one token less with windows or layer by layer."""
    half = half_of(quire.OffloadManager(32))
    computed(half, request_of("a", 3), ([1, 2, 3, 4],))
    assert half.match(exact_request("b", 3), 0) == (3 * BLOCK, True)
    assert half.match(exact_request("b", 3), 2 * BLOCK + 5) == (0, False), "less than a block is left"
    assert half.match(exact_request("b", 3), 2 * BLOCK) == (BLOCK, True) and half.match(exact_request("b", 3), 3 * BLOCK) == (0, False)
    half = half_of(half.native, layer_by_layer=True)
    assert half.match(exact_request("b", 3), 0) == (2 * BLOCK, False) and half.match(request_of("b", 3), 0) == (3 * BLOCK, False)
    half = half_of(quire.OffloadManager(32), windows=(0, 2 * BLOCK))
    computed(half, request_of("a", 3), ([1, 2, 3, 4], [11, 12, 13, 14]))
    assert half.match(exact_request("b", 3), 0) == (2 * BLOCK, True) and half.match(request_of("b", 3), 0) == (3 * BLOCK, True)
    empty = SimpleNamespace(request_id="e", block_hashes=[], num_tokens=0, num_prompt_tokens=0, num_computed_tokens=0)
    assert half.match(empty, 0) == (0, False)


def sized(half, factor):
    """Returns the half with offloaded blocks of several cache blocks."""
    half._factor, half._tokens, half._keys = factor, factor * BLOCK, OffloadKeys(len(half._windows), factor)
    return half


def larger():
    """Offloaded blocks of two cache blocks: stores wait for both, a load begins where the cache ends, and failures drop whole slots."""
    half = sized(half_of(quire.OffloadManager(32)), 2)
    meta, _ = computed(half, request_of("a", 5), ([1, 2, 3, 4, 5, 6],))
    assert [(job.blocks, job.slots) for job in meta.stores] == [([1, 2, 3, 4], [0, 1])]
    b = request_of("b", 5)
    assert half.match(b, BLOCK) == (3 * BLOCK, True) and half.match(b, 3 * BLOCK) == (0, False)
    long = request_of("long", 9)
    assert half.match(long, 0) == (4 * BLOCK, True)
    half.allocated(long, blocks_of([*range(20, 30)]), 4 * BLOCK)
    assert half.build_meta(plan_of()).loads[0].slots == [0, 1] and half._requests["long"].next_stored == 2, "the rest is not in host memory"
    half.update(over(half._last_job))
    half.finished(long)
    half.match(b, BLOCK)
    half.allocated(b, blocks_of([20, 21, 22, 23, 24]), 3 * BLOCK)
    load = half.build_meta(plan_of()).loads[0]
    assert (load.blocks, load.slots, load.first) == ([21, 22, 23], [0, 1], 1) and half._requests["b"].next_stored == 2
    half.update(over(load.id, bad=[22]))
    assert half.stats.counted() == {"loaded_tokens": 7 * BLOCK, "failed_blocks": 1}
    assert half._requests["b"].next_stored == 1 and half.match(request_of("c", 5), 0) == (2 * BLOCK, True), "the first slot is still good"
    b.num_computed_tokens = 2 * BLOCK
    again = half.build_meta(plan_of(new=[(b, ([20, 21, 22, 23, 24, 25],), b.num_tokens - 2 * BLOCK)]))
    assert [job.blocks for job in again.stores] == [[22, 23]]
    half.update(over(again.stores[0].id))
    assert half.match(request_of("c", 5), 0) == (4 * BLOCK, True)


def shared():
    """Loads of the same blocks: each is counted; a failed block is not found, and is dropped when its last load is over."""
    half = half_of(quire.OffloadManager(32))
    computed(half, request_of("a", 2), ([1, 2, 3],))
    b, c = request_of("b", 2), request_of("c", 2)
    for request, ids in ((b, [20, 21]), (c, [30, 31])):
        assert half.match(request, 0) == (2 * BLOCK, True)
        half.allocated(request, blocks_of(ids), 2 * BLOCK)
    assert half.stats.counted() == {"loaded_tokens": 4 * BLOCK, "joined_loads": 1}
    first, second = half.build_meta(plan_of()).loads
    half.update(over(first.id, bad=[20, 99]))
    key = request_of("a", 1).block_hashes[0]
    assert half._failed_keys == {key} and list(half.native.find([key])) == [1], "c is still loading it"
    assert half.match(request_of("d", 2), 0) == (0, False)
    half.update(over(second.id))
    assert not half._failed_keys and list(half.native.find([key])) == [0] and not half._loading
    # A request that must not join waits only for its own blocks.
    alone = half_of(quire.OffloadManager(32), join_loads=False)
    computed(alone, request_of("a", 2), ([1, 2, 3],))
    computed(alone, request_of("x", 2, seed=1), ([1, 2, 3],))
    alone.match(b := request_of("b", 2), 0)
    alone.allocated(b, blocks_of([20, 21]), 2 * BLOCK)
    assert alone.match(request_of("c", 2), 0) == (None, False) and alone.match(request_of("y", 2, seed=1), 0) == (2 * BLOCK, True)
    without = half_of(half.native)
    assert without._joins_loads is True and half_of(half.native, join_loads=False)._joins_loads is False


def queued():
    """Blocks of queued requests are read in the order of the queue, four requests per step, while a quarter of host memory has room."""
    with tempfile.TemporaryDirectory() as folder:
        tiers = tiers_over(folder, range(6), slots=16)
        half = half_of(tiers)
        wanted = [SimpleNamespace(**{**vars(request_of(f"r{i}", 1)), "block_hashes": [i.to_bytes(4, "big") * 8]}) for i in range(6)]
        hidden = SimpleNamespace(**{**vars(request_of("hidden", 4)), "skip_reading_prefix_cache": True})
        half.on_queued(hidden)
        assert not half._early, "a request that computes all of its prompt loads nothing"
        for request in wanted:
            half.on_queued(request)
        half.build_meta(plan_of())
        assert set(half._early) == {"r4", "r5"} and half._early_blocks == {f"r{i}": 1 for i in range(4)}
        assert half.stats.counted() == {"early_blocks": 4}
        half.build_meta(plan_of())
        assert set(half._early) == {"r4", "r5"}, "a quarter of 16 slots is full"
        half.allocated(wanted[0], blocks_of([1]), 0)
        assert "r0" not in half._early_blocks
        half.build_meta(plan_of())
        assert set(half._early) == {"r5"} and set(half._early_blocks) == {"r1", "r2", "r3", "r4"}
        half.match(wanted[5], 0)
        assert not half._early, "it is examined at its turn"
        wait(lambda: tiers.stats()["num_read"] >= 5)
        tiers.close()


def spared():
    """Loads begin after what all groups have, and a window's blocks that vLLM did not allocate are not loaded."""
    half = half_of(quire.OffloadManager(64), windows=(0, 3 * BLOCK))
    computed(half, request_of("a", 6), ([1, 2, 3, 4, 5, 6, 7], [11, 12, 13, 14, 15, 16, 17]))
    b = request_of("b", 6)
    assert half.match(b, 2 * BLOCK) == (4 * BLOCK, True)
    half.allocated(b, blocks_of([21, 22, 23, 24, 25, 26], [0, 0, 33, 34, 35, 36]), 4 * BLOCK)
    load = half.build_meta(plan_of()).loads[0]
    assert load.blocks == [23, 24, 25, 26, 33, 34, 35, 36] and load.first == 2, "vLLM takes allocated blocks as computed"
    half.update(over(load.id))
    c = request_of("c", 6)
    half.match(c, 0)
    half.allocated(c, blocks_of([21, 22, 23, 24, 25, 26], [0, 0, 0, 0, 0, 0]), 6 * BLOCK)
    assert half.build_meta(plan_of()).loads[0].blocks == [21, 22, 23, 24, 25, 26]
    # A block that the window has passed when the step begins is not stored.
    d = request_of("d", 6, seed=1)
    half.match(d, 0)
    half.allocated(d, blocks_of([], []), 0)
    d.num_computed_tokens = 5 * BLOCK
    meta = half.build_meta(plan_of(new=[(d, ([1, 2, 3, 4, 5, 6], [0, 0, 13, 14, 15, 16]), BLOCK)]))
    assert meta.stores[0].blocks == [1, 2, 3, 13, 4, 14, 5, 15, 6, 16]


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
