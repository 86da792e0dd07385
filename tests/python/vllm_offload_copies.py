"""Tests the copies of quire.vllm.offload with stand-ins for vLLM: on CPU, on a device, and the layout of pages.

usage: vllm_offload_copies.py VERSION CASE...
"""

import os
import sys

from vllm_connector_halves import IS_NEWER
from vllm_connector_pair import PAGE, SIZE
from vllm_offload_support import caches, caches_of, spec_of

import numpy as np
import torch
from quire._core import BlockCopier
from quire.vllm import _offload_pages as pages
from quire.vllm._host_region import HostRegion
from vllm.platforms import current_platform

if IS_NEWER:
    from oracle_vllm.offload_newer import HostRegister
    from quire.vllm._offload_v0_32 import DeviceCopyWorker, HostCopyWorker, NumberedSpec
    from vllm.v1.kv_offload.base import CanonicalKVCacheRef, CanonicalKVCaches, GPULoadStoreSpec
    from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
else:
    from quire.vllm._offload_copies import HostCopyHandler, NumberedSpec, device_handlers
    from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec
    from vllm.v1.kv_offload.spec import CanonicalKVCacheRef, CanonicalKVCaches


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
    """The layout of a worker's pages names all that their bytes depend on; caches count as one group."""
    given = caches_of(np.zeros((4, 2, 3), np.float16), np.zeros((4, 8), np.uint8))
    text = pages.page_layout(given)
    assert "((2, 3), \"<class 'numpy.float16'>\", 12)" in text and text.endswith("cpu AVX2 False 2.0")
    on_device = caches_of(np.zeros((4, 8), np.uint8), device="cuda")
    assert pages.page_layout(on_device).endswith("cuda device None 2.0")
    two = CanonicalKVCaches(given.tensors, [[CanonicalKVCacheRef(0, 12)], [CanonicalKVCacheRef(1, 8)]])
    one = pages.as_one_group(two)
    assert one.tensors is given.tensors and one.group_data_refs == [[CanonicalKVCacheRef(0, 12), CanonicalKVCacheRef(1, 8)]]
    assert [page.shape for page in pages.device_pages(given)] == [(4, 12), (4, 8)]


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
