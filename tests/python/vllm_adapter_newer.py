"""Tests what quire.vllm.Scheduler does only under vLLM 0.32.0, with stand-ins for vLLM: refusals, and what it reports and passes on.

usage: vllm_adapter_newer.py 0.32.0 CASE...
"""

import logging
import sys
from types import SimpleNamespace

import vllm_adapter
from vllm_adapter import add, make, parties, raises, result, stage

from vllm.v1.engine import FinishReason
from vllm.v1.kv_cache_interface import KVCacheGroupSpec, MambaSpec, SlidingWindowSpec
from vllm.v1.metrics.stats import KV_FETCH_COMPLETED_WAITING, KV_FETCH_IN_PROGRESS, KV_FETCH_WAITING_TO_START
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from quire.vllm import _scheduler_connector_v0_32 as connecting
from quire.vllm import v0_32

LATER = "under vLLM 0.32.0; "
USE_OLDER = "use vLLM 0.19.0, where quire supports this"


def refused(text, change=None, **config):
    raises(ValueError, text, lambda: make(change, **config))


def set_(part, **values):
    def change(given):
        target = given["vllm_config"] if part == "" else getattr(given["vllm_config"], part, None) or given[part]
        vars(target).update(values)

    return change


def refusals():
    """Each part of a configuration without decisions for vLLM 0.32.0 is refused by name."""
    refused(f"context parallelism {LATER}{USE_OLDER}", set_("parallel_config", decode_context_parallel_size=2))
    refused(f"context parallelism {LATER}", set_("parallel_config", prefill_context_parallel_size=2))
    text = f"pipeline parallelism with the V2 model runner and asynchronous scheduling {LATER}set VLLM_USE_V2_MODEL_RUNNER=0"
    pipeline = {"pp": 2, "v2_runner": True, "async": True}
    refused(text, **pipeline)
    for name, other in (("pp", 1), ("v2_runner", False), ("async", False)):
        assert make(**{**pipeline, name: other})
    refused(f"prefill_schedule_interval=2 {LATER}set it to 1", set_("scheduler_config", prefill_schedule_interval=2))
    eagle = {"spec": "eagle", "num_spec_tokens": 2}
    assert make(**eagle)
    for values, text in (
        ({"max_num_new_slots_for_drafting": 1}, f"drafting methods that take tokens from a step (draft models, parallel drafting) {LATER}use EAGLE"),
        ({"num_speculative_tokens_per_batch_size": {1: 2}}, f"num_speculative_tokens_per_batch_size {LATER}set one number of draft tokens"),
        ({"use_eagle_block_drop": lambda: False}, f"EAGLE that keeps the last block of a hit {LATER}set it to drop that block"),
    ):
        refused(text, set_("speculative_config", **values), **eagle)
    assert make(set_("speculative_config", use_eagle_block_drop=lambda: False), spec="ngram", num_spec_tokens=2), "only EAGLE drops blocks"
    refused(f"chains of MTP modules {LATER}use one module", set_("", num_prefill_lookahead_tokens=2), **eagle)
    refused(f"encoder-cache connectors {LATER}{USE_OLDER}", ec_connector=True)
    raises(ValueError, "encoder-decoder models are not supported with KV connectors",
           lambda: make(connector="ScriptedConnector", encoder_decoder=True, multimodal=True, mm_max_tokens=4))  # fmt: skip
    refused(f"an encoder without its language model (mm_encoder_only) {LATER}use vLLM's own scheduler for it", set_("", is_mm_encoder_only=True))
    manager = SimpleNamespace(get_encoder_cache_manager_obj=lambda: object())
    refused(f"encoder_cache_manager_cls {LATER}leave it out", set_("", ec_manager_config=manager))
    for values in ({"runner_type": "pooling"}, {"is_diffusion": True}):
        refused(f"pooling and diffusion models {LATER}{USE_OLDER}", set_("model_config", **values))
    refused(f"routed experts {LATER}{USE_OLDER}", set_("", aux_output_config=SimpleNamespace(enabled=True)))
    refused(f"per_request_spec_decode_metrics {LATER}leave it out", set_("observability_config", per_request_spec_decode_metrics="all"))
    refused(f"additional_config: quire.lifo_free_blocks {LATER}leave it out, or use vLLM 0.19.0", additional={"quire": {"lifo_free_blocks": True}})
    raises(ValueError, f"blocks of 4 tokens with a hash block size of 2 {LATER}{USE_OLDER}", lambda: make(arguments={"hash_block_size": 2}))
    for given in (4, None):
        assert make(arguments={"hash_block_size": given}).hash_block_size == 4
    raises(ValueError, "constructor arguments ['unknown']", lambda: make(arguments={"unknown": 1}))
    raises(ValueError, "throttle_prefills: quire.vllm.Scheduler does not support prefill_schedule_interval; set it to 1", lambda: make().schedule(True))
    scheduler = make()
    assert scheduler.get_ec_connector() is None and scheduler.reset_connector_cache() is True and scheduler.requires_kv_delivery is False


