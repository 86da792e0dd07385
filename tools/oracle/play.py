"""Plays a script on one or two schedulers in the call order of vLLM's EngineCore, and compares the two after each call.

A script is plain JSON: {"seed": int, "config": {...}, "events": [[verb, argument...], ...]}. Nothing in it names a decision, so that it
stays playable when events are taken out: a step's results (tokens, drafts, finished transfers) follow from the first scheduler's plan and
the step's own seed.
"""

import copy
import os
from collections import deque

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from . import compare, config as configs, results, snapshot
from .requests import RequestMaker
from .stage import CLOCK, Side, draw, enter


# Calls that vLLM refuses on purpose: the other side must refuse too. Elsewhere an exception of vLLM's is an accident of its own (an
# assertion about its state), after which it would not go on; the script ends there.
REFUSALS = ("construct", "reset_prefix_cache")


class Raised:
    def __init__(self, error: Exception):
        self.error = error

    def __eq__(self, other):
        return isinstance(other, Raised)

    def __repr__(self):
        return f"{self.where()}: {self.error}"

    def where(self) -> str:
        """The same for errors of one kind."""
        if isinstance(self.error, Unsound):
            return str(self.error)
        trace = self.error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        code = trace.tb_frame.f_code
        return f"{type(self.error).__name__} in {os.path.basename(code.co_filename)}:{trace.tb_lineno} ({code.co_name})"


class Ended(Exception):
    """vLLM itself gave up on the script: what follows is outside the contract."""


class Unsound(Exception):
    """vLLM has contradicted itself; docs/oracle.md lists how. What it does from here on is an accident."""


def _check_sound(scheduler) -> None:
    waiting = [*scheduler.waiting, *scheduler.skipped_waiting]
    queued = waiting + scheduler.running
    if any(request.is_finished() for request in waiting):
        raise Unsound("a finished request stays in a queue")
    if len({id(request) for request in queued}) != len(queued):
        raise Unsound("a request is in two queues")
    for request in scheduler.requests.values():
        if request.num_computed_tokens < 0:
            raise Unsound("a negative number of computed tokens")
        if request.num_prompt_tokens > len(request._all_token_ids):
            raise Unsound("a session's prompt is longer than all of its tokens")


