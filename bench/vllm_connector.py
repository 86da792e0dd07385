"""Measures the cost of a connector in vLLM on the CPU if every block is stored and no block is hit.

    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_connector.py MODEL_FOLDER
        [--rounds 30] [--sides none,vllm,spec,connector,spec+disk,connector+disk]

none: no connector. vllm: OffloadingConnector with a CPU tier and vLLM's own manager (vLLM's copies need a GPU, so quire copies). spec:
OffloadingConnector with quire.vllm.offload. connector: quire.vllm.Connector. +disk: also with a folder. All sides have the same host
memory.

Each side is an engine in a separate process. In a round all sides take turns with the same prompts, which share no prefix; the order shifts
by one with each round. Transfers still in flight at the end of a turn are completed before the next side's turn, and their time is
reported. Throughput is printed as the ratio of a side to the first side in the same round, with a 95 % interval over rounds; at the end
each side is compared with each. Run it with the Python of each vLLM version.
"""

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time

from vllm_e2e import interval, settle

# The idle side must not busy-wait on a core, as in vllm_offload.py.
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

BLOCK = 32
SIDES = ("none", "vllm", "spec", "connector", "spec+disk", "connector+disk")


def transfer_config(side: str, folder: str, host_bytes: int) -> dict | None:
    kind, _, disk = side.partition("+")
    extra = {"cpu_bytes_to_use": host_bytes} | ({"disk_path": folder, "disk_bytes_to_use": 4 << 30} if disk else {})
    if kind == "none":
        return None
    if kind == "connector":
        return {"kv_connector": "Connector", "kv_connector_module_path": "quire.vllm", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": extra}  # fmt: skip
    spec = {"vllm": ("OwnBooksSpec", "vllm_own_books"), "spec": ("QuireOffloadingSpec", "quire.vllm.offload")}[kind]
    extra |= {"spec_name": spec[0], "spec_module_path": spec[1], "offload_prompt_only": False}  # vLLM 0.32.0 stores only prompts by default
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def engine(options, side: str, folder: str):
    from vllm import LLM

    return LLM(model=options.model, dtype="bfloat16", max_model_len=1024, enable_prefix_caching=True, block_size=BLOCK, max_num_seqs=64,
               enforce_eager=True, max_num_batched_tokens=2048, skip_tokenizer_init=True, disable_log_stats=True,
               num_gpu_blocks_override=options.kv_blocks, kv_transfer_config=transfer_config(side, folder, options.host_mib << 20))  # fmt: skip


def serve(connection, options, side, folder):
    from vllm import SamplingParams

    llm = engine(options, side, folder)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    half = getattr(scheduler.connector, "scheduler_half", None) or getattr(scheduler.connector, "connector_scheduler", None)
    native = getattr(half, "native", None) or getattr(getattr(half, "manager", None), "native", None)

    def generate(prompts, tokens):
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return time.perf_counter() - begin, sum(output.num_cached_tokens or 0 for output in outputs)

    calls = {"generate": generate, "settle": lambda: settle(native) if "+" in side else 0.0, "stats": lambda: dict(native.stats()) if "+" in side else {}}
    while True:
        what, *values = connection.recv()
        connection.send(calls[what](*values))


class Side:
    """An engine in a separate process, because vLLM has one connector per process. Calls are executed there."""

    def __init__(self, options, side: str, folder: str):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, options, side, folder), daemon=True)
        self.process.start()

    def ask(self, what: str, *values):
        self.connection.send((what, *values))
        return self.connection.recv()


def told(ratios: list[float]) -> str:
    middle, low, high = interval(ratios)
    return f"{middle:.4f} ({low:.4f} to {high:.4f})"


def measure(options, sides: dict[str, Side]) -> dict[str, list[float]]:
    """Runs the rounds. Returns the seconds of each round, by side."""
    rng, names = random.Random(7), list(sides)
    prompts = lambda count: [[rng.randrange(100, options.words) for _ in range(options.prompt)] for _ in range(count)]  # noqa: E731
    seconds = {name: [] for name in names}
    for side in sides.values():
        side.ask("generate", prompts(8), 8)
        side.ask("settle")
    for i in range(options.rounds):
        asked, late, num_hit = prompts(options.requests), {}, 0
        for name in names[i % len(names) :] + names[: i % len(names)]:
            took, cached = sides[name].ask("generate", asked, options.tokens)
            seconds[name].append(took)
            num_hit += cached
            late[name] = sides[name].ask("settle")
        parts = [f"{name} {seconds[name][-1]:.2f} s" + (f" and {late[name]:.2f} s after it" if late[name] else "") for name in names]
        print(f"round {i + 1}: {', '.join(parts)}; {num_hit} tokens hit", flush=True)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per answer")
    parser.add_argument("--words", type=int, default=40000, help="upper bound of the random token ids")
    parser.add_argument("--kv-blocks", type=int, default=600, help="blocks of the KV cache, of 32 tokens each; a round needs 384")
    parser.add_argument("--host-mib", type=int, default=128, help="host memory below the KV cache")
    parser.add_argument("--work", help="folder on the disk to measure; default: a temporary folder")
    options = parser.parse_args()
    chosen = options.sides.split(",")
    for name in chosen:
        if name not in SIDES:
            parser.error(f"--sides: unknown side {name}. Choose from {', '.join(SIDES)}")
    folder = tempfile.mkdtemp(prefix="quire-connector-", dir=options.work)
    sides = {name: Side(options, name, os.path.join(folder, name)) for name in chosen}
    try:
        seconds = measure(options, sides)
        for name in chosen:
            print(f"{name}: {statistics.median(seconds[name]):.2f} s a round")
        for one, other in itertools.combinations(chosen, 2):
            print(f"throughput, {other} over {one}: {told([a / b for a, b in zip(seconds[one], seconds[other])])}")
        for name in chosen:
            if stats := sides[name].ask("stats"):
                print(f"{name}: written {stats['bytes_written'] / 1e6:.0f} MB in {stats['num_written']} blocks, dropped {stats['num_dropped']}, "
                      f"failed {stats['num_failed']}")  # fmt: skip
        return 0
    finally:
        for side in sides.values():
            side.process.kill()
            side.process.join()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
