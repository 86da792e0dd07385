"""quire over HTTP, and `quire bench` for the `alone` figures: one contestant for each fast variant of activations."""

import subprocess

from .contestant import Contestant


def contestants(arguments) -> list:
    known = subprocess.run([arguments.binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    choices = next((line for line in known.splitlines() if "--activations" in line), "")
    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return [contestant(arguments, variant, version) for variant in arguments.activations if variant in choices]


def contestant(arguments, variant: str, version: str) -> Contestant:
    def command(port, workload, clients):
        return [arguments.binary, "serve", arguments.model, "--port", str(port), "--activations", variant, "--log-level", "warn",
                *isa(arguments), *arguments.quire_args.split()]  # fmt: skip

    def alone():
        prompt = engine_alone(arguments, variant, 512, 1)
        output = engine_alone(arguments, variant, 8, 65)
        # All output tokens except the first, divided by their time, as in llama-bench.
        return {"prompt": 512 / prompt["first"], "output": 64 / (65 / output["total"] - output["first"])}

    return Contestant(f"quire {variant}", f"{version}, activations {variant}", command, is_ours=True, alone=alone)


def isa(arguments) -> list:
    return ["--isa", "avx2"] if arguments.as_avx2 else []


def engine_alone(arguments, variant: str, num_prompt: int, num_output: int) -> dict:
    """Returns output tokens per second, and seconds to the first token, of one request without HTTP: medians of three from the last line of
    quire bench."""
    command = [arguments.binary, "bench", arguments.model, "--activations", variant, "--concurrency", "1",
               "--prompt-tokens", str(num_prompt), "--output-tokens", str(num_output), *isa(arguments)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, total, first, *_ = done.stdout.splitlines()[-1].split()
    return {"total": float(total), "first": float(first) / 1e3}
