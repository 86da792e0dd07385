"""The parts of quire.vllm.Connector that differ between versions of vLLM: each version has a file, and the installed vLLM selects one.

ConnectorBase: the base class, with the calls that only this version has. ConnectorSpec: host memory, the folder, copies. canonical(): KV caches as
rows of bytes. check_supported(): refuses what cannot be served. ConnectorStats, ConnectorPromMetrics, record_disk_transfers(): the metrics.
SUPPORTS_FAILED_REQUESTS: loads can fail by request, not only by block.
"""

from importlib.util import find_spec

if find_spec("vllm.v1.kv_offload.abstract"):
    from quire.vllm._connector_v0_19 import (
        SUPPORTS_FAILED_REQUESTS,
        ConnectorBase,
        ConnectorPromMetrics,
        ConnectorSpec,
        ConnectorStats,
        canonical,
        check_supported,
        record_disk_transfers,
    )
else:
    from quire.vllm._connector_v0_32 import (
        SUPPORTS_FAILED_REQUESTS,
        ConnectorBase,
        ConnectorPromMetrics,
        ConnectorSpec,
        ConnectorStats,
        canonical,
        check_supported,
        record_disk_transfers,
    )

__all__ = ["SUPPORTS_FAILED_REQUESTS", "ConnectorBase", "ConnectorPromMetrics", "ConnectorSpec", "ConnectorStats", "canonical", "check_supported", "record_disk_transfers"]
