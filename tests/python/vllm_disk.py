"""Tests a whole vLLM, on CPU or a GPU, with blocks on disk: killed engines, damaged files, and a budget that is too small. Run by vLLM's
Python.

    python vllm_disk.py FOLDER --rounds 20 --seed 1 --flips 20 --budget-blocks 400 [--ranks 2] [--device cuda] [--files]

The parent imports vLLM once and forks an engine for each round. Each engine answers random prompts with shared prefixes, four at a time;
most engines are killed at a random moment. Every answer must equal that of an engine without the disk, token by token, and the folder must
stay within its budget. Each round first flips random bits in the files of the last round. The results are printed as JSON.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

ON_GPU = "cuda" in sys.argv
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
# Each engine uses one thread: the model is small, and threads that wait for each other on a busy machine take most of the time.
os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}

BLOCK, LAYERS, HEADS, HEAD_DIM = 32, 2, 2, 32  # vLLM's CPU backend requires blocks of 32 tokens
# A GPU adds numbers in another order in another batch. With 32 bits this changes no answer.
DTYPE, ITEM_BYTES = ("float32", 4) if ON_GPU else ("bfloat16", 2)
BLOCK_BYTES = BLOCK * LAYERS * 2 * HEADS * HEAD_DIM * ITEM_BYTES
PLACE_BYTES = (BLOCK_BYTES + 4095) // 4096 * 4096
# The backend supports blocks of 32 tokens and 32 bits, PyTorch computes the layers, and memory that other engines use is not profiled.
_GPU = {"attention_backend": "TRITON_ATTN", "compilation_config": {"custom_ops": ["none"]}, "gpu_memory_utilization": 0.2,
        "kv_cache_memory_bytes": 64 << 20}  # fmt: skip
DEVICE = _GPU if ON_GPU else {}
ANSWER = 8
GROUPS, PER_GROUP = 8, 4


def make_model(folder: Path, heads: int = 4, kv_heads: int = HEADS):
    """Writes a decoder of random weights whose answers depend on every token of the prompt."""
    import torch
    from safetensors.torch import save_file

    hidden, inner, words = 128, 256, 4096
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
              "num_hidden_layers": LAYERS, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": HEAD_DIM,
              "max_position_embeddings": 2048, "vocab_size": words, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
              "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(7)
    shapes = {"model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
                   at + "self_attn.q_proj.weight": (heads * HEAD_DIM, hidden), at + "self_attn.k_proj.weight": (kv_heads * HEAD_DIM, hidden),
                   at + "self_attn.v_proj.weight": (kv_heads * HEAD_DIM, hidden), at + "self_attn.o_proj.weight": (hidden, heads * HEAD_DIM),
                   at + "mlp.gate_proj.weight": (inner, hidden), at + "mlp.up_proj.weight": (inner, hidden),
                   at + "mlp.down_proj.weight": (hidden, inner)}  # fmt: skip
    save_file({name: torch.ones(shape, dtype=torch.bfloat16) if len(shape) == 1 else (torch.randn(shape) * 0.3).to(torch.bfloat16)
               for name, shape in shapes.items()}, folder / "model.safetensors", metadata={"format": "pt"})  # fmt: skip


def make_prompts(seed):
    rng = random.Random(seed)
    prompts = []
    for _ in range(GROUPS):
        beginning = [rng.randrange(3, 4096) for _ in range(rng.randrange(100, 300))]
        prompts += [beginning + [rng.randrange(3, 4096) for _ in range(rng.randrange(20, 150))] for _ in range(PER_GROUP)]
    return prompts


def engine(model, disk, options):
    from vllm import LLM

    config = None
    if disk is not None:
        extra = {"cpu_bytes_to_use": 50 * BLOCK_BYTES}
        if options.files:
            extra |= {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs", "root_dir": str(disk)}]}
        else:
            extra |= {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload", "disk_path": str(disk),
                      "disk_bytes_to_use": options.budget}  # fmt: skip
        config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    # The KV cache fits a quarter of the prompts' blocks, so most repeated blocks have been evicted.
    return LLM(model=str(model), skip_tokenizer_init=True, dtype=DTYPE, enforce_eager=True, max_model_len=1024, max_num_seqs=4,
               block_size=BLOCK, num_gpu_blocks_override=75, kv_transfer_config=config, disable_log_stats=True, seed=0,
               enable_prefix_caching=disk is not None, tensor_parallel_size=options.ranks,
               **DEVICE)  # fmt: skip


def answers_of(llm, prompts):
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    return [(list(output.outputs[0].token_ids), output.num_cached_tokens) for output in outputs]


def run(connection, model, disk, options, prompts, seed, num_batches):
    """Runs an engine: batches of prompts, each answer reported, until the end or until it is killed."""
    os.setpgid(0, 0)
    rng = random.Random(seed)
    llm = engine(model, disk, options)
    connection.send(("ready", None))
    manager = None
    if disk is not None:
        manager = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
    for i in range(num_batches):
        chosen = rng.sample(range(len(prompts)), 4) if disk is not None else range(4 * i, 4 * i + 4)
        for number, answer in zip(chosen, answers_of(llm, [prompts[number] for number in chosen])):
            connection.send((number, answer))
    connection.send(("stats", manager.native.stats() if hasattr(manager, "native") and hasattr(manager.native, "stats") else {}))
    os.kill(os.getpid(), signal.SIGKILL)


def play(model, disk, options, prompts, seed, num_batches, kill_after=None):
    """Returns what the engine reported: answers, and statistics if it reached its end."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=run, args=(theirs, model, disk, options, prompts, seed, num_batches))
    child.start()
    theirs.close()
    told, end = [], None
    while True:
        if end is not None and (time.monotonic() >= end or not ours.poll(max(0.0, end - time.monotonic()))):
            os.killpg(child.pid, signal.SIGKILL)
            break
        try:
            what, value = ours.recv()
        except EOFError:
            break
        told.append((what, value))
        if what == "ready" and kill_after is not None:
            end = time.monotonic() + kill_after
    child.join()
    assert child.exitcode == -signal.SIGKILL, f"an engine ended by itself: {child.exitcode}"
    assert told and told[0][0] == "ready", "the engine must start"
    return told[1:]


