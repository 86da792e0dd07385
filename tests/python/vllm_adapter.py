"""Tests quire.vllm.Scheduler with stand-ins for vLLM. test_vllm_adapter.py runs it in a separate process.

usage: vllm_adapter.py [0.19.0|0.32.0] CASE
"""

import copy
import os
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tools"), HERE]
os.environ["PYTHONHASHSEED"] = "0"

import oracle_vllm  # noqa: E402

VERSION = sys.argv.pop(1) if sys.argv[1] in ("0.19.0", "0.32.0") else "0.19.0"
oracle_vllm.install(VERSION)
from oracle import config as configs, generate_config, parties, play, snapshot, stage  # noqa: E402
from oracle.requests import RequestMaker  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import RequestStatus  # noqa: E402

parties.install_once()

from quire.vllm import Scheduler  # noqa: E402


class SimpleCPUOffloadConnector(parties.ScriptedHybridConnector):
    pass


parties.KVConnectorFactory.register_connector("SimpleCPUOffloadConnector", __name__, "SimpleCPUOffloadConnector")

CONFIG = {
    "prefix_caching": True, "hash": "sha256", "int_hashes": False, "policy": "fcfs", "async": False, "chunked_prefill": True, "dcp": 1,
    "pcp": 1, "max_loras": 0, "kv_events": False, "log_stats": False, "kv_metrics": 0, "include_finished_set": False, "v2_runner": False,
    "routed_experts": False, "encoder_decoder": False, "load_failure": "fail", "reasoning": 0, "mfu": False, "vocab": 16, "follow": 0,
    "answers": dict(generate_config.NO_ANSWERS), "pp": 1, "queue_depth": 1, "spec": "none", "num_spec_tokens": 0, "mamba_mode": "none",
    "groups": [{"kind": "full", "block_size": 4}], "scheduler_block_size": 4, "cache_block_size": 4, "max_model_len": 64, "num_blocks": 33,
    "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_num_scheduled_tokens": None, "long_prefill_token_threshold": 0,
    "reserve_full_isl": True, "multimodal": False, "mm_max_tokens": 0, "encoder_budget": 0, "encoder_cache": 0,
    "disable_chunked_mm_input": False, "ec_connector": False, "connector": None,
}  # fmt: skip


def make(change=None, arguments=None, **config):
    config = {**copy.deepcopy(CONFIG), **config}
    side = stage.Side("quire", 1, config["answers"])
    stage.enter(side)
    configs.prepare(config)
    given = {**configs.scheduler_arguments(config, side), **(arguments or {})}
    if change:
        change(given)
    side.scheduler = Scheduler(**given)
    return side.scheduler


def add(scheduler, name, n=10, **spec):
    request = RequestMaker({"id": name, "doc": 0, "n": n, "arrival": 0.0, **spec}, 16, configs.block_hasher(CONFIG)).make()
    scheduler.add_request(request)
    return request


def result(plan, token=3, **fields):
    names = list(plan.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=[[token] for _ in names], **fields
    )


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}: {text}")


def refusals():
    def hash_name(given):
        given["vllm_config"].cache_config.prefix_caching_hash_algo = "md5"

    def odd_spec(given):
        spec = type("OddSpec", (SimpleNamespace,), {})(block_size=16)
        given["kv_cache_config"].kv_cache_groups = [SimpleNamespace(layer_names=["layer"], kv_cache_spec=spec)]

    def no_blocks(given):
        given["vllm_config"].cache_config.num_gpu_blocks = 0

    def one_block(given):
        given["kv_cache_config"].num_blocks = 1

    raises(ValueError, "constructor arguments ['hash_block_size']", lambda: make(arguments={"hash_block_size": 16}))
    raises(ValueError, "num_gpu_blocks", lambda: make(no_blocks))
    raises(ValueError, "Unknown scheduling policy: lottery", lambda: make(policy="lottery"))
    raises(ValueError, "prefix_caching_hash_algo='md5'", lambda: make(hash_name))
    raises(ValueError, "KV-cache specs of type OddSpec", lambda: make(odd_spec))
    raises(ValueError, "num_blocks", lambda: make(one_block))
    raises(ValueError, "SimpleCPUOffloadConnector", lambda: make(connector="SimpleCPUOffloadConnector"))
    raises(ValueError, "encoder-decoder models are not supported with KV connectors",
           lambda: make(connector="ScriptedConnector", encoder_decoder=True, multimodal=True, mm_max_tokens=4))  # fmt: skip
    raises(ValueError, "context parallelism", lambda: make(routed_experts=True, dcp=2))


