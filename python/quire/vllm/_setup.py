"""Sets up quire.vllm.Scheduler: reads limits from vLLM's configuration, and creates the objects that the scheduler calls.

Called once, in the process of vLLM's EngineCore, when its scheduler is created. Connectors, publishers and grammars are vLLM's own objects.
They are created in vLLM's order, because their construction has side effects.
"""

from vllm import envs
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_events import EventPublisherFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.metrics.perf import ModelMetrics

from quire.vllm._config import refuse
from quire.vllm._options import journal_of, options_of, trace_of


def read_limits(scheduler) -> None:
    """Reads and checks sizes and modes of the configuration."""
    limits, parallel = scheduler.scheduler_config, scheduler.parallel_config
    model = scheduler.vllm_config.model_config
    if not scheduler.cache_config.num_gpu_blocks:
        raise ValueError(f"cache_config.num_gpu_blocks: is {scheduler.cache_config.num_gpu_blocks}; set it before the scheduler is made")
    scheduler.own_options = options_of(scheduler.vllm_config)
    scheduler.trace = trace_of(scheduler.vllm_config)
    scheduler.journal = journal_of(scheduler.vllm_config)
    try:
        scheduler.policy = scheduler.own_options.get("policy") or SchedulingPolicy(limits.policy)
    except ValueError as error:
        raise ValueError(f"Unknown scheduling policy: {limits.policy}") from error
    scheduler._is_async = bool(limits.async_scheduling)
    scheduler.max_num_running_reqs = limits.max_num_seqs
    scheduler.max_num_scheduled_tokens = limits.max_num_scheduled_tokens or limits.max_num_batched_tokens
    scheduler.max_model_len = model.max_model_len
    scheduler.is_encoder_decoder = bool(model.is_encoder_decoder)
    scheduler.enable_kv_cache_events = scheduler.kv_events_config is not None and bool(scheduler.kv_events_config.enable_kv_cache_events)
    scheduler.dcp_world_size = parallel.decode_context_parallel_size
    scheduler.pcp_world_size = parallel.prefill_context_parallel_size
    scheduler.use_pp = parallel.pipeline_parallel_size > 1
    scheduler.use_v2_model_runner = getattr(scheduler.vllm_config, "use_v2_model_runner", envs.VLLM_USE_V2_MODEL_RUNNER)
    scheduler.needs_kv_cache_zeroing = scheduler.kv_cache_config.needs_kv_cache_zeroing
    observability = scheduler.observability_config
    scheduler.kv_metrics_sample = observability.kv_cache_metrics_sample if observability.kv_cache_metrics else 0.0


def read_encoder_budget(scheduler, mm_registry, takes_inputs: bool) -> None:
    budget = MultiModalBudget(scheduler.vllm_config, mm_registry) if takes_inputs else None
    if scheduler.is_encoder_decoder and not (budget and len(budget.mm_max_toks_per_item) <= 1):
        raise ValueError("encoder-decoder models must have a multimodal interface with at most one modality")
    scheduler.max_num_encoder_input_tokens = budget.encoder_compute_budget if budget else 0
    scheduler.encoder_cache_size = budget.encoder_cache_size if budget else 0


def attach_vllm_objects(scheduler) -> None:
    """Creates the objects that the scheduler calls: connectors, the publisher of events, the reader of routed experts."""
    config = scheduler.vllm_config
    scheduler.connector = None
    if config.kv_transfer_config is not None:
        if scheduler.is_encoder_decoder:
            raise ValueError("encoder-decoder models are not supported with KV connectors")
        scheduler.connector = KVConnectorFactory.create_connector(
            config=config, role=KVConnectorRole.SCHEDULER, kv_cache_config=scheduler.kv_cache_config
        )
    scheduler.kv_event_publisher = EventPublisherFactory.create(scheduler.kv_events_config, scheduler.parallel_config.data_parallel_index)
    scheduler.ec_connector = None
    if config.ec_transfer_config is not None:
        scheduler.ec_connector = ECConnectorFactory.create_connector(config=config, role=ECConnectorRole.SCHEDULER)
    scheduler.perf_metrics = None
    if scheduler.log_stats and scheduler.observability_config.enable_mfu_metrics:
        scheduler.perf_metrics = ModelMetrics(config)
    scheduler._routed_group = -1
    if config.model_config.enable_return_routed_experts:
        _attach_routed_experts(scheduler)


def _attach_routed_experts(scheduler) -> None:
    if scheduler.dcp_world_size != 1 or scheduler.pcp_world_size != 1:
        raise ValueError("enable_return_routed_experts does not support context parallelism")
    from vllm.model_executor.layers.fused_moe.routed_experts_capturer import RoutedExpertsReader  # only in vLLM 0.19.0

    groups = scheduler.kv_cache_config.kv_cache_groups
    if not groups:
        raise ValueError("enable_return_routed_experts requires at least one kv cache group")
    attention = (i for i, group in enumerate(groups) if isinstance(group.kv_cache_spec, AttentionSpec))
    scheduler._routed_group = next(attention, 0)
    smallest = min(group.kv_cache_spec.block_size for group in groups)
    scheduler.max_num_kv_tokens = scheduler.kv_cache_config.num_blocks // len(groups) * smallest
    scheduler.routed_experts_reader = RoutedExpertsReader.create()
    scheduler.routed_experts_reader.attach_buffer(max_num_kv_tokens=scheduler.max_num_kv_tokens, vllm_config=scheduler.vllm_config)


def refuse_pool_allocating_connectors(connector) -> None:
    for part in (connector, *getattr(connector, "_connectors", ())):
        if type(part).__name__ == "SimpleCPUOffloadConnector":
            refuse("SimpleCPUOffloadConnector, which allocates blocks from the scheduler's pool itself", "use OffloadingConnector")


def bind_block_pool(scheduler) -> None:
    refuse_pool_allocating_connectors(scheduler.connector)
    if hasattr(scheduler.connector, "bind_gpu_block_pool"):
        scheduler.connector.bind_gpu_block_pool(scheduler.kv_cache_manager.block_pool)
