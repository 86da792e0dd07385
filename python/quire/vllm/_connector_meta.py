"""What the two halves of quire.vllm.Connector tell each other, and what both tell vLLM's metrics."""

from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats, OffloadPromMetrics

# What the scheduler's half counts: name in the metrics, and what it is.
COUNTERS = {
    "loaded_tokens": "Tokens of prompts that were loaded instead of computed",
    "declined_tokens": "Tokens that were computed although they could have been loaded, for it was faster",
    "joined_loads": "Loads of blocks that were being loaded for another request at that time",
    "early_blocks": "Blocks that came up from disk before their request was looked at",
    "failed_blocks": "Blocks whose load failed",
}
_COUNTED = "counted"  # their key in the data of the statistics


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
    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)  # of what this step computes
    fences: list[int] = field(default_factory=list)  # stores whose blocks this step writes to
    held: list[str] = field(default_factory=list)  # requests that have ended, to be told of when their stores are over


@dataclass
class WorkerMetadata(KVConnectorWorkerMetadata):
    step: int | None = None  # that has computed something
    over: Counter = field(default_factory=Counter)  # job -> workers that are done with it
    failed_stores: set = field(default_factory=set)
    copies: list = field(default_factory=list)  # (blocks, seconds) of loads

    def aggregate(self, other):
        self.step = self.step if self.step is not None else other.step
        self.over.update(other.over)
        self.failed_stores |= other.failed_stores
        self.copies += other.copies
        return self

    def is_empty(self) -> bool:
        return self.step is None and not self.over


class ConnectorStats(OffloadingConnectorStats):
    """vLLM's, of transfers, and the counters above."""

    def record_transfer(self, num_bytes, time, transfer_type):
        """In the form that vLLM's has when it has gone from process to process: the readers know no other."""
        self.data.setdefault("_to_".join(transfer_type), []).append({"op_size": num_bytes, "op_time": time})

    def count(self, name: str, amount: int) -> None:
        if amount:
            counted = self.data.setdefault(_COUNTED, {})
            counted[name] = counted.get(name, 0) + amount

    def aggregate(self, other):
        theirs = other.data.pop(_COUNTED, {})
        super().aggregate(other)
        if theirs:
            own = self.data.get(_COUNTED, {})
            self.data[_COUNTED] = {name: own.get(name, 0) + theirs.get(name, 0) for name in {**own, **theirs}}
        return self

    def reduce(self):
        transfers = {name: value for name, value in self.data.items() if name != _COUNTED}
        return OffloadingConnectorStats(data=transfers).reduce() | self.data.get(_COUNTED, {})


class ConnectorPromMetrics(OffloadPromMetrics):
    """vLLM's vllm:kv_offload_*, and vllm:kv_offload_quire_* for the counters."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._counter_cls(name=f"vllm:kv_offload_quire_{name}", documentation=text, labelnames=labelnames)
            for name, text in COUNTERS.items()
        }

    def observe(self, transfer_stats_data, engine_idx=0):
        super().observe({name: value for name, value in transfer_stats_data.items() if name != _COUNTED}, engine_idx)
        for name, amount in transfer_stats_data.get(_COUNTED, {}).items():
            self._counters[name].labels(*self.per_engine_labelvalues[engine_idx]).inc(amount)
