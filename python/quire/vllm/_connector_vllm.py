"""The parts of quire.vllm.Connector that differ between versions of vLLM. Each version has a file, and the installed vLLM selects one.

Each file defines:
- ConnectorBase: the base class, with the calls that only this version has.
- ConnectorSpec: host memory, the folder, and copies.
- canonical(): converts KV caches to rows of bytes.
- check_supported(): refuses unsupported configurations.
- ConnectorStats, ConnectorPromMetrics, record_disk_transfers(): the metrics.
- SUPPORTS_FAILED_REQUESTS: whether loads can fail by request, not only by block.
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
