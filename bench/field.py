#!/usr/bin/env python3
"""Runs twelve public complaints about LLM servers as small cases against a server, and prints which of its promises it holds.

Without --start, the cases run against quire. Any server with OpenAI's API can be named:

  ./dev bench field --start 'llama-server -m model.gguf --port {port}' --name model

The server is started and stopped by the cases. {port} is a free port; {tier} is a folder that outlives the server, for a KV cache on disk.
--small-start starts the same server with a KV cache of about 4,096 tokens, which two cases need."""

import argparse
import json
import pathlib
import sys
import tempfile
import time

from field_cases import CASES, Outcome
from field_server import Server


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench field", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/quire", help="the quire command (default: build/release/quire)")
    parser.add_argument("--model", help="the model for quire, a GGUF file")
    parser.add_argument("--start", help="the command that starts another server")
    parser.add_argument("--small-start", help="the same with a KV cache of about 4,096 tokens")
    parser.add_argument("--name", default="", help="the model's name in requests of --start")
    parser.add_argument("--start-timeout", type=float, default=300, metavar="S", help="maximum time of a start in seconds (default 300)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="run these cases only: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--log", type=pathlib.Path, help="file for the server's output (default: a temporary file)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results to this file")
    options = parser.parse_args()
    names = {case.name for case in CASES}
    options.cases = [case for case in CASES if not options.only or case.name in options.only.split(",")]
    if unknown := set(filter(None, options.only.split(","))) - names:
        parser.error(f"--only: unknown case {', '.join(sorted(unknown))}. Give some of {', '.join(sorted(names))}")
    if not options.start:
        if not options.model:
            parser.error("--model is missing: give the model for quire, or --start for another server")
        options.name = "model"
        options.start = f"{options.binary} serve {options.model} --served-model-name {options.name} --port {{port}} --kv-disk {{tier}}"
        options.small_start = f"{options.start} --num-blocks 257"
    return options


def run_case(case, server: Server) -> Outcome:
    try:
        return case.run(server)
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        return Outcome(False, f"{type(error).__name__}: {error}")


def main() -> int:
    options = parse_arguments()
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        log = options.log or folder / "server.log"
        for is_small in (False, True):
            command = options.small_start if is_small else options.start
            cases = [case for case in options.cases if case.is_small == is_small]
            if not cases or not command:
                continue
            server = Server(command, folder / f"tier-{is_small}", log, options.name, options.start_timeout)
            server.start()
            try:
                for case in cases:
                    begin = time.monotonic()
                    outcome = run_case(case, server)
                    word = {True: "kept", False: "NOT KEPT", None: "does not apply"}[outcome.held]
                    print(f"{case.name:<15} {word:<15} {outcome.measured} ({time.monotonic() - begin:.0f} s)", flush=True)
                    results[case.name] = {"held": outcome.held, "measured": outcome.measured}
            finally:
                server.stop()
    held = sum(result["held"] is True for result in results.values())
    print(f"{held} of {len(results)} kept")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(result["held"] is not False for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
