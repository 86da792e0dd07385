"""Tests what quire.vllm.Scheduler reports of requests under vLLM 0.32.0, with stand-ins for vLLM: ends, statistics, tokens and sessions.

usage: vllm_adapter_newer_requests.py 0.32.0 CASE...
"""

import logging
import sys
from types import SimpleNamespace

import vllm_adapter
from vllm_adapter import add, make, parties, result, stage
from vllm_adapter_newer_options import set_

from vllm.v1.engine import FinishReason
from vllm.v1.request import RequestStatus

from quire.vllm import v0_32


def ends():
    """finish_requests() returns the requests; waiting requests that hold blocks and deferred ones can be read."""
    scheduler = make(**{"async": True})
    a, b = add(scheduler, "a", max_tokens=5), add(scheduler, "b", max_tokens=5)
    scheduler.schedule()
    assert scheduler.finish_requests(iter(["a", "a", "nobody"]), RequestStatus.FINISHED_ABORTED) == [a]
    assert scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED) == [] == scheduler.finish_requests("nobody", RequestStatus.FINISHED_ABORTED)
    assert scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED) == [b]
    c = add(scheduler, "c")
    d = add(scheduler, "d", grammar=True)
    assert scheduler.deferred_waiting == set() and list(scheduler.waiting) == [c] or list(scheduler.waiting) == [c, d]
    scheduler.schedule()
    assert scheduler.deferred_waiting == {d}, "its grammar is not ready"
    assert scheduler.make_stats() is None
    assert set(scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)) == {c, d}
    assert scheduler.get_kv_cache_usage() == 0.0 and list(scheduler.kv_holding_waiting) == []


def numbers():
    """Statistics of a step, and events of blocks with their cache group."""
    scheduler = make(log_stats=True, kv_events=True, connector="ScriptedHybridConnector", max_num_seqs=2)
    for name in ("a", "b", "c"):
        add(scheduler, name, doc=ord(name))
    add(scheduler, "g", grammar=True)
    plan = scheduler.schedule()
    made = scheduler.update_from_output(plan, result(plan))
    stats = made[0].scheduler_stats
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_skipped_waiting_reqs) == (2, 1, 1)
    assert stats.kv_cache_usage == scheduler.get_kv_cache_usage() == scheduler.kv_cache_manager.usage == 6 / 32
    assert stats.prefix_cache_stats.queries == 20 and stats.connector_prefix_cache_stats.queries == 20 and stats.spec_decoding_stats is None
    assert stats.num_kv_fetch_reqs_by_stage == dict.fromkeys(scheduler.loads.counts, 0)
    logged = [entry for entry in stage.current().take_log() if entry[0] == "events"]
    (first, *_), = [entry[3] for entry in logged]
    assert (first.group_idx, first.kv_cache_spec_kind, first.kv_cache_spec_sliding_window, first.block_size) == (0, "full_attention", None, 4)
    assert first.parent_block_hash is None and len(first.token_ids) == 4 * len(first.block_hashes) and first.medium == "GPU"
    waiting = make(log_stats=True)
    add(waiting, "g", grammar=True), add(waiting, "a")
    waiting.schedule()
    told = waiting.make_stats()
    assert (told.num_waiting_reqs, told.num_skipped_waiting_reqs) == (0, 1) and told.connector_prefix_cache_stats is None
    evicting = make(kv_events=True, num_blocks=5)
    seen = []
    for i in range(3):
        add(evicting, f"r{i}", max_tokens=1, salt=str(i))
        plan = evicting.schedule()
        evicting.update_from_output(plan, result(plan))
        seen += [type(one).__name__ for entry in stage.current().take_log() if entry[0] == "events" for one in entry[3]]
    assert seen.index("BlockStored") < seen.index("BlockRemoved"), seen
    evicting.reset_prefix_cache()
    evicting.update_from_output(plan := evicting.schedule(), result(plan))
    assert [type(one).__name__ for entry in stage.current().take_log() if entry[0] == "events" for one in entry[3]] == ["AllBlocksCleared"]


