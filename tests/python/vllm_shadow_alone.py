"""Tests quire.vllm.ShadowScheduler with stand-ins for vLLM. Where vLLM's scheduler would run, another quire.vllm.Scheduler does, so that the
two always agree, until a test changes one of them.

usage: vllm_shadow_alone.py VERSION CASE...
"""

import copy
import io
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tools"), HERE]

import oracle_vllm  # noqa: E402

VERSION = sys.argv.pop(1)
oracle_vllm.install(VERSION)

from oracle import compare, config as configs, generate, parties, play, recorded, stage  # noqa: E402
from oracle.requests import RequestMaker  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason  # noqa: E402
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import RequestStatus  # noqa: E402

parties.install_once()

import quire.vllm  # noqa: E402
from quire.vllm import _adapter  # noqa: E402

IS_NEWER = VERSION == "0.32.0"


class Stock(quire.vllm.Scheduler):
    """Runs in place of vLLM's scheduler."""


class AsyncStock(Stock):
    pass


oracle_vllm.add_schedulers(Stock, AsyncStock)

from quire.vllm import ShadowScheduler  # noqa: E402
from quire.vllm import _journal, _shadow  # noqa: E402
from quire.vllm._compared_scheduler import copied_result, plan_of  # noqa: E402
from quire.vllm._replay import Answers, MissingAnswer, ReplayConnector, ReplayEncoderConnector, ReplayGrammar, ReplayGrammars  # noqa: E402

# Of vLLM 0.32.0's later seeds some have loads that fail by request, which a script does not record.
SEEDS = range(300, 319 if IS_NEWER else 330)
PLAIN = {
    "prefix_caching": True, "hash": "sha256", "int_hashes": False, "policy": "fcfs", "async": False, "chunked_prefill": True, "dcp": 1,
    "pcp": 1, "max_loras": 0, "kv_events": True, "log_stats": True, "kv_metrics": 0, "include_finished_set": False, "v2_runner": False,
    "routed_experts": False, "encoder_decoder": False, "load_failure": "fail", "reasoning": 0, "mfu": False, "vocab": 16, "follow": 0,
    "answers": {**_journal.NO_ANSWERS, "unit": 1, "reset": True}, "pp": 1, "queue_depth": 1, "spec": "none", "num_spec_tokens": 0,
    "mamba_mode": "none", "groups": [{"kind": "full", "block_size": 4}], "scheduler_block_size": 4, "cache_block_size": 4, "max_model_len": 64,
    "num_blocks": 33, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_num_scheduled_tokens": None, "long_prefill_token_threshold": 0,
    "reserve_full_isl": True, "multimodal": False, "mm_max_tokens": 0, "encoder_budget": 0, "encoder_cache": 0,
    "disable_chunked_mm_input": False, "ec_connector": False, "connector": "ScriptedHybridConnector",
}  # fmt: skip


class Log(logging.Handler):
    """Collects what the shadow logs."""

    def __init__(self):
        super().__init__()
        self.texts = []
        _shadow.logger.handlers, _shadow.logger.propagate = [self], False
        _shadow.logger.setLevel(logging.INFO)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


def stock(arguments):
    return (AsyncStock if arguments["vllm_config"].scheduler_config.async_scheduling else Stock)(**arguments)


def shadowed(script, observer=None):
    """Plays a random script on a shadow."""
    configs.SIDES["stock"] = lambda arguments: ShadowScheduler(**arguments)
    player = play.Player({**script, "events": [event for event in script["events"] if event[0] != "shutdown"]}, ("stock",), observer).play()
    configs.SIDES["stock"] = stock
    return player


def replayed(told):
    return recorded.RecordedPlayer(told, ("stock", "quire")).play()


def make(change=None, **config):
    """Returns a shadow with a plain configuration, driven by the test."""
    config = {**copy.deepcopy(PLAIN), **config}
    side = stage.Side("stock", 1, config["answers"])
    stage.enter(side)
    configs.prepare(config)
    arguments = configs.scheduler_arguments(config, side)
    if change:
        change(arguments)
    side.scheduler = ShadowScheduler(**arguments)
    return side.scheduler


def add(shadow, name, **spec):
    request = RequestMaker({"id": name, "doc": 0, "n": 10, "arrival": 0.0, **spec}, 16, configs.block_hasher(PLAIN)).make()
    shadow.add_request(request)
    return request


