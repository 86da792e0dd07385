"""Tests the configurations that quire.vllm.Scheduler accepts and refuses under vLLM 0.32.0, with stand-ins for vLLM.

usage: vllm_adapter_newer_options.py 0.32.0 CASE...
"""

import sys
from types import SimpleNamespace

import vllm_adapter
from vllm_adapter import make, parties, raises, stage

from vllm.v1.kv_cache_interface import KVCacheGroupSpec, MambaSpec, SlidingWindowSpec

LATER = "under vLLM 0.32.0; "
USE_OLDER = "use vLLM 0.19.0, where quire supports this"


def refused(text, change=None, **config):
    raises(ValueError, text, lambda: make(change, **config))


def set_(part, **values):
    def change(given):
        target = given["vllm_config"] if part == "" else getattr(given["vllm_config"], part, None) or given[part]
        vars(target).update(values)

    return change


def refusals():
    """Each part of a configuration without decisions for vLLM 0.32.0 is refused by name."""
    refused(f"context parallelism {LATER}{USE_OLDER}", set_("parallel_config", decode_context_parallel_size=2))
    refused(f"context parallelism {LATER}", set_("parallel_config", prefill_context_parallel_size=2))
    text = f"pipeline parallelism with the V2 model runner and asynchronous scheduling {LATER}set VLLM_USE_V2_MODEL_RUNNER=0"
    pipeline = {"pp": 2, "v2_runner": True, "async": True}
    refused(text, **pipeline)
    for name, other in (("pp", 1), ("v2_runner", False), ("async", False)):
        assert make(**{**pipeline, name: other})
    refused(f"prefill_schedule_interval=2 {LATER}set it to 1", set_("scheduler_config", prefill_schedule_interval=2))
    eagle = {"spec": "eagle", "num_spec_tokens": 2}
    assert make(**eagle)
    for values, text in (
        ({"max_num_new_slots_for_drafting": 1}, f"drafting methods that take tokens from a step (draft models, parallel drafting) {LATER}use EAGLE"),
        ({"num_speculative_tokens_per_batch_size": {1: 2}}, f"num_speculative_tokens_per_batch_size {LATER}set one number of draft tokens"),
        ({"use_eagle_block_drop": lambda: False}, f"EAGLE that keeps the last block of a hit {LATER}set it to drop that block"),
    ):
        refused(text, set_("speculative_config", **values), **eagle)
    assert make(set_("speculative_config", use_eagle_block_drop=lambda: False), spec="ngram", num_spec_tokens=2), "only EAGLE drops blocks"
    refused(f"chains of MTP modules {LATER}use one module", set_("", num_prefill_lookahead_tokens=2), **eagle)
    refused(f"encoder-cache connectors {LATER}{USE_OLDER}", ec_connector=True)
    raises(ValueError, "encoder-decoder models are not supported with KV connectors",
           lambda: make(connector="ScriptedConnector", encoder_decoder=True, multimodal=True, mm_max_tokens=4))  # fmt: skip
    refused(f"an encoder without its language model (mm_encoder_only) {LATER}use vLLM's own scheduler for it", set_("", is_mm_encoder_only=True))
    manager = SimpleNamespace(get_encoder_cache_manager_obj=lambda: object())
    refused(f"encoder_cache_manager_cls {LATER}leave it out", set_("", ec_manager_config=manager))
    for values in ({"runner_type": "pooling"}, {"is_diffusion": True}):
        refused(f"pooling and diffusion models {LATER}{USE_OLDER}", set_("model_config", **values))
    refused(f"routed experts {LATER}{USE_OLDER}", set_("", aux_output_config=SimpleNamespace(enabled=True)))
    refused(f"per_request_spec_decode_metrics {LATER}leave it out", set_("observability_config", per_request_spec_decode_metrics="all"))
    refused(f"additional_config: quire.lifo_free_blocks {LATER}leave it out, or use vLLM 0.19.0", additional={"quire": {"lifo_free_blocks": True}})
    raises(ValueError, f"blocks of 4 tokens with a hash block size of 2 {LATER}{USE_OLDER}", lambda: make(arguments={"hash_block_size": 2}))
    for given in (4, None):
        assert make(arguments={"hash_block_size": given}).hash_block_size == 4
    raises(ValueError, "constructor arguments ['unknown']", lambda: make(arguments={"unknown": 1}))
    raises(ValueError, "throttle_prefills: quire.vllm.Scheduler does not support prefill_schedule_interval; set it to 1", lambda: make().schedule(True))
    scheduler = make()
    assert scheduler.get_ec_connector() is None and scheduler.reset_connector_cache() is True and scheduler.requires_kv_delivery is False


def groups(*specs, **values):
    def change(given):
        cache = given["kv_cache_config"]
        cache.kv_cache_groups = [KVCacheGroupSpec([f"layer{i}"], spec, **marks) for i, (spec, marks) in enumerate(specs)]
        for name, value in values.items():
            setattr(cache, name, value)

    return change


