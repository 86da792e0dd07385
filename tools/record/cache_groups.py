"""Records how vLLM V1 (v0.19.0, get_kv_cache_configs) groups layers and splits memory for random models.

Needs vllm 0.19.0.
A case begins with a line of options. A `worker` line follows for each worker, with its memory and its layers as name=spec. The result
follows: `error`, or a `length` line (max_model_len, and the number of requests that fit into the first worker) and, for each worker, a
`blocks` line and its `group` and `tensor` lines. A spec is a kind and its fields, separated by colons: block size, heads, head size, bytes
of an element, padded page size, and the fields that only this kind has. An unset field is written as -.
"""
import logging
import random
from types import SimpleNamespace

import torch
from vllm.v1.core import kv_cache_utils as utils
from vllm.v1.kv_cache_interface import (ChunkedLocalAttentionSpec, CrossAttentionSpec, EncoderOnlyAttentionSpec, FullAttentionSpec, MambaSpec,
                                        MLAAttentionSpec, SinkFullAttentionSpec, SlidingWindowSpec, UniformTypeKVCacheSpecs)

from . import files

DTYPES = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32}
KINDS = {"full": FullAttentionSpec, "mla": MLAAttentionSpec, "sink": SinkFullAttentionSpec, "window": SlidingWindowSpec,
         "chunk": ChunkedLocalAttentionSpec, "cross": CrossAttentionSpec, "encoder": EncoderOnlyAttentionSpec}
FIELDS = {"full": ["head_size_v", "sliding_window", "attention_chunk_size"], "mla": ["head_size_v", "sliding_window", "attention_chunk_size",
          "cache_dtype_str"], "sink": ["head_size_v", "sliding_window", "attention_chunk_size", "sink_len"], "window": ["sliding_window"],
          "chunk": ["attention_chunk_size"], "cross": [], "encoder": []}


def text_of(spec):
    def text(*values):
        return ":".join("-" if value is None else str(value) for value in values)

    if isinstance(spec, MambaSpec):
        shapes = "/".join("x".join(map(str, shape)) for shape in spec.shapes)
        return text("mamba", spec.block_size, shapes, "/".join(str(dtype.itemsize) for dtype in spec.dtypes), spec.page_size_padded,
                    spec.num_speculative_blocks)
    kind = next(kind for kind, cls in KINDS.items() if type(spec) is cls)
    return text(kind, spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype.itemsize, spec.page_size_padded,
                *(getattr(spec, field) for field in FIELDS[kind]))


def random_spec(draw, kind, sizes):
    if kind == "mamba":
        shapes = tuple(tuple(draw.choice([2, 4, 8]) for _ in range(draw.randrange(1, 3))) for _ in range(draw.randrange(1, 3)))
        return MambaSpec(block_size=draw.choice(sizes), shapes=shapes, dtypes=tuple(DTYPES[draw.choice([2, 4])] for _ in shapes),
                         page_size_padded=draw.choice([None, 4096, 8192]), num_speculative_blocks=draw.randrange(3))
    given = {"block_size": draw.choice(sizes), "num_kv_heads": draw.choice([1, 2, 2, 4]), "head_size": draw.choice([16, 32, 32]),
             "dtype": DTYPES[draw.choice([1, 2, 2, 2])]}
    if draw.random() < 0.08:
        given["page_size_padded"] = draw.choice([1024, 8192, 16384])
    if kind in ("full", "sink") and draw.random() < 0.2:
        given["head_size_v"] = draw.choice([16, 48])
    if kind in ("full", "sink", "mla") and draw.random() < 0.1:
        given[draw.choice(["sliding_window", "attention_chunk_size"])] = draw.choice([64, 128])
    if kind == "mla":
        given |= {"num_kv_heads": 1, "cache_dtype_str": draw.choice([None, "fp8_ds_mla"])}
    if kind == "sink":
        given["sink_len"] = given["block_size"]
    if kind == "window":
        given["sliding_window"] = draw.choice([64, 100, 100])
    if kind == "chunk":
        given["attention_chunk_size"] = draw.choice([64, 96])
    return KINDS[kind](**given)


