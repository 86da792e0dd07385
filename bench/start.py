#!/usr/bin/env python3
"""Measures the time from a server's start to the first token of the first client. Packed weights and files are in the page cache. The
server starts --rounds times; each time a client requests one token as soon as the port accepts connections.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import time

import machine


def seconds_to_first_token(arguments) -> tuple:
    """Starts a server. Returns the seconds until the port is open and until the token arrives."""
    port = machine.free_port()
    command = [arguments.binary, "serve", arguments.model, "--port", str(port)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    body = json.dumps({"prompt": [1] * arguments.prompt_tokens, "max_tokens": 1, "temperature": 0})
    try:
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                if process.poll() is not None:
                    sys.exit(f"the server ended with {process.returncode}")
                time.sleep(0.001)
        there = time.monotonic()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            sys.exit(f"{response.status} {answer[:300]}")
        return there - started, time.monotonic() - started
    finally:
        process.terminate()
        process.wait(60)


def main() -> int:
    parser = machine.parser(__doc__, rounds=20, prompt_tokens=16)
    arguments = parser.parse_args()
    print(machine.describe())
    with open(arguments.model, "rb") as model:
        while model.read(1 << 24):
            pass
    seconds_to_first_token(arguments)  # packs the weights if there is no file of packed weights
    for name, seconds in zip(("port open", "first token"), zip(*(seconds_to_first_token(arguments) for _ in range(arguments.rounds)))):
        print(f"{name:12} {1000 * statistics.median(seconds):6.0f} ms (least {1000 * min(seconds):.0f}, most {1000 * max(seconds):.0f})"
              f" of {len(seconds)} starts of {os.path.basename(arguments.model)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
