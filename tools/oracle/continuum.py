"""vLLM's side of a CONTINUUM scenario: vLLM 0.19.0's own scheduler, patched with the changes of the public fork hungchun0201/vllm-pace.
Queue, estimator and pins are written here from the rules in docs/continuum.md; no line is copied from the fork.

They are called from four places of vLLM's source: the beginning of schedule(), the choice of a victim, add_request() and _free_request().
The pins use the monotonic clock, as in quire. The fork's clock has other fractions of a second, which matter if a gap or a pin is exactly 2
s long.
"""

import functools
import importlib.util
import re
import sys
import time
import types
from collections import deque
from enum import Enum

from .stage import Unsound

PIN_S = 2.0
LONGEST_TOOL_S = 2.0
_BLOCK = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)

# (lines of vLLM, their replacement), with equal numbers of lines, so that known_ends.json still finds vLLM's assertions by line.
_CONNECTOR = "        connector_delay_free_blocks, kv_xfer_params = self._connector_finished(request)\n"
_PATCHES = (
    ("        scheduled_new_reqs: list[Request] = []\n", "        self.before_step(); scheduled_new_reqs: list[Request] = []\n"),
    ("preempted_req = self.running.pop()\n", "preempted_req = self.take_victim(scheduled_running_reqs)\n"),
    ("            self._enqueue_waiting_request(request)\n            self.requests", "            self.estimator.arrives(request); self._enqueue_waiting_request(request)\n            self.requests"),
    ("\n" + _CONNECTOR, _CONNECTOR + "        if self.pin_at_end(request, delay_free_blocks or connector_delay_free_blocks): return kv_xfer_params\n"),
)


class SchedulingPolicy(Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"
    CONTINUUM = "continuum"


class Queue(deque):
    """A queue that pops requests by job; otherwise a list."""

    def __init__(self):
        super().__init__()
        self.entries = {}  # job -> time at which its first request was added
        self.pinned = set()

    def add_request(self, request) -> None:
        if request.job_id is not None:
            self.entries.setdefault(request.job_id, time.monotonic())
        self.append(request)

    def peek_request(self):
        candidates = [request for request in self if request.job_id in self.pinned] or self
        return min(candidates, key=lambda request: self.entries.get(request.job_id, float("inf")))

    def pop_request(self):
        request = self.peek_request()
        self.remove(request)
        return request

    def prepend_request(self, request) -> None:
        self.appendleft(request)

    def prepend_requests(self, requests) -> None:
        self.extendleft(requests)

    def remove_requests(self, requests) -> None:
        left = [request for request in self if request not in requests]
        self.clear()
        self.extend(left)


def tool_in(text: str) -> str | None:
    blocks = _BLOCK.findall(text)
    words = blocks[0].split() if len(blocks) == 1 else []
    return words[0] if words else None


class Estimator:
    def __init__(self, decode):
        self.decode = decode
        self.gaps = {}  # tool -> seconds
        self.ends = {}  # job -> (end of its last turn, the tool of this turn), until its next turn arrives

    def arrives(self, request) -> None:
        ended, tool = self.ends.pop(request.job_id, (0.0, None))
        if tool is not None:
            self.gaps.setdefault(tool, []).append(time.monotonic() - ended)

    def ended(self, request) -> float:
        tool = tool_in(self.decode(list(request.output_token_ids))) if request.output_token_ids else None
        self.ends[request.job_id] = (time.monotonic(), tool)
        gaps = self.gaps.get(tool, ())
        return PIN_S if tool is not None and not (gaps and sum(gaps) / len(gaps) > LONGEST_TOOL_S) else 0.0


class Pins:
    """The fork's additions to the scheduler, as a mix-in for vLLM's class."""

    def __init__(self, *args, decode, **kwargs):
        super().__init__(*args, **kwargs)
        self.pins = []  # [(request, expiry, whether a transfer also holds its blocks)]
        self.estimator = Estimator(decode)

    def pinned_jobs(self) -> set:
        return {pin[0].job_id for pin in self.pins}

    def before_step(self) -> None:
        for pin in [pin for pin in self.pins if time.monotonic() >= pin[1]]:
            self._unpin(pin)
        self.waiting.pinned = self.pinned_jobs()

    def take_victim(self, scheduled):
        jobs = self.pinned_jobs()
        victim = next((request for request in reversed(self.running) if request.job_id not in jobs), self.running[-1])
        if victim in scheduled:
            raise Unsound("a victim stays in the plan")
        self.running.remove(victim)
        return victim

    def pin_at_end(self, request, transfers: bool) -> bool:
        if request.is_last_step or not request.job_id:
            return False
        stay_s = self.estimator.ended(request)
        if not stay_s:
            return False
        self.encoder_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict[request.client_index].add(request.request_id)
        for pin in [pin for pin in self.pins if pin[0].job_id == request.job_id]:
            self._unpin(pin)
        self.pins.append((request, time.monotonic() + stay_s, transfers))
        return True

    def _unpin(self, pin) -> None:
        if pin[2]:
            raise Unsound("the end of a pin frees blocks under a transfer")
        self.pins.remove(pin)
        self.kv_cache_manager.free(pin[0])
        del self.requests[pin[0].request_id]


def _source(name: str) -> str:
    with open(importlib.util.find_spec(name).origin, encoding="utf-8") as file:
        return file.read()


def _module(name: str, source: str, file: str):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, file, "exec"), module.__dict__)  # noqa: S102  vLLM's own source, with calls put in
    return module


@functools.cache
def classes() -> tuple:
    """Returns the patched classes: (synchronous, asynchronous)."""
    source = _source("vllm.v1.core.sched.scheduler")
    for line, instead in _PATCHES:
        assert source.count(line) == 1, line
        source = source.replace(line, instead)
    module = _module("oracle_continuum_sync", source, "scheduler.py")
    module.SchedulingPolicy, module.create_request_queue = SchedulingPolicy, lambda _: Queue()
    source = _source("vllm.v1.core.sched.async_scheduler").replace("vllm.v1.core.sched.scheduler", "oracle_continuum_sync")
    async_module = _module("oracle_continuum_async", source, "async_scheduler.py")
    return type("Continuum", (Pins, module.Scheduler), {}), type("AsyncContinuum", (Pins, async_module.AsyncScheduler), {})


# Texts to which outputs are decoded, so that every case of the rule for tools occurs.
def decode(tokens) -> str:
    """Returns the decoded text for the scripts' tokens. Some texts end a turn with one tool, some with none or two."""
    last = tokens[-1] % 8
    tool = ("ls", "cat", "make", "ls")[last % 4]
    block = f"text\n```bash\n{tool} -x {last}\n```\n"
    return {6: "no tool", 7: block + block}.get(last, block)