def result(plan, token=3):
    names = list(plan.num_scheduled_tokens)
    return ModelRunnerOutput(req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=[[token] for _ in names])


def step(shadow, token=3):
    plan = shadow.schedule()
    return shadow.update_from_output(plan, result(plan, token))


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}: {text}")


def written():
    """Nothing differs in runs with all features of the random scenarios, and their scripts repeat them."""
    kinds = set()
    for seed in SEEDS:
        script = generate.script(seed)
        player = shadowed(script)
        if player.raised is not None:
            continue
        shadow, config = player.sides[0].scheduler, script["config"]
        assert shadow.difference is None, (seed, shadow.difference)
        file = io.StringIO()
        shadow._journal.write(file)
        again = replayed(json.loads(file.getvalue()))
        assert again.num_steps == shadow.num_steps + len(shadow._plans), (seed, again.num_steps, shadow.num_steps)
        kinds |= {name for name in ("connector", "ec_connector", "async", "multimodal", "max_loras") if config[name]} | {config["spec"]}
    expected = {"connector", "async", "multimodal", "max_loras", "eagle"} | (set() if IS_NEWER else {"ec_connector", "draft_model"})
    assert expected <= kinds, kinds


def planted():
    """A batch slot less in quire's scheduler is found; vLLM's continues to the end, and the script repeats the difference."""
    whole = _adapter.core_config

    def smaller(scheduler):
        config = whole(scheduler)
        config.max_num_seqs -= type(scheduler).__name__ not in ("Stock", "AsyncStock")
        return config

    log, found = Log(), 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["QUIRE_SHADOW_DIR"] = folder
        for seed in SEEDS:
            _adapter.core_config = whole
            alone = shadowed(generate.script(seed))
            _adapter.core_config = smaller
            log.take()
            player = shadowed(generate.script(seed))
            shadow = player.sides[0].scheduler
            if player.raised is not None or shadow is None or shadow.difference is None or "raised" in shadow.difference:
                continue
            told = json.loads(Path(shadow.script).read_text())
            if any(event[0] == "grammar" for event in told["events"]):
                continue  # the script may not have a grammar that became ready in the last step
            found += 1
            assert player.num_steps == alone.num_steps and shadow._quire_scheduler is None and not shadow._plans
            assert Path(shadow.script).parent == Path(folder) and Path(shadow.script).name.startswith("quire-difference-")
            call, _, rest = shadow.difference.partition(" equal steps: ")[2].partition(".")
            assert shadow.difference.startswith("after ") and " differs\n  vLLM:  " in rest and "\n  quire: " in rest
            text = f"quire would have decided differently, {shadow.difference}\n./dev oracle replay {shadow.script} repeats the run."
            assert any(text in line for line in log.take())
            try:
                replayed(told)
                raise AssertionError(f"the script must repeat the difference: {seed} {shadow.difference}")
            except compare.Difference as difference:
                assert difference.part.partition(":")[0] == call, (difference.part, shadow.difference)
            _adapter.core_config = whole
            replayed(told)
            if found == 3:
                break
        assert found == 3
        os.environ["QUIRE_SHADOW_DIR"] = os.path.join(folder, "missing")
        shadow = make(max_num_seqs=1)
        shadow._quire_scheduler.add_request = None
        add(shadow, "a")
        assert shadow.difference.startswith("after 0 equal steps: add_request: quire raised\nTraceback") and shadow.script is None
        assert "The script could not be written to " in log.take()[-1]
        del os.environ["QUIRE_SHADOW_DIR"]
        tempfile.tempdir = folder
        shadow = make()
        shadow._quire_scheduler.add_request = None
        add(shadow, "a")
        assert Path(shadow.script).parent == Path(folder)
        step(shadow)
        assert shadow.num_steps == 0 and shadow.get_request_counts() == (1, 0), "vLLM's scheduler continues"


def long():
    """A run that is too long is compared to its end without a script."""
    _journal.LIMIT = 200
    log = Log()
    shadow = make()
    for name in "abcdef":
        add(shadow, name, max_tokens=8)
    while shadow.has_requests():
        step(shadow)
    assert shadow.difference is None and shadow._journal.full and not shadow._journal._events and not shadow._journal._answers
    shadow._quire_scheduler.add_request = None
    add(shadow, "x")
    assert shadow.script is None and "The run was too long to be recorded (200 values)" in log.take()[-1]