def pool():
    """A connector that binds the pool may read it but not change it."""
    scheduler = make(connector="PoolBindingConnector")
    kept = scheduler.kv_cache_manager.block_pool
    add(scheduler, "a")
    scheduler.schedule()
    held = scheduler.kv_cache_manager.get_block_ids("a")[0]
    assert len(held) == 3 and kept.get_num_free_blocks() == 32 - 3 and 0 < kept.get_usage() < 1
    assert [kept.blocks[i].ref_cnt for i in held] == [1, 1, 1] and kept.blocks[held[0]].block_hash is not None
    assert kept.free_block_queue.num_free_blocks == 29 and held[0] not in [block.block_id for block in kept.free_block_queue.get_all_free_blocks()]
    key = kept.blocks[held[0]].block_hash
    assert len(kept.cached_block_hash_to_block) == 2 and kept.cached_block_hash_to_block.get_one_block(key).block_id == held[0]
    assert kept.cached_block_hash_to_block.get_one_block(b"nobody's") is None
    for verb in ("get_new_blocks", "touch", "free_blocks", "cache_full_blocks"):
        raises(NotImplementedError, f"does not have {verb!r}: connectors can read blocks, but not allocate, touch or free them", lambda: getattr(kept, verb))
    raises(AttributeError, "ref_cnt", lambda: setattr(kept.blocks[held[0]], "ref_cnt", 7))
    looked = kept.blocks[held[0]]
    scheduler.running.clear()
    scheduler.waiting.clear()
    assert looked.ref_cnt == 1 and len(scheduler.running) == 1
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    assert looked.ref_cnt == 0, "a block must show its current state"


def views():
    """Reads what code written for vLLM's scheduler reads."""
    scheduler = make(connector="ScriptedConnector", multimodal=True, mm_max_tokens=4, encoder_budget=8, encoder_cache=8)
    manager = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    assert (manager.kv_cache_group_id, manager.block_size) == (0, 4)
    assert manager.kv_cache_spec is scheduler.kv_cache_config.kv_cache_groups[0].kv_cache_spec
    add(scheduler, "a", images=[[0, 4, "image", None]])
    held = add(scheduler, "b", n=5)
    plan = scheduler.schedule()
    assert {name: len(blocks) for name, blocks in manager.req_to_blocks.items()} == {"a": 3, "b": 2}
    assert manager.req_to_blocks["a"][0].ref_cnt == 1 and manager.req_to_blocks["nobody"] == []
    assert manager.num_cached_block == {"a": 2, "b": 1}
    cache = scheduler.encoder_cache_manager
    assert cache.cached == {"image": set()} and dict(cache.freeable) == {"image": 4}, "the item stays until its slot is needed"
    assert (cache.cache_size, cache.num_free_slots, cache.num_freeable_slots, cache.freed) == (8, 4, 8, [])
    assert held.num_computed_tokens == 5, "a held request must be up to date after each call"
    scheduler.update_from_output(plan, result(plan))
    assert list(held.output_token_ids) == [3]
    assert scheduler.finished_recving_kv_req_ids == set() == scheduler.failed_recving_kv_req_ids
    waiting = [add(scheduler, name) for name in "cde"]
    queue = scheduler.waiting
    queue.remove_requests(waiting[:2])
    assert list(queue) == [waiting[2]] and list(scheduler.waiting) == waiting, "the queue is a copy"
    scheduler.requests.clear()
    assert set(scheduler.requests) == set("abcde")


class Other(parties.ScriptedConnector):
    def __init__(self):
        self.asked = 0

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self.asked += 1
        return 8, False

    def update_state_after_alloc(self, *_):
        pass

    def build_connector_meta(self, scheduler_output):
        return self

    def take_events(self):
        return ()


