"""Views of a quire.vllm.Scheduler under the names of vLLM's scheduler. They are snapshots; changes to them have no effect."""

from vllm.v1.request import Request

from quire.vllm._snapshot import debug_snapshot, encoder_cache
from quire.vllm._views import EncoderCache, Queue


class SchedulerViews:
    @property
    def requests(self) -> dict[str, Request]:
        return self._native.requests().copy()

    def _queue(self, which: int) -> list[Request]:
        requests = self._native.requests()
        return [requests[name] for name in self._native.queue_names(which)]

    @property
    def running(self) -> list[Request]:
        return self._queue(0)

    @property
    def waiting(self) -> Queue:
        return Queue(self._queue(1))

    @property
    def skipped_waiting(self) -> Queue:
        return Queue(self._queue(2))

    @property
    def finished_req_ids(self) -> set[str]:
        return self._native.finished_names()

    @property
    def finished_recving_kv_req_ids(self) -> set[str]:
        return set(self._native.names_of(self._native.snapshot()["finished_receiving"]))

    @property
    def failed_recving_kv_req_ids(self) -> set[str]:
        return set(self._native.names_of(self._native.snapshot()["failed_receiving"]))

    @property
    def encoder_cache_manager(self) -> EncoderCache:
        return EncoderCache(encoder_cache(self), self.encoder_cache_size)

    def debug_snapshot(self) -> dict:
        """Returns the core's state as plain values, for comparisons and error reports."""
        return debug_snapshot(self)

    def check_invariants(self) -> None:
        """Stops the process if the core's state is inconsistent."""
        self._native.check_invariants()
