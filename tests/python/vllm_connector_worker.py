"""Tests the workers' half of quire.vllm.Connector with stand-ins for vLLM: which copy begins when, and what the scheduler's half learns.

usage: vllm_connector_worker.py VERSION CASE...
"""

import sys
from types import SimpleNamespace

from vllm_connector_halves import IS_NEWER, raises, wait

import numpy as np
from quire._core import BlockCopier
from quire.vllm._connector_copies import EndedJob, HostCopies
from quire.vllm._connector_meta import ConnectorMetadata, Job, WorkerMetadata
from quire.vllm._connector_worker import WorkerHalf


class Copies:
    """Records the calls of a WorkerHalf. A test ends the copies. `refused`: jobs that do not begin."""

    def __init__(self):
        self.calls, self.ended_stores, self.ended_loads, self.refused = [], [], [], set()

    def store(self, job):
        self.calls.append(("store", job.id))
        return job.id not in self.refused

    def load(self, job):
        self.calls.append(("load", job.id))
        return job.id not in self.refused

    def load_parts(self, job, num_tensors):
        self.calls.append(("parts", job.id, num_tensors))
        return [100 * job.id + i for i in range(num_tensors)]

    def wait_stores(self, jobs):
        self.calls.append(("wait stores", list(jobs)))

    def wait_loads(self, jobs):
        self.calls.append(("wait loads", list(jobs)))

    def take_stores(self):
        ended, self.ended_stores = self.ended_stores, []
        return ended

    def take_loads(self):
        ended, self.ended_loads = self.ended_loads, []
        return ended

    def take_calls(self):
        calls, self.calls = self.calls, []
        return calls


def worker_of(groups=(("a", "b"),), refs=None, num_tensors=2):
    """refs: by group, the tensor of each reference."""
    copies = Copies()
    config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=list(names)) for names in groups])
    worker = WorkerHalf(SimpleNamespace(copies=lambda caches: copies), config)
    refs = refs or [[0, 1]] * len(groups)
    worker.register_caches(SimpleNamespace(tensors=[None] * num_tensors, group_data_refs=[[SimpleNamespace(tensor_idx=i) for i in own] for own in refs]))
    return worker, copies


def job(id, request="r", blocks=(5,), **more):
    return Job(id, request, list(blocks), list(range(len(blocks))), **more)


def meta(step, computes=True, **more):
    return ConnectorMetadata(step, computes, **more)


def steps():
    """Stores begin with the next step, before the fences; loads begin only after vLLM has zeroed blocks; a step begins once."""
    worker, copies = worker_of()
    first = meta(1, stores=[job(1), job(2)])
    worker.begin(first)
    worker.begin_loads(first)
    assert copies.take_calls() == []
    second = meta(2, stores=[job(3)], fences=[1], loads=[job(4), job(5)])
    worker.begin(second)
    assert copies.take_calls() == [("store", 1), ("store", 2), ("wait stores", [1])]
    worker.begin_loads(second)
    assert copies.take_calls() == [("load", 4), ("load", 5)], "stores must not begin again"
    worker.begin_loads(second)
    assert copies.take_calls() == [], "a load must begin once"
    worker.begin_loads(meta(3))
    assert copies.take_calls() == [("store", 3)]


def ends():
    """Reports ended loads, and ended requests when their last store is over, also if a store of the last step has not begun."""
    worker, copies = worker_of()
    worker.begin(meta(1, stores=[job(1, "a"), job(2, "a"), job(3, "b")]))
    assert worker.finished() == (set(), set())
    worker.begin(meta(2, stores=[job(4, "b")], held=["a", "b", "c"]))
    assert worker.finished() == ({"c"}, set()), "a request without stores must be reported immediately"
    copies.ended_stores = [EndedJob(1, True, 30, 0.5), EndedJob(3, True, 30, 0.5)]
    assert worker.finished() == (set(), set()), "job 2 is in flight, and job 4 begins with the next step"
    copies.ended_stores = [EndedJob(2, True, 30, 0.5)]
    assert worker.finished() == ({"a"}, set())
    worker.begin_loads(meta(3, loads=[job(5, "d", (7, 8)), job(6, "e")]))
    copies.ended_stores, copies.ended_loads = [EndedJob(4, True, 30, 0.5)], [EndedJob(5, True, 60, 0.25)]
    assert worker.finished() == ({"b"}, {"d"})
    assert worker.finished() == (set(), set()), "each request is reported once"
    told = worker.take_meta()
    assert told.over == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1} and told.step == 3 and told.copies == [(2, 0.25)]
    assert not told.failed_stores and not told.failed_loads and worker.take_bad_blocks() == set() == worker.take_failed_requests()
    assert worker.take_meta() == WorkerMetadata(step=3)
    worker.begin(meta(4, computes=False))
    assert worker.take_meta() is None, "nothing has ended, and the step computed nothing"
    load, store = ("vllm:kv_offload_load_", "vllm:kv_offload_store_") if IS_NEWER else ("CPU_to_GPU_total_", "GPU_to_CPU_total_")
    seen = worker.take_stats().reduce()
    assert (seen[f"{load}bytes"], seen[f"{load}time"], seen[f"{store}bytes"], seen[f"{store}time"]) == (60, 0.25, 120, 2.0)
    assert not IS_NEWER or [seen[f"{way}size_count"] for way in (load, store)] == [1, 4] and seen[f"{store}size_sum"] == 120
    assert worker.take_stats() is None
    copies.ended_loads = [EndedJob(6, True, None, 0.5)]
    assert worker.finished() == (set(), {"e"}) and worker.take_stats() is None, "a copy of unknown size is not counted"
    assert worker.take_meta().copies == [(1, 0.5)]
    worker.begin_loads(meta(5, loads=[job(7, "f")]))
    copies.ended_loads = [EndedJob(7, True, 30, None)]
    assert worker.finished() == (set(), {"f"}) and worker.take_stats() is None and worker.take_meta().copies == [(1, 0.0)]


