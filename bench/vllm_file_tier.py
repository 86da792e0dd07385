"""Measures vLLM 0.32.0 after a restart, on a GPU or on CPU: prompts with blocks on disk, in vLLM's own file tier and in quire's folder.

    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_file_tier.py
        [--sides none,files,spec,connector] [--rounds 1] [--prompts 16] [--tokens 1000]

none: no connector, so the second engine computes everything again. files: OffloadingConnector with TieringOffloadingSpec and its tier `fs`.
spec: OffloadingConnector with quire.vllm.offload. connector: quire.vllm.Connector with the policy `exact` (it loads every stored block).
All sides have host memory for every block. Weights are random in bfloat16: on a GPU 1.2 B, 64 KiB of KV per token; on CPU SmolLM2-135M's
shape, 22.5 KiB. On CPU PyTorch does the copies of `files` between the KV cache and host memory, because vLLM's copies need a GPU.

In a turn, an engine in a separate process answers the prompts, and is killed when its folder stops growing. The page cache is dropped
if this is permitted. Then a second engine answers the same prompts and is killed, too. Sides take turns. Prints seconds until all prompts
have their token, cold and warm; tokens found; the folder's bytes divided by the blocks' bytes; files; the number of different answers (in
bfloat16 a different batch can change an answer).
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

SHAPES = {
    "cuda": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
    "cpu": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64},
}  # fmt: skip
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 8192, "vocab_size": 32000, "rms_norm_eps": 1e-5,
          "torch_dtype": "bfloat16", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}  # fmt: skip
BLOCK = 32  # required by vLLM's CPU backend
ON_GPU = {"attention_backend": "TRITON_ATTN", "compilation_config": {"custom_ops": ["none"]}}
SIDES = ("none", "files", "spec", "connector")


def token_bytes(device: str) -> int:
    shape = SHAPES[device]
    return shape["num_hidden_layers"] * 2 * shape["num_key_value_heads"] * shape["head_dim"] * 2


def transfer_config(side: str, device: str, folder: str, num_bytes: int) -> dict | None:
    if side == "none":
        return None
    extra = {"cpu_bytes_to_use": num_bytes}
    if side == "files":
        extra |= {"spec_name": "TieringOffloadingSpec"} if device == "cuda" else {"spec_name": "OwnFilesSpec", "spec_module_path": "vllm_own_files"}
        extra |= {"secondary_tiers": [{"type": "fs", "root_dir": folder}]}
    else:
        extra |= {"disk_path": folder, "disk_bytes_to_use": 2 * num_bytes, "disk_model_id": "random"}
    if side == "connector":
        return {"kv_connector": "Connector", "kv_connector_module_path": "quire.vllm", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {**extra, "policy": "exact"}}  # fmt: skip
    if side == "spec":
        extra |= {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload"}
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def serve(options) -> None:
    """Runs one engine until it is killed, and reports its results as one line of JSON."""
    import random

    from vllm import LLM, SamplingParams

    model = Path(options.folder) / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG | SHAPES[options.device]))
    blocks = (options.prompts + 8) * (options.tokens // BLOCK + 2)
    needed = blocks * BLOCK * token_bytes(options.device)
    llm = LLM(model=str(model), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True, max_model_len=options.tokens + 64,
              max_num_seqs=64, max_num_batched_tokens=8192, block_size=BLOCK, num_gpu_blocks_override=blocks, seed=0,
              enable_prefix_caching=True, disable_log_stats=True, **(ON_GPU if options.device == "cuda" else {}),
              kv_transfer_config=transfer_config(options.sides, options.device, options.folder + "/kv", needed))  # fmt: skip
    sampling = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
    rng = random.Random(7)

    def answer(prompts):
        begin = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        return {"seconds": round(time.perf_counter() - begin, 3), "cached_tokens": sum(output.num_cached_tokens or 0 for output in outputs),
                "answers": [list(output.outputs[0].token_ids) for output in outputs]}  # fmt: skip

    prompts = [[rng.randrange(3, 32000) for _ in range(options.tokens)] for _ in range(options.prompts)]
    rng = random.Random()  # each engine warms up with different prompts
    for _ in range(3):
        answer([[rng.randrange(3, 32000) for _ in range(options.tokens)] for _ in range(2)])
    print(json.dumps(answer(prompts)), flush=True)
    if options.settle:
        size = -1
        while size < (size := folder_size(options.folder + "/kv")[0]):
            time.sleep(2)
            answer([[3, 4, 5]])  # vLLM's transfers continue only in its steps
        print(json.dumps({}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def folder_size(folder: str) -> tuple[int, int]:
    files = [os.lstat(path) for path in Path(folder).rglob("*") if path.is_file()]
    return sum(file.st_blocks * 512 for file in files), len(files)


def engine(options, side: str, folder: str, settles: bool) -> dict:
    command = [sys.executable, __file__, "--serve", "--sides", side, "--folder", folder, "--prompts", str(options.prompts), "--tokens", str(options.tokens),
               "--device", options.device]  # fmt: skip
    done = subprocess.run(command + ["--settle"] * settles, stdout=subprocess.PIPE, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == -signal.SIGKILL and told, f"an engine of side {side} exited early: {done.returncode}"
    return told[0]


def drop_page_cache() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def turn(options, side: str) -> dict:
    folder = tempfile.mkdtemp(dir=options.root)
    try:
        cold = engine(options, side, folder, side != "none")
        size, files = folder_size(folder + "/kv")
        dropped = drop_page_cache()
        warm = engine(options, side, folder, False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    blocks = warm["cached_tokens"] * token_bytes(options.device)
    return {"side": side, "cold_s": cold["seconds"], "warm_s": warm["seconds"], "found_tokens": warm["cached_tokens"], "found_GB": round(blocks / 1e9, 2),
            "folder_GB": round(size / 1e9, 2), "files": files, "page_cache_dropped": dropped,
            "other_answers": sum(a != b for a, b in zip(cold["answers"], warm["answers"]))}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--device", choices=list(SHAPES), default="cpu")
    parser.add_argument("--root", help="parent directory of the folders, on the disk to measure")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--settle", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
    sides = options.sides.split(",")
    for side in sides:
        if side not in SIDES:
            parser.error(f"--sides: unknown side {side}. Choose from {', '.join(SIDES)}")
    print(f"{options.prompts} prompts of {options.tokens} tokens, {options.prompts * options.tokens * token_bytes(options.device) / 1e9:.2f} GB of KV", flush=True)
    for i in range(options.rounds):
        for side in sides[i % len(sides) :] + sides[: i % len(sides)]:
            print(json.dumps(turn(options, side)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
