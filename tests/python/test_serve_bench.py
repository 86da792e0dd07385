"""Tests how bench/serve.py handles its arguments, turns and /proc."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from rivals import client, foreign, listing, pairs  # noqa: E402
from rivals.contestant import WORKLOADS  # noqa: E402


def test_list_of_engines_is_parsed():
    assert listing.parse("vllm, llama.cpp,vllm") == ["vllm", "llama.cpp"]
    for text in ("sglang", "vllm,sglang", "", ","):
        with pytest.raises(ValueError, match="Choose from llama.cpp, vllm, openvino"):
            listing.parse(text)


def test_every_turn_of_a_rival_is_between_two_of_quire():
    assert pairs.order(["a"], ["x", "y"], 2) == ["a", "x", "a", "y", "a", "x", "a", "y", "a"]
    assert pairs.order(["a", "b"], ["x", "y", "z"], 1) == ["a", "x", "b", "y", "a", "z", "b"]
    assert pairs.order(["a", "b"], [], 2) == ["a", "b", "a", "b"]


def test_ratios_use_neighbours_in_time():
    turns = [(name, {"total": value}) for name, value in [("a", 10), ("x", 5), ("a", 20), ("y", 10), ("b", 40), ("x", 8)]]
    assert pairs.ratios(turns, "a", "x", "total") == [3.0]  # the last turn of x has only b as a neighbour
    assert pairs.ratios(turns, "b", "x", "total") == [5.0]
    assert pairs.ratios(turns, "a", "y", "total") == [2.0] and pairs.ratios(turns, "b", "y", "total") == [4.0]
    assert pairs.spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)" and pairs.spread([]) == "–"


def test_ticks_are_read_from_proc():
    assert foreign.machine_ticks("cpu  10 20 30 400 5 6 7 8 9 9\ncpu0 1 1 1 1\n") == (60, 486)
    stat = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 99 0 0"
    assert foreign.process_ticks(stat) == (7, 127)
    processes = {1: (0, 5), 2: (1, 10), 3: (2, 20), 4: (1, 40), 5: (4, 80)}
    assert sorted(foreign.tree(2, processes)) == [2, 3] and sorted(foreign.tree(1, processes)) == [1, 2, 3, 4, 5]
    assert foreign.tree(9, processes) == []


# Uses half a second of a core, reports it, and waits.
BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(60)"


def test_only_other_processes_count_as_foreign():
    # Other tests may run at the same time, so both watches measure the same work over the same period.
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as worker:
        try:
            begin = time.monotonic()
            with_it, without_it = foreign.Watch(worker.pid), foreign.Watch(None)
            worker.stdout.readline()
            known, unknown = with_it.share(), without_it.share()
            core_seconds = (unknown - known) * (time.monotonic() - begin) * os.cpu_count()
        finally:
            worker.kill()
    assert 0.3 < core_seconds < 0.8
    assert foreign.tree_peak_mib(os.getpid()) > 5


def test_prompts_share_only_their_prefix():
    asker = client.Asker(WORKLOADS["shared"], 2, 1)
    assert len(asker.prefix) == 1024 and asker.tokens(64) != asker.tokens(64)
    assert client.Asker(WORKLOADS["distinct"], 2, 1).prefix == []
