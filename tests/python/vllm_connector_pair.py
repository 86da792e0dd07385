"""Tests quire.vllm.Connector as a whole with stand-ins for vLLM: its scheduler half and its workers over KV caches of numpy. Every loaded
byte is compared.

usage: vllm_connector_pair.py VERSION CASE...
"""

import copy
import glob
import os
import sys
import tempfile
from collections import Counter
from types import SimpleNamespace

from vllm_connector_halves import IS_NEWER, blocks_of, plan_of, raises, wait

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.platforms import current_platform
from vllm.v1 import kv_cache_interface as kinds
from vllm.v1.outputs import KVConnectorOutput

from quire.vllm import Connector
from quire.vllm._connector_vllm import ConnectorStats
from quire.vllm._host_region import FOLDER, PREFIX

SIZE, NUM_BLOCKS, HEAD = 4, 32, 2  # tokens per block, blocks of the cache, size of a head
PAGE = 2 * SIZE * HEAD * 2  # bytes of a layer's block


def kv_config(windows=(0,), layers=2):
    groups, shape = [], {"block_size": SIZE, "num_kv_heads": 1, "head_size": HEAD, "dtype": torch.float16}
    for i, window in enumerate(windows):
        spec = kinds.SlidingWindowSpec(**shape, sliding_window=window) if window else kinds.FullAttentionSpec(**shape)
        groups.append(kinds.KVCacheGroupSpec([f"{i}.{layer}" for layer in range(layers)], spec))
    tensors = [kinds.KVCacheTensor(PAGE * NUM_BLOCKS, [f"{i}.{layer}" for i in range(len(windows))]) for layer in range(layers)]
    return kinds.KVCacheConfig(NUM_BLOCKS, tensors, groups)


def vllm_config(extra, world=1, rank=0, events=False, **changes):
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra, engine_id=f"test {os.getpid()} {id(extra)}"),
        parallel_config=SimpleNamespace(
            rank=rank, world_size=world, data_parallel_rank=0, data_parallel_index=0, data_parallel_size=1, tensor_parallel_size=world,
            pipeline_parallel_size=1, decode_context_parallel_size=1, prefill_context_parallel_size=1,
        ),
        cache_config=SimpleNamespace(
            block_size=SIZE, enable_prefix_caching=True, prefix_caching_hash_algo="sha256", cache_dtype="auto", kv_cache_layout="LBHNC"
        ),
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
        lora_config=None,
        load_config=SimpleNamespace(load_format="dummy"),
        model_config=SimpleNamespace(model="model", revision=None, dtype="float16", quantization=None,
                                     hf_config=SimpleNamespace(to_dict=lambda: {"hidden_size": 8})),
        speculative_config=None,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(config.parallel_config, name, value)
    return config


