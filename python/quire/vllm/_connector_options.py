"""What kv_connector_extra_config says to quire.vllm.Connector, checked. docs/vllm.md lists the options."""

from dataclasses import dataclass

from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec, UniformTypeKVCacheSpecs

# name -> (what it is, what else may be said)
_VLLMS = (
    "cpu_bytes_to_use",
    "block_size",
    "eviction_policy",
    "store_threshold",
    "max_tracker_size",
    "disk_path",
    "disk_bytes_to_use",
    "disk_model_id",
)
_OWN = {"policy": "measured", "join_loads": True, "early_loads": True, "layer_by_layer": False}
_NUMBERS = ("cpu_bytes_to_use", "block_size", "store_threshold", "max_tracker_size")


@dataclass
class Options:
    """Those that OffloadingConnector's spec does not have."""

    policy: str
    join_loads: bool
    early_loads: bool
    layer_by_layer: bool


def options_of(extra: dict) -> Options:
    known = (*_VLLMS, *_OWN)
    for name in extra:
        if name not in known:
            raise ValueError(f"kv_connector_extra_config: there is no option {name!r}; the options are {', '.join(known)}")
    for name in _NUMBERS:
        value = extra.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name}: {value!r} is no whole number from 0 on")
    if not extra.get("cpu_bytes_to_use"):
        raise ValueError("cpu_bytes_to_use: it must be given; give the bytes of host memory over all workers")
    own = {name: extra.get(name, default) for name, default in _OWN.items()}
    if own["policy"] not in ("measured", "exact"):
        raise ValueError(f"policy: there is no {own['policy']!r}; give measured or exact")
    for name in ("join_loads", "early_loads", "layer_by_layer"):
        if not isinstance(own[name], bool):
            raise ValueError(f"{name}: {own[name]!r} is neither true nor false")
    return Options(**own)


def windows_of(vllm_config, kv_cache_config, extra: dict) -> list[int]:
    """Of each cache group the tokens that one attends to, itself among them; 0: all. What cannot be served is refused."""
    groups, parallel = kv_cache_config.kv_cache_groups, vllm_config.parallel_config
    if parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size != 1:
        raise ValueError("quire.vllm.Connector does not serve context parallelism: a context is spread over ranks")
    windows = [_window_of(group.kv_cache_spec) for group in groups]
    sizes = {group.kv_cache_spec.block_size for group in groups}
    if len(sizes) != 1:
        raise ValueError(f"quire.vllm.Connector does not serve cache groups with blocks of several sizes ({sorted(sizes)} tokens)")
    is_plain = windows == [0]
    if not is_plain and extra.get("block_size", min(sizes)) != min(sizes):
        raise ValueError("block_size: with several cache groups or a window blocks have the cache's own size; leave it out")
    if set(windows) == {1}:
        raise ValueError("quire.vllm.Connector: tokens attend to nothing but themselves, so there is nothing to keep")
    return windows


def _window_of(spec) -> int:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        windows = {_window_of(one) for one in spec.kv_cache_specs.values()}
        if len(windows) == 1:
            return windows.pop()
    elif isinstance(spec, FullAttentionSpec):
        return 0  # also where layers with a window are kept as if they had none
    elif type(spec) is SlidingWindowSpec:
        return spec.sliding_window
    raise ValueError(f"quire.vllm.Connector does not serve layers of {type(spec).__name__}; it serves full attention and sliding windows")
