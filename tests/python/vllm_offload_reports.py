"""Tests what quire.vllm.offload reports with stand-ins for vLLM: problems of the disk, and metrics.

usage: vllm_offload_reports.py VERSION CASE...
"""

import sys
import time
from types import SimpleNamespace

from vllm_connector_halves import IS_NEWER, raises
from vllm_connector_pair import vllm_config
from vllm_offload_support import Log

from quire.vllm import _offload_checks as checks
from quire.vllm import offload


def reports():
    """Problems of the disk are logged when their number grows, at most once per period; a folder that cannot be used is one line."""
    log, told = Log(), checks.DiskProblemLogger()
    stats = dict.fromkeys([*checks.DISK_PROBLEMS, "num_held"], 0)
    native = SimpleNamespace(stats=lambda: dict(stats))
    told.report(native)
    assert log.take() == []
    stats.update(num_refused=2, num_held=5)
    told.report(native)
    assert log.take() == [], "the period is not over"
    told._next = 0.0
    told.report(native)
    assert log.take() == ["KV blocks on disk: blocks that failed verification were dropped; they are computed again (2 so far, 5 blocks held)"]
    told._next = 0.0
    told.report(native)
    assert log.take() == [] and told._next - time.monotonic() > checks.REPORT_PERIOD_S - 5
    stats.update(num_failed=1, loads_left_out=True, stores_left_out=True)
    told._next = 0.0
    told.report(native)
    assert [text.partition(" (")[0] for text in log.take()] == [f"KV blocks on disk: {checks.DISK_PROBLEMS[name]}" for name in list(checks.DISK_PROBLEMS)[1:]]

    def fails(error):
        def open_tiers():
            raise error

        return open_tiers

    assert checks.opened_or_none(lambda: 5) == 5 and log.take() == []
    assert checks.opened_or_none(fails(ValueError("budget_bytes: is 1"))) is None
    assert checks.opened_or_none(fails(NotImplementedError("folder: /a folder: b budget_bytes: c budget_bytes: d"))) is None
    text = "KV blocks are not stored on disk: "
    assert log.take() == [f"{text}disk_bytes_to_use: is 1", f"{text}disk_path: /a folder: b disk_bytes_to_use: c budget_bytes: d"], "names, not paths"
    raises("other", lambda: checks.opened_or_none(fails(KeyError("other"))), KeyError)
    assert checks.policy_of("lru") == "lru" and type(checks.policy_of("vllm_offload_support:Oldest")).__name__ == "Oldest"


def metrics():
    """vLLM's connector with quire's spec also reports the disk's transfers (vLLM 0.19.0; later versions ask the manager)."""
    if IS_NEWER:
        assert not hasattr(offload, "QuireOffloadingConnector")
        return
    connector = offload.QuireOffloadingConnector(vllm_config({}), None)
    assert connector.get_kv_connector_stats() is None
    connector.connector_worker = SimpleNamespace(get_kv_connector_stats=lambda: "the worker's")
    assert connector.get_kv_connector_stats() == "the worker's"
    connector.connector_scheduler = SimpleNamespace(manager=offload.CPUOffloadingManager(16, 2))
    assert connector.get_kv_connector_stats() == "the worker's"
    stats = {"bytes_read": 0, "reading_s": 0.0, "bytes_written": 0}
    connector.connector_scheduler.manager = offload.TieredOffloadingManager(16, SimpleNamespace(stats=lambda: dict(stats)))
    assert connector.get_kv_connector_stats() is None
    stats.update(bytes_read=30, reading_s=0.5)
    read = lambda: {kind: [(one.op_size, one.op_time) for one in some] for kind, some in connector.get_kv_connector_stats().data.items()}  # noqa: E731
    assert read() == {"DISK_to_CPU": [(30, 0.5)]} and connector.get_kv_connector_stats() is None
    stats.update(bytes_read=50, reading_s=0.75, bytes_written=7)
    assert read() == {"DISK_to_CPU": [(20, 0.25)], "CPU_to_DISK": [(7, 0.0)]}


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
