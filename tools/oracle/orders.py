"""Fixes, for the comparison, the only order that vLLM 0.32.0 leaves undefined. Installed once per process, only on vLLM's own scheduler.

Its update_from_output() collects three kinds of requests in one set of request ids: requests without a grammar, requests whose encoder
inputs had two sizes, and requests whose loads failed. It ends them in the order of this set, which depends on hashes of strings and on
earlier ids. quire first ends the requests without a grammar, in queue order; then the requests with failed loads, in the order of the set
of the last two kinds; then the requests with two sizes, in the order in which they were found. This module makes vLLM use the same order.
It changes nothing else: neither the requests that end, nor the step, nor the effects of each end.
"""

import functools


def _ordered(scheduler, names: set, mismatched: list, failed: set) -> list:
    last = [name for name in mismatched if name not in failed]
    waiting = [*scheduler.kv_holding_waiting, *scheduler.waiting]
    first = [request.request_id for request in waiting if request.request_id in names and _grammar_failed(request)]
    if last:
        names = {name for name in names if name not in last and name not in failed}
        names.update(failed)
    # finish_requests() makes a set of its argument, whose order may differ from the order of the given set.
    return first + [name for name in set(names) if name not in first] + last


def _grammar_failed(request) -> bool:
    structured = request.structured_output_request
    return structured is not None and isinstance(structured.grammar, Exception)


@functools.cache
def install(stock: type) -> None:
    """Installs the order. `stock`: vLLM's Scheduler, the base class of its AsyncScheduler."""
    finish, reject = stock.finish_requests, stock._reject_on_encoder_cache_embed_mismatch
    update = stock.update_from_output

    def reject_mismatch(self, request, *sizes):
        is_rejected = reject(self, request, *sizes)
        if is_rejected and request.request_id not in _noted(self, "mismatched"):
            _noted(self, "mismatched").append(request.request_id)
        return is_rejected

    def noted(handle):
        def handle_failed(self, *arguments):
            found = handle(self, *arguments)
            if not self.recompute_kv_load_failures:
                _noted(self, "failed").append(found)
            return found

        return handle_failed

    def finish_requests(self, request_ids, finished_status):
        if not isinstance(request_ids, set):  # only update_from_output() passes a set
            return finish(self, request_ids, finished_status)
        failed = set()
        for found in _noted(self, "failed"):
            failed.update(found)
        names = _ordered(self, request_ids, _noted(self, "mismatched"), failed)
        return [request for name in names for request in finish(self, name, finished_status)]

    def update_from_output(self, *arguments):
        _noted(self, "failed").clear()
        outputs = update(self, *arguments)
        _noted(self, "mismatched").clear()
        return outputs

    stock._reject_on_encoder_cache_embed_mismatch = reject_mismatch
    stock._handle_invalid_blocks, stock._handle_failed_recving = noted(stock._handle_invalid_blocks), noted(stock._handle_failed_recving)
    stock.finish_requests, stock.update_from_output = finish_requests, update_from_output


def _noted(scheduler, what: str) -> list:
    return scheduler.__dict__.setdefault(f"_noted_{what}", [])
