"""Plays a script on one or two schedulers in the call order of vLLM's EngineCore, and compares both after each call.

A script is plain JSON: {"seed": int, "look_every": int, "config": {...}, "events": [[verb, argument...], ...]}. It contains no decisions,
so it can still be played when events are removed: a step's results (tokens, draft tokens, ended transfers) are derived from the first
scheduler's plan and the step's seed.

The state is compared after every `look_every`-th call that may change it, and at the end (0: only at the end). A comparison refreshes the
Python requests of quire's adapter, which never happens in production: connectors and grammars must get correct values without it.

If vLLM stops with an error, quire continues alone, and its invariants are checked after each call. At the end all requests are aborted, and
every block must be free.
"""

import copy
import os
from collections import deque

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from . import compare, config as configs, ends, results, snapshot, versions
from .requests import RequestMaker
from .stage import CLOCK, Side, Unsound, draw, enter


if versions.IS_NEWER:
    ends.use(ends.NEWER_PATH)

# Calls that vLLM refuses on purpose; the other scheduler must refuse them too. In other calls, an exception of vLLM is an error in its
# state (an assertion), after which vLLM would not continue, so the script ends there.
REFUSALS = ("construct", "reset_prefix_cache")
MOST_LAST_STEPS = 500  # number of steps within which the last transfer must end


class Raised:
    def __init__(self, error: Exception, what: str = ""):
        self.error = error
        self.what = what  # the call

    def __eq__(self, other):
        return isinstance(other, Raised) and isinstance(other.error, type(self.error))

    def __repr__(self):
        return f"{self.where()}: {self.error}"

    def where(self) -> str:
        """Returns the text without details, which is equal for errors of the same kind."""
        if isinstance(self.error, Unsound):
            return str(self.error)
        if self.what == "construct" and isinstance(self.error, ValueError):
            return ends.REFUSED
        trace = self.error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        code = trace.tb_frame.f_code
        return f"{type(self.error).__name__} in {os.path.basename(code.co_filename)}:{trace.tb_lineno} ({code.co_name})"


class Ended(Exception):
    """The play ends before the end of the script."""


class Leftover(Exception):
    """quire, after it continued alone, did not free everything."""


def _check_sound(scheduler) -> None:
    waiting = [*scheduler.waiting, *versions.second_queue(scheduler)]
    queued = waiting + scheduler.running
    if any(request.is_finished() for request in waiting):
        raise Unsound("a finished request stays in a queue")
    if len({id(request) for request in queued}) != len(queued):
        raise Unsound("a request is in two queues")
    if any(request.request_id not in scheduler.requests for request, *_ in getattr(scheduler, "pins", ())):
        raise Unsound("a pinned request is gone")
    for request in scheduler.requests.values():
        if request.num_computed_tokens < 0:
            raise Unsound("a negative number of computed tokens")
        if request.num_prompt_tokens > len(request._all_token_ids):
            raise Unsound("a session's prompt is longer than all of its tokens")