def random_layers(draw):
    kinds = draw.choices([*KINDS, "mamba"], weights=[8, 2, 2, 6, 3, 2, 1, 3], k=draw.choice([1, 1, 2, 2, 2, 3]))
    sizes = draw.choice([[16], [16], [16, 32], [8, 16, 24]])
    few = draw.choice([1, 2, 3, 4, 6])
    layers = []
    for kind in kinds:
        spec = random_spec(draw, kind, sizes)
        count = draw.choice([few, few, few + 1, 2 * few, 3 * few])
        layers += [spec if draw.random() < 0.97 else random_spec(draw, kind, sizes) for _ in range(count)]
    if draw.random() < 0.7:
        draw.shuffle(layers)
    return {f"l{index}": spec for index, spec in enumerate(layers)}


def random_workers(draw, layers):
    if draw.random() < 0.6:
        return [layers] * draw.choice([1, 1, 1, 2])
    names = list(layers)
    cut = draw.randrange(1, len(names)) if len(names) > 1 else 1
    return [{name: layers[name] for name in part} for part in (names[:cut], names[cut:])]


def random_config(draw):
    length = draw.choice([100, 1000, 1024, 5000])
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length, original_max_model_len=draw.choice([length, length, -1])),
        parallel_config=SimpleNamespace(decode_context_parallel_size=draw.choice([1, 1, 1, 1, 2]),
                                        prefill_context_parallel_size=draw.choice([1, 1, 1, 3])),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=draw.choice([64, 512, 2048]), max_num_encoder_input_tokens=draw.choice([50, 1500]),
                                         disable_hybrid_kv_cache_manager=draw.random() < 0.2),
        cache_config=SimpleNamespace(mamba_cache_mode=draw.choice(["none", "all", "align"]), num_gpu_blocks_override=draw.choice([None] * 5 + [77])))


def options_of(config):
    return (f"case max_model_len={config.model_config.max_model_len} auto_fit={int(config.model_config.original_max_model_len == -1)} "
            f"batched={config.scheduler_config.max_num_batched_tokens} encoder={config.scheduler_config.max_num_encoder_input_tokens} "
            f"mamba={config.cache_config.mamba_cache_mode} dcp={config.parallel_config.decode_context_parallel_size} "
            f"pcp={config.parallel_config.prefill_context_parallel_size} override={config.cache_config.num_gpu_blocks_override or 0} "
            f"unify={int(config.scheduler_config.disable_hybrid_kv_cache_manager)}")


def results_of(config, plans):
    first = plans[0]
    fits = utils.get_max_concurrency_for_kv_cache_config(config, first) if first.kv_cache_groups else 0.0
    yield f"length {config.model_config.max_model_len} {fits!r}"
    for plan in plans:
        yield f"blocks {plan.num_blocks}"
        for group in plan.kv_cache_groups:
            spec = group.kv_cache_spec
            specs = list(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
            yield f"group {','.join(group.layer_names)} {' '.join(map(text_of, specs))}"
        for tensor in plan.kv_cache_tensors:
            yield f"tensor {tensor.size} {','.join(tensor.shared_by)}"


OUT = "cache_groups.txt.xz"


def main(out):
    logging.disable(logging.CRITICAL)
    draw, lines, num_cases, num_errors = random.Random(9), [], 0, 0
    while num_cases < 220:
        config, workers = random_config(draw), random_workers(draw, random_layers(draw))
        memory = [draw.choice([1 << 14, 1 << 18, 1 << 21, 5000000, 1 << 26, 1 << 30]) + draw.randrange(5000) for _ in workers]
        case = [options_of(config)]
        case += [f"worker {size} " + " ".join(f"{name}={text_of(spec)}" for name, spec in layers.items())
                 for size, layers in zip(memory, workers)]
        try:
            results = list(results_of(config, utils.get_kv_cache_configs(config, [dict(layers) for layers in workers], memory)))
        except (ValueError, AssertionError, NotImplementedError):
            results = ["error"]
            num_errors += 1
            if num_errors > 70:
                continue
        except ZeroDivisionError:
            continue
        lines += case + results
        num_cases += 1
    files.write_lines(out, lines)