class Player:
    def __init__(self, script: dict, names=("stock", "stock"), observer=None):
        self.config = script["config"]
        self.seed = script["seed"]
        self.events = script["events"]
        self.names = names
        self.observer = observer
        self.sides = [Side(name, self.seed, self.config["answers"]) for name in names]
        self.ignored = frozenset(filter(None, os.environ.get("QUIRE_ORACLE_IGNORE", "").split(",")))
        self.makers = {}
        self.queue = deque()  # batches that are executed and whose results are not taken yet, oldest first
        self.index = -1
        self.num_steps = 0
        self.raised = None  # Raised on which the play ended

    def play(self) -> "Player":
        with CLOCK:
            CLOCK.now = 1000.0
            configs.prepare(self.config)
            self.hasher = configs.block_hasher(self.config)
            try:
                self._both("construct", self._construct)
                for self.index, event in enumerate(self.events):
                    CLOCK.now += (1 + draw(self.index) % 5) * 0.001
                    getattr(self, "_on_" + event[0])(*event[1:])
            except Ended:
                pass
        return self

    # One call on every side; what each side answers, shows and has called must be equal.
    def _both(self, what: str, call, view=None, moves=True):
        results_ = []
        for side in self.sides:
            enter(side)
            try:
                results_.append(call(side))
            except Exception as error:
                results_.append(Raised(error))
                if what not in REFUSALS and side is self.sides[0]:
                    break
        self._compare(what, [result if view is None or isinstance(result, Raised) else view(result) for result in results_], moves)
        if isinstance(results_[0], Raised) and what != "reset_prefix_cache":
            self.raised = results_[0]
            raise Ended
        return results_

    def _compare(self, what: str, answers: list, moves: bool) -> None:
        if self.observer is not None:
            self.observer(self, what, answers)
        first = self.sides[0]
        log = first.take_log()
        if len(self.sides) == 1 and first.scheduler is not None:
            snapshot.of(first.scheduler)
        for side, answer in zip(self.sides[1:], answers[1:]):
            self._equal(what, answers[0], answer)
            if first.scheduler is None:
                return
            self._equal(f"{what}: calls to the outside", log, side.take_log())
            if moves:  # else the state is the one that was compared last
                self._equal(f"{what}: state", self._state(first), self._state(side))

    def _state(self, side: Side) -> dict:
        state = snapshot.of(side.scheduler)
        return snapshot.without(state, self.ignored) if self.ignored else state

    def _equal(self, part: str, left, right) -> None:
        if left != right:
            event = self.events[self.index] if self.index >= 0 else None
            raise compare.Difference(self.index, event, part, left, right)

    def _construct(self, side: Side):
        side.scheduler = configs.SIDES[side.name](self.config, side)

    # Events.
    def _on_add(self, spec: dict) -> None:
        maker = self.makers[spec["id"]] = RequestMaker(spec, self.config["vocab"], self.hasher)

        def add(side):
            request = maker.make()
            side.requests.setdefault(spec["id"], request)
            side.scheduler.add_request(request)
            if side.name == "stock":
                _check_sound(side.scheduler)

        self._both("add_request", add)

    def _on_abort(self, ids, status: str = "FINISHED_ABORTED") -> None:
        self._both("finish_requests", lambda side: side.scheduler.finish_requests(copy.copy(ids), RequestStatus[status]))

    def _on_grammar(self, request_id: str, step: int) -> None:
        from .parties import Grammar

        for side in self.sides:
            request = side.requests.get(request_id)
            if request is not None and request.structured_output_request is not None:
                request.structured_output_request.grammar = Grammar(side, step)

    def _on_reset_prefix(self, running: bool, connector: bool) -> None:
        self._both("reset_prefix_cache", lambda side: side.scheduler.reset_prefix_cache(running, connector))

    def _on_reset_connector(self) -> None:
        self._both("reset_connector_cache", lambda side: side.scheduler.reset_connector_cache())

    def _on_reset_encoder(self) -> None:
        self._both("reset_encoder_cache", lambda side: side.scheduler.reset_encoder_cache())

    def _on_pause(self, state: int) -> None:
        self._both("set_pause_state", lambda side: side.scheduler.set_pause_state(PauseState(state)))

    def _on_stats(self) -> None:
        self._both("make_stats", lambda side: side.scheduler.make_stats(), compare.stats)

    def _on_shutdown(self) -> None:
        self._both("shutdown", lambda side: side.scheduler.shutdown())

    def _on_step(self, seed: int, options: dict | None = None) -> None:
        options = options or {}
        self.num_steps += 1
        scheduler = self.sides[0].scheduler
        deferred = None
        if len(self.queue) < self.config["queue_depth"] and (scheduler.has_requests() or options.get("idle")):
            batch = self._schedule(seed)
            if batch.pending and self.config["queue_depth"] > 1:
                deferred = batch
            else:
                self._bitmask(batch)
                self.queue.append(batch)
                if batch.total and len(self.queue) < self.config["queue_depth"] and not options.get("wait"):
                    return
        if self.queue:
            done = self.queue.popleft()
            for ids in options.get("abort", ()):
                self._on_abort(ids)
            self._update(done, seed)
        if deferred is not None:
            self._defer(deferred, seed)
        self._both("counts", self._counts, moves=False)

    @staticmethod
    def _counts(side) -> tuple:
        scheduler = side.scheduler
        return (
            tuple(scheduler.get_request_counts()),
            scheduler.get_num_unfinished_requests(),
            scheduler.has_unfinished_requests(),
            scheduler.has_finished_requests(),
            scheduler.has_requests(),
            int(scheduler.pause_state),
            scheduler.get_kv_connector() is side.connector,
        )

    # The parts of a step.
    def _plan(self, side: Side):
        output = side.scheduler.schedule()
        if side is self.sides[0]:
            if any(count <= 0 for count in output.num_scheduled_tokens.values()):
                raise Unsound("a negative number of tokens is scheduled")
        return output

    def _schedule(self, seed: int) -> "results.Batch":
        outputs = self._both("schedule", self._plan, compare.plan)
        batch = results.Batch(outputs, self.sides[0].scheduler)
        for side in self.sides:
            if side.connector is not None:
                batch.sync_loads = side.connector.sync_loads
                side.connector.sync_loads = {}
        return batch

    def _take(self, side: Side, plan, result):
        outputs = side.scheduler.update_from_output(plan, result.make())
        if side.name == "stock":
            _check_sound(side.scheduler)
        return outputs

    def _bitmask(self, batch) -> None:
        plans = dict(zip(map(id, self.sides), batch.outputs))
        self._both("get_grammar_bitmask", lambda side: side.scheduler.get_grammar_bitmask(plans[id(side)]), compare.grammar)

    def _update(self, batch, seed: int) -> None:
        self._end_where_names_mix(batch)
        plans = dict(zip(map(id, self.sides), batch.outputs))
        result = results.sample(self, batch, seed)
        self._both(
            "update_from_output",
            lambda side: self._take(side, plans[id(side)], result),
            compare.outputs,
        )
        for side in self.sides:
            result.forget_transfers(side.connector)
        if self.config["spec"] != "none" and not self.config["async"] and batch.total:
            drafts = results.drafts(self, batch, seed)
            self._both("update_draft_token_ids", lambda side: side.scheduler.update_draft_token_ids(drafts.make()))

    def _end_where_names_mix(self, batch) -> None:
        """vLLM gives the token of an aborted request to the one that has its id now; quire does not, on purpose."""
        for request_id, request in batch.requests.items():
            now = self.sides[0].scheduler.requests.get(request_id, request)
            if now is not request and not now.is_finished():
                self.raised = Raised(Unsound("a late token goes to another request of the same id"))
                raise Ended

    def _defer(self, batch, seed: int) -> None:
        plans = dict(zip(map(id, self.sides), batch.outputs))
        if self.config["spec"] != "none":
            drafts = results.drafts(self, batch, seed)

            def update(side):
                side.scheduler.update_draft_token_ids_in_output(drafts.make(), plans[id(side)])
                return plans[id(side)]

            self._both("update_draft_token_ids_in_output", update, compare.plan_sent)
        self._bitmask(batch)
        self.queue.append(batch)