class Pair:
    """An engine: the scheduler's connector, one connector per worker, and vLLM's part, in which a step computes random bytes."""

    def __init__(self, windows=(0,), world=1, layers=2, slots=64, events=False, **options):
        # vLLM 0.32.0 rounds a chunk up to a page of memory.
        slot = PAGE * layers * world * options.get("block_size", SIZE) // SIZE
        extra = {"policy": "exact", "cpu_bytes_to_use": slots * (4096 if IS_NEWER else slot), **options}
        config, cache = vllm_config(extra, world, events=events), kv_config(windows, layers)
        self.layers, self.rng = [name for group in cache.kv_cache_groups for name in group.layer_names], np.random.default_rng(1)
        self.caches, self.workers = [], []
        for rank in range(world):
            own = copy.deepcopy(config)
            own.parallel_config.rank = rank
            own.kv_transfer_config.kv_connector_extra_config = extra
            self._current(own)
            worker = Connector(own, KVConnectorRole.WORKER, cache)
            kind = "cuda" if current_platform.kind == "cuda" else "cpu"
            caches = [torch.Tensor(np.zeros((NUM_BLOCKS, 2, SIZE, HEAD), np.float16), device=kind) for _ in range(layers)]
            worker.register_kv_caches({name: caches[int(name.split(".")[1])] for name in self.layers})
            self.caches.append([tensor.array.view(np.uint8).reshape(NUM_BLOCKS, PAGE) for tensor in caches])
            self.workers.append(worker)
        self.scheduler = Connector(config, KVConnectorRole.SCHEDULER, cache)
        self.half = self.scheduler.scheduler_half
        self.sent, self.received, self.failed, self.seen = set(), set(), set(), {}
        self.num_sent, self.num_received = Counter(), Counter()

    @staticmethod
    def _current(config):
        if IS_NEWER:
            from oracle_vllm.offload_newer import Config

            Config.current = config

    def step(self, new=(), cached=(), writes=()):
        """Runs a step that computes the blocks `writes`. Returns its metadata."""
        meta = self.scheduler.build_connector_meta(plan_of(new, cached))
        told, sent, received, failed, bad = None, [], [], set(), set()
        for worker, caches in zip(self.workers, self.caches):
            worker.bind_connector_metadata(meta)
            worker.handle_preemptions(meta)
            worker.start_load_kv(None)
            for name in self.layers:
                worker.wait_for_layer_load(name)
                self.seen[name] = caches[int(name.split(".")[1])].copy()
                worker.save_kv_layer(name, None, None)
            for tensor in caches:
                tensor[list(writes)] = self.rng.integers(0, 256, (len(writes), PAGE), np.uint8)
            worker.wait_for_save()
            if IS_NEWER:
                results = worker.get_transfer_results(set())
                own = results.finished_sending, results.finished_recving
                failed |= results.failed_recving
            else:
                own = worker.get_finished(set())
            sent.append(own[0]), received.append(own[1])
            bad |= worker.get_block_ids_with_load_errors()
            mine = worker.build_connector_worker_meta()
            told = mine if told is None else told if mine is None else told.aggregate(mine)
            worker.clear_connector_metadata()
        self.failed |= failed
        for reported, counts, told_by in ((self.sent, self.num_sent, sent), (self.received, self.num_received, received)):
            counts.update(name for own in told_by for name in own)
            reported |= {name for name, number in counts.items() if number == len(self.workers)}  # as vLLM counts them
        self.scheduler.update_connector_output(KVConnectorOutput(kv_connector_worker_meta=told, invalid_block_ids=bad))
        return meta

    def until(self, condition):
        def stepped():
            if condition():
                return True
            self.step()
            return condition()

        wait(stepped)

    def compute(self, request, *ids):
        """Computes a request's prompt, stores its blocks and ends it. Returns the computed bytes by worker and tensor."""
        num, waits = self.scheduler.get_num_new_matched_tokens(request, 0)
        assert (num, waits) == (0, False)
        self.scheduler.update_state_after_alloc(request, blocks_of(*ids), 0)
        self.step(new=[(request, [list(own) for own in ids], request.num_tokens)], writes=[block for own in ids for block in own])
        computed = [[tensor.copy() for tensor in caches] for caches in self.caches]
        name = request.request_id
        held = self.end(request)
        self.until(lambda: name not in self.half._requests)
        if held:
            self.until(lambda: name in self.sent)
        return computed

    def end(self, request) -> bool:
        held, params = self.scheduler.request_finished_all_groups(request, ([],))
        assert params is None
        return held

    def load(self, request, num_local, *ids):
        """Loads what is found after num_local tokens into the blocks. Returns the number of tokens."""
        num, waits = self.scheduler.get_num_new_matched_tokens(request, num_local)
        assert num and waits
        self.scheduler.update_state_after_alloc(request, blocks_of(*ids), num)
        self.step()
        self.until(lambda: request.request_id in self.received)
        return num

    def close(self):
        if self.half.has_disk:
            self.half.native.close()

    def stats(self) -> dict:
        """Returns the totals of both halves, under the names of vLLM's logs."""
        total = ConnectorStats()
        for part in (self.scheduler, *self.workers):
            if (own := part.get_kv_connector_stats()) is not None:
                total = total.aggregate(Connector.build_kv_connector_stats(own.data))
        return total.reduce()


def request_of(name, num_blocks, seed=0):
    tokens = num_blocks * SIZE + 2
    hashes = [(seed * 1000 + i + 1).to_bytes(4, "big") * 8 for i in range(num_blocks)]
    return SimpleNamespace(request_id=name, block_hashes=hashes, num_tokens=tokens, num_prompt_tokens=tokens, num_computed_tokens=0)