def replaced():
    """A connector that replaces another one answers from then on. It can be added or removed only while there are no requests."""
    scheduler = make(connector="ScriptedConnector")
    scheduler.schedule()
    scheduler.connector = Other()
    add(scheduler, "a")
    plan = scheduler.schedule()
    assert scheduler.connector.asked == 1 and plan.num_scheduled_tokens == {"a": 2} and plan.kv_connector_metadata is scheduler.connector

    without = make()
    without.schedule()
    without.connector = Other()
    add(without, "a")
    assert without.schedule().num_scheduled_tokens == {"a": 2}
    raises(RuntimeError, "only while the scheduler has no requests", lambda: setattr(without, "connector", None))
    without.connector = Other()

    def shortens(request, _):
        request._all_token_ids.pop()
        return 0, False

    without.connector.get_num_new_matched_tokens = shortens
    add(without, "b")
    raises(NotImplementedError, "the connector changed request b from 10 to 9 tokens", without.schedule)


def queued():
    """quire.vllm.Connector learns of each new request once; the inputs of a session are not new requests."""
    scheduler, seen = make(connector="ScriptedConnector"), []
    add(scheduler, "before")
    scheduler.connector.quire_on_queued = seen.append
    first = add(scheduler, "a", resumable=1)
    add(scheduler, "a", resumable=1)
    second = add(scheduler, "b")
    assert seen == [first, second]


def ending():
    """The end conditions that the core gets: none for a pooling request, and the sampling parameters' own."""
    from quire.vllm import _requests

    none = {"min_tokens": 0, "eos_ids": [], "stop_token_ids": [], "repetition": (0, 0, 0)}
    params = RequestMaker({"id": "a", "doc": 0, "n": 5, "arrival": 0.0}, 16, None).params
    assert _requests.ending(None) == none == _requests.ending(params)
    spec = {"id": "a", "doc": 0, "n": 5, "arrival": 0.0, "min_tokens": 2, "eos": 0, "stop": [7], "repetition": [4, 3, 2]}
    told = _requests.ending(RequestMaker(spec, 16, None).params)
    assert told == {"min_tokens": 2, "eos_ids": [0], "stop_token_ids": [7], "repetition": (3, 4, 2)}
    assert not _requests.needs_logprobs(None) and not _requests.needs_logprobs(params)
    assert make()._core_config.max_loras == 0 and make(max_loras=3)._core_config.max_loras == 3


def idle():
    """A step that scheduled nothing may have no result; its reports come with the next step."""
    scheduler = make(log_stats=True, kv_events=True, include_finished_set=True)
    add(scheduler, "a", max_tokens=1)
    first = scheduler.schedule()
    scheduler.update_from_output(first, result(first))
    scheduler.schedule(), scheduler.schedule()
    add(scheduler, "b")
    scheduler.reset_prefix_cache()
    plan = scheduler.schedule()
    outputs = scheduler.update_from_output(plan, result(plan))
    assert [output.request_id for output in outputs[0].outputs] == ["b"] and outputs[0].scheduler_stats.prefix_cache_stats.queries == 10
    assert outputs[0].scheduler_stats.prefix_cache_stats.reset
    add(scheduler, "c")
    busy, later = scheduler.schedule(), scheduler.schedule()
    assert busy.num_scheduled_tokens
    raises(ValueError, "does not belong to the oldest outstanding step", lambda: scheduler.update_from_output(later, result(later)))


def broken():
    """After a connector raises within a step, every later call reports the failure."""
    scheduler = make(connector="ScriptedConnector")

    def fails(*_):
        raise KeyError("the store is gone")

    add(scheduler, "a")
    plan = scheduler.schedule()
    scheduler.connector.build_connector_meta = fails
    raises(KeyError, "the store is gone", scheduler.schedule)
    said = "the scheduler cannot continue: an earlier call ended with an exception of a connector or grammar"
    for call in (
        scheduler.schedule,
        lambda: scheduler.update_from_output(plan, result(plan)),
        lambda: scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED),
        lambda: scheduler.reset_prefix_cache(True),
        scheduler.reset_connector_cache,
        scheduler.reset_encoder_cache,
        lambda: add(scheduler, "b"),
        scheduler.make_stats,
    ):
        raises(RuntimeError, said, call)


