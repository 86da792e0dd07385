"""The one order that vLLM 0.32.0 leaves to chance, fixed for the comparison. Installed once per process, on vLLM's own scheduler alone.

Its update_from_output() puts requests whose grammars are none and requests whose loads failed into one set of names, and ends them as that set
is walked: by the hashes of strings and by the table that names met. quire ends the grammars' first, as they are queued, and then the loads', as
that set has them. Here vLLM does so too. Nothing else is changed: who ends, in which step, and what each end does.
"""

import functools


def _ordered(scheduler, names: set) -> list:
    waiting = [*scheduler.kv_holding_waiting, *scheduler.waiting]
    first = [request.request_id for request in waiting if request.request_id in names and _grammar_failed(request)]
    # finish_requests() makes a set of what it is given, which may be walked otherwise than the set it was given.
    return first + [name for name in set(names) if name not in first]


def _grammar_failed(request) -> bool:
    structured = request.structured_output_request
    return structured is not None and isinstance(structured.grammar, Exception)


@functools.cache
def install(stock: type) -> None:
    """`stock`: vLLM's Scheduler, from which its AsyncScheduler derives."""
    finish = stock.finish_requests

    def finish_requests(self, request_ids, finished_status):
        if not isinstance(request_ids, set):  # only update_from_output() gives one
            return finish(self, request_ids, finished_status)
        return [request for name in _ordered(self, request_ids) for request in finish(self, name, finished_status)]

    stock.finish_requests = finish_requests
