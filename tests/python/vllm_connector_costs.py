"""Tests when quire.vllm.Connector declines slow loads, with stand-ins for vLLM: its measurements of steps, copies and reads.

usage: vllm_connector_costs.py VERSION CASE...
"""

import sys
import tempfile

from vllm_connector_halves import BLOCK, blocks_of, computed, half_of, over, plan_of, request_of, tiers_over, wait

import quire
from quire.vllm._connector_costs import STALE_S, AlwaysLoad, CostPerItem, LoadCosts
from quire.vllm._connector_meta import WorkerMetadata
from vllm.v1.outputs import KVConnectorOutput


def declined():
    """With the policy `measured` a slow load is declined and counted when the request is admitted."""
    half = half_of(quire.OffloadManager(32), policy="measured")
    computed(half, request_of("a", 4), ([1, 2, 3, 4, 5],))
    now = [0.0]
    half.costs = LoadCosts(lambda: now[0])
    half.costs.begin_step(90, 1000, 1000)
    now[0] = 1.0
    half.costs.end_step(90)
    half.update(KVConnectorOutput(kv_connector_worker_meta=WorkerMetadata(copies=[(1, 0.02)])))  # a block takes 20 ms, to compute it 16 ms
    b = request_of("b", 4)
    assert half.match(b, 0) == (0, False) and half.stats.counted() == {}
    half.allocated(b, blocks_of([20, 21, 22, 23, 24]), 0)
    assert half.stats.counted() == {"declined_tokens": 4 * BLOCK}
    half.update(KVConnectorOutput(kv_connector_worker_meta=WorkerMetadata(copies=[(1, 0.0)] * 20)))
    c = request_of("c", 4)
    assert half.match(c, BLOCK) == (3 * BLOCK, True)
    half.allocated(c, blocks_of([20, 21, 22, 23]), 3 * BLOCK)
    assert half.stats.counted() == {"declined_tokens": 4 * BLOCK, "loaded_tokens": 3 * BLOCK}
    # Loads in flight count: 9 blocks in flight and 4 more take longer than computing.
    half.costs.copied(1, 0.05)
    cost = half.costs._copy.seconds
    assert 4 * cost <= 4 * BLOCK * 0.001 < 7 * cost, "three blocks are being loaded"
    assert half.match(request_of("d", 4), 0) == (0, False)
    half._loading.clear()
    assert half.match(request_of("d", 4), 0) == (4 * BLOCK, True)