def ended():
    """If vLLM's scheduler raises, or plans are unknown, the comparison ends without a difference; a failure of the comparison is one."""
    log = Log()
    shadow = make()
    add(shadow, "a")
    step(shadow)
    assert shadow._quire_scheduler is not None and shadow._calls == [] == shadow._events == shadow._quire_scheduler.events, "nothing is kept"
    assert shadow._quire_scheduler.connector.calls == [] and not shadow._plans and shadow.num_steps == 1

    def fails(*_):
        raise KeyError("vLLM's own")

    shadow._vllm_scheduler.schedule = fails
    raises(KeyError, "vLLM's own", shadow.schedule)
    assert shadow.difference is None and shadow._quire_scheduler is None and shadow._journal is None and shadow._calls == [] == shadow._events
    assert log.take()[-1] == "quire.vllm.ShadowScheduler: vLLM's scheduler raised; the comparison ends after 1 equal steps"
    raises(KeyError, "vLLM's own", shadow.schedule)
    assert log.take() == [], "the end is logged once"

    shadow = make()
    add(shadow, "a")
    plan = copy.copy(shadow.schedule())
    shadow.update_from_output(plan, result(plan))
    assert shadow._quire_scheduler is None and shadow.difference is None and shadow.get_request_counts() == (1, 0)
    assert log.take()[-1] == "quire.vllm.ShadowScheduler: schedule() did not plan this step; the comparison ends"

    shadow = make()
    shadow._journal.event = fails
    add(shadow, "a")
    assert "add_request: the comparison raised\nTraceback" in shadow.difference and "vLLM's own" in shadow.difference
    step(shadow)
    assert shadow.get_request_counts() == (1, 0)

    shadow = make()
    add(shadow, "a")
    step(shadow)
    log.take()
    shadow.shutdown()
    assert log.take() == ["quire.vllm.ShadowScheduler: 1 steps, and quire made the same decisions as vLLM"] and shadow._quire_scheduler is None
    shadow.shutdown()
    assert log.take() == []


def unserved():
    """Under a version of vLLM without an adapter vLLM runs without the comparison; with an adapter the error is raised."""
    log = Log()

    def fails():
        raise TypeError("no such field")

    _shadow.compared_scheduler_class = fails
    raises(TypeError, "no such field", make)
    _shadow.is_served = lambda: False
    shadow = make()
    assert shadow.difference == "at start: TypeError('no such field')" and shadow._journal is None
    assert any("cannot be created under this version of vLLM: TypeError('no such field')" in text for text in log.take())
    add(shadow, "a", max_tokens=2)
    step(shadow), step(shadow)
    assert shadow.get_num_unfinished_requests() == 0 == shadow.num_steps
    shadow.shutdown()


def refused():
    """Options that only quire's scheduler has are refused by name, and so are connectors that allocate blocks."""

    def options(arguments):
        arguments["vllm_config"].additional_config = {"quire": {"admission_watermark": 0.5}}

    raises(ValueError, "additional_config: quire.admission_watermark with vLLM's own scheduler, which does not have this option", lambda: make(options))
    assert make().difference is None
    raises(AttributeError, "_vllm_scheduler", lambda: ShadowScheduler.__new__(ShadowScheduler).anything)
    raises(ValueError, "SimpleCPUOffloadConnector, which allocates blocks", lambda: make(connector="SimpleCPUOffloadConnector"))


class SimpleCPUOffloadConnector(parties.ScriptedHybridConnector):
    pass


parties.KVConnectorFactory.register_connector("SimpleCPUOffloadConnector", __name__, "SimpleCPUOffloadConnector")


