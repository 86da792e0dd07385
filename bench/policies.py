#!/usr/bin/env python3
"""Hit ratios of the lower tier's eviction policies on recorded traces, by the tier's size (policy_bench does the work).

Usage: policies.py --traces FOLDER [--binary build/release/policy_bench]. FOLDER holds Mooncake's conversation trace
(mooncake/conversation_trace.jsonl.gz) and kv-cache-tester's Claude Code sessions (claude_code/cc_global.jsonl.gz); without one its part is
left out, and said to be.
"""
import argparse
import array
import gzip
import heapq
import json
import pathlib
import random
import subprocess

SESSIONS_AT_ONCE = 16  # of Claude Code: the trace says nothing of when sessions began


def lines(path):
    with gzip.open(path, "rt") as file:
        for line in file:
            yield json.loads(line)


def mooncake(path):
    """One hour of chat in the order of its time stamps. Blocks of 512 tokens; a block's id names all before it, too."""
    for request in lines(path):
        yield request["hash_ids"]


def chained(ids, names, stride):
    """Names for whole blocks of `stride` ids: the ids name contents, a block's name everything before it."""
    parent, kept = 0, []
    for position, one in enumerate(ids, 1):
        parent = names.setdefault((parent, one), len(names) + 1)
        if position % stride == 0:
            kept.append(parent)
    return kept


def claude_code(path):
    """Sessions in random order, SESSIONS_AT_ONCE at a time, a request when the one before it and the thinking after it are over. Blocks of
    256 tokens, four of the trace."""
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
            print(f"{title}: left out, there is no {path}")
            continue
        prompts = array.array("I")
        for names in read(arguments.traces / path):
            prompts.append(len(names))
            prompts.extend(names)
        print(title, flush=True)
        subprocess.run([arguments.binary, str(stored_at_once), *map(str, sizes)], input=prompts.tobytes(), check=True)


if __name__ == "__main__":
    main()
