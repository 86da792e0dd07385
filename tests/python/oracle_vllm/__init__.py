"""The names of vLLM 0.19.0 or 0.32.0 that are needed to import and run `quire.vllm.Scheduler` without vLLM.

`install()` puts the modules into sys.modules. They were written from the fields that cross the interface and contain no logic of vLLM's
scheduler.
"""

import logging
import os
import sys
import types
from dataclasses import asdict

import numpy as np

from . import hashing, requests, values


class _Factory:
    """Creates connectors by registered name, like vLLM's two factories."""

    registry: dict

    @classmethod
    def register_connector(cls, name: str, module: str, class_name: str) -> None:
        cls.registry[name] = lambda: getattr(sys.modules[module], class_name)


class KVConnectorFactory(_Factory):
    registry = {}

    @classmethod
    def create_connector(cls, config, role, kv_cache_config=None):
        return cls.registry[config.kv_transfer_config.kv_connector]()(config, role, kv_cache_config)


class ECConnectorFactory(_Factory):
    registry = {}

    @classmethod
    def create_connector(cls, config, role):
        return cls.registry[config.ec_transfer_config.ec_connector]()(config, role)


class NullPublisher:
    def publish(self, events) -> None:
        pass

    def shutdown(self) -> None:
        pass


class EventPublisherFactory:
    registry = {}

    @classmethod
    def register_publisher(cls, name: str, constructor) -> None:
        cls.registry[name] = constructor

    @classmethod
    def create(cls, config, data_parallel_rank: int = 0):
        if config is None or not config.enable_kv_cache_events:
            return NullPublisher()
        fields = asdict(config)
        fields.pop("enable_kv_cache_events")
        return cls.registry[fields.pop("publisher")](data_parallel_rank=data_parallel_rank, **fields)


class Role:
    SCHEDULER = "scheduler"


class Empty:
    pass


class ConnectorStats:
    def __init__(self, data=None):
        self.data = data or {}

    def to_dict(self):  # vLLM 0.32.0
        return self.data


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


class Dtype:
    def __init__(self, name: str, itemsize: int):
        self.name, self.itemsize = name, itemsize

    def __str__(self) -> str:
        return f"torch.{self.name}"


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
        "vllm.distributed.ec_transfer.ec_connector.base": {"ECConnectorBase": Empty, "ECConnectorMetadata": type("EcMeta", (), {}), "ECConnectorRole": Role},
        "vllm.distributed.ec_transfer.ec_connector.factory": {"ECConnectorFactory": ECConnectorFactory},
        "vllm.distributed.kv_events": {
            **named(values, "BlockStored BlockRemoved AllBlocksCleared KVEventBatch"),
            "EventPublisher": Empty,
            "EventPublisherFactory": EventPublisherFactory,
        },
        "vllm.distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": KVConnectorFactory},
        "vllm.distributed.kv_transfer.kv_connector.v1": {"KVConnectorRole": Role, "SupportsHMA": type("SupportsHMA", (), {})},
        "vllm.distributed.kv_transfer.kv_connector.v1.base": {"KVConnectorBase_V1": Empty, "KVConnectorMetadata": type("KvMeta", (), {})},
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics": {"KVConnectorStats": ConnectorStats},
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
        "vllm.v1.kv_cache_interface": named(
            values,
            "AttentionSpec ChunkedLocalAttentionSpec CrossAttentionSpec FullAttentionSpec KVCacheConfig KVCacheGroupSpec MambaSpec "
            "MLAAttentionSpec SinkFullAttentionSpec SlidingWindowSpec",
        ),
        "vllm.v1.metrics.perf": {"ModelMetrics": None},
        "vllm.v1.metrics.stats": named(values, "KVCacheEvictionEvent PrefixCacheStats SchedulerStats"),
        "vllm.v1.outputs": named(values, "DraftTokenIds KVConnectorOutput LogprobsLists ModelRunnerOutput"),
        "vllm.v1.request": named(requests, "Request RequestStatus StreamingUpdate"),
        "vllm.v1.utils": {"tensor_data": lambda tensor: memoryview(tensor.tobytes())},
        "vllm.v1.spec_decode.metrics": named(values, "SpecDecodingStats"),
    }


def _add(name: str, module: types.ModuleType, members: dict) -> None:
    for key, value in members.items():
        setattr(module, key, value)
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
        torch = {"tensor": lambda data, dtype=np.float32: np.array(data, dtype=dtype), "bool": np.bool_, "float16": Dtype("float16", 2)}
        _add("torch", types.ModuleType("torch"), torch)