def same(pair, computed, to, of):
    for caches, old in zip(pair.caches, computed):
        for tensor, own in zip(caches, old):
            if not (tensor[list(to)] == own[list(of)]).all():
                return False
    return True


def loads():
    """Loaded blocks have the bytes that were computed; other blocks stay; nothing is left over."""
    for world in (1, 2):
        pair = Pair(world=world)
        computed = pair.compute(request_of("a", 4), [3, 4, 5, 6, 7])
        assert pair.sent == {"a"}, "the blocks of an ended request are held until they are stored"
        for caches in pair.caches:
            for tensor in caches:
                tensor[:] = 7
        b = request_of("b", 4)
        assert pair.load(b, SIZE, [20, 21, 22, 23]) == 3 * SIZE and pair.received == {"b"}
        assert same(pair, computed, [21, 22, 23], [4, 5, 6])
        untouched = [block for block in range(NUM_BLOCKS) if block not in (21, 22, 23)]
        assert all((tensor[untouched] == 7).all() for caches in pair.caches for tensor in caches)
        assert not pair.end(b) and not pair.half._jobs and not pair.half._requests and not pair.half._loading.total()
        seen = pair.stats()
        load, store = ("vllm:kv_offload_load_", "vllm:kv_offload_store_") if IS_NEWER else ("CPU_to_GPU_total_", "GPU_to_CPU_total_")
        name = "vllm:kv_offload_quire_loaded_tokens" if IS_NEWER else "loaded_tokens"
        assert (seen[f"{load}bytes"], seen[f"{store}bytes"]) == (world * 3 * 2 * PAGE, world * 4 * 2 * PAGE) and seen[name] == 3 * SIZE
        assert pair.stats() == {} and pair.scheduler.get_kv_connector_stats() is None


def sizes():
    """Offloaded blocks of two cache blocks: a load may begin in the middle of its first one."""
    pair = Pair(block_size=2 * SIZE)
    assert pair.half._tokens == 2 * SIZE
    computed = pair.compute(request_of("a", 5), [3, 4, 5, 6, 7, 8])
    assert pair.load(request_of("b", 5), SIZE, [20, 21, 22, 23]) == 3 * SIZE, "the fifth block is half of an offloaded block"
    assert same(pair, computed, [21, 22, 23], [4, 5, 6])
    assert pair.load(request_of("c", 5), 0, [10, 11, 12, 13]) == 4 * SIZE
    assert same(pair, computed, [10, 11, 12, 13], [3, 4, 5, 6])
    assert pair.scheduler.get_num_new_matched_tokens(request_of("d", 5), 3 * SIZE) == (0, False), "less than an offloaded block"


def windows():
    """A load of a group with a window covers only the window's blocks, and fills its tensors' blocks."""
    pair = Pair(windows=(0, 2 * SIZE))
    computed = pair.compute(request_of("a", 4), [3, 4, 5, 6, 7], [13, 14, 15, 16, 17])
    assert pair.load(request_of("b", 4), 0, [20, 21, 22, 23], [0, 0, 28, 29]) == 4 * SIZE
    assert same(pair, computed, [20, 21, 22, 23, 28, 29], [3, 4, 5, 6, 15, 16])


def layers():
    """Layer by layer: the step begins without waiting, and before each layer its blocks are there."""
    pair = Pair(layer_by_layer=True)
    computed = pair.compute(request_of("a", 4), [3, 4, 5, 6, 7])
    b = request_of("b", 4)
    assert pair.scheduler.get_num_new_matched_tokens(b, SIZE) == (3 * SIZE, False)
    pair.scheduler.update_state_after_alloc(b, blocks_of([20, 21, 22, 23, 24]), 3 * SIZE)
    b.num_computed_tokens = 4 * SIZE
    pair.step(new=[(b, [[20, 21, 22, 23, 24]], 2)])
    for i, name in enumerate(pair.layers):
        assert (pair.seen[name][[21, 22, 23]] == computed[0][i][[4, 5, 6]]).all(), f"layer {name} must wait for its blocks"
    assert not pair.received and not pair.half._loading.total(), "the load is over with the step"
    exact = SimpleNamespace(**{**vars(request_of("c", 4)), "num_tokens": 4 * SIZE, "num_prompt_tokens": 4 * SIZE})
    assert pair.scheduler.get_num_new_matched_tokens(exact, 0) == (3 * SIZE, False), "a step needs a token to compute"