def layers():
    """Loads of a step have a part per tensor. Before a layer only its tensors are awaited, and before the step's end all of them."""
    worker, copies = worker_of(groups=[("a", "b"), ("c",)], refs=[[0, 1, 2, 0], [2]], num_tensors=3)
    worker.wait_for_layer("a")
    worker.wait_for_loads_in_step()
    assert copies.take_calls() == [], "nothing is awaited without a load in the step"
    worker.begin_loads(meta(1, loads=[job(1, "x", in_step=True), job(2, "y", in_step=True), job(3, "z")]))
    assert copies.take_calls() == [("parts", 1, 3), ("parts", 2, 3), ("load", 3)]
    awaited = lambda: [(what, sorted(parts)) for what, parts in copies.take_calls()]  # noqa: E731
    worker.wait_for_layer("a")
    assert awaited() == [("wait loads", [100, 101, 200, 201])]
    worker.wait_for_layer("b")
    assert awaited() == [("wait loads", [100, 102, 200, 202])]
    worker.wait_for_layer("c")
    assert awaited() == [("wait loads", [102, 202])]
    worker.wait_for_layer("unknown")
    assert awaited() == [("wait loads", [100, 101, 102, 200, 201, 202])]
    worker.wait_for_loads_in_step()
    assert awaited() == [("wait loads", [100, 101, 102, 200, 201, 202])]
    copies.ended_loads = [EndedJob(1, True, 30, 0.5), EndedJob(3, True, 30, 0.5)]
    assert worker.finished() == (set(), {"z"}), "a request that does not wait is not reported as received"
    assert awaited() == [("wait loads", [100, 101, 102, 200, 201, 202])], "the step's loads end with the step"
    worker.wait_for_layer("c")
    assert awaited() == [("wait loads", [202])]
    copies.ended_loads = [EndedJob(2, True, 30, 0.5)]
    worker.finished()
    copies.take_calls()
    worker.wait_for_layer("c")
    assert awaited() == []
    uneven, copies = worker_of(refs=[[0, 1, 2]], num_tensors=3)
    uneven.begin_loads(meta(1, loads=[job(1, in_step=True)]))
    copies.take_calls()
    uneven.wait_for_layer("a")
    assert awaited() == [("wait loads", [100, 101, 102])], "three references of two layers: each layer waits for all tensors"


def failures():
    """A failed load of one cache group is reported by block, of several groups by request if this vLLM can, and a layer's never passes."""
    worker, copies = worker_of()
    copies.refused = {1, 2}
    worker.begin(meta(1, stores=[job(1, "s"), job(3, "s"), job(9, "t")]))
    worker.begin_loads(meta(2, loads=[job(2, "a", (7, 8)), job(4, "b", (9,)), job(5, "c", (10,))], held=["s", "t"]))
    copies.ended_stores, copies.ended_loads = [EndedJob(9, False, None, None)], [EndedJob(4, False, None, None), EndedJob(5, True, 1, 1.0)]
    assert worker.finished() == ({"t"}, {"a", "b", "c"}), "the store of job 3 is in flight"
    assert worker.take_bad_blocks() == {7, 8, 9} and worker.take_bad_blocks() == set() and worker.take_failed_requests() == set()
    told = worker.take_meta()
    assert told.over == {1: 1, 2: 1, 4: 1, 5: 1, 9: 1} and told.failed_stores == {1, 9} and told.failed_loads == set()

    worker, copies = worker_of(groups=[("a",), ("b",)], refs=[[0], [1]])
    copies.refused = {2}
    if IS_NEWER:
        worker.begin_loads(meta(1, loads=[job(2, "a", (7, 8)), job(3, "b")]))
        copies.ended_loads = [EndedJob(3, True, 1, 1.0)]
        assert worker.finished() == (set(), {"a", "b"}) and worker.take_failed_requests() == {"a"} and worker.take_failed_requests() == set()
        assert worker.take_bad_blocks() == set() and worker.take_meta().failed_loads == {2}
    else:
        raises("KV blocks of request a could not be copied from host memory", lambda: worker.begin_loads(meta(1, loads=[job(2, "a")])), RuntimeError)
    for groups, refs in (((("a", "b"),), None), ((("a",), ("b",)), [[0], [1]])):
        worker, copies = worker_of(groups=groups, refs=refs)
        worker.begin_loads(meta(1, loads=[job(2, "a", in_step=True)]))
        copies.ended_loads = [EndedJob(2, False, None, None)]
        raises("KV blocks of request a could not be copied from host memory", worker.finished, RuntimeError)