def folder_bytes(folder):
    return sum(os.lstat(path).st_blocks * 512 for path in [folder, *folder.rglob("*")])


def flip_files(disk, count, rng):
    blocks = [path for path in disk.rglob("*") if path.is_file() and path.stat().st_size >= BLOCK_BYTES]
    for _ in range(count if blocks else 0):
        flip_bit(rng.choice(blocks), rng.randrange(BLOCK_BYTES), rng)
    return count if blocks else 0


def flip_bit(path, at, rng):
    with open(path, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 1 << rng.randrange(8)]))


def flip(disk, count, rng):
    """Flips bits of stored blocks and of their entries; the headers, which identify the folder's owner, stay."""
    table = (disk / "quire-table").read_bytes()
    held = [place for place in range((len(table) - 8192) // 128) if any(table[8192 + place * 128 : 8320 + place * 128])]
    for _ in range(count if held else 0):
        place = rng.choice(held)
        name, at = rng.choice(
            [("quire-table", 8192 + place * 128 + rng.randrange(128))] + 4 * [("quire-blocks", place * PLACE_BYTES + rng.randrange(BLOCK_BYTES))]
        )
        flip_bit(disk / name, at, rng)
    return count if held else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--kill-within", type=float, default=0.0, help="seconds; 0: engines come to their end, and are killed there")
    parser.add_argument("--budget-blocks", type=int, default=600)
    parser.add_argument("--files", action="store_true", help="vLLM 0.32.0's own tier in files instead, on a GPU: to see what that does")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    options.budget = options.budget_blocks * (PLACE_BYTES + 128) + 65536
    import vllm.entrypoints.llm  # noqa: F401, imported once for all forked processes

    model, disk = options.folder / "model", options.folder / "kv"
    # Uses a separate process: a process that has computed in parallel cannot be forked any more.
    maker = multiprocessing.get_context("fork").Process(target=make_model, args=(model,))
    maker.start()
    maker.join()
    prompts, rng = make_prompts(options.seed), random.Random(options.seed)
    right = {number: value[0] for number, value in play(model, None, options, prompts, 0, len(prompts) // 4) if number != "stats"}
    assert len({tuple(answer) for answer in right.values()}) > len(right) // 2, "the model gives the same answer to most prompts"
    seen = {"rounds": 0, "killed": 0, "answers": 0, "wrong": 0, "cached_tokens": 0, "flips": 0, "refused": 0, "read": 0, "written": 0,
            "failed": 0, "dropped": 0, "most_bytes": 0, "budget": options.budget}  # fmt: skip
    for i in range(options.rounds):
        if i > 0 and options.flips:
            seen["flips"] += (flip_files if options.files else flip)(disk, options.flips, rng)
        kill_after = rng.random() * options.kill_within if options.kill_within else None
        told = play(model, disk, options, prompts, rng.random(), options.batches, kill_after)
        seen["rounds"] += 1
        seen["killed"] += not any(what == "stats" for what, _ in told)
        for what, value in told:
            if what == "stats":
                for name, key in [("refused", "num_refused"), ("read", "num_read"), ("written", "num_written"), ("failed", "num_failed"),
                                  ("dropped", "num_dropped")]:  # fmt: skip
                    seen[name] += value.get(key, 0)
                continue
            seen["answers"] += 1
            seen["wrong"] += value[0] != right[what]
            seen["cached_tokens"] += value[1] or 0
        seen["most_bytes"] = max(seen["most_bytes"], folder_bytes(disk))
        print(json.dumps(seen), file=sys.stderr, flush=True)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
