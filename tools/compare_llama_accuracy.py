#!/usr/bin/env python3
"""Measures how close the results of llama.cpp are to transformers with the default model's dequantised weights. These are the figures that
`./dev test -R DefaultModel` prints for quire, from the same model file, text and record (tests/golden/default_model).

    tools/compare_llama_accuracy.py --llama-server LLAMA_SERVER --model MODEL.gguf [--server-args "-fa off"]

The 2,000 tokens are teacher-forced through /completion: prompt = the first i + 1 ids, one token predicted. llama-server keeps the prompt in
its cache, so each request computes one token (in the same kind of forward pass as decoding). Prints the share of positions at which the
most likely token equals the reference's, and the mean KL(reference || llama.cpp) over the reference's 64 most likely tokens and the
remaining probability as one.
"""

import argparse
import json
import math
import pathlib
import shlex
import struct
import subprocess
import time
import urllib.error
import urllib.request

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/default_model"


def halves(name, letter):
    data = (GOLDEN / name).read_bytes()
    return struct.unpack(f"<{len(data) // 2}{letter}", data)


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def wait_ready(url, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"llama-server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("llama-server did not become ready")


def logprobs(url, tokens, wanted, vocab_size):
    """Returns the natural logarithms of probabilities by token id, including the `wanted` ids; the first id is the most likely."""
    for n_probs in (1000, vocab_size):
        body = dict(prompt=tokens, n_predict=1, n_probs=n_probs, temperature=0.0, cache_prompt=True, post_sampling_probs=False)
        entries = post(url + "/completion", body)["completion_probabilities"][0]["top_logprobs"]
        found = {entry["id"]: entry["logprob"] for entry in entries}
        if all(token in found for token in wanted):
            return found
    raise SystemExit(f"llama-server leaves tokens out: {sorted(set(wanted) - set(found))[:5]}")


def divergence(reference, found):
    """Returns the KL divergence at one position. `reference` contains (id, logprob)."""
    kl, p_rest, q_rest = 0.0, 1.0, 1.0
    for token, log_p in reference:
        kl += math.exp(log_p) * (log_p - found[token])
        p_rest -= math.exp(log_p)
        q_rest -= math.exp(found[token])
    if p_rest > 1e-6 and q_rest > 1e-6:
        kl += p_rest * math.log(p_rest / q_rest)
    return kl


def compare(url, positions, vocab_size):
    record = json.loads((GOLDEN / "reference.json").read_text())
    ids, values, top = halves("top_ids.u16", "H"), halves("top_logprobs.f16", "e"), record["top"]
    same, kl = 0, 0.0
    for i in range(positions):
        row = slice(i * top, (i + 1) * top)
        found = logprobs(url, record["tokens"][: i + 1], ids[row], vocab_size)
        same += max(found, key=found.get) == ids[i * top]
        kl += divergence(list(zip(ids[row], values[row])), found)
    return same / positions, kl / positions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=18431)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--vocab-size", type=int, default=49152)
    parser.add_argument("--server-args", default="", help="additional flags for llama-server")
    arguments = parser.parse_args()
    command = [arguments.llama_server, "-m", arguments.model, "--port", str(arguments.port), "-c", "2048", "-np", "1", "-t", "1", "--no-webui"]
    process = subprocess.Popen(command + shlex.split(arguments.server_args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{arguments.port}"
        wait_ready(url, process)
        same, kl = compare(url, arguments.positions, arguments.vocab_size)
    finally:
        process.terminate()
        process.wait()
    print(f"llama.cpp {arguments.server_args or '(defaults)'}: agreement {100 * same:.2f} %, mean KL {kl:.2g} over {arguments.positions} positions")


if __name__ == "__main__":
    main()
