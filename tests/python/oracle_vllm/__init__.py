"""The names of vLLM 0.19.0 or 0.32.0 that are needed to import and run quire.vllm without vLLM.

`install()` puts the modules into sys.modules. They were written from the fields that cross the interface and contain no logic of vLLM's
scheduler.
"""

import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from dataclasses import asdict

from . import hashing, offload, prometheus, requests, tensors, values


class _Factory:
    """Creates connectors by registered name, like vLLM's two factories."""

    _registry: dict

    @classmethod
    def register_connector(cls, name: str, module: str, class_name: str) -> None:
        cls._registry[name] = lambda: getattr(sys.modules[module], class_name)


class KVConnectorFactory(_Factory):
    _registry = {}

    @classmethod
    def create_connector(cls, config, role, kv_cache_config=None):
        return cls._registry[config.kv_transfer_config.kv_connector]()(config, role, kv_cache_config)


class ECConnectorFactory(_Factory):
    _registry = {}

    @classmethod
    def create_connector(cls, config, role):
        return cls._registry[config.ec_transfer_config.ec_connector]()(config, role)


class NullPublisher:
    def publish(self, events) -> None:
        pass

    def shutdown(self) -> None:
        pass


class EventPublisherFactory:
    _registry = {}

    @classmethod
    def register_publisher(cls, name: str, constructor) -> None:
        cls._registry[name] = constructor

    @classmethod
    def create(cls, config, data_parallel_rank: int = 0):
        if config is None or not config.enable_kv_cache_events:
            return NullPublisher()
        fields = asdict(config)
        fields.pop("enable_kv_cache_events")
        return cls._registry[fields.pop("publisher")](data_parallel_rank=data_parallel_rank, **fields)


class Empty:
    pass


def _quiet_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.setLevel(logging.CRITICAL)
    return logger


