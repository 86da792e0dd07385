"""Tests the calls of quire.vllm.ShadowScheduler with stand-ins for vLLM: each call has vLLM's answer, and failures end the comparison.

usage: vllm_shadow_calls.py VERSION CASE...
"""

import copy
import sys
from types import SimpleNamespace

from vllm_shadow_support import Log, add, make, parties, raises, result, run_cases, step

from quire.vllm import ShadowScheduler, _shadow
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import RequestStatus


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


if __name__ == "__main__":
    run_cases({case: globals()[case] for case in sys.argv[1:]})
