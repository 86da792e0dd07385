"""Run by vLLM's Python: vLLM's real OffloadingConnector (its scheduler half) under both schedulers; the worker half is scripted.

    python vllm_offloading.py sync|async sha256|sha256_cbor
"""
import json
import random
import sys
import tempfile
from collections import deque
from pathlib import Path

import torch
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

import quire.vllm

BLOCK, NUM_BLOCKS = 16, 24
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 2048, "vocab_size": 1000}  # fmt: skip


def make(cls, model, is_async, hash_name):
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float16)
    extra = {"cpu_bytes_to_use": spec.page_size_bytes * 40, "block_size": BLOCK}
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="float16", skip_tokenizer_init=True, max_model_len=1024),
        scheduler_config=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=1024, enable_chunked_prefill=True,
                                         is_encoder_decoder=False),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True, prefix_caching_hash_algo=hash_name),
        kv_transfer_config=KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra),
        device_config=DeviceConfig("cpu"),
    )  # fmt: skip
    config.scheduler_config.async_scheduling = is_async
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    tensors = [KVCacheTensor(size=spec.page_size_bytes * NUM_BLOCKS, shared_by=["layer"])]
    kv_cache = KVCacheConfig(num_blocks=NUM_BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return cls(vllm_config=config, kv_cache_config=kv_cache, block_size=BLOCK, log_stats=True,
               structured_output_manager=StructuredOutputManager(config))  # fmt: skip


class Worker:
    """Loads and stores take one step; a finished request's blocks are freed when its stores are done."""

    def __init__(self):
        self.stored, self.loading, self.done = set(), [], set()

    def run(self, plan):
        meta = plan.kv_connector_metadata
        received, self.loading = set(self.loading), list(meta.reqs_to_load)
        self.stored.update(meta.reqs_to_store)
        self.done.update(plan.finished_req_ids)
        sent = self.done & self.stored
        self.done -= sent
        self.stored -= sent
        return KVConnectorOutput(finished_sending=sent or None, finished_recving=received or None)


def requests(hash_name, count=40):
    rng = random.Random(3)
    documents = [[rng.randrange(1000) for _ in range(rng.randrange(60, 200))] for _ in range(5)]
    hasher = get_request_block_hasher(BLOCK, get_hash_fn_by_name(hash_name))
    for i in range(count):
        document = documents[i % len(documents)]
        prompt = document[: rng.randrange(20, len(document))] + [rng.randrange(1000) for _ in range(5)]
        params = SamplingParams(max_tokens=rng.randrange(2, 60), ignore_eos=True)
        yield Request(request_id=f"r{i}", prompt_token_ids=prompt, sampling_params=params, pooling_params=None, arrival_time=float(i),
                      block_hasher=hasher)  # fmt: skip


def play(cls, model, is_async, hash_name):
    scheduler, worker, log = make(cls, model, is_async, hash_name), Worker(), []
    todo, queue, num_loads, num_stores = deque(requests(hash_name)), deque(), 0, 0
    for step in range(5000):
        if todo and step % 3 == 0:
            scheduler.add_request(todo.popleft())
        if not todo and not scheduler.has_requests():
            break
        plan = scheduler.schedule()
        loads, stores = plan.kv_connector_metadata.reqs_to_load, plan.kv_connector_metadata.reqs_to_store
        num_loads, num_stores = num_loads + len(loads), num_stores + len(stores)
        cached = plan.scheduled_cached_reqs
        log.append([list(plan.num_scheduled_tokens.items()), [(new.req_id, list(new.block_ids[0])) for new in plan.scheduled_new_reqs],
                    cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, sorted(plan.finished_req_ids),
                    transfers(loads), transfers(stores)])  # fmt: skip
        queue.append((plan, worker.run(plan), sampling(plan, scheduler, is_async)))
        if len(queue) == (2 if is_async else 1):
            plan, transferred, tokens = queue.popleft()
            ids = list(plan.num_scheduled_tokens)
            result = ModelRunnerOutput(req_ids=ids, req_id_to_index={name: i for i, name in enumerate(ids)}, sampled_token_ids=tokens,
                                       kv_connector_output=transferred)  # fmt: skip
            for outputs in scheduler.update_from_output(plan, result).values():
                log.append([(o.request_id, o.new_token_ids, str(o.finish_reason), o.num_cached_tokens, o.num_external_computed_tokens)
                            for o in outputs.outputs])  # fmt: skip
    return log, num_loads, num_stores, scheduler.get_request_counts()


def sampling(plan, scheduler, is_async):
    computed = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
    computed.update(zip(plan.scheduled_cached_reqs.req_ids, plan.scheduled_cached_reqs.num_computed_tokens))
    live = scheduler.requests
    tokens = []
    for name, count in plan.num_scheduled_tokens.items():
        known = live[name].num_tokens + (live[name].num_output_placeholders - 1 if is_async and live[name].num_output_placeholders else 0)
        tokens.append([(computed[name] + count) % 997] if computed[name] + count >= known else [])
    return tokens


def transfers(specs):
    return {name: [[int(i) for i in part.block_ids] for part in pair] for name, pair in specs.items()}


def main(mode, hash_name):
    is_async = mode == "async"
    init_none_hash(get_hash_fn_by_name(hash_name))
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(MODEL))
        stock = play(AsyncScheduler if is_async else Scheduler, model, is_async, hash_name)
        ours = play(quire.vllm.Scheduler, model, is_async, hash_name)
    log, num_loads, num_stores, counts = stock
    assert num_loads and num_stores and counts == (0, 0), (num_loads, num_stores, counts)
    if stock != ours:
        number = next((i for i, (a, b) in enumerate(zip(log, ours[0])) if a != b), None)
        sys.exit(f"different at {number}:\n  vLLM:  {log[number] if number is not None else len(log)}\n"
                 f"  quire: {ours[0][number] if number is not None else len(ours[0])}")  # fmt: skip
    print(f"equal: {len(log)} records, {num_loads} loads, {num_stores} stores")


if __name__ == "__main__":
    main(*sys.argv[1:3])