def aggregated():
    """Several workers' reports are one report: ends are counted, failures of any worker count."""
    first = WorkerMetadata(step=None, copies=[(1, 0.5)])
    first.over.update([1, 2])
    second = WorkerMetadata(step=7, failed_stores={1}, failed_loads={2}, copies=[(2, 0.25)])
    second.over.update([1])
    both = first.aggregate(second)
    assert both is first and both.step == 7 and both.over == {1: 2, 2: 1} and both.failed_stores == {1} and both.failed_loads == {2}
    assert both.copies == [(1, 0.5), (2, 0.25)]
    assert WorkerMetadata(step=0).aggregate(WorkerMetadata(step=5)).step == 0
    assert WorkerMetadata().is_empty() and not WorkerMetadata(step=0).is_empty() and not first.is_empty()
    only_over = WorkerMetadata()
    only_over.over[3] += 1
    assert not only_over.is_empty()


def copies():
    """Copies between caches and slots of two blocks: whole, from the middle of the first slot, and tensor by tensor."""
    device = [np.arange(8 * size, dtype=np.uint8).reshape(8, size) + 1 for size in (3, 5)]
    before = [tensor.copy() for tensor in device]
    host, written = [np.zeros((8, size), np.uint8) for size in (3, 5)], np.zeros(4, np.uint64)
    moved = HostCopies(BlockCopier(device, host, written), BlockCopier(device, host, written), 2)
    assert moved.store(Job(1, "r", [6, 1, 2, 7], [0, 1])) and moved.store(Job(2, "r", [3, 4], [3], numbers=[77]))
    moved.wait_stores({1, 2})
    assert moved.take_stores() == [EndedJob(1, True, 32, ANY), EndedJob(2, True, 16, ANY)] and moved.take_stores() == []
    for tensor, own in zip(host, before):
        assert (tensor[:4] == own[[6, 1, 2, 7]]).all() and (tensor[6:] == own[[3, 4]]).all() and not tensor[4:6].any()
    assert written.tolist() == [0, 0, 0, 77], "only a job with numbers writes them"
    assert moved.load(Job(3, "r", [0, 1, 2], [0, 3]))  # blocks 1, 6 and 7 of the slots
    moved.wait_loads([3])
    assert moved.take_stores() == [] and moved.take_loads() == [EndedJob(3, True, 24, ANY)]
    for tensor, own in zip(device, before):
        assert (tensor[:3] == own[[1, 3, 4]]).all() and (tensor[3:] == own[3:]).all()
    for tensor in device:
        tensor[:] = 0
    parts = moved.load_parts(Job(4, "r", [5, 6], [3], in_step=True), 2)
    others = moved.load_parts(Job(5, "r", [0, 7], [1], in_step=True), 2)
    assert len({*parts, *others}) == 4 and min(*parts, *others) > 1 << 30, "numbers of parts differ from numbers of jobs"
    moved.wait_loads([parts[0]])
    assert (device[0][5:7] == before[0][[3, 4]]).all()
    moved.wait_loads([*parts, *others])
    ended = sorted(moved.take_loads(), key=lambda one: one.job)
    assert ended == [EndedJob(4, True, 16, ANY), EndedJob(5, True, 16, ANY)], "parts of a job are reported together"
    for tensor in device:
        tensor[:] = 0
    moved.load_parts(Job(6, "r", [1, 2], [3], in_step=True), 1)
    wait(lambda: device[0][1:3].any())
    assert (device[0][1:3] == before[0][[3, 4]]).all() and not device[1].any(), "a part copies one tensor"


class Any:
    def __eq__(self, other):
        return isinstance(other, float) and 0 <= other < 100


ANY = Any()


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
