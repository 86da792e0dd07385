"""Plays recorded agents under FCFS and CONTINUUM: converts two public recordings to the sessions of bench/agents_bench.cpp, and plays them.

mini_swe (gruckion/mini-swe-agent over SWE-bench): sessions start at their recorded times, and the tool of a turn is the first word of its
bash block. The time between two turns is the model's time plus the tool's; the model's time is assumed to be 1.5 s plus 80 tokens per
second. swe_tools (yunwei37/agentcgroup, SWE-rebench): tools have names and times. The sessions ran alone, so their starts are drawn
(Poisson, --rate).
"""

import argparse
import gzip
import json
import pathlib
import random
import re
import subprocess
import sys

MINI_SWE, SWE_TOOLS = "mini_swe/gemini3_swebench_350.jsonl.gz", "swe_tools/swe_rebench_tools.jsonl.gz"
BASH = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)


def tool_in(text: str) -> str:
    blocks = BASH.findall(text)
    words = blocks[0].split() if len(blocks) == 1 else []
    return words[0] if words else "-"


def mini_swe(session: dict) -> tuple[float, list[tuple]]:
    """Returns the start of a session, and its turns: tokens of prompt and answer, tool, seconds until the next turn."""
    calls, turns = session["requests"], []
    for call, following in zip(calls, [*calls[1:], None], strict=True):
        gap = following["t"] - call["t"] if following else 0.0
        tool = tool_in(session["messages"][call["msg"]]["content"])
        turns.append((call["prompt"], max(1, call["out"]), tool, max(0.05, gap - 1.5 - call["out"] / 80)))
    return calls[0]["t"], turns


def swe_tools(session: dict) -> list[tuple]:
    """Returns the turns of the main thread."""
    calls = [call for call in session["requests"] if call["chain"] == 0 and call["prompt"]]
    turns = []
    for call, following in zip(calls, [*calls[1:], None], strict=True):
        tools = call["tools"]
        gap = following["t_in"] - call["t_end"] if following and following["t_in"] and call["t_end"] else 0.0
        turns.append((call["prompt"], max(1, call["out"], (call["out_chars"] or 0) // 4), tools[0]["name"] if tools else "-", max(0.0, gap)))
    return turns


def jobs_of(path: pathlib.Path, rate: float) -> list[tuple[float, list[tuple]]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        sessions = [json.loads(line) for line in file]
    if "messages" in sessions[0]:
        jobs = [mini_swe(session) for session in sessions]
    else:
        rng, start, jobs = random.Random(1), 0.0, []
        for session in sessions:
            start += rng.expovariate(rate / 60)
            jobs.append((start, swe_tools(session)))
    return sorted((job for job in jobs if job[1]), key=lambda job: job[0])


def play(binary: str, blocks: int, jobs: list[tuple[float, list[tuple]]]) -> None:
    lines = []
    for start, turns in jobs:
        lines.append(f"job {start:.3f}")
        lines += [f"turn {prompt} {out} {''.join(tool.split())} {after:.3f}" for prompt, out, tool, after in turns]
    subprocess.run([binary, str(blocks)], input="\n".join(lines) + "\n", text=True, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path, default="../shared/traces", help=f"folder with {MINI_SWE} and {SWE_TOOLS}")
    parser.add_argument("--blocks", type=int, nargs=2, default=[20000, 40000], help="blocks of 16 tokens, for mini_swe and swe_tools")
    parser.add_argument("--rate", type=float, default=3.0, help="jobs per minute of swe_tools")
    parser.add_argument("--jobs", type=int, help="use only this many jobs of each recording, the first ones")
    parser.add_argument("--binary", default="build/release/agents_bench")
    arguments = parser.parse_args()
    for name, blocks in zip([MINI_SWE, SWE_TOOLS], arguments.blocks, strict=True):
        path = arguments.traces / name
        if not path.exists():
            sys.exit(f"{path} does not exist. Set --traces to the folder of the recordings")
        print(f"{name}: ", end="", flush=True)
        play(arguments.binary, blocks, jobs_of(path, arguments.rate)[: arguments.jobs])


if __name__ == "__main__":
    main()
