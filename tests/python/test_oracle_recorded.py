"""Tests that quire.vllm.Scheduler answers recorded scenarios like vLLM 0.19.0; `./dev oracle record` writes them, and docs/oracle.md
describes them.
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
GRAMMAR = os.path.join(HERE, "..", "golden", "oracle", "grammar.jsonl.xz")
CONTINUUM = os.path.join(HERE, "..", "golden", "oracle", "continuum.jsonl.xz")
NEWER = os.path.join(HERE, "..", "golden", "oracle", "scenarios_0_32.jsonl.xz")
SCENARIOS = os.path.join(HERE, "..", "golden", "oracle", "scenarios.jsonl.xz")


def run(*arguments):
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, os.path.join(HERE, "replay_recorded.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_all_recorded_answers_are_reproduced():
    done = run(SCENARIOS)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " 0 differ" in done.stdout


def test_all_recorded_answers_of_vllm_0_32_are_reproduced():
    done = run(NEWER, "", "0.32.0")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " 0 differ" in done.stdout


def test_all_recorded_answers_of_continuum_are_reproduced():
    done = run(CONTINUUM)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " 0 differ" in done.stdout


def test_all_recorded_answers_with_vllms_grammars_are_reproduced():
    done = run(GRAMMAR)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " 0 differ" in done.stdout


def test_missing_draft_token_is_detected(tmp_path):
    import json
    import lzma

    path, changed = tmp_path / "changed.jsonl.xz", 0
    with lzma.open(GRAMMAR, "rt") as file, lzma.open(path, "wt") as out:
        for line in map(json.loads, file):
            kept = [entry for entry in line["tape"] if entry[0] == "validate" and entry[1]]
            if kept and changed < 3:
                kept[0][1].pop()  # one token fewer is valid than vLLM's grammar reported
                out.write(json.dumps(line) + "\n")
                changed += 1
    done = run(str(path))
    assert done.returncode == 1 and changed == 3
    assert f" {changed} differ" in done.stdout


def test_wrong_answer_is_detected(tmp_path):
    # A limit that differs from the recorded run must cause a difference; otherwise the comparison detects nothing.
    import json
    import lzma

    path = tmp_path / "one.jsonl.xz"
    with lzma.open(SCENARIOS, "rt") as file:
        line = json.loads(next(file))
    line["script"]["config"]["max_num_batched_tokens"] = 1
    line["script"]["config"]["max_num_scheduled_tokens"] = 1
    with lzma.open(path, "wt") as file:
        file.write(json.dumps(line) + "\n")
    done = run(str(path))
    assert done.returncode == 1
    assert "differ" in done.stdout


def test_record_with_grammars_covers_their_features():
    """Covers each reasoning parser, the end of reasoning, kept and filtered draft tokens, refused tokens, preemptions, and both scheduling
    modes.
    """
    import collections
    import json
    import lzma

    counts = collections.Counter()
    with lzma.open(GRAMMAR, "rt") as file:
        for line in map(json.loads, file):
            config = line["script"]["config"]
            counts[config["guided"]["reasoner"]] += 1
            counts[config["async"]] += 1
            counts["preempting"] += any(what == "schedule" and answer != "raised" and bool(answer["preempted"]) for what, answer, _, _ in line["answers"])
            for what, question, answer in (call for _, _, calls, _ in line["answers"] for call in calls if call[0] in ("accept", "validate", "advance")):
                counts[what, bool(answer) if what != "advance" else tuple(answer)] += 1
                counts["filtered"] += what == "validate" and len(answer) < len(question)
    assert all(counts[name] for name in ("", "qwen3", "deepseek_r1", "deepseek_v3", True, False)), counts
    # (False, True): reasoning ended with this token, and the grammar begins after it.
    assert counts["advance", (False, True)] and counts["accept", True] >= 500 and counts["accept", False], counts
    assert counts["filtered"] >= 20 and counts["validate", True] >= 20 and counts["preempting"] >= 5, counts


def test_record_covers_rare_states():
    """Covers all hash modes, preemptions in half of the scenarios, most ways in which vLLM fails, rare states, and kept requests."""
    import collections
    import json
    import lzma

    counts = collections.Counter()
    hashes, ends = set(), set()
    with lzma.open(SCENARIOS, "rt") as file:
        for line in map(json.loads, file):
            hashes.add(line["script"]["config"]["hash"])
            ends.add(line.get("end"))
            counts["scenarios"] += 1
            counts["seldom looked at"] += line["script"]["look_every"] != 1
            counts["preempting"] += any(what == "schedule" and answer != "raised" and bool(answer["preempted"]) for what, answer, _, _ in line["answers"])
            counts["keeping"] += any(call[0].startswith("kept at") for _, _, calls, _ in line["answers"] for call in calls)
    assert hashes == {"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}
    assert len(ends - {None}) >= 10
    assert counts["preempting"] * 2 >= counts["scenarios"] >= 500
    assert counts["seldom looked at"] * 2 > counts["scenarios"] and counts["keeping"] >= 50