class Player:
    def __init__(self, script: dict, names=("stock", "stock"), observer=None, tape=None):
        self.config = script["config"]
        self.seed = script["seed"]
        self.events = script["events"]
        self.names = names
        self.observer = observer
        self.sides = [Side(name, self.seed, self.config["answers"]) for name in names]
        self.ignored = frozenset(filter(None, os.environ.get("QUIRE_ORACLE_IGNORE", "").split(",")))
        self.makers = {}
        self.queue = deque()  # executed batches whose results are pending, oldest first
        self.index = -1
        self.num_steps = 0
        self.num_steps_alone = 0
        self.look_every = script.get("look_every", 1)
        self.num_moves = 0  # number of calls so far that may change the state
        self.num_preemptions = 0
        self.raised = None  # the exception that ended vLLM's play
        self.alone = False  # quire continues without vLLM
        self.counts = {}  # counts of the first scheduler's grammars
        self.guided = self.config.get("guided")
        self.tape = self.sides[0].tape = tape
        if tape is None or not tape.is_read:
            configs.install(self.config)

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
                if self.alone:
                    self._empty()
                else:
                    self._compare("end", [None for _ in self.sides], True)
            except Ended:
                pass
        return self

    # Makes one call on every scheduler. Answers, states and outside calls must be equal.
    def _both(self, what: str, call, view=None, moves=True):
        results_ = []
        for side in self.sides:
            enter(side)
            try:
                results_.append(call(side))
            except Exception as error:
                if what not in REFUSALS and side is self.sides[0]:
                    if side.name == "quire":
                        raise
                    self._give_up(Raised(error, what))
                    return self._both(what, call, view, moves)
                results_.append(Raised(error, what))
        self._compare(what, [result if view is None or isinstance(result, Raised) else view(result) for result in results_], moves)
        if isinstance(results_[0], Raised) and what == "construct":
            self.raised = results_[0]
            raise Ended
        return results_

    def _give_up(self, raised: Raised) -> None:
        """Called when vLLM has stopped with an error. The rest is not compared, but quire must survive it."""
        self.raised = raised
        if self.sides[-1].name != "quire":
            raise Ended
        self.sides = self.sides[-1:]
        self.alone = True

    def _compare(self, what: str, answers: list, moves: bool) -> None:
        self.num_moves += moves
        look = moves and (what == "end" or self.look_every > 0 and self.num_moves % self.look_every == 0)
        if self.observer is not None:
            self.observer(self, what, answers, look)
        first, *others = self.sides
        logs = [side.take_log() for side in self.sides]
        for side, answer, log in zip(others, answers[1:], logs[1:]):
            self._equal(what, answers[0], answer)
            self._equal(f"{what}: calls to the outside", logs[0], log)
            if look and not isinstance(answer, Raised):
                self._equal(f"{what}: state", self._state(first), self._state(side))
        if self.alone or look:
            for side in self.sides:
                side.check()

    def _state(self, side: Side) -> dict:
        state = snapshot.of(side.scheduler)
        return snapshot.without(state, self.ignored) if self.ignored else state

    def _equal(self, part: str, left, right) -> None:
        if left != right:
            event = self.events[self.index] if self.index >= 0 else None
            raise compare.Difference(self.index, event, part, left, right)

    def _construct(self, side: Side):
        arguments = configs.scheduler_arguments(self.config, side)
        side.grammars = arguments["structured_output_manager"]
        if self.guided and side is self.sides[0]:
            self.counts = side.grammars.counts
        side.scheduler = configs.SIDES[side.name](arguments)

    # Events.
    def _on_add(self, spec: dict) -> None:
        maker = self.makers[spec["id"]] = RequestMaker(spec, self.config["vocab"], self.hasher)

        def add(side):
            request = maker.make()
            side.requests.setdefault(spec["id"], request)
            if self.guided:
                side.grammars.grammar_init(request)
            side.scheduler.add_request(request)
            if side.name == "stock":
                _check_sound(side.scheduler)

        self._both("add_request", add)

    def _on_abort(self, ids, status: str = "FINISHED_ABORTED") -> None:
        self._both("finish_requests", lambda side: versions.finished(side.scheduler.finish_requests(copy.copy(ids), RequestStatus[status])))

    def _on_grammar(self, request_id: str, step: int) -> None:
        from .parties import Grammar

        for side in self.sides:
            if self.guided:
                side.grammars.executor.finish(request_id)
                continue
            request = side.requests.get(request_id)
            if request is not None and request.structured_output_request is not None:
                request.structured_output_request.grammar = Grammar(side, step) if step else ValueError("no grammar")

    def _on_reset_prefix(self, running: bool, connector: bool) -> None:
        self._both("reset_prefix_cache", lambda side: side.scheduler.reset_prefix_cache(running, connector))

    def _on_reset_connector(self) -> None:
        self._both("reset_connector_cache", lambda side: side.scheduler.reset_connector_cache())

    def _on_reset_encoder(self) -> None:
        self._both("reset_encoder_cache", lambda side: side.scheduler.reset_encoder_cache())

    def _on_pause(self, state: int) -> None:
        self._both("set_pause_state", lambda side: side.scheduler.set_pause_state(PauseState(state)))

    def _on_wait(self, seconds: float) -> None:
        CLOCK.now += seconds

    def _on_stats(self) -> None:
        self._both("make_stats", lambda side: side.scheduler.make_stats(), compare.stats)

    def _on_shutdown(self) -> None:
        self._both("shutdown", lambda side: side.scheduler.shutdown())

    def _on_step(self, seed: int, options: dict | None = None) -> None:
        options = options or {}
        self.num_steps += 1
        self.num_steps_alone += self.alone
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
        if any(count <= 0 for count in output.num_scheduled_tokens.values()):
            raise Unsound("a negative number of tokens is scheduled")
        return output

    def _schedule(self, seed: int) -> "results.Batch":
        outputs = self._both("schedule", self._plan, compare.plan)
        batch = results.Batch(dict(zip(self.sides, outputs)), self.sides[0], self.makers)
        self.num_preemptions += len(outputs[0].preempted_req_ids or ())
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
        answers = self._both("get_grammar_bitmask", lambda side: side.scheduler.get_grammar_bitmask(batch.outputs[side]), compare.grammar)
        if self.guided:
            batch.masks = results.masks_of(self, batch, answers[0])

    def _update(self, batch, seed: int) -> None:
        self._end_where_names_mix(batch)
        result = results.sample(self, batch, seed)
        self._both("update_from_output", lambda side: self._take(side, batch.outputs[side], result), compare.outputs)
        for side in self.sides:
            result.forget_transfers(side.connector)
        if self.config["spec"] != "none" and not self.config["async"] and batch.total:
            drafts = results.drafts(self, batch, seed)
            self._both("update_draft_token_ids", lambda side: side.scheduler.update_draft_token_ids(drafts.make()))

    def _end_where_names_mix(self, batch) -> None:
        """Ends the play if a request has the id of an aborted request in flight: vLLM gives it the old request's token, which quire does
        not do on purpose."""
        if self.sides[0].name != "stock":
            return
        for request_id, request in batch.requests.items():
            now = self.sides[0].scheduler.requests.get(request_id, request)
            if now is not request and not now.is_finished():
                self._give_up(Raised(Unsound("a late token goes to another request of the same id"), "update_from_output"))
                return

    def _defer(self, batch, seed: int) -> None:
        if self.config["spec"] != "none":
            drafts = results.drafts(self, batch, seed)

            def update(side):
                side.scheduler.update_draft_token_ids_in_output(drafts.make(), batch.outputs[side])
                return batch.outputs[side]

            self._both("update_draft_token_ids_in_output", update, compare.plan_sent)
        self._bitmask(batch)
        self.queue.append(batch)

    def _empty(self) -> None:
        """Checks at the end of a play of quire alone that all blocks are free."""
        side = self.sides[0]
        self._on_pause(0)
        self._on_abort(None)
        if self.config["policy"] == "continuum":
            self._on_wait(10.0)  # all pins expire
            self._on_step(0, {"wait": 1, "idle": 1})
        for seed in range(MOST_LAST_STEPS):
            if not self.queue and not side.is_transferring() and not side.scheduler.has_requests():
                break
            self._on_step(seed, {"wait": 1, "idle": 1})
        held = sum(group.get("sink", 0) for group in self.config["groups"])
        free, all_ = side.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(), self.config["num_blocks"] - 1 - held
        if side.scheduler.has_requests() or free != all_:
            raise Leftover(f"after everything was aborted: {self._counts(side)}, {free} of {all_} blocks are free")
