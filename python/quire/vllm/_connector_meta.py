"""What the two halves of quire.vllm.Connector tell each other, and what they count."""

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

# What the scheduler's half counts: name in the metrics behind vllm:kv_offload_quire_, and what it is.
COUNTERS = {
    "loaded_tokens": "Tokens of prompts that were loaded instead of computed",
    "declined_tokens": "Tokens that were computed although they could have been loaded, for it was faster",
    "joined_loads": "Loads of blocks that were being loaded for another request at that time",
    "early_blocks": "Blocks that came up from disk before their request was looked at",
    "failed_blocks": "Blocks whose load failed",
}


@dataclass
class Job:
    """Blocks of a request and the slots of host memory that they go to, or come from."""

    id: int
    request: str
    blocks: list[int]
    slots: list[int]
    numbers: list[int] = field(default_factory=list)  # of a store over a disk: what is written beside each slot
    first: int = 0  # of a load: the first block's place in the request
    in_step: bool = False  # of a load: the step itself needs it, layer by layer


@dataclass
class ConnectorMetadata(KVConnectorMetadata):
    step: int
    computes: bool  # tokens; a worker cannot tell by its forward pass, which with vLLM 0.32.0's newer runner is over when it is asked
    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)  # of what this step computes
    fences: list[int] = field(default_factory=list)  # stores whose blocks this step writes to
    held: list[str] = field(default_factory=list)  # requests that have ended, to be told of when their stores are over


@dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):
    step: int | None = None  # that has computed something
    over: Counter = field(default_factory=Counter)  # job -> workers that are done with it
    failed_stores: set = field(default_factory=set)
    failed_loads: set = field(default_factory=set)  # as a whole: told by request
    copies: list = field(default_factory=list)  # (blocks, seconds) of loads

    def aggregate(self, other):
        self.step = self.step if self.step is not None else other.step
        self.over.update(other.over)
        self.failed_stores |= other.failed_stores
        self.failed_loads |= other.failed_loads
        self.copies += other.copies
        return self

    def is_empty(self) -> bool:
        return self.step is None and not self.over