def passed():
    """Each call has vLLM's answer, and is compared: a different answer of quire's scheduler is reported with the call's name."""
    calls = {
        "reset_prefix_cache": lambda shadow: shadow.reset_prefix_cache(),
        "reset_connector_cache": lambda shadow: shadow.reset_connector_cache(),
        "finish_requests": lambda shadow: shadow.finish_requests(iter(["a", "b"]), RequestStatus.FINISHED_ABORTED),
        "make_stats": lambda shadow: shadow.make_stats(),
        "get_grammar_bitmask": lambda shadow: shadow.get_grammar_bitmask(shadow._plans[-1][0]),
        "schedule": lambda shadow: shadow.schedule(),
        "update_from_output": lambda shadow: shadow.update_from_output(shadow._plans[-1][0], result(shadow._plans[-1][0])),
    }
    changed = {
        "reset_prefix_cache": lambda *_: "other", "reset_connector_cache": lambda *_: "other", "finish_requests": lambda *_: [("z", 9)],
        "make_stats": lambda *_: None, "get_grammar_bitmask": lambda *_: SimpleNamespace(structured_output_request_ids=["z"]),
        "schedule": lambda *_: None, "update_from_output": lambda *_: {},
    }  # fmt: skip
    for name, call in calls.items():
        answers = []
        for differs in (False, True):
            shadow = make()
            add(shadow, "a"), add(shadow, "b")
            shadow.schedule()
            if differs:
                setattr(shadow._quire_scheduler, name, changed[name])
            answers.append(call(shadow))
            assert (shadow.difference is not None) == differs, (name, shadow.difference)
            assert not differs or f"after 0 equal steps: {name}" in shadow.difference, shadow.difference
        assert type(answers[0]) is type(answers[1])
    silent = {
        "reset_encoder_cache": lambda shadow: shadow.reset_encoder_cache(),
        "set_pause_state": lambda shadow: shadow.set_pause_state(PauseState.PAUSED_ALL),
    }
    for name, call in silent.items():
        shadow = make()
        add(shadow, "a")
        call(shadow)
        assert shadow.difference is None
        setattr(shadow._quire_scheduler, name, lambda *_: add(shadow._quire_scheduler, "z") and None)
        call(shadow)
        assert f"{name}.counts[1] differs" in shadow.difference, shadow.difference
    for name, call in {**calls, **silent}.items():
        shadow, seen = make(), []
        add(shadow, "a")
        shadow.schedule()
        theirs = getattr(shadow._vllm_scheduler, name)
        setattr(shadow._vllm_scheduler, name, lambda *given: (seen.append(given), theirs(*given))[1])
        call(shadow)
        assert len(seen) == 1, f"vLLM's scheduler must get {name} once"
    shadow = make()
    kept = add(shadow, "a", max_tokens=1)
    shadow.set_pause_state(PauseState.PAUSED_ALL)
    assert shadow.pause_state is PauseState.PAUSED_ALL and shadow.schedule().num_scheduled_tokens == {}
    shadow.set_pause_state(PauseState.UNPAUSED)
    assert (shadow.get_num_unfinished_requests(), shadow.has_requests(), shadow.has_finished_requests()) == (1, True, False)
    outputs = step(shadow, 7)
    assert list(kept.output_token_ids) == [7] and outputs[0].outputs[0].new_token_ids == [7], "vLLM's own request has the token"
    assert shadow.get_kv_connector() is shadow._vllm_scheduler.connector
    assert shadow.requests == {} and shadow.has_finished_requests() and shadow.difference is None


def drafts():
    """Draft tokens reach both schedulers, before a step and within its output."""
    spec = {"spec": "eagle", "num_spec_tokens": 2, "max_num_seqs": 2}
    shadow = make(**spec)
    add(shadow, "a", max_tokens=9)
    step(shadow)
    shadow.update_draft_token_ids(DraftTokenIds(["a"], [[5, 6]]))
    plan = shadow.schedule()
    assert plan.scheduled_spec_decode_tokens == {"a": [5, 6]} and shadow._plans[-1][1].scheduled_spec_decode_tokens == {"a": [5, 6]}
    assert shadow._journal._events[-2] == ("drafts", ["a"], [[5, 6]]) and shadow.difference is None
    shadow._quire_scheduler.update_draft_token_ids_in_output = lambda *_: None
    shadow.update_draft_token_ids_in_output(DraftTokenIds(["a"], [[7, -1]]), plan)
    assert plan.scheduled_spec_decode_tokens == {"a": [7, -1]} and "update_draft_token_ids_in_output" in shadow.difference


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
    """What a script holds of a request, of the workers' results and of answers."""
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
    with tempfile.TemporaryDirectory() as scripts:
        for case in sys.argv[1:]:
            tempfile.tempdir = scripts
            if case in ("written", "planted"):  # the player has the clock
                globals()[case]()
            else:
                with stage.CLOCK:
                    globals()[case]()
            print(f"{case}: ok", flush=True)
