"""Compares vLLM's scheduler with quire.vllm.Scheduler in one process, and with the native core in the same run: microseconds per running
request and decode step.

    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_scheduler.py [--native build/release/scheduler_bench] [RUNNING...]

Measures `schedule` and `update_from_output`. The two schedulers take turns, step by step, so that both run under the same conditions.
Asynchronous scheduling runs as in vLLM's engine, with a queue of two batches.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("PYTHONHASHSEED", "0")

import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

import quire.vllm  # noqa: E402

VERSION = vllm.__version__.split("+")[0]
PROMPT = 128
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "vocab_size": 49152,
}


def make(cls, model, num_seqs, num_blocks, is_async):
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="float16", seed=42, skip_tokenizer_init=True, max_model_len=8192),
        scheduler_config=SchedulerConfig(
            max_num_seqs=num_seqs,
            max_num_batched_tokens=max(8192, num_seqs),
            max_model_len=8192,
            enable_chunked_prefill=True,
            async_scheduling=is_async,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(block_size=16, gpu_memory_utilization=0.9, cache_dtype="auto", enable_prefix_caching=True),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.num_gpu_blocks = num_blocks
    config.scheduler_config.async_scheduling = is_async  # vLLM's CPU platform turned it off
    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float16)
    kv_cache = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return cls(
        vllm_config=config, kv_cache_config=kv_cache, block_size=16, log_stats=True, structured_output_manager=StructuredOutputManager(config)
    )


class Side:
    """One scheduler under load: `num` requests, all in decode after the first steps."""

    def __init__(self, cls, model, num, steps, is_async):
        self.num = num
        self.depth = 2 if is_async else 1
        self.scheduler = make(cls, model, num, num * (PROMPT + steps + 100) // 16 + 64, is_async)
        hasher = get_request_block_hasher(16, sha256)
        for i in range(num):
            params = SamplingParams(max_tokens=steps + 2000, ignore_eos=True)
            tokens = [(i * 7 + j) % 30000 for j in range(PROMPT)]
            self.scheduler.add_request(
                Request(
                    request_id=f"request-{i}",
                    prompt_token_ids=tokens,
                    sampling_params=params,
                    pooling_params=None,
                    arrival_time=float(i),
                    block_hasher=hasher,
                )
            )
        self.computed = {}
        self.queue = deque()
        self.times = []

    def step(self):
        begin = time.perf_counter()
        plan = self.scheduler.schedule()
        spent = time.perf_counter() - begin
        decodes = plan.total_num_scheduled_tokens == self.num == len(plan.num_scheduled_tokens)
        self.queue.append((plan, self._result(plan)))
        if len(self.queue) == self.depth:
            plan, result = self.queue.popleft()
            begin = time.perf_counter()
            self.scheduler.update_from_output(plan, result)
            spent += time.perf_counter() - begin
            if decodes:
                self.times.append(spent)

    def _result(self, plan):
        ids = list(plan.num_scheduled_tokens)
        for name, count in plan.num_scheduled_tokens.items():
            self.computed[name] = self.computed.get(name, 0) + count
        sampled = [[11] if self.computed[name] >= PROMPT else [] for name in ids]
        return ModelRunnerOutput(req_ids=ids, req_id_to_index={name: i for i, name in enumerate(ids)}, sampled_token_ids=sampled)

    def microseconds(self):
        """Returns microseconds per running request: the median step, and the median of the mean over 16 steps, in which each request fills
        one block."""
        blocks = [statistics.fmean(self.times[i : i + 16]) for i in range(0, len(self.times) - 15, 16)]
        return [statistics.median(values) * 1e6 / self.num for values in (self.times, blocks)]


def compare(model, num, steps, is_async):
    stock = Side(AsyncScheduler if is_async else Scheduler, model, num, steps, is_async)
    ours = Side(quire.vllm.Scheduler, model, num, steps, is_async)
    gc.collect()
    gc.freeze()
    sides = [stock, ours]
    while min(len(side.times) for side in sides) < steps:
        for side in sides:
            side.step()
        sides.reverse()
    gc.unfreeze()
    return [stock.microseconds(), ours.microseconds()]


def native_figures(binary, num):
    """Returns [[step, block] with vLLM's work, [step, block] lean] in µs per request, of the C++ benchmark's synchronous decode steps."""
    text = subprocess.run([binary, "--vllm", VERSION, str(num)], capture_output=True, text=True, check=True).stdout
    (row,) = (line.split() for line in text.splitlines() if line.split()[0] == str(num))
    figures = [float(field) / 1000 for field in row[1:]]
    return [figures[:2], figures[2:]]


def compare_native(model, num, steps, is_async, binary):
    """Returns (vLLM, quire.vllm.Scheduler, native with vLLM's work, native lean). The native figures are measured before and after the
    others."""
    natives = [] if binary is None or is_async else [native_figures(binary, num)]
    sides = compare(model, num, steps, is_async)
    if natives:
        natives.append(native_figures(binary, num))
    return [*sides, *([statistics.fmean(pair) for pair in zip(*both)] for both in zip(*natives))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", help="the C++ benchmark, for two more columns")
    parser.add_argument("--steps", type=int, default=304)
    parser.add_argument("running", type=int, nargs="*", default=[1, 8, 64, 256, 1024], help="numbers of running requests")
    arguments = parser.parse_args()
    init_none_hash(sha256)
    names = ["vLLM", "quire.vllm", *(["native", "lean"] if arguments.native else [])]
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        print(f"vLLM {VERSION}: decode step, schedule + update_from_output (native: schedule + apply), µs of wall time per running request")
        print("median step (per step over 16 steps, in which each request fills one block), vLLM's over it")
        print("lean: no statistics, no common prefix, block hashes in quire's encoding")
        print(f"{'':6}{'running':>8}" + "".join(f"{name:>26}" for name in names))
        for is_async in (False, True):
            for num in arguments.running:
                sides = compare_native(model, num, arguments.steps // (1 + num // 1024), is_async, arguments.native)
                cells = [f"{step:.3f} ({block:.3f}) {sides[0][0] / step:6.1f}x" for step, block in sides]
                print(f"{'async' if is_async else 'sync':6}{num:8}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