def order():
    """Results that do not belong to the oldest outstanding step are refused and change nothing."""
    scheduler = make(**{"async": True})
    add(scheduler, "a")
    raises(RuntimeError, "no step is outstanding", lambda: scheduler.update_from_output(SimpleNamespace(num_scheduled_tokens={}), result_of_none()))
    first = scheduler.schedule()
    add(scheduler, "b", n=5)
    second = scheduler.schedule()
    assert list(first.num_scheduled_tokens) == ["a"] and list(second.num_scheduled_tokens) == ["a", "b"]
    before = scheduler.debug_snapshot()
    raises(ValueError, "does not belong to the oldest outstanding step", lambda: scheduler.update_from_output(second, result(second)))
    lacking = result(first)
    lacking.req_id_to_index = {}
    raises(KeyError, "does not contain the scheduled request a", lambda: scheduler.update_from_output(first, lacking))
    far = result(first)
    far.req_id_to_index = {"a": 3}
    raises(ValueError, "sampled_token_ids: has no row 3", lambda: scheduler.update_from_output(first, far))
    unknown = result(first, kv_connector_output=KVConnectorOutput(finished_sending={"nobody"}))
    raises(KeyError, "finished_sending: no request 'nobody'", lambda: scheduler.update_from_output(first, unknown))
    assert scheduler.debug_snapshot() == before
    assert scheduler.update_from_output(first, result(first))[0].outputs[0].new_token_ids == [3]
    outputs = scheduler.update_from_output(second, result(second, token=4))[0].outputs
    assert [(output.request_id, output.new_token_ids) for output in outputs] == [("a", [4]), ("b", [4])]
    raises(ValueError, "already exists", lambda: add(scheduler, "a"))


def result_of_none():
    return ModelRunnerOutput(req_ids=[], req_id_to_index={})


def abort():
    """An aborted request ends as aborted, immediately and once, whatever is in flight."""
    scheduler = make(**{"async": True})
    kept = add(scheduler, "a", max_tokens=5)
    plan = scheduler.schedule()
    assert scheduler.finish_requests(["a", "a", "nobody"], RequestStatus.FINISHED_ABORTED) == [("a", 0)]
    assert scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED) == []
    assert scheduler.update_from_output(plan, result(plan)) == {}
    assert kept.status == RequestStatus.FINISHED_ABORTED and list(kept.output_token_ids) == []
    assert not scheduler.requests and scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 32
    raises(ValueError, "finished_status", lambda: scheduler.finish_requests(None, RequestStatus.RUNNING))


def kept():
    """Requests that a connector holds are always up to date, even if no other code reads them."""
    scheduler = make(connector="ScriptedConnector", kv_events=True)
    seen = []
    request = add(scheduler, "a", n=10, max_tokens=3)

    def look(*_):
        seen.append((request.num_tokens, request.num_computed_tokens, len(request.block_hashes), list(request.output_token_ids)))
        return ()

    connector = scheduler.connector
    connector.take_events = connector.get_kv_connector_stats = look
    stats = parties.Stats(data={"bytes": 1})
    for token in (5, 6):
        plan = scheduler.schedule()
        scheduler.update_from_output(plan, result(plan, token, kv_connector_output=KVConnectorOutput(kv_connector_stats=stats)))
    assert seen == [(10, 10, 2, []), (11, 10, 2, [5]), (11, 11, 2, [5]), (12, 11, 3, [5, 6])], seen


