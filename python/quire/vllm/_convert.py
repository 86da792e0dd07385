"""Converts statistics and KV events of the core to vLLM 0.19.0's objects."""

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core import kv_cache_utils
from vllm.v1.metrics.stats import KVCacheEvictionEvent, PrefixCacheStats, SchedulerStats
from vllm.v1.spec_decode.metrics import SpecDecodingStats


def scheduler_stats(stats, transfer_stats=None, cudagraph_stats=None, perf_stats=None) -> SchedulerStats:
    running, waiting, kv_usage, encoder_usage, prefix, connector_prefix, spec, evictions, _ = stats
    return SchedulerStats(
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        kv_cache_usage=kv_usage,
        encoder_cache_usage=encoder_usage,
        prefix_cache_stats=PrefixCacheStats(*prefix),
        connector_prefix_cache_stats=PrefixCacheStats(*connector_prefix) if connector_prefix else None,
        kv_cache_eviction_events=[KVCacheEvictionEvent(*event) for event in evictions],
        spec_decoding_stats=SpecDecodingStats(*spec[:5]) if spec else None,
        kv_connector_stats=transfer_stats.data if transfer_stats else None,
        cudagraph_stats=cudagraph_stats,
        perf_stats=perf_stats,
    )


def merged_stats(earlier, later):
    """Merges the statistics of two steps: adds the counts, and takes the state of the later step."""
    if earlier is None or later is None:
        return later

    def added(a, b):
        return b if a is None else a if b is None else (a[0] or b[0], *(x + y for x, y in zip(a[1:], b[1:])))

    running, waiting, kv_usage, encoder_usage, prefix, connector_prefix, spec, evictions, deferred = later
    joined = added(earlier[4], prefix), added(earlier[5], connector_prefix)
    return (running, waiting, kv_usage, encoder_usage, *joined, spec, [*earlier[7], *evictions], deferred)


def kv_event(event):
    kind = event[0]
    if kind == "cleared":
        return AllBlocksCleared()
    convert = kv_cache_utils.maybe_convert_block_hash
    if kind == "removed":
        return BlockRemoved(block_hashes=[convert(event[1])], medium=event[2])
    _, hashes, parent, token_ids, block_size, lora_id, medium, lora_name, extra_keys, _ = event
    return BlockStored(
        block_hashes=[convert(value) for value in hashes],
        parent_block_hash=None if parent is None else convert(parent),
        token_ids=token_ids,
        block_size=block_size,
        lora_id=lora_id,
        medium=medium,
        lora_name=lora_name,
        extra_keys=extra_keys,
    )