def measured():
    """Steps are measured by their prompt tokens, from the end of the step before; small or mostly decoding steps are not."""
    half = half_of(quire.OffloadManager(32), policy="measured")
    now = [0.0]
    half.costs = LoadCosts(lambda: now[0])
    a = request_of("a", 8)
    half.allocated(a, blocks_of([]), 0)
    half.build_meta(plan_of(new=[(a, ([*range(1, 10)],), 100)]))
    now[0] = 2.0
    half.update(KVConnectorOutput(kv_connector_worker_meta=WorkerMetadata(step=1)))
    assert half.costs._compute.seconds == 0.02
    a.num_computed_tokens = 100
    half.build_meta(plan_of(cached=[(a, None, 60)]))  # 31 of the 60 tokens are the prompt's
    assert not half.costs._steps
    a.num_computed_tokens = 131
    half.build_meta(plan_of(cached=[(a, None, 5)]))
    assert not half.costs._steps
    assert type(half_of(quire.OffloadManager(2)).costs) is AlwaysLoad and AlwaysLoad().is_load_faster(0, 10**9, 10**9)

    costs = LoadCosts(lambda: now[0])
    now[0] = 10.0
    costs.begin_step(5, 64, 32)
    costs.begin_step(6, 64, 32)
    costs.begin_step(7, 64, 31)
    costs.begin_step(8, 65, 32)
    assert set(costs._steps) == {5, 6}
    now[0] = 11.0
    costs.end_step(5)
    now[0] = 13.0
    costs.end_step(6)
    assert abs(costs._compute.seconds - (0.7 * 1 / 32 + 0.3 * 2 / 32)) < 1e-12, "the second step begins when the first is over"
    costs.begin_step(9, 64, 64)
    costs.begin_step(10, 64, 64)
    costs.begin_step(11, 64, 64)
    costs.end_step(10)
    assert set(costs._steps) == {11}, "steps before an ended one are over"
    costs.end_step(99)
    assert costs._compute.seconds < 0.04 and not costs._steps

    one = CostPerItem()
    one.add(0, 1.0, 5.0)
    one.add(-1, 1.0, 5.0)
    one.add(1, -0.5, 5.0)
    assert one.known(5.0) is None
    one.add(2, 0.0, 5.0)
    assert one.known(5.0) == 0.0 and one.known(5.0 + STALE_S, STALE_S) == 0.0 and one.known(5.1 + STALE_S, STALE_S) is None
    one.add(2, 2.0, 6.0)
    assert abs(one.known(1e9) - 0.3) < 1e-12 and one.at == 6.0

    known = LoadCosts(lambda: now[0])
    known.begin_step(1, 100, 100)
    now[0] += 1.0
    known.end_step(1)  # 10 ms per token
    assert not known.is_load_faster(-1, 0, 0) and known.is_load_faster(0, 0, 0), "a load of nothing costs nothing"
    known.add_disk_reads({"num_read": 4, "reading_s": 0.4})
    assert known.is_load_faster(10, 0, 1) and not known.is_load_faster(9, 0, 1) and known.is_load_faster(0, 1, 1), "copies are not measured"
    known.add_disk_reads({"num_read": 5, "reading_s": 0.9})  # one more read of 0.5 s
    assert abs(known._read.seconds - (0.7 * 0.1 + 0.3 * 0.5)) < 1e-12
    known.add_disk_reads({"num_read": 5, "reading_s": 0.9})
    assert abs(known._read.seconds - 0.22) < 1e-12


def below():
    """Blocks on disk: the request waits while they are read, blocks that are stored stay meanwhile, and slow reads are declined."""
    with tempfile.TemporaryDirectory() as folder:
        tiers = tiers_over(folder, range(4))
        half = half_of(tiers)
        a = request_of("a", 6)
        assert half.match(a, 0) == (None, False)
        wait(lambda: list(tiers.find(a.block_hashes)) == [1, 1, 1, 1, 0, 0])
        assert half.match(a, 0) == (4 * BLOCK, True) and half.match(a, 3 * BLOCK) == (BLOCK, True)
        half.match(a, 0)
        half.allocated(a, blocks_of([1, 2, 3, 4, 5, 6]), 4 * BLOCK)
        half.update(over(half.build_meta(plan_of()).loads[0].id))
        half.finished(a)
        tiers.close()
    with tempfile.TemporaryDirectory() as folder:
        tiers = tiers_over(folder, range(4))
        half = half_of(tiers, policy="measured")
        costs = half.costs = LoadCosts(lambda: 100.0)
        costs._compute.add(1000, 1.0, 100.0)
        costs._copy.add(1, 0.0, 100.0)
        costs._read.add(1, 0.05, 100.0)  # 50 ms to read a block, 16 ms to compute it
        b = request_of("b", 4)
        assert half.match(b, 0) == (0, False) and tiers.stats()["num_read"] == 0, "slower than computing: nothing is read"
        half.on_queued(b)
        half.build_meta(plan_of())
        assert tiers.stats()["num_read"] == 0 and not half._early and not half._early_blocks
        costs._read.seconds = 0.001
        assert half.match(b, 0) == (None, False)
        wait(lambda: list(tiers.find(b.block_hashes)) == [1] * 4)
        half.build_meta(plan_of())
        assert costs._disk == (4, tiers.stats()["reading_s"]), "the disk's reads are measured each step"
        tiers.close()


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
