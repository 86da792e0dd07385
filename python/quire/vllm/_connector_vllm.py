"""What quire.vllm.Connector asks of vLLM where versions differ: a file for each, and which one there is chooses.

Basis: the base class, with the calls that only this version has. ConnectorSpec: host memory, the folder, copies. canonical(): KV caches as rows of
bytes. check_served(): what is refused by name. ConnectorStats, ConnectorPromMetrics, tell_of_disk(): the metrics. FAILS_BY_REQUEST: loads can
fail by request, not only by block.
"""

from importlib.util import find_spec

if find_spec("vllm.v1.kv_offload.abstract"):
    from quire.vllm._connector_v0_19 import (
        FAILS_BY_REQUEST,
        Basis,
        ConnectorPromMetrics,
        ConnectorSpec,
        ConnectorStats,
        canonical,
        check_served,
        tell_of_disk,
    )
else:
    from quire.vllm._connector_v0_32 import (
        FAILS_BY_REQUEST,
        Basis,
        ConnectorPromMetrics,
        ConnectorSpec,
        ConnectorStats,
        canonical,
        check_served,
        tell_of_disk,
    )

__all__ = ["FAILS_BY_REQUEST", "Basis", "ConnectorPromMetrics", "ConnectorSpec", "ConnectorStats", "canonical", "check_served", "tell_of_disk"]
