"""quire.vllm.ShadowScheduler: vLLM's own scheduler decides; quire's scheduler runs next to it, and their results are compared call by call.

quire's scheduler gets copies of the requests and of the workers' results, and stand-ins for connectors and grammars. The stand-ins repeat
the answers that vLLM's scheduler got, so the real objects are called only once. At the first difference, a script that reproduces it is
written, the comparison ends, and vLLM continues.
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
from quire.vllm._compared_scheduler import compared_scheduler_class, copied_request, copied_result, plan_of
from quire.vllm._config import refuse
from quire.vllm._options import options_of
from quire.vllm._replay import Answers
from quire.vllm._setup import refuse_pool_allocating_connectors

logger = init_logger("vllm.quire")

SCRIPTS = "QUIRE_SHADOW_DIR"  # environment variable with the folder for scripts; default: the system's folder for temporary files


def _request_client_pairs(finished: list) -> list:
    """Returns (request id, client index) pairs. Newer versions of vLLM return the requests themselves."""
    return [(one.request_id, one.client_index) if isinstance(one, Request) else tuple(one) for one in finished]


class ShadowScheduler(SchedulerInterface):
    """`--scheduler-cls quire.vllm.ShadowScheduler`. `difference` describes the first difference; None means no difference yet."""

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
            refuse(f"additional_config: quire.{next(iter(own))} with vLLM's own scheduler, which does not have this option", "leave it out")
        stock = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else SyncScheduler
        self._vllm_scheduler = stock(**arguments)
        refuse_pool_allocating_connectors(self._vllm_scheduler.connector)
        self.difference = self.script = None
        self.num_steps = 0  # number of steps that were compared
        self._answers = Answers()
        self._calls, self._events = [], []  # calls of the connector, and events, by vLLM's scheduler during the current call
        self._plans = deque()  # (vLLM's SchedulerOutput, quire's SchedulerOutput) of steps without a result yet
        self._quire_scheduler = self._make_quire_scheduler(arguments)
        self._journal = None if self._quire_scheduler is None else journal.Journal(journal.configuration(self._quire_scheduler))
        if self._quire_scheduler is not None:
            self._record_vllm_objects()
        logger.info("quire.vllm.ShadowScheduler: vLLM's scheduler decides; quire's scheduler runs only for comparison")

    def _make_quire_scheduler(self, arguments: dict):
        try:
            return compared_scheduler_class()(self._vllm_scheduler, self._answers, **arguments)
        except Exception as error:
            if is_served():
                raise
            # quire has no adapter for this version of vLLM, or another error occurred. vLLM must run nevertheless.
            self.difference = f"at start: {error!r}"
            logger.error(
                "quire.vllm.ShadowScheduler: quire's scheduler cannot be created under this version of vLLM: %r. vLLM continues without the comparison.",
                error,
            )
            return None

    def __getattr__(self, name: str):
        if name == "_vllm_scheduler":
            raise AttributeError(name)  # not created yet
        return getattr(self._vllm_scheduler, name)

    # Recording of the answers that vLLM's scheduler gets, for quire's scheduler.

    def _record_answers_of(self, party, method: str, record) -> None:
        asked = getattr(party, method)

        def tapped(*arguments, **named):
            answer = asked(*arguments, **named)
            self._run_guarded(method, record, answer, *arguments, **named)
            return answer

        setattr(party, method, tapped)

    def _record_vllm_objects(self) -> None:
        theirs, connector = self._vllm_scheduler, self._vllm_scheduler.connector
        if connector is not None:
            finished = "request_finished_all_groups" if isinstance(connector, SupportsHMA) else "request_finished"
            self._record_answers_of(connector, "get_num_new_matched_tokens", lambda answer, request, *_: self._record_answer("match", request, answer, list(answer)))
            self._record_answers_of(connector, "update_state_after_alloc", self._record_allocated)
            self._record_answers_of(connector, finished, self._record_finished)
            self._record_answers_of(connector, "reset_cache", lambda answer: self._record_answer("reset", "", answer, answer))
            if hasattr(connector, "requires_kv_delivery"):  # vLLM 0.32.0
                self._journal.answer("delivery", "", bool(connector.requires_kv_delivery))
                self._record_answers_of(
                    connector, "get_external_cache_hit_sources", lambda answer, request, *_: self._record_answer("sources", request, answer, dict(answer))
                )
            take_events = connector.take_events
            connector.take_events = lambda: self._record_events(list(take_events() or ()))
        if theirs.ec_connector is not None:
            self._record_answers_of(theirs.ec_connector, "has_cache_item", lambda answer, name: self._record_answer("item", name, answer, bool(answer)))
        grammars = theirs.structured_output_manager
        if hasattr(grammars, "accept_tokens"):  # vLLM 0.32.0 calls only these
            self._record_answers_of(grammars, "accept_tokens", lambda answer, request, *_: self._record_grammar("accept", answer, request))
            self._record_answers_of(grammars, "validate_tokens", lambda answer, request, *_: self._record_grammar("valid", len(answer), request))
        else:
            self._record_answers_of(grammars, "should_advance", self._record_advance)
        self._record_answers_of(theirs.kv_event_publisher, "publish", lambda _, batch: self._events.extend(batch.events))

    def _record_answer(self, question: str, about, answer, plain) -> None:
        name = about if isinstance(about, str) else about.request_id
        self._answers.note(question, name, answer)
        self._journal.answer(question, name, plain)

    def _record_allocated(self, _, request, blocks, num_external_tokens) -> None:
        self._calls.append(("allocated", request.request_id, blocks.get_block_ids(), num_external_tokens))

    def _record_finished(self, answer, request, block_ids) -> None:
        groups = block_ids if isinstance(block_ids, tuple) else (block_ids,)
        self._calls.append(("finished", request.request_id, tuple(list(group) for group in groups)))
        delay, params = answer
        self._record_answer("finished", request, answer, [bool(delay), None if params is None else {"recorded": 1}])

    def _record_advance(self, answer, request) -> None:
        if request.use_structured_output:
            self._record_answer("advance", request, answer, bool(answer))

    def _record_grammar(self, question: str, answer, request) -> None:
        if request.use_structured_output:
            self._record_answer(question, request, answer, int(answer))

    def _record_events(self, events: list) -> list:
        if self._quire_scheduler is not None and events:
            self._answers.note("events", "", events)
        return events

    # Calls on both schedulers.

    def _run_guarded(self, what: str, call, *arguments, **named):
        """Runs code of the comparison. An exception ends the comparison, because it must not affect vLLM's scheduler. May run during a call
        of vLLM's scheduler."""
        if self._quire_scheduler is None:
            return None
        try:
            return call(*arguments, **named)
        except Exception:
            self._report_difference(f"{what}: the comparison raised\n{traceback.format_exc()}")
            return None

    def _note(self, *event) -> None:
        if self._quire_scheduler is not None:
            self._run_guarded(event[0], self._journal.event, *event)

    def _record_request(self, request: Request) -> Request:
        self._journal.event("add", journal.request_spec(request))
        return copied_request(self, request)

    def _record_result(self, output):
        own = copied_result(output)
        self._journal.event("update", journal.result(own))
        return own

    def _compare_call(self, what: str, theirs, call, view=lambda answer: answer):
        """Makes the call that vLLM's scheduler has answered, and compares the answers. Returns quire's answer, or None if the comparison
        has ended."""
        if self._quire_scheduler is None:
            return None
        try:
            own = call(self._quire_scheduler)
            left, right = self._observed_state(view(theirs), self._vllm_scheduler, True), self._observed_state(view(own), self._quire_scheduler, False)
        except Exception:
            self._report_difference(f"{what}: quire raised\n{traceback.format_exc()}")
            return None
        if left != right:
            path, left, right = compare.first_difference(left, right)
            self._report_difference(f"{what}{path} differs\n  vLLM:  {compare.shorten(left)}\n  quire: {compare.shorten(right)}")
            return None
        return own

    def _observed_state(self, answer, scheduler, is_vllm: bool) -> dict:
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

    def _report_difference(self, text: str) -> None:
        self.difference = f"after {self.num_steps} equal steps: {text}"
        written = self._write_script()
        logger.error(
            "quire.vllm.ShadowScheduler: quire would have decided differently, %s\n%s. vLLM continues without the comparison.", self.difference, written
        )
        self._stop()

    def _write_script(self) -> str:
        if self._journal.full:
            return f"The run was too long to be recorded ({journal.LIMIT} values)"
        folder = os.environ.get(SCRIPTS) or tempfile.gettempdir()
        try:
            with tempfile.NamedTemporaryFile("w", prefix="quire-difference-", suffix=".json", dir=folder, delete=False) as file:
                self._journal.write(file)
        except (OSError, TypeError, ValueError) as error:  # no space, or a value that json.dumps refuses; vLLM must continue
            return f"The script could not be written to {folder}: {error}"
        self.script = file.name
        return f"./dev oracle replay {self.script} repeats the run"

    def _stop(self) -> None:
        self._quire_scheduler = self._journal = None
        self._plans.clear()
        self._answers, self._calls, self._events = Answers(), [], []

    def _call_vllm(self, call, *arguments):
        """Makes a call of vLLM's scheduler and returns its answer. If vLLM raises, its state is undefined, so the comparison ends."""
        try:
            return call(*arguments)
        except BaseException:
            if self._quire_scheduler is not None:
                logger.warning("quire.vllm.ShadowScheduler: vLLM's scheduler raised; the comparison ends after %d equal steps", self.num_steps)
                self._stop()
            raise

    def _quire_plan(self, output):
        own = next((own for theirs, own in self._plans if theirs is output), None)
        if own is None and self._quire_scheduler is not None:
            logger.warning("quire.vllm.ShadowScheduler: schedule() did not plan this step; the comparison ends")
            self._stop()
        return own

    # The methods of SchedulerInterface.

    def add_request(self, request: Request) -> None:
        own = self._run_guarded("add_request", self._record_request, request)
        self._call_vllm(self._vllm_scheduler.add_request, request)
        self._compare_call("add_request", None, lambda ours: ours.add_request(own))

    def schedule(self, *newer):
        self._note("schedule")
        output = self._call_vllm(self._vllm_scheduler.schedule, *newer)
        own = self._compare_call("schedule", output, lambda ours: ours.schedule(), plan_of)
        if own is not None:
            self._plans.append((output, own))
        return output

    def update_from_output(self, scheduler_output, model_runner_output):
        own_plan, own_result = self._quire_plan(scheduler_output), self._run_guarded("update_from_output", self._record_result, model_runner_output)
        outputs = self._call_vllm(self._vllm_scheduler.update_from_output, scheduler_output, model_runner_output)
        self._compare_call(
            "update_from_output", outputs, lambda ours: ours.update_from_output(own_plan, own_result), lambda answer: compare.outputs(answer, True)
        )
        if self._quire_scheduler is not None:
            self._plans = deque(pair for pair in self._plans if pair[0] is not scheduler_output)
            self.num_steps += 1
        return outputs

    def update_draft_token_ids(self, draft_token_ids) -> None:
        self._note("drafts", list(draft_token_ids.req_ids), [list(row) for row in draft_token_ids.draft_token_ids])
        self._call_vllm(self._vllm_scheduler.update_draft_token_ids, draft_token_ids)
        self._compare_call("update_draft_token_ids", None, lambda ours: ours.update_draft_token_ids(draft_token_ids))

    def update_draft_token_ids_in_output(self, draft_token_ids, scheduler_output) -> None:
        own_plan = self._quire_plan(scheduler_output)
        self._note("drafts_in_output", list(draft_token_ids.req_ids), [list(row) for row in draft_token_ids.draft_token_ids])
        self._call_vllm(self._vllm_scheduler.update_draft_token_ids_in_output, draft_token_ids, scheduler_output)

        def update(ours):
            ours.update_draft_token_ids_in_output(draft_token_ids, own_plan)
            return own_plan

        self._compare_call("update_draft_token_ids_in_output", scheduler_output, update, lambda plan: {**compare.plan_sent(plan), "kv_meta": 0, "ec_meta": 0})

    def get_grammar_bitmask(self, scheduler_output):
        own_plan = self._quire_plan(scheduler_output)
        bitmask = self._call_vllm(self._vllm_scheduler.get_grammar_bitmask, scheduler_output)
        self._compare_call(
            "get_grammar_bitmask", bitmask, lambda ours: ours.get_grammar_bitmask(own_plan), lambda answer: answer and answer.structured_output_request_ids
        )
        return bitmask

    def finish_requests(self, request_ids, finished_status):
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        self._note("abort", request_ids, finished_status.name)
        finished = self._call_vllm(self._vllm_scheduler.finish_requests, request_ids, finished_status)
        self._compare_call("finish_requests", finished, lambda ours: ours.finish_requests(request_ids, finished_status), _request_client_pairs)
        return finished

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        self._note("reset_prefix", reset_running_requests, reset_connector)
        done = self._call_vllm(self._vllm_scheduler.reset_prefix_cache, reset_running_requests, reset_connector)
        self._compare_call("reset_prefix_cache", done, lambda ours: ours.reset_prefix_cache(reset_running_requests, reset_connector))
        return done

    def reset_connector_cache(self) -> bool:
        self._note("reset_connector")
        done = self._call_vllm(self._vllm_scheduler.reset_connector_cache)
        self._compare_call("reset_connector_cache", done, lambda ours: ours.reset_connector_cache())
        return done

    def reset_encoder_cache(self) -> None:
        self._note("reset_encoder")
        self._call_vllm(self._vllm_scheduler.reset_encoder_cache)
        self._compare_call("reset_encoder_cache", None, lambda ours: ours.reset_encoder_cache())

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._note("pause", int(pause_state))
        self._vllm_scheduler.set_pause_state(pause_state)
        self._compare_call("set_pause_state", None, lambda ours: ours.set_pause_state(pause_state))

    def make_stats(self):
        self._note("stats")
        stats = self._call_vllm(self._vllm_scheduler.make_stats)
        self._compare_call("make_stats", stats, lambda ours: ours.make_stats(), lambda answer: compare.stats(answer, True))
        return stats

    def shutdown(self) -> None:
        if self._quire_scheduler is not None:
            logger.info("quire.vllm.ShadowScheduler: %d steps, and quire made the same decisions as vLLM", self.num_steps)
            self._stop()
        self._vllm_scheduler.shutdown()

    @property
    def pause_state(self) -> PauseState:
        return self._vllm_scheduler.pause_state

    def get_num_unfinished_requests(self) -> int:
        return self._vllm_scheduler.get_num_unfinished_requests()

    def has_finished_requests(self) -> bool:
        return self._vllm_scheduler.has_finished_requests()

    def has_requests(self) -> bool:
        return self._vllm_scheduler.has_requests()

    def get_kv_cache_usage(self) -> float:
        return self._vllm_scheduler.get_kv_cache_usage()

    def get_ec_connector(self):
        return self._vllm_scheduler.get_ec_connector()

    def get_kv_event_publisher_config(self):
        return self._vllm_scheduler.get_kv_event_publisher_config()

    def get_request_counts(self) -> tuple[int, int]:
        return self._vllm_scheduler.get_request_counts()

    def get_kv_connector(self):
        return self._vllm_scheduler.get_kv_connector()
