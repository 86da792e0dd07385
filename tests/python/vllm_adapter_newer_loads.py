"""Tests the loads of KV connectors under quire.vllm.Scheduler and vLLM 0.32.0, with stand-ins for vLLM: stages, sources and statistics.

usage: vllm_adapter_newer_loads.py 0.32.0 CASE...
"""

import sys
from types import SimpleNamespace

import vllm_adapter
from vllm_adapter import add, make, parties, result, stage

from vllm.v1.metrics.stats import KV_FETCH_COMPLETED_WAITING, KV_FETCH_IN_PROGRESS, KV_FETCH_WAITING_TO_START
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from quire.vllm import _scheduler_connector_v0_32 as connecting


class Loads(parties.ScriptedHybridConnector):
    """Its answers are set by the test: request -> (tokens, waits)."""

    matches, sources = {}, {"disk": 4, "host": 4}

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.matches.get(request.request_id, (0, False))

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self.allocated = getattr(self, "allocated", [])
        self.allocated.append((request.request_id, num_external_tokens))

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        return self.sources

    def build_connector_meta(self, scheduler_output):
        state = scheduler_output.kv_connector_block_state
        return {name: state.get_block_ids(name) for name in ["nobody", *scheduler_output.num_scheduled_tokens]}

    def request_finished(self, request, block_ids):
        return False, {"do_remote_prefill": True} if request.request_id == "remote" else None

    def get_kv_connector_stats(self):
        return None

    def has_pending_push_work(self):
        return self.pushes

    pushes = False


parties.KVConnectorFactory.register_connector("Loads", __name__, "Loads")


def loads():
    """Stages and sources of awaited loads are counted; loads of the step itself are marked in its plan."""
    scheduler = make(connector="Loads", log_stats=True)
    Loads.matches = {"waits": (8, True), "step": (4, False), "later": (None, False)}
    for i, name in enumerate(("waits", "step", "later", "none")):
        add(scheduler, name, n=10, doc=0, salt=str(i))
    plan = scheduler.schedule()
    assert plan.num_scheduled_tokens == {"step": 6, "none": 10} and plan.has_sync_kv_loads is True
    assert plan.kv_connector_metadata["nobody"] is None and len(plan.kv_connector_metadata["none"][0]) == 3 and plan.kv_connector_block_state is None
    counts = scheduler.loads.counts
    assert counts == {KV_FETCH_WAITING_TO_START: 0, KV_FETCH_IN_PROGRESS: 1, KV_FETCH_COMPLETED_WAITING: 0} and scheduler._kv_fetch_counts is counts
    stats = scheduler.update_from_output(plan, result(plan, kv_connector_output=KVConnectorOutput()))[0].scheduler_stats
    assert stats.connector_prefix_cache_stats.hits_by_source == {"disk": 8, "host": 8} and stats.num_kv_fetch_reqs_by_stage[KV_FETCH_IN_PROGRESS] == 1
    assert scheduler.loads.take_sources() == {}
    plan = scheduler.schedule()
    assert plan.has_sync_kv_loads is False
    stats = scheduler.update_from_output(plan, result(plan, kv_connector_output=KVConnectorOutput(finished_recving={"waits"})))[0].scheduler_stats
    assert stats.num_kv_fetch_reqs_by_stage[KV_FETCH_COMPLETED_WAITING] == 1
    plan = scheduler.schedule()
    assert "waits" in plan.num_scheduled_tokens
    assert [name for name, number in scheduler.connector.allocated if number] == ["waits", "step"]
    scheduler.finish_requests("waits", RequestStatus.FINISHED_ABORTED)
    assert sum(scheduler.loads.counts.values()) == 0 and "waits" not in scheduler.loads._awaited

    quiet = make(connector="Loads")
    add(quiet, "step", doc=5)
    assert quiet.schedule().has_sync_kv_loads is True and quiet.loads.take_sources() == {}, "without statistics sources are not asked"


