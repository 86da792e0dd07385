"""Tests the options of quire.vllm.Connector, and the caches that it refuses, with stand-ins for vLLM.

usage: vllm_connector_options.py VERSION CASE...
"""

import sys
from types import SimpleNamespace

from vllm_connector_halves import BLOCK, raises

from quire.vllm._connector_options import options_of, windows_of
from vllm.v1 import kv_cache_interface as kinds


def texts():
    """Options and caches that cannot be served are refused with the option's name."""
    size = {"cpu_bytes_to_use": 1 << 20}
    raises("cpu_bytes_to_use: -1 is not a whole number of at least 0", lambda: options_of({"cpu_bytes_to_use": -1}))
    raises("cpu_bytes_to_use: is not set; set it to the bytes of host memory of all workers together", lambda: options_of({"cpu_bytes_to_use": 0}))
    for name in ("block_size", "store_threshold", "max_tracker_size"):
        raises(f"{name}: 1.5 is not a whole number of at least 0", lambda: options_of({**size, name: 1.5}))
    for name in ("join_loads", "early_loads", "layer_by_layer"):
        raises(f"{name}: 'yes' is not a boolean; use true or false", lambda: options_of({**size, name: "yes"}))
    given = options_of({**size, "policy": "exact", "join_loads": False, "early_loads": False, "layer_by_layer": True, "store_threshold": 0})
    assert (given.policy, given.join_loads, given.early_loads, given.layer_by_layer) == ("exact", False, False, True)

    def windows(*specs, extra=None, **parallel):
        parallel = {"decode_context_parallel_size": 1, "prefill_context_parallel_size": 1, **parallel}
        config = SimpleNamespace(parallel_config=SimpleNamespace(**parallel))
        return windows_of(config, SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs]), extra or {})

    full, window = kinds.FullAttentionSpec(BLOCK), kinds.SlidingWindowSpec(BLOCK, 40)
    assert windows(full) == [0] and windows(window) == [40] and windows(full, window, full) == [0, 40, 0]
    assert windows(kinds.MLAAttentionSpec(BLOCK)) == [0] and windows(kinds.FullAttentionSpec(BLOCK, sliding_window=8)) == [0]
    assert windows(kinds.UniformTypeKVCacheSpecs(BLOCK, {"a": window, "b": window})) == [40]
    raises("does not support layers of UniformTypeKVCacheSpecs", lambda: windows(kinds.UniformTypeKVCacheSpecs(BLOCK, {"a": window, "b": full})))
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        raises("does not support context parallelism", lambda: windows(full, **{name: 2}))
    assert windows(full, extra={"block_size": 4 * BLOCK}) == [0] and windows(full, window, extra={"block_size": BLOCK}) == [0, 40]
    for specs in ((window,), (full, full)):
        raises("block_size: must be the block size of the cache", lambda: windows(*specs, extra={"block_size": 2 * BLOCK}))
    one = kinds.SlidingWindowSpec(BLOCK, 1)
    raises("each token of this model attends only to itself", lambda: windows(one))
    assert windows(full, one) == [0, 1]


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