class Envs(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return os.environ.get(name, "0") != "0"


class BlockHashes(types.ModuleType):
    """Stands for vllm.v1.core.kv_cache_utils: NONE_HASH is a variable of the module."""

    @property
    def NONE_HASH(self) -> bytes:  # noqa: N802
        return hashing.Root.value


def _encoder_budget(scheduler, limits) -> tuple:
    if not limits:
        return 0, 0
    largest = max(limits.values())
    if scheduler.disable_chunked_mm_input and largest > scheduler.max_num_batched_tokens:
        raise ValueError("max_num_batched_tokens: smaller than a multimodal item that may not be split")
    return max(scheduler.max_num_encoder_input_tokens, largest), max(scheduler.encoder_cache_size, largest)


def _modules() -> dict:
    named = lambda source, text: {name: getattr(source, name) for name in text.split()}  # noqa: E731
    return {
        "vllm": {"__version__": "0.19.0"},
        "vllm.distributed.ec_transfer.ec_connector.base": {"ECConnectorBase": Empty, "ECConnectorMetadata": type("EcMeta", (), {}), "ECConnectorRole": offload.Role},
        "vllm.distributed.ec_transfer.ec_connector.factory": {"ECConnectorFactory": ECConnectorFactory},
        "vllm.distributed.kv_events": {
            **named(values, "BlockStored BlockRemoved AllBlocksCleared KVEventBatch"),
            "EventPublisher": Empty,
            "EventPublisherFactory": EventPublisherFactory,
        },
        "vllm.distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": KVConnectorFactory},
        "vllm.distributed.kv_transfer.kv_connector.v1": {"KVConnectorRole": offload.Role, "SupportsHMA": offload.SupportsHMA},
        "vllm.distributed.kv_transfer.kv_connector.v1.base": {
            **named(offload, "KVConnectorBase_V1 SupportsHMA"),
            "KVConnectorRole": offload.Role,
            "KVConnectorMetadata": type("KvMeta", (), {}),
            "KVConnectorWorkerMetadata": type("KvWorkerMeta", (), {}),
        },
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics": named(offload, "KVConnectorStats KVConnectorPromMetrics"),
        "vllm.logger": {"init_logger": _quiet_logger},
        "vllm.lora.request": named(requests, "LoRARequest"),
        "vllm.model_executor.layers.fused_moe.routed_experts_capturer": {"RoutedExpertsReader": type("RoutedExpertsReader", (), {})},
        "vllm.multimodal": {"MULTIMODAL_REGISTRY": None},
        "vllm.multimodal.encoder_budget": {"MultiModalBudget": None},
        "vllm.multimodal.inputs": named(requests, "MultiModalFeatureSpec PlaceholderRange"),
        "vllm.pooling_params": named(requests, "PoolingParams"),
        "vllm.sampling_params": named(requests, "RepetitionDetectionParams SamplingParams StructuredOutputsParams"),
        "vllm.utils.hashing": named(hashing, "get_hash_fn_by_name"),
        "vllm.v1.core.encoder_cache_manager": {"compute_mm_encoder_budget": _encoder_budget},
        "vllm.v1.core.sched.interface": named(values, "PauseState SchedulerInterface"),
        "vllm.v1.core.sched.output": named(values, "CachedRequestData GrammarOutput NewRequestData SchedulerOutput"),
        "vllm.v1.core.sched.request_queue": named(values, "SchedulingPolicy"),
        "vllm.v1.core.sched.scheduler": {},
        "vllm.v1.engine": {
            **named(values, "EngineCoreEvent EngineCoreEventType EngineCoreOutput EngineCoreOutputs FinishReason"),
            **named(requests, "EngineCoreRequest"),
        },
        "vllm.v1.kv_cache_interface": {
            **named(
                values,
                "AttentionSpec ChunkedLocalAttentionSpec CrossAttentionSpec FullAttentionSpec KVCacheConfig KVCacheGroupSpec MambaSpec "
                "MLAAttentionSpec SinkFullAttentionSpec SlidingWindowSpec",
            ),
            **named(offload, "KVCacheTensor UniformTypeKVCacheSpecs"),
        },
        "vllm.v1.metrics.perf": {"ModelMetrics": None},
        "vllm.v1.metrics.stats": named(values, "KVCacheEvictionEvent PrefixCacheStats SchedulerStats"),
        "vllm.v1.outputs": named(values, "DraftTokenIds KVConnectorOutput LogprobsLists ModelRunnerOutput"),
        "vllm.v1.request": named(requests, "Request RequestStatus StreamingUpdate"),
        "vllm.v1.utils": {"tensor_data": lambda tensor: memoryview(tensor.tobytes()), **named(requests, "ConstantList")},
        "vllm.v1.spec_decode.metrics": named(values, "SpecDecodingStats"),
        **offload.modules(),
    }


def _add(name: str, module: types.ModuleType, members: dict) -> None:
    for key, value in members.items():
        setattr(module, key, value)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            _add(parent, types.ModuleType(parent), {"__path__": []})
        setattr(sys.modules[parent], child, module)


def install(version: str = "0.19.0") -> None:
    if "vllm" in sys.modules:
        raise RuntimeError("vLLM is imported already")
    modules = _modules()
    if version == "0.32.0":
        from . import newer

        modules = newer.change(modules)
    for name, members in modules.items():
        _add(name, types.ModuleType(name), {"__path__": [], **members})
    _add("vllm.envs", Envs("vllm.envs"), {})
    hashes = BlockHashes("vllm.v1.core.kv_cache_utils")
    members = {name: getattr(hashing, name) for name in ("get_request_block_hasher", "init_none_hash", "maybe_convert_block_hash")}
    if version == "0.32.0":
        members["get_request_block_hasher"] = newer.get_request_block_hasher
    _add("vllm.v1.core.kv_cache_utils", hashes, members)
    if "torch" not in sys.modules:
        _add("torch", types.ModuleType("torch"), tensors.members())
    if importlib.util.find_spec("prometheus_client") is None:
        sys.modules["prometheus_client"] = prometheus


def add_schedulers(sync, asynchronous) -> None:
    """Sets the classes that stand for vLLM's own schedulers; quire.vllm.ShadowScheduler runs one of them."""
    sys.modules["vllm.v1.core.sched.scheduler"].Scheduler = sync
    _add("vllm.v1.core.sched.async_scheduler", types.ModuleType("vllm.v1.core.sched.async_scheduler"), {"AsyncScheduler": asynchronous})