def failed():
    """A load that fails on one worker is reported; its request starts from scratch or computes the bad blocks, which are stored again."""
    pair = Pair(world=2)
    pair.compute(request_of("a", 3), [3, 4, 5, 6])
    copies = pair.workers[1].worker_half.copies
    load, copies.load = copies.load, lambda job: False
    b = request_of("b", 3)
    assert pair.load(b, 0, [20, 21, 22]) == 3 * SIZE
    copies.load = load
    assert pair.half.stats.counted()["failed_blocks"] == 3 and pair.scheduler.get_num_new_matched_tokens(request_of("c", 3), 0) == (0, False)
    pair.scheduler.update_state_after_alloc(b, blocks_of([20, 21, 22, 23]), 0)
    meta = pair.step(new=[(b, [[20, 21, 22, 23]], b.num_tokens)], writes=[20, 21, 22])
    assert [job.blocks for job in meta.stores] == [[20, 21, 22]]
    computed = [[tensor.copy() for tensor in caches] for caches in pair.caches]
    pair.until(lambda: not pair.half._jobs)
    pair.load(request_of("d", 3), 0, [10, 11, 12])
    assert same(pair, computed, [10, 11, 12], [20, 21, 22])


def events():
    """With KV events the hashes of stored and evicted blocks are reported, each once; a reset reports all as removed."""
    pair = Pair(events=True, slots=4)
    told = lambda: [(type(one).__name__, one.block_hashes) for one in pair.scheduler.take_events()]  # noqa: E731
    a, b = request_of("a", 3), request_of("b", 2, seed=1)
    pair.compute(a, [3, 4, 5, 6])
    first = list(pair.scheduler.take_events())
    assert [(type(one).__name__, one.block_hashes) for one in first] == [("BlockStored", a.block_hashes)] and told() == []
    assert (first[0].block_size, first[0].medium, first[0].token_ids) == (SIZE, "CPU", [])
    assert (first[0].parent_block_hash, first[0].lora_id, first[0].lora_name) == (None, None, None)
    pair.compute(b, [3, 4, 5])
    removed, stored = told()
    assert removed == ("BlockRemoved", [a.block_hashes[2]]) and stored == ("BlockStored", b.block_hashes), "the last block is evicted first"
    assert pair.scheduler.reset_cache() is True
    (kind, hashes), = told()
    assert kind == "BlockRemoved" and sorted(hashes) == sorted([*a.block_hashes[:2], *b.block_hashes])
    assert pair.scheduler.reset_cache() is True and told() == []
    pair.compute(request_of("c", 4, seed=2), [3, 4, 5, 6, 7])
    assert [kind for kind, _ in told()] == ["BlockStored"], "blocks from before a reset were reported as removed already"
    assert list(Pair().scheduler.take_events()) == []


