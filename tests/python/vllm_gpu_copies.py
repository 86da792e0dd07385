"""Run by vLLM's Python on a machine with a GPU: blocks of a KV cache in its memory, through vLLM's copy handlers, our host memory and a folder.

    python vllm_gpu_copies.py FOLDER [--seed 1] [--rounds 40] [--page-kib 32] [--layers 8] [--factor 2]

Blocks of random bytes are stored, forgotten on the device, evicted from host memory, found again after a restart and loaded to other places.
Every byte is compared. Prints what was seen as JSON, with the speed of both directions.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch

from quire._core import TieredOffload
from quire.vllm._host_region import HostRegion


class Handlers:
    """Gives both versions of vLLM the same two calls."""

    def __init__(self, tensors, region, factor):
        try:
            from vllm.v1.kv_offload.base import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor

            self.is_newer = True
        except ImportError:
            from vllm.v1.kv_offload.spec import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor

            self.is_newer = False
        page = tensors[0].shape[1]
        caches = CanonicalKVCaches([CanonicalKVCacheTensor(t, page) for t in tensors], [[CanonicalKVCacheRef(i, page) for i in range(len(tensors))]])
        if self.is_newer:
            from quire.vllm._offload_v0_32 import DeviceCopyWorker

            self.worker = DeviceCopyWorker(caches, region, factor)
        else:
            from quire.vllm._offload_copies import device_handlers

            self.store_handler, self.load_handler = device_handlers(caches, region, factor)
        self.job = 0

    def wait(self, finished):
        end = time.monotonic() + 20
        while not (results := finished()):
            assert time.monotonic() < end, "the copy must end"
        return results[0].transfer_size, results[0].transfer_time

    def store(self, device_blocks, slots, numbers):
        self.job += 1
        if self.is_newer:
            from vllm.v1.kv_offload.base import GPULoadStoreSpec

            from quire.vllm._offload_v0_32 import NumberedSpec

            self.worker.submit_store(self.job, GPULoadStoreSpec(device_blocks, [len(device_blocks)], [0]), NumberedSpec(slots, numbers))
            return self.wait(self.worker.get_finished)
        from vllm.v1.kv_offload.mediums import GPULoadStoreSpec

        from quire.vllm._offload_copies import NumberedSpec

        self.store_handler.transfer_async(self.job, (GPULoadStoreSpec(device_blocks, [len(device_blocks)]), NumberedSpec(slots, numbers)))
        return self.wait(self.store_handler.get_finished)

    def load(self, slots, device_blocks):
        self.job += 1
        if self.is_newer:
            from vllm.v1.kv_offload.base import GPULoadStoreSpec
            from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

            self.worker.submit_load(self.job, CPULoadStoreSpec(slots), GPULoadStoreSpec(device_blocks, [len(device_blocks)], [0]))
            return self.wait(self.worker.get_finished)
        from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec

        self.load_handler.transfer_async(self.job, (CPULoadStoreSpec(slots), GPULoadStoreSpec(device_blocks, [len(device_blocks)])))
        return self.wait(self.load_handler.get_finished)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--page-kib", type=int, default=32)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--factor", type=int, default=2, help="device blocks in a block of host memory")
    options = parser.parse_args()
    rng, page, factor = (random.Random(options.seed), options.page_kib << 10, options.factor)
    num_slots, num_names, num_device = 64, 160, 64 * factor
    torch.manual_seed(options.seed)
    device = [torch.zeros((num_device, page), dtype=torch.int8, device="cuda") for _ in range(options.layers)]
    right = torch.randint(-128, 128, (num_names, options.layers, factor, page), dtype=torch.int8, device="cuda")
    region = HostRegion.create("copies", 0, num_slots, [page * factor] * options.layers, "copies", is_shared=False)
    handlers = Handlers(device, region, factor)

    def opened():
        return TieredOffload(num_slots=num_slots, pages=region.tensors, written=[region.written], folder=str(options.folder),
                             budget_bytes=num_names * (options.layers * factor * page + 8192) + (1 << 20), fingerprint=b"g" * 32)  # fmt: skip

    tiers, names = opened(), [i.to_bytes(4, "big") * 8 for i in range(num_names)]
    seen = {"device": torch.cuda.get_device_name(), "stored": 0, "loaded": 0, "from_disk": 0, "wrong": 0, "restarts": 0}
    moved = {True: [0, 0.0], False: [0, 0.0]}
    for i in range(options.rounds):
        chosen = rng.sample(range(num_names), 16)
        blocks = rng.sample(range(num_device), 16 * factor)
        for at, number in enumerate(chosen):
            for part in range(factor):
                for layer, tensor in enumerate(device):
                    tensor[blocks[at * factor + part]] = right[number, layer, part]
        answer = tiers.prepare_store([names[number] for number in chosen])
        if answer is not None and answer[0]:
            keys, slots, numbers, _ = answer
            of = [chosen.index(int.from_bytes(key[:4], "big")) for key in keys]
            size, seconds = handlers.store([blocks[at * factor + part] for at in of for part in range(factor)], slots, numbers)
            moved[True][0] += size
            moved[True][1] += seconds
            tiers.complete_store(keys)
            seen["stored"] += len(keys)
        if i % 10 == 9:
            num_written = -1
            while num_written < (num_written := tiers.stats()["num_written"]):  # stored blocks are not written again
                time.sleep(0.2)
            seen["from_disk"] += tiers.stats()["num_read"]
            tiers.close()
            tiers = opened()
            seen["restarts"] += 1
        wanted = rng.sample(range(num_names), 12)
        for number in wanted:
            end = time.monotonic() + 20
            while (found := tiers.lookup([names[number]])) is None and time.monotonic() < end:
                time.sleep(0.001)
            if not found:
                continue
            blocks = rng.sample(range(num_device), factor)
            for tensor in device:
                tensor[blocks] = 0
            size, seconds = handlers.load(tiers.prepare_load([names[number]]), blocks)
            moved[False][0] += size
            moved[False][1] += seconds
            tiers.complete_load([names[number]])
            same = all(
                torch.equal(device[layer][blocks[part]], right[number, layer, part]) for layer in range(options.layers) for part in range(factor)
            )
            seen["loaded"] += 1
            seen["wrong"] += not same
    seen["from_disk"] += tiers.stats()["num_read"]
    tiers.close()
    seen |= {("store" if stores else "load") + "_GB_per_s": round(size / seconds / 1e9, 2) for stores, (size, seconds) in moved.items() if seconds}
    print(json.dumps(seen))
    assert seen["loaded"] > options.rounds and seen["from_disk"] > options.rounds // 2, "the run must load enough blocks"
    assert seen["wrong"] == 0


if __name__ == "__main__":
    main()
