"""Messages between the scheduler side and the worker side of quire.vllm.Connector, and its counters."""

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

# Counters of the scheduler side: name of the metric without the prefix vllm:kv_offload_quire_, and its description.
COUNTERS = {
    "loaded_tokens": "Total number of prompt tokens that were loaded instead of computed",
    "declined_tokens": "Total number of prompt tokens that were computed because that was faster than loading them",
    "joined_loads": "Total number of loads of blocks that were being loaded for another request at the same time",
    "early_blocks": "Total number of blocks that were read from disk before the turn of their request",
    "failed_blocks": "Total number of blocks with a failed load",
}


@dataclass
class Job:
    """Blocks of a request, and the slots of host memory to which or from which they are copied."""

    id: int
    request: str
    blocks: list[int]
    slots: list[int]
    numbers: list[int] = field(default_factory=list)  # for a store above a disk: the number to write to each slot
    first: int = 0  # for a load: index of the first block in the request
    in_step: bool = False  # for a load: the step itself needs it, layer by layer


@dataclass
class ConnectorMetadata(KVConnectorMetadata):
    step: int
    computes: bool  # the step computes tokens, which workers cannot detect: in vLLM 0.32.0's newer runner the forward pass has ended
    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)  # stores of blocks that this step computes
    fences: list[int] = field(default_factory=list)  # stores in flight of blocks to which this step writes
    held: list[str] = field(default_factory=list)  # ended requests that must be reported when their stores have ended


@dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):
    step: int | None = None  # number of the step if it computed tokens
    over: Counter = field(default_factory=Counter)  # job -> number of workers in which it has ended
    failed_stores: set = field(default_factory=set)
    failed_loads: set = field(default_factory=set)  # failed as a whole; reported by request
    copies: list = field(default_factory=list)  # (blocks, seconds) per load

    def aggregate(self, other):
        self.step = self.step if self.step is not None else other.step
        self.over.update(other.over)
        self.failed_stores |= other.failed_stores
        self.failed_loads |= other.failed_loads
        self.copies += other.copies
        return self

    def is_empty(self) -> bool:
        return self.step is None and not self.over
