"""Tests that the checks of the soak test and of the hostile benchmark detect their faults."""

import argparse
import asyncio
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
import attackers  # noqa: E402
import good_load  # noqa: E402
import hostile  # noqa: E402
import soak  # noqa: E402

KNOWN = (["a", "b", "c"], [-1.5, -0.25, -3.0], "abc")


def events(tokens, logprobs, text):
    """Returns one event for the first token and one for the others; the split of an answer does not matter."""
    parts = [(tokens[:1], logprobs[:1], text[:1]), (tokens[1:], logprobs[1:], text[1:])]
    return [json.dumps({"choices": [{"text": t, "logprobs": {"tokens": k, "token_logprobs": p}}]}).encode() for k, p, t in parts]


def test_answer_is_good_only_if_it_equals_the_known_answer():
    assert good_load.judge(events(*KNOWN), KNOWN) is None
    assert "short" in good_load.judge(events(["a", "b"], [-1.5, -0.25], "ab"), KNOWN)
    assert "wrong from token 1" in good_load.judge(events(["a", "x", "c"], [-1.5, -0.25, -3.0], "axc"), KNOWN)
    assert "wrong from token 2" in good_load.judge(events(["a", "b", "c"], [-1.5, -0.25, -3.000001], "abc"), KNOWN)
    assert "wrong" in good_load.judge(events(["a", "b", "c"], [-1.5, -0.25, -3.0], "abd"), KNOWN)
    assert "unreadable" in good_load.judge([b'{"error": {}}'], KNOWN)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 429 Too Many Requests\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\n"])
def test_refused_and_truncated_answers_are_bad(answer):
    async def run():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        load = good_load.GoodLoad(server.sockets[0].getsockname()[1])
        question = good_load.Question((1,), 3, 0)
        load.known[question] = KNOWN
        await load.ask(question)
        server.close()
        assert load.num_good == 0 and len(load.bad) == 1

    asyncio.run(run())


def soaked(bad=(), late=100.0, gap=0.01):
    load = good_load.GoodLoad(0)
    load.bad = list(bad)
    load.samples["calm"].gaps, load.samples["hostile"].gaps = [0.01] * 9, [gap] * 9
    memory = soak.Memory(None, 1.0)
    memory.early, memory.late = 100.0, late
    return soak.judge(load, memory, True, 0, argparse.Namespace(growth_mib=48.0, limit=3.0))


def test_soak_fails_for_bad_answers_memory_growth_and_slow_streams():
    assert soaked() == []
    assert len(soaked(bad=["short: 3 of 32 tokens"])) == 1
    assert len(soaked(late=149.0)) == 1
    assert len(soaked(late=0.0)) == 1  # memory was never measured
    assert len(soaked(gap=0.04)) == 1


def attacked(gap=0.01, first=0.1, memory=100.0, unexpected=None, health_s=0.01, sent=50, code=0, bad=()):
    load = good_load.GoodLoad(0)
    load.bad = list(bad)
    for phase, times in (("quiet", (0.01, 0.1)), ("hostile", (gap, first))):
        load.samples[phase].gaps, load.samples[phase].firsts = [times[0]] * 200, [times[1]] * 20
    run = {"load": load, "attackers": {"marks": ({413: sent}, 60.0, 1.0)}, "unexpected": unexpected or {}, "memory MiB": memory, "exit": code,
           "health": {"slowest s": health_s}}  # fmt: skip
    return hostile.report("", run, 200.0)


@pytest.mark.parametrize(
    "fault",
    [{"gap": 0.021}, {"first": 0.21}, {"memory": 201.0}, {"unexpected": {"admin": {200: 1}}}, {"health_s": 1.1}, {"sent": 3}, {"code": -9},
     {"bad": ["wrong from token 3"]}],
)  # fmt: skip
def test_hostile_bench_fails_for_each_bound(fault):
    assert attacked() == []
    assert attacked(**fault)


def test_unexpected_status_codes_are_reported():
    by_header = attackers.Kind("", (), frozenset({413, 503}))
    assert attackers.unexpected(by_header, {413: 9, 503: 2, "cut off": 7, "no connection": 1}) == {}
    left_waiting = {attackers.LEFT_WAITING: 3}
    assert attackers.unexpected(by_header, {200: 1, 413: 9, 500: 2, **left_waiting}) == {200: 1, 500: 2, **left_waiting}
    assert attackers.unexpected(attackers.Kind("", (), attackers.REFUSED), left_waiting) == {}
