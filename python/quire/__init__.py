"""quire decides which tokens of which requests run in each step of an LLM, and which KV cache blocks they use.

    import quire

    core = quire.Core(quire.CoreConfig(num_blocks=64, block_size=16, max_model_len=1024, max_num_seqs=8))
    request = core.add([1, 2, 3], max_tokens=2)
    while core.has_work:
        plan = core.schedule()                                             # what the worker has to run
        outcome = core.apply({r.id: [7] for r in plan.scheduled if r.samples})  # what the worker sampled

`quire.vllm.Scheduler` is the same core as vLLM's scheduler: `vllm serve MODEL --scheduler-cls quire.vllm.Scheduler`. `quire.Engine` is the
whole engine, if the package contains it (the wheel of ./dev package does, pip install ./python does not).
"""

from typing import TYPE_CHECKING

from quire._core import (
    Admitted,
    AttentionShape,
    CacheDtype,
    ChunkedLocalSpec,
    Core,
    CoreConfig,
    CrossAttentionSpec,
    DecisionProfile,
    EncoderOnlySpec,
    FinishReason,
    FullAttentionSpec,
    HashAlgorithm,
    KvCacheGroup,
    KvLoadFailurePolicy,
    MambaCacheMode,
    MambaSpec,
    MlaAttentionSpec,
    OffloadManager,
    Outcome,
    PauseState,
    Plan,
    RequestInfo,
    RequestStatus,
    Scheduled,
    ScheduledKind,
    SchedulingPolicy,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    Stats,
    TableDelta,
    TableUpdate,
    Transfer,
    TransferDirection,
    TransferList,
    TransferNeed,
    Update,
    __version__,
)

__all__ = [name for name in dir() if not name.startswith("_") and name != "TYPE_CHECKING"] + ["__version__"]

from quire import connectors

if TYPE_CHECKING:
    from quire.engine import Engine, EngineConfig, Generation, Output, SamplingParams

_ENGINE_NAMES = ("Engine", "EngineConfig", "Generation", "Output", "SamplingParams")


def __getattr__(name: str):
    if name in _ENGINE_NAMES:  # imported on first use, because the scheduler inside vLLM does not need it
        from quire import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
