"""Tests the values that quire.vllm.ShadowScheduler compares, copies and records, with stand-ins for vLLM.

usage: vllm_shadow_values.py VERSION CASE...
"""

import io
import json
import sys
from types import SimpleNamespace

from vllm_shadow_support import IS_NEWER, PLAIN, RequestMaker, add, configs, make, raises, result, run_cases, step

from oracle import compare
from quire.vllm import _journal
from quire.vllm._compared_scheduler import copied_result, plan_of
from quire.vllm._replay import Answers, MissingAnswer, ReplayConnector, ReplayEncoderConnector, ReplayGrammar, ReplayGrammars
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput


def compared():
    """Plain values: the first difference of two answers. Values of a clock, of random numbers and of the workers are left out."""
    first = compare.first_difference
    assert first({"a": [1, 2], "b": 1}, {"a": [1, 3], "b": 2}) == (".a[1]", 2, 3) and first({"a": 1}, {"a": 1, "b": 2}) == (".b", "absent", 2)
    assert first({"a": 1, "b": 2}, {"a": 1}) == (".b", 2, "absent") and first({b"\x0f": 1}, {b"\x0f": 2}) == (".0f", 1, 2)
    assert first([1, 2], [1]) == ("", [1, 2], [1]) and first((1, {"x": 2}), (1, {"x": 3}), "p") == ("p[1].x", 2, 3) and first(1, [1]) == ("", 1, [1])
    assert compare.shorten("a" * 10, 12) == repr("a" * 10) and compare.shorten("a" * 11, 12) == "'" + "a" * 11 + " ... (13 characters)"
    shadow = make()
    add(shadow, "a", max_tokens=3)
    outputs = step(shadow)
    (client, told, stats, timestamp, finished, rest), = compare.outputs(outputs)
    assert client == 0 and told[0][:2] == ("a", [3]) and timestamp > 0 and finished is None and rest == (0, None, None, None)
    assert [kind for kind, _ in told[0][7]] == [1, 2] and stats["kv_cache_eviction_events"] == []
    (_, decided, stats_, timestamp, _, _), = compare.outputs(outputs, True)
    assert decided[0][7] == [1, 2] and timestamp is None and set(stats) - set(stats_) == {"kv_cache_eviction_events", "kv_connector_stats", "perf_stats"}
    assert compare.stats(None) is None and stats["prefix_cache_stats"]["queries"] == 10
    assert compare.grammar(None) is None and compare.grammar(SimpleNamespace(structured_output_request_ids=["a"], grammar_bitmask=[1])) == (["a"], [1])
    if not IS_NEWER:
        return
    one = lambda name, tokens=(), reason=FinishReason.ERROR: EngineCoreOutput(name, list(tokens), finish_reason=reason)  # noqa: E731
    client = lambda *made: EngineCoreOutputs(outputs=list(made))  # noqa: E731
    names = lambda told: [[output[0] for output in outputs] for _, outputs, *_ in told]  # noqa: E731
    mixed = {0: client(one("b"), one("c", [1]), one("a"), one("d", reason=FinishReason.STOP))}
    assert names(compare.outputs(mixed)) == [["b", "c", "a", "d"]] and names(compare.outputs(mixed, True)) == [["c", "d", "a", "b"]]
    single = {0: client(one("b"), one("c", [1]))}
    assert names(compare.outputs(single, True)) == [["b", "c"]], "one such output has a place"
    several = {2: client(one("b")), 0: client(one("c", [1])), 1: client(one("a"))}
    several[2].scheduler_stats = next(iter(outputs.values())).scheduler_stats
    told = compare.outputs(several, True)
    assert [(client, value is None) for client, _, value, *_ in told] == [(0, False), (1, True), (2, True)] and names(told) == [["c"], ["a"], ["b"]]
    assert [client for client, *_ in compare.outputs(several)] == [2, 0, 1]
    assert [client for client, *_ in compare.outputs({2: client(one("b")), 0: client(one("c", [1]))}, True)] == [2, 0]


def copied():
    """quire's scheduler gets copies: its changes do not reach vLLM's request, features, results or tokens."""
    shadow = make(multimodal=True, mm_max_tokens=4, encoder_budget=8, encoder_cache=8)
    request = add(shadow, "a", images=[[0, 4, "image", None]])
    (own,) = shadow._quire_scheduler.requests.values()
    assert own is not request and own.mm_features[0] is not request.mm_features[0] and own.prompt_token_ids == request.prompt_token_ids
    for name in ("_output_token_ids", "_all_token_ids", "block_hashes", "spec_token_ids", "events", "prompt_token_ids", "mm_features"):
        assert getattr(own, name) is not getattr(request, name)
    plan = shadow.schedule()
    given = result(plan)
    given.kv_connector_output = KVConnectorOutput(kv_connector_stats="the worker's")
    taken = copied_result(given)
    assert taken.sampled_token_ids == given.sampled_token_ids and taken.sampled_token_ids[0] is not given.sampled_token_ids[0]
    assert taken.kv_connector_output.kv_connector_stats is None and given.kv_connector_output.kv_connector_stats == "the worker's"
    assert copied_result(ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=None)).sampled_token_ids == []
    assert not {"kv_meta", "ec_meta"} & set(plan_of(plan)) and plan_of(plan)["total"] == 10
    shadow.update_from_output(plan, result(plan))
    assert shadow.difference is None and list(own.output_token_ids) == [3] == list(request.output_token_ids)


