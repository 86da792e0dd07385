"""quire.vllm.ShadowScheduler: vLLM's own scheduler decides, and quire's is computed beside it and compared, call by call.

quire's half gets copies of the requests and of the workers' results, and stand-ins for the connectors and grammars that repeat what the
real ones told vLLM's: nobody outside is asked twice. At the first difference a script that reproduces it is written, the comparison ends,
and vLLM goes on.
"""

import os
import tempfile
import traceback
from collections import deque

from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.logger import init_logger
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler as SyncScheduler
from vllm.v1.request import Request

from quire import _vllm_compare as compare
from quire.vllm import _journal as journal
from quire.vllm import is_served
from quire.vllm._beside import beside_class, copied_request, copied_result, plan_of
from quire.vllm._config import refuse
from quire.vllm._options import options_of
from quire.vllm._replay import Answers
from quire.vllm._setup import refuse_pool_takers

logger = init_logger("vllm.quire")

SCRIPTS = "QUIRE_SHADOW_DIR"  # environment variable: the folder for scripts; the system's for temporary files without it


def _named(finished: list) -> list:
    """Newer versions of vLLM give the requests themselves."""
    return [(one.request_id, one.client_index) if isinstance(one, Request) else tuple(one) for one in finished]


class ShadowScheduler(SchedulerInterface):
    """`--scheduler-cls quire.vllm.ShadowScheduler`. `difference` says what the first one was; None: there was none yet."""

    def __init__(
        self,
        vllm_config,
        kv_cache_config,
        structured_output_manager,
        block_size: int,
        mm_registry=MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
        **newer,
    ) -> None:
        arguments = {
            "vllm_config": vllm_config, "kv_cache_config": kv_cache_config, "structured_output_manager": structured_output_manager,
            "block_size": block_size, "mm_registry": mm_registry, "include_finished_set": include_finished_set, "log_stats": log_stats, **newer,
        }  # fmt: skip
        if own := options_of(vllm_config):
            refuse(f"additional_config: quire.{next(iter(own))} beside vLLM's own scheduler, which has no such option", "leave it out")
        stock = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else SyncScheduler
        self._theirs = stock(**arguments)
        refuse_pool_takers(self._theirs.connector)
        self.difference = self.script = None
        self.num_steps = 0  # compared
        self._answers = Answers()
        self._calls, self._events = [], []  # what vLLM's told its connector and published, in the call that runs
        self._plans = deque()  # (vLLM's SchedulerOutput, ours), not yet updated
        self._ours = self._make_ours(arguments)
        self._journal = None if self._ours is None else journal.Journal(journal.configuration(self._ours))
        if self._ours is not None:
            self._tap_parties()
        logger.info("quire.vllm.ShadowScheduler: vLLM's scheduler decides; quire's is compared with it")

    def _make_ours(self, arguments: dict):
        try:
            return beside_class()(self._theirs, self._answers, **arguments)
        except Exception as error:
            if is_served():
                raise
            # A version that quire has no adapter for: vLLM is to run all the same.
            self.difference = f"at start: {error!r}"
            logger.error("quire.vllm.ShadowScheduler: quire's scheduler cannot be made under this version of vLLM: %r. vLLM goes on alone.", error)
            return None

    def __getattr__(self, name: str):
        if name == "_theirs":
            raise AttributeError(name)  # not made yet
        return getattr(self._theirs, name)

    # What the parties told vLLM's scheduler is kept for ours.

    def _tap(self, party, method: str, hear) -> None:
        asked = getattr(party, method)

        def tapped(*arguments, **named):
            answer = asked(*arguments, **named)
            self._aside(method, hear, answer, *arguments, **named)
            return answer

        setattr(party, method, tapped)

    def _tap_parties(self) -> None:
        theirs, connector = self._theirs, self._theirs.connector
        if connector is not None:
            finished = "request_finished_all_groups" if isinstance(connector, SupportsHMA) else "request_finished"
            self._tap(connector, "get_num_new_matched_tokens", lambda answer, request, *_: self._hear("match", request, answer, list(answer)))
            self._tap(connector, "update_state_after_alloc", self._hear_allocated)
            self._tap(connector, finished, self._hear_finished)
            self._tap(connector, "reset_cache", lambda answer: self._hear("reset", "", answer, answer))
            take_events = connector.take_events
            connector.take_events = lambda: self._both_take(list(take_events() or ()))
        if theirs.ec_connector is not None:
            self._tap(theirs.ec_connector, "has_cache_item", lambda answer, name: self._hear("item", name, answer, bool(answer)))
        grammars = theirs.structured_output_manager
        if hasattr(grammars, "accept_tokens"):  # vLLM 0.32.0 asks no others
            self._tap(grammars, "accept_tokens", lambda answer, request, *_: self._hear_grammar("accept", answer, request))
            self._tap(grammars, "validate_tokens", lambda answer, request, *_: self._hear_grammar("valid", len(answer), request))
        else:
            self._tap(grammars, "should_advance", self._hear_advance)
        self._tap(theirs.kv_event_publisher, "publish", lambda _, batch: self._events.extend(batch.events))

    def _hear(self, question: str, about, answer, plain) -> None:
        name = about if isinstance(about, str) else about.request_id
        self._answers.note(question, name, answer)
        self._journal.answer(question, name, plain)

    def _hear_allocated(self, _, request, blocks, num_external_tokens) -> None:
        self._calls.append(("allocated", request.request_id, blocks.get_block_ids(), num_external_tokens))

    def _hear_finished(self, answer, request, block_ids) -> None:
        groups = block_ids if isinstance(block_ids, tuple) else (block_ids,)
        self._calls.append(("finished", request.request_id, tuple(list(group) for group in groups)))
        delay, params = answer
        self._hear("finished", request, answer, [bool(delay), None if params is None else {"recorded": 1}])

    def _hear_advance(self, answer, request) -> None:
        if request.use_structured_output:
            self._hear("advance", request, answer, bool(answer))

    def _hear_grammar(self, question: str, answer, request) -> None:
        if request.use_structured_output:
            self._hear(question, request, answer, int(answer))

    def _both_take(self, events: list) -> list:
        if self._ours is not None and events:
            self._answers.note("events", "", events)
        return events

    # One call on both.

    def _aside(self, what: str, call, *arguments, **named):
        """Something for the comparison alone. It must not harm vLLM's scheduler, in the middle of whose call it may be."""
        if self._ours is None:
            return None
        try:
            return call(*arguments, **named)
        except Exception:
            self._differ(f"{what}: the comparison raised\n{traceback.format_exc()}")
            return None

    def _note(self, *event) -> None:
        if self._ours is not None:
            self._aside(event[0], self._journal.event, *event)

    def _take_request(self, request: Request) -> Request:
        self._journal.event("add", journal.request_spec(request))
        return copied_request(self, request)

    def _take_result(self, output):
        own = copied_result(output)
        self._journal.event("update", journal.result(own))
        return own

    def _compared(self, what: str, theirs, call, view=lambda answer: answer):
        """Ours is asked what vLLM's has answered; returns our answer, or None where the comparison has ended."""
        if self._ours is None:
            return None
        try:
            own = call(self._ours)
            left, right = self._seen(view(theirs), self._theirs, True), self._seen(view(own), self._ours, False)
        except Exception:
            self._differ(f"{what}: quire raised\n{traceback.format_exc()}")
            return None
        if left != right:
            path, left, right = compare.first_difference(left, right)
            self._differ(f"{what}{path} differs\n  vLLM:  {compare.shorten(left)}\n  quire: {compare.shorten(right)}")
            return None
        return own

    def _seen(self, answer, scheduler, is_vllm: bool) -> dict:
        calls = self._calls if is_vllm else getattr(scheduler.connector, "calls", [])
        events = self._events if is_vllm else scheduler.events
        seen = {
            "answer": answer,
            "calls": calls[:],
            "events": events[:],
            "counts": (*scheduler.get_request_counts(), scheduler.kv_cache_manager.block_pool.get_num_free_blocks()),
        }
        calls.clear()
        events.clear()
        return seen

    def _differ(self, text: str) -> None:
        self.difference = f"after {self.num_steps} equal steps: {text}"
        written = self._write_script()
        logger.error("quire.vllm.ShadowScheduler: quire would have decided otherwise, %s\n%s. vLLM goes on alone.", self.difference, written)
        self._stop()

    def _write_script(self) -> str:
        if self._journal.full:
            return f"The run was too long to be written down ({journal.LIMIT} values)"
        folder = os.environ.get(SCRIPTS) or tempfile.gettempdir()
        try:
            with tempfile.NamedTemporaryFile("w", prefix="quire-difference-", suffix=".json", dir=folder, delete=False) as file:
                self._journal.write(file)
        except (OSError, TypeError, ValueError) as error:  # no place, or a value that is no plain one: vLLM must go on all the same
            return f"No script could be written into {folder}: {error}"
        self.script = file.name
        return f"./dev oracle replay {self.script} plays it again"

    def _stop(self) -> None:
        self._ours = self._journal = None
        self._plans.clear()
        self._answers, self._calls, self._events = Answers(), [], []

    def _decided(self, call, *arguments):
        """vLLM's own answer. Where it raises, its state is anybody's guess and there is nothing to compare any more."""
        try:
            return call(*arguments)
        except BaseException:
            if self._ours is not None:
                logger.warning("quire.vllm.ShadowScheduler: vLLM's scheduler raised; the comparison ends after %d equal steps", self.num_steps)
                self._stop()
            raise

    def _own_plan(self, output):
        own = next((own for theirs, own in self._plans if theirs is output), None)
        if own is None and self._ours is not None:
            logger.warning("quire.vllm.ShadowScheduler: a step that schedule() has not planned; the comparison ends")
            self._stop()
        return own

    # SchedulerInterface, verb by verb.

    def add_request(self, request: Request) -> None:
        own = self._aside("add_request", self._take_request, request)
        self._decided(self._theirs.add_request, request)
        self._compared("add_request", None, lambda ours: ours.add_request(own))

    def schedule(self, *newer):
        self._note("schedule")
        output = self._decided(self._theirs.schedule, *newer)
        own = self._compared("schedule", output, lambda ours: ours.schedule(), plan_of)
        if own is not None:
            self._plans.append((output, own))
        return output

    def update_from_output(self, scheduler_output, model_runner_output):
        own_plan, own_result = self._own_plan(scheduler_output), self._aside("update_from_output", self._take_result, model_runner_output)
        outputs = self._decided(self._theirs.update_from_output, scheduler_output, model_runner_output)
        self._compared(
            "update_from_output", outputs, lambda ours: ours.update_from_output(own_plan, own_result), lambda answer: compare.outputs(answer, True)
        )
        if self._ours is not None:
            self._plans = deque(pair for pair in self._plans if pair[0] is not scheduler_output)
            self.num_steps += 1
        return outputs

    def update_draft_token_ids(self, draft_token_ids) -> None:
        self._note("drafts", list(draft_token_ids.req_ids), [list(row) for row in draft_token_ids.draft_token_ids])
        self._decided(self._theirs.update_draft_token_ids, draft_token_ids)
        self._compared("update_draft_token_ids", None, lambda ours: ours.update_draft_token_ids(draft_token_ids))

    def update_draft_token_ids_in_output(self, draft_token_ids, scheduler_output) -> None:
        own_plan = self._own_plan(scheduler_output)
        self._note("drafts_in_output", list(draft_token_ids.req_ids), [list(row) for row in draft_token_ids.draft_token_ids])
        self._decided(self._theirs.update_draft_token_ids_in_output, draft_token_ids, scheduler_output)

        def update(ours):
            ours.update_draft_token_ids_in_output(draft_token_ids, own_plan)
            return own_plan

        self._compared("update_draft_token_ids_in_output", scheduler_output, update, lambda plan: {**compare.plan_sent(plan), "kv_meta": 0, "ec_meta": 0})

    def get_grammar_bitmask(self, scheduler_output):
        own_plan = self._own_plan(scheduler_output)
        bitmask = self._decided(self._theirs.get_grammar_bitmask, scheduler_output)
        self._compared(
            "get_grammar_bitmask", bitmask, lambda ours: ours.get_grammar_bitmask(own_plan), lambda answer: answer and answer.structured_output_request_ids
        )
        return bitmask

    def finish_requests(self, request_ids, finished_status):
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        self._note("abort", request_ids, finished_status.name)
        finished = self._decided(self._theirs.finish_requests, request_ids, finished_status)
        self._compared("finish_requests", finished, lambda ours: ours.finish_requests(request_ids, finished_status), _named)
        return finished

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        self._note("reset_prefix", reset_running_requests, reset_connector)
        done = self._decided(self._theirs.reset_prefix_cache, reset_running_requests, reset_connector)
        self._compared("reset_prefix_cache", done, lambda ours: ours.reset_prefix_cache(reset_running_requests, reset_connector))
        return done

    def reset_connector_cache(self) -> bool:
        self._note("reset_connector")
        done = self._decided(self._theirs.reset_connector_cache)
        self._compared("reset_connector_cache", done, lambda ours: ours.reset_connector_cache())
        return done

    def reset_encoder_cache(self) -> None:
        self._note("reset_encoder")
        self._decided(self._theirs.reset_encoder_cache)
        self._compared("reset_encoder_cache", None, lambda ours: ours.reset_encoder_cache())

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._note("pause", int(pause_state))
        self._theirs.set_pause_state(pause_state)
        self._compared("set_pause_state", None, lambda ours: ours.set_pause_state(pause_state))

    def make_stats(self):
        self._note("stats")
        stats = self._decided(self._theirs.make_stats)
        self._compared("make_stats", stats, lambda ours: ours.make_stats(), lambda answer: compare.stats(answer, True))
        return stats

    def shutdown(self) -> None:
        if self._ours is not None:
            logger.info("quire.vllm.ShadowScheduler: %d steps, and quire decided each as vLLM did", self.num_steps)
            self._stop()
        self._theirs.shutdown()

    @property
    def pause_state(self) -> PauseState:
        return self._theirs.pause_state

    def get_num_unfinished_requests(self) -> int:
        return self._theirs.get_num_unfinished_requests()

    def has_finished_requests(self) -> bool:
        return self._theirs.has_finished_requests()

    def has_requests(self) -> bool:
        return self._theirs.has_requests()

    def get_kv_cache_usage(self) -> float:
        return self._theirs.get_kv_cache_usage()

    def get_ec_connector(self):
        return self._theirs.get_ec_connector()

    def get_kv_event_publisher_config(self):
        return self._theirs.get_kv_event_publisher_config()

    def get_request_counts(self) -> tuple[int, int]:
        return self._theirs.get_request_counts()

    def get_kv_connector(self):
        return self._theirs.get_kv_connector()
