"""Checks the options of quire.vllm.Connector in kv_connector_extra_config, which docs/vllm.md describes."""

from dataclasses import dataclass

from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec, UniformTypeKVCacheSpecs

# The options of OffloadingConnector with quire's spec, then the options of this connector with their defaults.
_VLLM_OPTIONS = (
    "cpu_bytes_to_use",
    "block_size",
    "eviction_policy",
    "store_threshold",
    "max_tracker_size",
    "disk_path",
    "disk_bytes_to_use",
    "disk_model_id",
)
_QUIRE_OPTIONS = {"policy": "measured", "join_loads": True, "early_loads": True, "layer_by_layer": False}
_INTEGER_OPTIONS = ("cpu_bytes_to_use", "block_size", "store_threshold", "max_tracker_size")


@dataclass
class Options:
    """The options that only this connector has."""

    policy: str
    join_loads: bool
    early_loads: bool
    layer_by_layer: bool


def options_of(extra: dict) -> Options:
    known = (*_VLLM_OPTIONS, *_QUIRE_OPTIONS)
    for name in extra:
        if name not in known:
            raise ValueError(f"kv_connector_extra_config: option {name!r} does not exist; use one of {', '.join(known)}")
    for name in _INTEGER_OPTIONS:
        value = extra.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name}: {value!r} is not a whole number of at least 0")
    if not extra.get("cpu_bytes_to_use"):
        raise ValueError("cpu_bytes_to_use: is not set; set it to the bytes of host memory of all workers together")
    own = {name: extra.get(name, default) for name, default in _QUIRE_OPTIONS.items()}
    if own["policy"] not in ("measured", "exact"):
        raise ValueError(f"policy: is {own['policy']!r}; use measured or exact")
    for name in ("join_loads", "early_loads", "layer_by_layer"):
        if not isinstance(own[name], bool):
            raise ValueError(f"{name}: {own[name]!r} is not a boolean; use true or false")
    return Options(**own)


def windows_of(vllm_config, kv_cache_config, extra: dict) -> list[int]:
    """Returns the size of each cache group's window in tokens; 0 for full attention. Refuses unsupported groups."""
    groups, parallel = kv_cache_config.kv_cache_groups, vllm_config.parallel_config
    if parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size != 1:
        raise ValueError("quire.vllm.Connector does not support context parallelism, which spreads a context over ranks")
    windows = [_window_of(group.kv_cache_spec) for group in groups]
    sizes = {group.kv_cache_spec.block_size for group in groups}
    if len(sizes) != 1:
        raise ValueError(f"quire.vllm.Connector does not support cache groups with different block sizes ({sorted(sizes)} tokens)")
    is_plain = windows == [0]
    if not is_plain and extra.get("block_size", min(sizes)) != min(sizes):
        raise ValueError("block_size: must be the block size of the cache if there are several cache groups or a sliding window; leave it out")
    if set(windows) == {1}:
        raise ValueError("quire.vllm.Connector: each token of this model attends only to itself, so there are no blocks to store")
    return windows


def _window_of(spec) -> int:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        windows = {_window_of(one) for one in spec.kv_cache_specs.values()}
        if len(windows) == 1:
            return windows.pop()
    elif isinstance(spec, FullAttentionSpec):
        return 0  # also for layers with a window that are stored as layers without one
    elif type(spec) is SlidingWindowSpec:
        return spec.sliding_window
    raise ValueError(f"quire.vllm.Connector does not support layers of {type(spec).__name__}; it supports full attention and sliding windows")
