#!/usr/bin/env python3
"""Measures hit ratios of the lower tier's eviction policies on recorded traces, by the tier's size (policy_bench does the work).

Usage: policies.py --traces FOLDER [--binary build/release/policy_bench]. FOLDER holds Mooncake's conversation trace
(mooncake/conversation_trace.jsonl.gz) and kv-cache-tester's Claude Code sessions (claude_code/cc_global.jsonl.gz). A missing trace is
skipped, and the output says so.
"""
import argparse
import array
import gzip
import heapq
import json
import pathlib
import random
import subprocess

SESSIONS_AT_ONCE = 16  # concurrent Claude Code sessions: the trace does not contain their start times


def lines(path):
    with gzip.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)


def mooncake(path):
    """Returns the prompts of one hour of chat in the order of their time stamps. Blocks have 512 tokens; a block's id also identifies all
    blocks before the block."""
    for request in lines(path):
        yield request["hash_ids"]


def chained(ids, names, stride):
    """Returns block hashes for whole blocks of `stride` ids. An id identifies only the content; a block hash also identifies everything
    before the block."""
    parent, kept = 0, []
    for position, one in enumerate(ids, 1):
        parent = names.setdefault((parent, one), len(names) + 1)
        if position % stride == 0:
            kept.append(parent)
    return kept


def claude_code(path):
    """Returns the prompts of sessions in random order, SESSIONS_AT_ONCE at a time. A request follows when the previous answer and the
    thinking time after it have ended. Blocks have 256 tokens, which are four blocks of the trace."""
    names = {}
    sessions = list(lines(path))
    random.Random(1).shuffle(sessions)
    waiting = iter(sessions)
    active = [(0.0, number, 0, next(waiting)) for number in range(SESSIONS_AT_ONCE)]
    number = SESSIONS_AT_ONCE
    while active:
        time, which, turn, session = heapq.heappop(active)
        requests = [request for request in session["requests"] if "hash_runs" in request]
        if turn == len(requests):
            if (following := next(waiting, None)) is not None:
                heapq.heappush(active, (time, number, 0, following))
                number += 1
            continue
        request = requests[turn]
        yield chained((first + i for first, count in request["hash_runs"] for i in range(count)), names, 4)
        taken = (request.get("api_time") or 0) + (request.get("think_time") or 0)
        heapq.heappush(active, (time + taken, which, turn + 1, session))


TRACES = [
    ("Mooncake, conversation, blocks of 512 tokens", "mooncake/conversation_trace.jsonl.gz", mooncake, 4, (1000, 3000, 10000, 30000, 50000)),
    ("Claude Code, 16 sessions at once, blocks of 256 tokens", "claude_code/cc_global.jsonl.gz", claude_code, 8,
     (1000, 2000, 4000, 8000, 16000, 64000)),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--binary", default="build/release/policy_bench")
    arguments = parser.parse_args()
    for title, path, read, stored_at_once, sizes in TRACES:
        if not (arguments.traces / path).exists():
            print(f"{title}: left out, because {path} does not exist")
            continue
        prompts = array.array("I")
        for names in read(arguments.traces / path):
            prompts.append(len(names))
            prompts.extend(names)
        print(title, flush=True)
        subprocess.run([arguments.binary, str(stored_at_once), *map(str, sizes)], input=prompts.tobytes(), check=True)


if __name__ == "__main__":
    main()