def recorded_values():
    """A script holds the values of a request, of the workers' results and of answers."""
    shadow = make(max_loras=2, multimodal=True, mm_max_tokens=4, encoder_budget=8, encoder_cache=8)
    maker = {"id": "a", "doc": 0, "n": 10, "arrival": 4.0, "salt": "s", "priority": 3, "lora": 1, "max_tokens": 7, "min_tokens": 2, "client": 1,
             "images": [[0, 4, "image", [1, 0, 1, 1]]], "skip_read": True, "stop": [5]}  # fmt: skip
    told = _journal.request_spec(RequestMaker(maker, 16, configs.block_hasher(PLAIN)).make())
    assert (told["id"], len(told["tokens"]), told["arrival"], told["salt"], told["priority"], told["lora"]) == ("a", 10, 4.0, "s", 3, 1)
    assert (told["max_tokens"], told["min_tokens"], told["client"], told["stop"]) == (7, 2, 1, [5])
    assert told["images"] == [[0, 4, "image", [1, 0, 1, 1]]] and (told["resumable"], told["embeds"], told["pooling"], told["grammar"]) == (0, 0, 0, 0)
    plain = _journal.request_spec(RequestMaker({"id": "b", "doc": 0, "n": 5, "arrival": 0.0}, 16, None).make())
    assert plain["lora"] == 0 and "images" not in plain and plain["repetition"] is None
    worker = KVConnectorOutput(finished_sending={"b", "a"}, finished_recving=None, invalid_block_ids={9, 2})
    output = ModelRunnerOutput(req_ids=["a"], req_id_to_index={"a": 0}, sampled_token_ids=[[1, 2]], kv_connector_output=worker,
                               pooler_output=[None, 5], num_nans_in_logits={"a": 1})  # fmt: skip
    assert _journal.result(output) == {"ids": [("a", 0)], "sampled": [[1, 2]], "pooled": [0, 1], "nans": {"a": 1}, "kv": [["a", "b"], [], [2, 9]]}
    assert _journal.result(ModelRunnerOutput(req_ids=[], req_id_to_index={})) == {"ids": [], "sampled": []}
    config = shadow._journal._config
    assert config["max_loras"] == 2 and config["connector"] == "RecordedConnector" and config["groups"] == [{"kind": "full", "block_size": 4}]
    assert (config["encoder_budget"], config["encoder_cache"], config["multimodal"], config["mm_max_tokens"]) == (8, 8, True, 1)
    assert (config["prefix_caching"], config["kv_events"], config["load_failure"], config["log_stats"]) == (True, False, "fail", True)
    kept = _journal.Journal({"x": 1})
    kept.event("add", [1, {"a": 2}])
    kept.event("update")
    kept.event_before("grammar", "a")
    kept.answer("match", "a", [1, True])
    kept.answer("match", "a", [2, False])
    file = io.StringIO()
    kept.write(file)
    told = json.loads(file.getvalue())
    assert told["events"] == [["add", [1, {"a": 2}]], ["grammar", "a"], ["update"]] and told["config"] == {"x": 1}
    assert told["recorded"] == {"match": {"a": [[1, True], [2, False]]}}
    assert kept._size == 6 + 2 + 3 + 3


def answers():
    """Recorded answers are given in order, per question and name; a question that was not asked is an error, unless it has a default."""
    kept = Answers({"match": {"a": [1, 2], "b": [3]}})
    kept.note("match", "a", 4)
    assert [kept.take("match", "a") for _ in range(3)] == [1, 2, 4] and kept.take("match", "b") == 3
    raises(MissingAnswer, "match of 'a'", lambda: kept.take("match", "a"))
    assert kept.take("events", "", ()) == () and kept.take("reset", "", None) is None
    request = lambda name, is_structured=True: SimpleNamespace(request_id=name, use_structured_output=is_structured)  # noqa: E731
    grammars = ReplayGrammars(Answers({"advance": {"a": [True]}, "accept": {"a": [0, 1]}, "valid": {"a": [1]}}))
    assert grammars.should_advance(request("a")) is True and not grammars.should_advance(request("b", False))
    assert [grammars.accept_tokens(request("a"), [1]) for _ in range(2)] == [False, True] and grammars.accept_tokens(request("b", False), [1]) is True
    assert grammars.validate_tokens(request("a"), [7, 8]) == [7] and grammars.validate_tokens(request("b", False), [7, 8]) == [7, 8]
    assert grammars.grammar_bitmask({}, [], {}) is None
    grammar = ReplayGrammar(Answers({"valid": {"a": [1]}}), "a")
    assert grammar.validate_tokens([4, 5]) == [4] and grammar.accept_tokens("a", [1]) is True
    connector = ReplayConnector(Answers({"match": {"a": [[3, True]]}, "finished": {"a": [[False, {"x": 1}]]}, "reset": {"": [False]}}))
    assert connector.get_num_new_matched_tokens(request("a"), 0) == (3, True) and connector.reset_cache() is False and connector.take_events() == ()
    assert connector.request_finished_all_groups(request("a"), ([1], [2])) == (False, {"x": 1}) and connector.calls == [("finished", "a", ([1], [2]))]
    blocks = SimpleNamespace(get_block_ids=lambda: ([5],))
    assert connector.update_state_after_alloc(request("a"), blocks, 4) is None and connector.calls[1] == ("allocated", "a", ([5],), 4)
    assert ReplayEncoderConnector(Answers({"item": {"i": [True]}})).has_cache_item("i") is True


if __name__ == "__main__":
    run_cases({case: globals()[case] for case in sys.argv[1:]})