def stages():
    """Checks for single requests how LoadStages counts the stages of their loads."""
    told = connecting.LoadStages()
    request = lambda name, skips=False, preempted=0: SimpleNamespace(request_id=name, skip_reading_prefix_cache=skips, num_preemptions=preempted)  # noqa: E731
    start, running, done = KV_FETCH_WAITING_TO_START, KV_FETCH_IN_PROGRESS, KV_FETCH_COMPLETED_WAITING
    numbers = lambda: [told.counts[stage_] for stage_ in (start, running, done)]  # noqa: E731
    told.matched(request("a"), (8, True))
    told.matched(request("b"), (None, True))
    told.matched(request("c"), (8, False))
    told.matched(request("d", skips=True), (8, True))
    assert numbers() == [1, 0, 0] and told._awaited == {"a": True, "c": False, "d": False}
    asked = SimpleNamespace(get_external_cache_hit_sources=lambda request, count: {request.request_id: count})
    assert told.blocks_allocated(request("a"), 8, asked) is False and numbers() == [0, 1, 0]
    assert told.blocks_allocated(request("c"), 8, asked) is True and told.blocks_allocated(request("e"), 0, asked) is False
    assert told.blocks_allocated(request("f", preempted=1), 4, asked) is True and told.blocks_allocated(request("g"), 4, None) is True
    assert told.take_sources() == {"a": 8, "c": 8} and told.take_sources() == {}
    told.received(["a", "c", "nobody"])
    assert numbers() == [0, 0, 1]
    told.received(["a"])
    assert numbers() == [0, 0, 1]
    told.forget("a"), told.forget("a")
    assert numbers() == [0, 0, 0] and "a" not in told._awaited
    told.move("a", start), told.move("a", start)
    assert numbers() == [1, 0, 0]


def lives():
    """A connector learns of new requests once, keeps the engine stepping while it has work, and its statistics are joined with the workers'."""
    scheduler = make(connector="Loads", log_stats=True)
    Loads.matches = {}
    first = add(scheduler, "remote", max_tokens=1, kv_params=1)
    assert [entry[0] for entry in stage.current().take_log()] == ["new"]
    assert scheduler.loads.counts[KV_FETCH_WAITING_TO_START] == 0
    first.kv_transfer_params = {"do_remote_prefill": True}
    other = vllm_adapter.RequestMaker({"id": "pulled", "doc": 3, "n": 5, "arrival": 0.0}, 16, None).make()
    other.kv_transfer_params = {"do_remote_prefill": True}
    scheduler.add_request(other)
    assert scheduler.loads.counts[KV_FETCH_WAITING_TO_START] == 1
    scheduler.finish_requests("pulled", RequestStatus.FINISHED_ABORTED)
    plan = scheduler.schedule()
    told = scheduler.update_from_output(plan, result(plan))[0].outputs
    (output,) = [one for one in told if one.request_id == "remote"]
    assert output.kv_transfer_params == {"do_remote_prefill": True, "remote_prefill_cached_tokens": 0}
    scheduler.schedule()
    assert not scheduler.has_requests()
    scheduler.connector.pushes = True
    assert scheduler.has_requests() and not make().has_requests()
    scheduler.connector.pushes = False
    scheduler.connector.get_kv_connector_stats = lambda: parties.Stats(data={"bytes": 2})
    worker = lambda data: KVConnectorOutput(kv_connector_stats=parties.Stats(data=data) if data else None)  # noqa: E731
    assert scheduler.connector_stats_before_update(worker({"bytes": 1})) is None
    joined = lambda data: scheduler.connector_stats_after_update(worker(data), None).data  # noqa: E731
    assert joined({"bytes": 1}) == {"bytes": 3} and joined(None) == {"bytes": 2} and scheduler.connector_stats_after_update(None, None).data == {"bytes": 2}
    scheduler.connector.get_kv_connector_stats = lambda: parties.Stats(data={})
    assert joined({"bytes": 1}) == {"bytes": 1}
    assert make().connector_stats_after_update(worker({"bytes": 1}), None).data == {"bytes": 1}
    held = make(connector="Loads")
    held.connector.request_finished = lambda request, block_ids: (True, None)
    add(held, "a", max_tokens=1)
    plan = held.schedule()
    held.update_from_output(plan, result(plan))
    held.schedule()
    assert held.get_num_unfinished_requests() == 0 and held.has_finished_requests(), "the connector still holds its blocks"
    held.update_from_output(plan := held.schedule(), result(plan, kv_connector_output=KVConnectorOutput(finished_sending={"a"})))
    held.schedule()
    assert not held.has_finished_requests()


if __name__ == "__main__":
    for case in sys.argv[1:]:
        with stage.CLOCK:
            globals()[case]()
        print(f"{case}: ok", flush=True)
