"""The worker side of quire.vllm.offload in vLLM 0.19.0: copies between the KV cache and host memory that the scheduler's process maps.

On a GPU, vLLM's handlers copy, to and from this memory. If the KV cache is in host memory, a native thread copies without the GIL. After
each store, the numbers of the stored blocks are written next to the slots; only then may a block be written to disk.
"""

import numpy as np
import torch
from vllm.platforms import current_platform
from vllm.v1.kv_offload.mediums import CPULoadStoreSpec
from vllm.v1.kv_offload.worker.worker import OffloadingHandler, TransferResult

from quire._core import BlockCopier, mark_written
from quire.vllm._offload_pages import copier_of, device_pages, host_pages


class NumberedSpec(CPULoadStoreSpec):
    """The slots to store to, and the number that is written for each slot when its block is stored."""

    def __init__(self, slots: list[int], numbers: list[int]):
        super().__init__(slots)
        self.numbers = numbers


def numbers_of(spec) -> tuple[list[int], list[int]]:
    return (spec.block_ids.tolist(), spec.numbers) if isinstance(spec, NumberedSpec) else ([], [])


class HostCopyHandler(OffloadingHandler):
    """Copies in one direction, for a KV cache in host memory."""

    def __init__(self, copier: BlockCopier, factor: int, to_host: bool):
        self.copier, self.factor, self.to_host = copier, factor, to_host
        self.transfer_type = ("GPU", "CPU") if to_host else ("CPU", "GPU")

    def transfer_async(self, job_id, transfer_spec):
        source, target = transfer_spec
        device, host = (source, target) if self.to_host else (target, source)
        pages = (host.block_ids[:, None] * self.factor + np.arange(self.factor)).ravel()
        # If the KV cache already has the first blocks of the first slot, the load begins after them.
        pages = pages[len(pages) - len(device.block_ids) :]
        slots, numbers = numbers_of(host)
        self.copier.submit(job_id, self.to_host, device.block_ids.tolist(), pages.tolist(), slots, numbers)
        return True

    def get_finished(self):
        return [
            TransferResult(job_id=job, success=True, transfer_size=size, transfer_time=seconds, transfer_type=self.transfer_type)
            for job, size, seconds in self.copier.take_over(self.to_host)
        ]

    def wait(self, job_ids):
        self.copier.wait(list(job_ids))


def host_handlers(kv_caches, region, factor: int):
    """Returns (device to host, host to device) for a KV cache in host memory."""
    copier = copier_of(kv_caches, region)
    return HostCopyHandler(copier, factor, True), HostCopyHandler(copier, factor, False)


def device_handlers(kv_caches, region, factor: int):
    """Returns (device to host, host to device) for copies by vLLM."""
    from vllm.v1.kv_offload.worker.cpu_gpu import SingleDirectionOffloadingHandler

    class MarkingHandler(SingleDirectionOffloadingHandler):
        """vLLM's handler, extended: get_finished() also marks ended stores as written."""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._numbers = {}

        def transfer_async(self, job_id, transfer_spec):
            self._numbers[job_id] = numbers_of(transfer_spec[1])
            return super().transfer_async(job_id, transfer_spec)

        def get_finished(self):
            results = super().get_finished()
            for result in results:
                mark_written(region.written, *self._numbers.pop(result.job_id))
            return results

    class OrderedHandler(SingleDirectionOffloadingHandler):
        """vLLM's handler, extended: a load begins after all earlier work of the device, because a step in flight may still write to its
        blocks."""

        def transfer_async(self, job_id, transfer_spec):
            if not self._stream_pool:
                self._stream_pool.append(torch.cuda.Stream())
            self._stream_pool[-1].wait_stream(torch.cuda.current_stream())  # the stream that vLLM uses next
            return super().transfer_async(job_id, transfer_spec)

    if current_platform.is_cuda_alike():  # pins the memory, so that copies run concurrently with the model
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(region.address, region.num_bytes, 0))
    tensors = {
        "gpu_tensors": device_pages(kv_caches),
        "cpu_tensors": host_pages(region),
        "block_size_factor": factor,
        "kv_cache_groups_data_refs": kv_caches.group_data_refs,
    }
    return MarkingHandler(gpu_to_cpu=True, **tensors), OrderedHandler(gpu_to_cpu=False, **tensors)