def disk():
    """Blocks in the folder outlive the engine, for the same model only, and are read before they are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"disk_path": folder, "disk_bytes_to_use": 1 << 20}
        pair = Pair(world=2, slots=4, **options)
        assert glob.glob(f"{FOLDER}/{PREFIX}*") == [], "the scheduler removes the names of the workers' memory"
        a = request_of("a", 3)
        computed = pair.compute(a, [3, 4, 5, 6])
        wait(lambda: pair.half.native.stats()["num_written"] == 3)
        written = 3 * 2 * 2 * PAGE
        name = "vllm:kv_offload_disk_written_bytes" if IS_NEWER else "CPU_to_DISK_total_bytes"
        assert pair.stats()[name] == pair.half.native.stats()["bytes_written"] >= written and name not in pair.stats()
        pair.close()

        again = Pair(world=2, slots=4, **options)
        wait(lambda: again.half.native.stats()["num_held"] == 3)  # the folder's index is read by another thread
        b = request_of("b", 3)
        assert again.scheduler.get_num_new_matched_tokens(b, 0) == (None, False), "the blocks are being read from disk"
        wait(lambda: again.scheduler.get_num_new_matched_tokens(b, 0) == (3 * SIZE, True))
        again.load(b, 0, [20, 21, 22])
        assert same(again, computed, [20, 21, 22], [3, 4, 5])
        seen = again.stats()
        name = "vllm:kv_offload_disk_read_bytes" if IS_NEWER else "DISK_to_CPU_total_bytes"
        assert seen[name] >= written
        if not IS_NEWER:
            assert seen["DISK_to_CPU_total_time"] > 0
        again.scheduler.reset_cache()
        assert again.scheduler.get_num_new_matched_tokens(request_of("c", 3), 0) == (0, False)
        again.close()

        other = Pair(world=2, slots=4, **options, disk_model_id="another model")
        assert not other.half.has_disk or other.half.native.stats()["num_held"] == 0, "blocks of another model are not used"
        other.close()


def device():
    """On a device vLLM's handlers copy to and from quire's memory; stores above a disk are marked as written."""
    current_platform.kind = "cuda"
    pair = Pair(block_size=2 * SIZE)
    assert type(pair.workers[0].worker_half.copies).__name__ == "DeviceCopies"
    computed = pair.compute(request_of("a", 5), [3, 4, 5, 6, 7, 8])
    assert pair.load(request_of("b", 5), SIZE, [20, 21, 22, 23]) == 3 * SIZE
    assert same(pair, computed, [21, 22, 23], [4, 5, 6])
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(slots=8, disk_path=folder, disk_bytes_to_use=1 << 20, block_size=2 * SIZE)
        computed = pair.compute(request_of("a", 5), [3, 4, 5, 6, 7, 8])
        wait(lambda: pair.half.native.stats()["num_written"] == 2)
        assert pair.load(request_of("b", 5), SIZE, [20, 21, 22, 23]) == 3 * SIZE
        assert same(pair, computed, [21, 22, 23], [4, 5, 6])
        copies = pair.workers[0].worker_half.copies
        handlers = (copies._worker.stores, copies._worker.loads) if IS_NEWER else (copies._to_host, copies._to_device)
        copies.wait_stores({3, 1})
        copies.wait_loads([4])
        assert [handler.waited for handler in handlers] == [[[1, 3]], [[4]]]
        pair.close()
    raises("does not support layer_by_layer on a GPU", lambda: Pair(layer_by_layer=True))
    if IS_NEWER:
        current_platform.kind = "xpu"
        raises("does not support Intel GPUs under vLLM 0.32.0; use vLLM's OffloadingConnector", Pair)


def calls():
    """Calls that only one version of vLLM makes."""
    pair = Pair()
    assert pair.scheduler.worker_half is None and pair.workers[0].scheduler_half is None
    if IS_NEWER:
        assert pair.scheduler.requires_kv_delivery is False and Connector.get_required_kvcache_layout(None) == "LBHNC"
        assert Connector._cache_hit_source.value == "host"
        queued = pair.scheduler.on_new_request
    else:
        assert pair.scheduler.prefer_cross_layer_blocks is True
        assert Pair(layer_by_layer=True).scheduler.prefer_cross_layer_blocks is False
        queued = pair.scheduler.quire_on_queued
        worker = pair.workers[0]
        whole = torch.Tensor(np.zeros((NUM_BLOCKS, 2, 2, SIZE, HEAD), np.float16))
        worker.register_cross_layers_kv_cache(whole, object)
        assert worker.worker_half._num_tensors == 1
    queued(request_of("a", 2))
    assert not pair.half._early, "without a disk nothing is read early"
    assert pair.scheduler.request_finished(request_of("z", 1), []) == (False, None)
    assert Connector.build_kv_connector_stats().is_empty() and not Connector.build_kv_connector_stats(pair_stats().data).is_empty()


def pair_stats():
    stats = ConnectorStats()
    stats.count("early_blocks", 0)
    assert stats.is_empty(), "a count of 0 is not reported"
    stats.count("early_blocks", 2)
    stats.count("early_blocks", 3)
    assert stats.counted() == {"early_blocks": 5}
    return stats


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