def beyond():
    """A request that min_tokens carries beyond max_model_len breaks no invariant: vLLM allows it and counts blocks that the request never
    had.
    """
    config = {**CONFIG, "max_model_len": 8, "num_blocks": 41, "spec": "eagle", "num_spec_tokens": 4, "vocab": 2, "max_num_seqs": 3,
              "groups": [{"kind": "sliding", "block_size": 1, "window": 1}, {"kind": "sliding", "block_size": 1, "window": 5}],
              "scheduler_block_size": 1, "cache_block_size": 1, "reserve_full_isl": False}  # fmt: skip
    specs = [{"id": "a", "doc": 1, "n": 1}, {"id": "b", "doc": 0, "n": 1}, {"id": "c", "doc": 2, "n": 6, "tail": [0], "min_tokens": 13}]
    events = [["add", {**spec, "arrival": 0.0}] for spec in specs] + [["step", 0, {}]] * 3 + [["reset_prefix", True, True], ["step", 0, {}]]
    lengths = []

    def observer(player, *_):
        lengths.extend(request[1] for request in snapshot.of(player.sides[0].scheduler)["requests"].values())

    play.Player({"seed": 2105, "config": config, "events": events}, ("quire",), observer).play()
    assert max(lengths) > 8


def gone():
    """vLLM 0.32.0: a request that a reset has preempted is aborted before the next plan, which names it, and which a connector is shown."""
    answers = dict.fromkeys(("unknown", "async", "sync", "unit", "delay", "stats", "events", "reset", "finish", "invalid", "encoder", "failed"), 0)
    config = {**CONFIG, "prefix_caching": False, "load_failure": "fail", "connector": "ScriptedConnector", "role": "kv_consumer",
              "answers": {**answers, "params": 1, "inspect": 1, "keep": True}, "follow": 90, "queue_depth": 2}  # fmt: skip
    events = [["add", {"id": "a", "doc": 0, "arrival": 2.0, "n": 1}], ["step", 0, {}], ["pause", 1], ["reset_prefix", True, False],
              ["step", 0, {"abort": ["a"]}], ["step", 0, {}]]  # fmt: skip
    unfinished = []

    def observer(player, *_):
        unfinished.append(player.sides[0].scheduler.has_unfinished_requests())

    play.Player({"seed": 1, "config": config, "events": events}, ("quire",), observer).play()
    assert any(unfinished) and not unfinished[-1], unfinished


def continuum():
    """CONTINUUM by --additional-config: blocks of a turn stay while its tool runs, and invalid values are refused."""
    from quire.vllm import _continuum

    raises(ValueError, "quire.policy='lottery'", lambda: make(additional={"quire": {"policy": "lottery"}}))
    raises(ValueError, "quire.pin_s without the policy continuum", lambda: make(additional={"quire": {"pin_s": 1.0}}))
    raises(ValueError, "quire.pin_seconds", lambda: make(additional={"quire": {"policy": "continuum", "pin_seconds": 1}}))
    raises(ValueError, "pin_s", lambda: make(additional={"quire": {"policy": "continuum", "pin_s": -1.0}}))
    assert _continuum.tool_in("```bash\nls -l\n```") == "ls" and _continuum.tool_in("```bash\nls\n```" * 2) == ""

    texts = {3: "```bash\nls\n```", 4: "done"}
    scheduler = make(additional={"quire": {"policy": "continuum"}})
    scheduler.decode_output = lambda tokens: texts[tokens[-1]]
    pool = scheduler.kv_cache_manager.block_pool

    def turn(name, token, **spec):
        add(scheduler, name, max_tokens=1, **spec)
        scheduler.update_from_output(plan := scheduler.schedule(), result(plan, token))

    turn("a", 3, job="job")
    turn("b", 4, job="other")
    turn("c", 3, job="last", last=1)
    turn("d", 3)
    assert list(scheduler.requests) == ["a"] and scheduler.requests["a"].is_finished() and scheduler.get_num_unfinished_requests() == 0
    assert pool.get_num_free_blocks() == 32 - 3
    stage.CLOCK.now += 2.0
    scheduler.update_from_output(plan := scheduler.schedule(), result(plan))
    assert not scheduler.requests and pool.get_num_free_blocks() == 32
    scheduler.check_invariants()


if __name__ == "__main__":
    if sys.argv[1] == "beyond":
        beyond()
        sys.exit(0)
    with stage.CLOCK:
        globals()[sys.argv[1]]()