def sampling():
    """The right output gets what workers report of tokens; drafts and encoder inputs are counted."""
    scheduler = make(set_("model_config", return_sampling_mask=True))
    add(scheduler, "a", max_tokens=3), add(scheduler, "b", max_tokens=3)
    plan = scheduler.schedule()
    masks = SimpleNamespace(slice_request=lambda row, count: ("mask", row, count))
    told = scheduler.update_from_output(plan, result(plan, prompt_token_id_logprobs_dict={"b": [0.5]}, sampling_masks=masks))[0].outputs
    seen = [(one.request_id, one.prompt_token_id_logprobs, one.new_sampling_mask) for one in told]
    assert seen == [("a", None, ("mask", 0, 1)), ("b", [0.5], ("mask", 1, 1))]
    plan = scheduler.schedule()
    told = scheduler.update_from_output(plan, result(plan))[0].outputs
    assert [(one.prompt_token_id_logprobs, one.new_sampling_mask) for one in told] == [(None, None)] * 2
    without = make()
    add(without, "a")
    plan = without.schedule()
    told = without.update_from_output(plan, result(plan, sampling_masks=masks))[0].outputs
    assert told[0].new_sampling_mask is None, "the model's configuration does not ask for masks"
    assert told[0].prefill_stats.num_prompt_tokens == 10 and plan.num_spec_tokens_to_schedule == 0 and plan.has_sync_kv_loads is False
    assert make(spec="eagle", num_spec_tokens=2).schedule().num_spec_tokens_to_schedule == 2

    pictures = {"multimodal": True, "mm_max_tokens": 4, "encoder_budget": 8, "encoder_cache": 8}
    counted = make(log_stats=True, iteration_details=True, **pictures)
    add(counted, "a", images=[[0, 4, "one", None], [5, 4, "two", [1, 0, 1, 1]]])
    stats = counted.schedule().scheduled_encoder_input_stats
    assert (stats.num_inputs, stats.output_tokens) == (2, 7)
    assert counted.schedule().scheduled_encoder_input_stats is None
    for more in ({"iteration_details": True}, {"log_stats": True}):
        silent = make(**more, **pictures)
        add(silent, "a", images=[[0, 4, "one", None]])
        assert silent.schedule().scheduled_encoder_input_stats is None


def grammars():
    """Grammars are asked through the manager; a grammar that could not be compiled ends its request, once."""
    scheduler = make(spec="ngram", num_spec_tokens=2)
    a, b = add(scheduler, "a", grammar=True, max_tokens=9), add(scheduler, "b", grammar=True)
    assert scheduler.schedule().num_scheduled_tokens == {}
    a.structured_output_request.grammar = parties.Grammar(stage.current(), 7)
    b.structured_output_request.grammar = ValueError("no grammar")
    plan = scheduler.schedule()
    assert plan.num_scheduled_tokens == {"a": 10} and scheduler.failed_grammars == {"b"}
    mask = scheduler.get_grammar_bitmask(plan)
    assert mask.structured_output_request_ids == ["a"] and mask.num_acceptable_drafts == [0]
    told = scheduler.update_from_output(plan, result(plan))[0].outputs
    assert [(one.request_id, one.finish_reason) for one in told] == [("a", None), ("b", FinishReason.ERROR)] and scheduler.failed_grammars == set()
    scheduler.update_draft_token_ids(SimpleNamespace(req_ids=["a"], draft_token_ids=[[3, 14]]))
    plan = scheduler.schedule()
    assert plan.scheduled_spec_decode_tokens == {"a": [3]}, "14 is not valid"
    assert scheduler.get_grammar_bitmask(plan).num_acceptable_drafts == [1]


def orders():
    """Failed loads end their requests in the order that vLLM's sets have."""
    hooks = v0_32.ManagerHooks.__new__(v0_32.ManagerHooks)
    blocks = {"a": ([1, 2],), "b": ([3],), "c": ([4],), "d": ([5],)}
    manager = SimpleNamespace(get_block_ids=lambda name: blocks[name])
    worker = SimpleNamespace(failed_recving=["a", "b", "d"], invalid_block_ids={3, 4})
    hooks._scheduler = SimpleNamespace(_worker_output=worker, failed_grammars=set(), kv_cache_manager=manager)
    order, again = hooks.order_failed(["a", "b", "c", "d"], 3)
    assert sorted(order) == ["a", "b", "c", "d"] and again == order and again is not order
    assert hooks._holds("b", {3}) and not hooks._holds("a", {3}) and not hooks._holds("a", set())
    assert hooks.order_failed([], 0) == ([], [])


def sessions():
    """A session's next input sets its limit; sessions with KV events are warned of."""
    texts = []
    scheduler = make(kv_events=True)
    v0_32.logger.handlers = [SimpleNamespace(handle=lambda record: texts.append(record.getMessage()), level=0)]
    v0_32.logger.setLevel(logging.WARNING)
    request = vllm_adapter.RequestMaker({"id": "s", "doc": 0, "n": 5, "arrival": 0.0}, 16, None).make()
    request.session_id = "me"
    scheduler.add_request(request)
    add(scheduler, "plain")
    assert texts == ["quire.vllm.Scheduler: KV events of request s do not report its session, nor blocks that it reuses"]
    request = vllm_adapter.RequestMaker({"id": "t", "doc": 0, "n": 5, "arrival": 0.0}, 16, None).make()
    request.kv_cache_report_mode = "full"
    scheduler.add_request(request)
    assert len(texts) == 2
    quiet = make()
    request.request_id = "u"
    quiet.add_request(request)
    assert len(texts) == 2
    talk = make()
    first = add(talk, "s", resumable=1, max_tokens=1)
    plan = talk.schedule()
    talk.update_from_output(plan, result(plan))
    add(talk, "s", resumable=1, max_tokens=4, n=3)
    talk.schedule()
    assert first.max_tokens == 4


if __name__ == "__main__":
    for case in sys.argv[1:]:
        with stage.CLOCK:
            globals()[case]()
        print(f"{case}: ok", flush=True)
