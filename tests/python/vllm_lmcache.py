"""LMCache on CPU for vllm_apart.py, with two engines over one folder. LMCache 0.5.6 cannot copy between a KV cache on CPU and its memory.
"""

import os

CHUNK = 32  # tokens


def use_lmcache(folder, seen: dict):
    """Call before the engine is created. Counts the bytes that are loaded into the KV cache."""
    folder.mkdir(exist_ok=True)
    os.environ |= {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_CHUNK_SIZE": str(CHUNK), "LMCACHE_LOCAL_CPU": "True", "LMCACHE_MAX_LOCAL_CPU_SIZE": "0.1",
                   "LMCACHE_REMOTE_URL": f"fs://localhost:0{folder}", "LMCACHE_REMOTE_SERDE": "naive",
                   "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_DISABLE_BANNER": "1"}  # fmt: skip
    import lmcache.v1.gpu_connector as connectors
    import torch
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface

    class Copies(GPUConnectorInterface):
        """Copies between caches of (2, blocks, heads, tokens of a block, head size) and chunks of (2, layers, tokens, heads * size)."""

        def __init__(self, metadata):
            self.shape = metadata.kv_shape

        def get_shape(self, num_tokens):
            layers, both, _, heads, size = self.shape
            return torch.Size([both, layers, num_tokens, heads * size])

        def from_gpu(self, memory_obj, start, end, **given):
            self.initialize_kvcaches_ptr(**given)
            blocks, tokens = self.places(given["slot_mapping"][start:end])
            for layer, cache in enumerate(self.kvcaches):
                memory_obj.tensor[:, layer] = cache[:, blocks, :, tokens].permute(1, 0, 2, 3).flatten(2)

        def to_gpu(self, memory_obj, start, end, **given):
            self.initialize_kvcaches_ptr(**given)
            skipped = min(end - start, max(0, given.get("vllm_cached_tokens", 0) - start))
            blocks, tokens = self.places(given["slot_mapping"][start + skipped : end])
            for layer, cache in enumerate(self.kvcaches):
                chunk = memory_obj.tensor[:, layer, skipped:].unflatten(2, (cache.shape[2], cache.shape[4]))
                cache[:, blocks, :, tokens] = chunk.permute(1, 0, 2, 3)
                seen["bytes"] += chunk.nbytes

        def places(self, slots):
            size = self.kvcaches[0].shape[3]
            return slots // size, slots % size

        def batched_from_gpu(self, memory_objs, starts, ends, **given):
            for one in zip(memory_objs, starts, ends):
                self.from_gpu(*one, **given)

        def batched_to_gpu(self, memory_objs, starts, ends, **given):
            for one in zip(memory_objs, starts, ends):
                self.to_gpu(*one, **given)

    connectors.CreateGPUConnector = lambda config, metadata, *_, **__: Copies(metadata)