def caches():
    """Caches without decisions for vLLM 0.32.0 are refused, and a retention interval is checked as vLLM checks it."""
    shape = {"num_kv_heads": 1, "head_size": 1, "dtype": vllm_adapter.configs.torch.float16}
    full, wide = vllm_adapter.configs.FullAttentionSpec(4, **shape), vllm_adapter.configs.FullAttentionSpec(8, **shape)
    window = SlidingWindowSpec(4, 6, **shape)
    mamba = MambaSpec(4, ((1,),), (vllm_adapter.configs.torch.float16,))
    assert make(groups((full, {}), (window, {})))
    uniform = SimpleNamespace(block_size=4, kv_cache_specs={"a": full, "b": mamba})
    for spec in (mamba, type("UniformTypeKVCacheSpecs", (SimpleNamespace,), {})(**vars(uniform))):
        refused(f"KV-cache specs of type MambaSpec {LATER}{USE_OLDER}", groups((spec, {})))
    keeps = SlidingWindowSpec(4, 6, **shape, extra_retained_tokens=2)
    refused(f"sliding windows that keep more tokens than they attend to {LATER}{USE_OLDER}", groups((keeps, {})))
    refused(f"cache groups with different block sizes {LATER}{USE_OLDER}", groups((full, {}), (wide, {})))
    refused(f"draft models with separate cache groups {LATER}{USE_OLDER}", groups((full, {}), (window, {"is_eagle_group": True})))
    assert make(groups((full, {"is_eagle_group": True}), (window, {"is_eagle_group": True})))
    given = lambda interval: make(groups((full, {}), (window, {}), prefix_cache_retention_interval=interval))  # noqa: E731
    assert [given(interval)._core_config.retention_interval for interval in (None, 0, 8)] == [-1, 0, 8]
    for interval in (-4, 6):
        raises(ValueError, f"prefix_cache_retention_interval={interval}: use a multiple of 4", lambda: given(interval))
    refused("prefix_cache_retention_interval=8: the model has no sliding window; set it to 0", groups((full, {}), prefix_cache_retention_interval=8))
    told = make(groups((full, {}), (window, {})))._spec_kinds
    assert told == [("full_attention", None), ("sliding_window", 6)]


def options():
    """Limits that only vLLM 0.32.0 has reach the core."""
    config = make(
        set_("scheduler_config", watermark=0.25, max_num_active_seqs=3, long_prefill_token_threshold_adaptive=True), max_num_batched_tokens=48, queue_depth=2
    )._core_config
    assert (config.num_watermark_blocks, config.max_num_active_seqs, config.shared_prefill_tokens, config.max_in_flight_tokens) == (8, 3, 48, 96)
    plain = make()._core_config
    assert (plain.num_watermark_blocks, plain.max_num_active_seqs, plain.shared_prefill_tokens, plain.retention_interval) == (0, 0, 0, -1)
    delivery = lambda **more: make(connector="ScriptedConnector", **more)  # noqa: E731
    for role, depth, expected in (("kv_both", 1, (False, True)), ("kv_consumer", 2, (True, False)), ("kv_producer", 2, (False, True))):
        scheduler = delivery(role=role, queue_depth=depth)
        assert (scheduler.defer_block_free, scheduler.requires_kv_delivery) == expected, role
    assert make(queue_depth=2).defer_block_free is False


class FreesBlocks(parties.ScriptedHybridConnector):
    def has_pending_block_frees(self):
        return False


class HasSeveral(parties.ScriptedHybridConnector):
    inner = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._connectors = self.inner

    def has_pending_block_frees(self):
        return False


for cls in (FreesBlocks, HasSeveral):
    parties.KVConnectorFactory.register_connector(cls.__name__, __name__, cls.__name__)
sys.modules.setdefault("vllm_adapter_newer_options", sys.modules[__name__])


def connectors():
    """Connectors that free blocks of running requests are refused, also within another one."""
    refused("FreesBlocks, which frees blocks of running requests; use OffloadingConnector", connector="FreesBlocks")
    assert make(connector="HasSeveral"), "it only asks the others"
    HasSeveral.inner = [FreesBlocks.__new__(FreesBlocks)]
    refused("FreesBlocks, which frees blocks of running requests", connector="HasSeveral")
    HasSeveral.inner = [vllm_adapter.SimpleCPUOffloadConnector.__new__(vllm_adapter.SimpleCPUOffloadConnector)]
    refused("SimpleCPUOffloadConnector, which allocates blocks", connector="HasSeveral")
    bound = []
    parties.ScriptedConnector.bind_kv_cache_manager = lambda self, manager: bound.append(manager)
    scheduler = make(connector="ScriptedConnector")
    assert bound == [scheduler.kv_cache_manager]


if __name__ == "__main__":
    for case in sys.argv[1:]:
        with stage.CLOCK:
            globals()[case]()
        print(f"{case}: ok", flush=True)
