"""Measures vLLM on the CPU, with and without quire.vllm.offload's memory and disk tier below its KV cache.

    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_offload.py MODEL_FOLDER [--pairs 30]

Both engines exist at the same time, each in a separate process, and take turns with the same prompts, which share no prefix: no block is
hit, and every block is stored. Throughput is printed as the ratio with / without the tier. Writes still in flight at the end of a turn are
completed before the other engine's turn, and their time is reported. Then prompts whose blocks are only on disk are measured: seconds until
the first tokens of all prompts, compared with computing the prompts.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time

from vllm_e2e import interval, settle

# The idle engine must not busy-wait on a core, as vLLM's threads do. Both engines run on one core, with the copies and the disk's threads.
os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"}
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

BLOCK = 32


def engine(model: str, folder: str | None):
    from vllm import LLM

    options = {}
    if folder is not None:
        extra = {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload", "cpu_bytes_to_use": 128 << 20, "disk_path": folder,
                 "disk_bytes_to_use": 2 << 30}  # fmt: skip
        options["kv_transfer_config"] = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return LLM(model=model, dtype="bfloat16", max_model_len=1024, enable_prefix_caching=True, block_size=BLOCK, max_num_seqs=64, enforce_eager=True,
               max_num_batched_tokens=2048, skip_tokenizer_init=True, **options)  # fmt: skip


class Side:
    """An engine in a separate process, because vLLM has one connector per process. Calls are executed there."""

    def __init__(self, model: str, folder: str | None):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, model, folder), daemon=True)
        self.process.start()

    def ask(self, what: str, *values):
        self.connection.send((what, *values))
        return self.connection.recv()


def serve(connection, model, folder):
    from vllm import SamplingParams

    llm = engine(model, folder)
    native = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager.native if folder is not None else None

    def generate(prompts, tokens):
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        begin = time.perf_counter()
        llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return time.perf_counter() - begin

    calls = {"generate": generate, "settle": lambda: settle(native), "stats": lambda: dict(native.stats()), "forget": lambda: llm.reset_prefix_cache()}
    while True:
        what, *values = connection.recv()
        connection.send(calls[what](*values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per answer")
    parser.add_argument("--work", help="folder on the disk to measure; default: a temporary folder")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="quire-offload-", dir=options.work)
    rng = random.Random(7)

    def prompts(count, length):
        return [[rng.randrange(100, 40000) for _ in range(length)] for _ in range(count)]

    try:
        sides = {"without": Side(options.model, None), "tier": Side(options.model, folder)}
        tier, without = sides["tier"], sides["without"]
        for side in sides.values():
            side.ask("generate", prompts(8, options.prompt), 8)
        ratios, late = [], []
        for pair in range(options.pairs):
            asked = prompts(options.requests, options.prompt)
            seconds = {}
            for side in ("without", "tier") if pair % 2 == 0 else ("tier", "without"):
                seconds[side] = sides[side].ask("generate", asked, options.tokens)
                if side == "tier":
                    late.append(tier.ask("settle"))
            ratios.append(seconds["without"] / seconds["tier"])
            middle, low, high = interval(ratios)
            print(f"pair {pair + 1}: {seconds['without']:.2f} s without, {seconds['tier']:.2f} s with, {late[-1]:.2f} s after it; "
                  f"throughput ratio {middle:.4f}, 95 % interval {low:.4f} to {high:.4f}", flush=True)  # fmt: skip
        stats = tier.ask("stats")
        print(
            f"written {stats['bytes_written'] / 1e6:.0f} MB in {stats['num_written']} blocks, dropped {stats['num_dropped']}, failed {stats['num_failed']}"
        )

        kept = prompts(8, 512)
        tier.ask("generate", kept, 1)
        tier.ask("settle")
        tier.ask("generate", prompts(16, 512), 1)  # later prompts now occupy all slots in memory
        tier.ask("settle")
        gains = []
        for _ in range(3):
            tier.ask("forget")
            before = tier.ask("stats")
            hit = tier.ask("generate", kept, 1)
            now = tier.ask("stats")
            without.ask("forget")
            computed = without.ask("generate", kept, 1)
            gains.append(computed / hit)
            read, took = now["bytes_read"] - before["bytes_read"], now["reading_s"] - before["reading_s"]
            speed = f"{read / took / 1e6:.0f} MB/s" if took else "nothing"
            print(f"8 prompts of 512 tokens: {computed:.2f} s computed, {hit:.2f} s with {read / 1e6:.0f} MB from the disk ({speed})", flush=True)
        print(f"first tokens {statistics.median(gains):.1f} times as soon (median of 3; later runs read memory if it has room)")
        return 0 if low > 0.97 else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
