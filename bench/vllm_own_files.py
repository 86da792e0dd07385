"""vLLM 0.32.0's tiers in host memory and in files on its CPU backend, for bench/vllm_file_tier.py. On this backend vLLM refuses to copy
between the KV cache and host memory, so PyTorch copies. Everything else is vLLM's code.
"""

import time

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from quire.vllm._offload_pages import device_pages


class CopyWorker(OffloadingWorker):
    """Copies one block per chunk. A copy has ended when the call returns."""

    def __init__(self, kv_caches, region):
        self._device = device_pages(kv_caches)
        self._host = [region.create_next_worker_view(cache.page_size_bytes) for cache in kv_caches.tensors]
        self._over = []

    def _copy(self, job_id, source, source_ids, target, target_ids):
        begin = time.perf_counter()
        for one, other in zip(source, target):
            other[target_ids] = one[source_ids]
        size = sum(pages.shape[1] for pages in source) * len(source_ids)
        self._over.append(TransferResult(job_id=job_id, success=True, transfer_size=size, transfer_time=time.perf_counter() - begin))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, self._device, src_spec.block_ids, self._host, dst_spec.block_ids)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, self._host, src_spec.block_ids, self._device, dst_spec.block_ids)

    def get_finished(self):
        over, self._over = self._over, []
        return over

    def wait(self, job_ids):
        """Returns immediately, because the copies have already ended."""


class OwnFilesSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if self._worker is None:
            region = SharedOffloadRegion(engine_id=self._engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
                                         kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker)  # fmt: skip
            self._worker = CopyWorker(kv_caches, region)
        return self._worker