def groups(*specs, **values):
    def change(given):
        cache = given["kv_cache_config"]
        cache.kv_cache_groups = [KVCacheGroupSpec([f"layer{i}"], spec, **marks) for i, (spec, marks) in enumerate(specs)]
        for name, value in values.items():
            setattr(cache, name, value)

    return change


def caches():
    """Caches without decisions for vLLM 0.32.0 are refused, and a retention interval is checked as vLLM checks it."""
    shape = {"num_kv_heads": 1, "head_size": 1, "dtype": vllm_adapter.configs.torch.float16}
    full, wide = vllm_adapter.configs.FullAttentionSpec(4, **shape), vllm_adapter.configs.FullAttentionSpec(8, **shape)
    window = SlidingWindowSpec(4, 6, **shape)
    mamba = MambaSpec(4, ((1,),), (vllm_adapter.configs.torch.float16,))
    assert make(groups((full, {}), (window, {})))
    uniform = SimpleNamespace(block_size=4, kv_cache_specs={"a": full, "b": mamba})
    for spec in (mamba, type("UniformTypeKVCacheSpecs", (SimpleNamespace,), {})(**vars(uniform))):
        refused(f"KV-cache specs of type MambaSpec {LATER}{USE_OLDER}", groups((spec, {})))
    keeps = SlidingWindowSpec(4, 6, **shape, extra_retained_tokens=2)
    refused(f"sliding windows that keep more tokens than they attend to {LATER}{USE_OLDER}", groups((keeps, {})))
    refused(f"cache groups with different block sizes {LATER}{USE_OLDER}", groups((full, {}), (wide, {})))
    refused(f"draft models with separate cache groups {LATER}{USE_OLDER}", groups((full, {}), (window, {"is_eagle_group": True})))
    assert make(groups((full, {"is_eagle_group": True}), (window, {"is_eagle_group": True})))
    given = lambda interval: make(groups((full, {}), (window, {}), prefix_cache_retention_interval=interval))  # noqa: E731
    assert [given(interval)._core_config.retention_interval for interval in (None, 0, 8)] == [-1, 0, 8]
    for interval in (-4, 6):
        raises(ValueError, f"prefix_cache_retention_interval={interval}: use a multiple of 4", lambda: given(interval))
    refused("prefix_cache_retention_interval=8: the model has no sliding window; set it to 0", groups((full, {}), prefix_cache_retention_interval=8))
    told = make(groups((full, {}), (window, {})))._spec_kinds
    assert told == [("full_attention", None), ("sliding_window", 6)]


def options():
    """Limits that only vLLM 0.32.0 has reach the core."""
    config = make(
        set_("scheduler_config", watermark=0.25, max_num_active_seqs=3, long_prefill_token_threshold_adaptive=True), max_num_batched_tokens=48, queue_depth=2
    )._core_config
    assert (config.num_watermark_blocks, config.max_num_active_seqs, config.shared_prefill_tokens, config.max_in_flight_tokens) == (8, 3, 48, 96)
    plain = make()._core_config
    assert (plain.num_watermark_blocks, plain.max_num_active_seqs, plain.shared_prefill_tokens, plain.retention_interval) == (0, 0, 0, -1)
    delivery = lambda **more: make(connector="ScriptedConnector", **more)  # noqa: E731
    for role, depth, expected in (("kv_both", 1, (False, True)), ("kv_consumer", 2, (True, False)), ("kv_producer", 2, (False, True))):
        scheduler = delivery(role=role, queue_depth=depth)
        assert (scheduler.defer_block_free, scheduler.requires_kv_delivery) == expected, role
    assert make(queue_depth=2).defer_block_free is False


class FreesBlocks(parties.ScriptedHybridConnector):
    def has_pending_block_frees(self):
        return False


class HasSeveral(parties.ScriptedHybridConnector):
    inner = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._connectors = self.inner

    def has_pending_block_frees(self):
        return False


for cls in (FreesBlocks, HasSeveral):
    parties.KVConnectorFactory.register_connector(cls.__name__, __name__, cls.__name__)
sys.modules.setdefault("vllm_adapter_newer", sys.modules[__name__])


def connectors():
    """Connectors that free blocks of running requests are refused, also within another one."""
    refused("FreesBlocks, which frees blocks of running requests; use OffloadingConnector", connector="FreesBlocks")
    assert make(connector="HasSeveral"), "it only asks the others"
    HasSeveral.inner = [FreesBlocks.__new__(FreesBlocks)]
    refused("FreesBlocks, which frees blocks of running requests", connector="HasSeveral")
    HasSeveral.inner = [vllm_adapter.SimpleCPUOffloadConnector.__new__(vllm_adapter.SimpleCPUOffloadConnector)]
    refused("SimpleCPUOffloadConnector, which allocates blocks", connector="HasSeveral")
    bound = []
    parties.ScriptedConnector.bind_kv_cache_manager = lambda self, manager: bound.append(manager)
    scheduler = make(connector="ScriptedConnector")
    assert bound == [scheduler.kv_cache_manager]


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
    """What workers report of tokens is passed on to the right output; drafts and encoder inputs are counted."""
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
    """The rules of the stages, request by request."""
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
