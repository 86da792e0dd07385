"""llama.cpp's server with one slot per client, the context that the clients need, and no cache of old prompts. The `alone` figures are
llama-bench's. llama.cpp has fast kernels for Q4_0 on all machines, but for Q4_1, the default model's type, only on some machines; by
default both types take part.

Flash attention is off: on the default model it reduces the server's speed with several tokens or streams by a fifth to two thirds.
llama-bench tries both settings, and the better result counts.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from .contestant import CACHE, HOME, Contestant, Unavailable


def contestants(arguments) -> list:
    binaries = HOME / ("llama.cpp-avx2" if arguments.as_avx2 else "llama.cpp")
    build = re.search(r"\d+", (binaries / "stamp").read_text()).group()
    build += ", clang 19, " + ("for AVX2" if arguments.as_avx2 else "GGML_NATIVE=ON")
    return [contestant(binaries, label, model, build) for label, model in models(arguments, binaries).items()]


def models(arguments, binaries: Path) -> dict:
    """Returns the model file by type. If the model has another type, it is requantised once into the cache."""
    given = Path(arguments.model)
    own = given.stem.rpartition(".")[2]
    return {kind: given if kind == own else requantised(given, kind, binaries) for kind in arguments.llama_types}


def requantised(given: Path, kind: str, binaries: Path) -> Path:
    target = CACHE / "bench" / f"{given.stem}.to.{kind}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        command = [binaries / "llama-quantize", "--allow-requantize", given, part, kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"llama-quantize failed for {kind}: {done.stderr[-500:]}")
        part.rename(target)
    return target


def contestant(binaries: Path, label: str, model: Path, build: str) -> Contestant:
    threads = str(os.cpu_count())

    def command(port, workload, clients):
        context = clients * (workload.tokens() + 16)
        return [binaries / "llama-server", "-m", model, "--port", str(port), "-np", str(clients), "-c", str(context), "-t", threads,
                "-cram", "0", "-fa", "off", "--no-webui"]  # fmt: skip

    def alone():
        command = [binaries / "llama-bench", "-m", model, "-t", threads, "-p", "512", "-n", "64", "-r", "3", "-fa", "0,1", "-o", "json"]
        rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return {
            "prompt": max(row["avg_ts"] for row in rows if row["n_prompt"]),
            "output": max(row["avg_ts"] for row in rows if row["n_gen"]),
        }

    about = f"llama.cpp build {build}, {threads} threads, -cram 0, -fa off, slots = c"
    return Contestant(f"llama.cpp {label}", about, command, body=lambda workload: {"cache_prompt": workload.shared > 0}, alone=alone)
