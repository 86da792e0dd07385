"""Tests quire.Core step by step."""
import pytest

quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")


def make(**options):
    return quire.Core(quire.CoreConfig(**{"num_blocks": 32, "max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64, **options}))


def sampled(plan, token=7):
    return {r.id: [token] for r in plan.scheduled if r.samples}


def run(core, limit=1000):
    plans = []
    while core.has_work and len(plans) < limit:
        plans.append(core.schedule())
        core.apply(sampled(plans[-1]))
    return plans


def test_a_prompt_is_chunked_by_the_budget_and_then_decodes():
    core = make()
    core.add(list(range(100)), max_tokens=3)
    assert [p.num_scheduled_tokens for p in run(core)] == [64, 36, 1, 1]
    assert core.num_free_blocks == 31


def test_equal_prefixes_share_blocks_and_salts_keep_them_apart():
    core = make()
    core.add(list(range(40)), max_tokens=1)
    run(core)
    hit = core.add(list(range(40)), max_tokens=1)
    miss = core.add(list(range(40)), max_tokens=1, cache_salt="other")
    plan = core.schedule()
    assert {r.id: r.num_computed_tokens for r in plan.scheduled} == {hit: 32, miss: 0}
    assert core.blocks(hit)[:2] != core.blocks(miss)[:2]


def test_the_lowest_priority_is_preempted_when_blocks_run_out():
    core = make(num_blocks=6, policy=quire.SchedulingPolicy.PRIORITY, max_num_batched_tokens=128)
    important = core.add(list(range(30)), max_tokens=40, priority=0)
    other = core.add(list(range(100, 130)), max_tokens=10, priority=1)
    plans = run(core)
    assert core.num_preemptions > 0
    assert {i for plan in plans for i in plan.preempted} == {other}
    assert important not in core and other not in core


def test_equal_calls_give_equal_plans_and_snapshots():
    cores = [make(), make()]
    for core in cores:
        for i in range(6):
            core.add([i] * (10 + 7 * i), max_tokens=5)
        run(core, limit=4)
    assert cores[0].snapshot() == cores[1].snapshot()


def test_two_plans_are_outstanding_with_async_scheduling():
    core = make(async_scheduling=True)
    request = core.add([1, 2, 3], max_tokens=4)
    first, second = core.schedule(), core.schedule()
    assert core[request].num_output_placeholders == 2
    with pytest.raises(RuntimeError, match="max_outstanding_plans"):
        core.schedule()
    assert core.apply(sampled(first)).updates[0].tokens == [7]
    assert core.apply(sampled(second)).step == second.step


def test_accepted_drafts_are_returned_and_rejected_drafts_rolled_back():
    core = make(num_spec_tokens=2, num_lookahead_tokens=2)
    request = core.add([1, 2, 3], max_tokens=9)
    core.apply(sampled(core.schedule()))
    core.set_drafts({request: [5, 6]})
    plan = core.schedule()
    assert plan.scheduled[0].drafts == [5, 6] and plan.scheduled[0].num_tokens == 3
    outcome = core.apply({request: [5, 9]})
    assert outcome.updates[0].tokens == [5, 9]
    assert core[request].num_computed_tokens == len(core[request].tokens) - 1


def test_pause_finish_and_reset_change_the_state():
    core = make()
    request = core.add([1] * 20, max_tokens=5)
    core.pause_state = quire.PauseState.PAUSED_ALL
    assert core.schedule().scheduled == []
    core.apply({})
    core.pause_state = quire.PauseState.UNPAUSED
    core.apply(sampled(core.schedule()))
    assert not core.reset_prefix_cache()
    assert core.reset_prefix_cache(preempt_running=True)
    assert core[request].status == quire.RequestStatus.PREEMPTED
    assert core.finish(request) and not core.finish(request)
    assert request in core.schedule().finished


MISUSE = {
    "an empty prompt": (ValueError, "prompt", lambda core: core.add([])),
    "no output": (ValueError, "max_tokens", lambda core: core.add([1], max_tokens=0)),
    "a prompt beyond the model": (ValueError, "prompt", lambda core: core.add([1] * 300)),
    "an id twice": (ValueError, "id", lambda core: [core.add([1], id=5), core.add([1], id=5)]),
    "a result without a plan": (RuntimeError, "schedule", lambda core: core.apply({})),
    "a result for a stranger": (ValueError, "plan", lambda core: [core.add([1]), core.schedule(), core.apply({99: [1]})]),
    "too many tokens": (ValueError, "sampled", lambda core: [core.add([1], id=1), core.schedule(), core.apply({1: [1, 2]})]),
    "a token that is none": (TypeError, "list of int", lambda core: [core.add([1], id=1), core.schedule(), core.apply({1: ["a"]})]),
    "an unknown request": (KeyError, "ended", lambda core: core[5]),
    "blocks of an unknown request": (KeyError, "ended", lambda core: core.blocks(5)),
    "a cache group that is none": (ValueError, "group", lambda core: core.blocks(core.add([1]), group=9)),
    "an end that is none": (ValueError, "status", lambda core: core.finish(core.add([1]), quire.RequestStatus.RUNNING)),
    "a negative token count": (TypeError, "incompatible", lambda core: core.add([1], max_tokens=-1)),
    "an unknown option": (TypeError, "no option", lambda core: quire.CoreConfig(nonsense=1)),
    "no blocks": (ValueError, "num_blocks", lambda core: make(num_blocks=0)),
    "no length": (ValueError, "max_model_len", lambda core: make(max_model_len=0)),
    "events that nobody would see": (ValueError, "enable_kv_events", lambda core: make(enable_kv_events=True)),
    "encoder inputs that nobody can add": (ValueError, "max_encoder_tokens", lambda core: make(max_encoder_tokens=64)),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_raises_with_the_field_and_changes_nothing_else(what):
    error, text, call = MISUSE[what]
    core = make()
    with pytest.raises(error, match=text):
        call(core)
    while core.num_outstanding_plans:
        core.apply({})
    core.add([1, 2, 3], id=1000, max_tokens=2)
    run(core, limit=200)
    core.check_invariants()
    assert 1000 not in core


def test_blocks_of_a_job_are_pinned_while_its_tool_runs():
    core = make(policy=quire.SchedulingPolicy.CONTINUUM, pin_s=10.0, longest_tool_s=10.0)
    for now in (0.0, 1.0):  # the duration of the tool is known after the first turn
        core.add([7] * 40, max_tokens=1, job="agent", tool="ls", now=now)
        core.apply(sampled(core.schedule(now=now)), now=now)
    assert not core.reset_prefix_cache(), "the pin must hold the blocks"
    core.schedule(now=20.0)
    core.apply({}, now=20.0)
    assert core.reset_prefix_cache()


def test_everything_public_has_a_docstring():
    for name in quire.__all__:
        thing = getattr(quire, name)
        assert name == "__version__" or thing.__doc__, name
    for name in dir(quire.Core):
        if not name.startswith("_"):
            assert getattr(quire.Core, name).__doc__, name
