"""quire's side of the shadow: its scheduler with stand-ins for connectors and grammars, and copies of its inputs."""

import copy
import dataclasses
import functools
from types import SimpleNamespace

from vllm.v1.request import Request, RequestStatus
from vllm.v1.utils import ConstantList

from quire import _vllm_compare as compare
from quire.vllm import scheduler_for_shadow
from quire.vllm._replay import Answers, ReplayConnector, ReplayEncoderConnector, ReplayGrammars

@functools.cache
def compared_scheduler_class():
    """Returns the class. It is defined on first use, because this may fail under a version of vLLM without an adapter, and vLLM must run
    nevertheless."""

    class ComparedScheduler(scheduler_for_shadow()):
        """quire's scheduler with stand-ins for connectors and grammars."""

        def __init__(self, theirs, answers: Answers, **arguments):
            self._vllm_scheduler = theirs
            self._answers = answers
            super().__init__(**{**arguments, "structured_output_manager": ReplayGrammars(answers)})
            del self._vllm_scheduler

        def _attach_objects(self, mm_registry) -> None:
            theirs = self._vllm_scheduler
            self.check_supported()
            self.max_num_encoder_input_tokens = theirs.max_num_encoder_input_tokens
            self.encoder_cache_size = theirs.encoder_cache_manager.cache_size
            self.kv_metrics_sample = 0.0  # off, because the sampled blocks are random
            self.connector = None if theirs.connector is None else ReplayConnector(self._answers)
            if hasattr(theirs.connector, "requires_kv_delivery"):  # vLLM 0.32.0 calls it once
                self._answers.note("delivery", "", theirs.connector.requires_kv_delivery)
            self.ec_connector = None if theirs.ec_connector is None else ReplayEncoderConnector(self._answers)
            self.perf_metrics = None
            self._routed_group = -1
            self.events = []
            self.describe_groups()
            self.kv_event_publisher = SimpleNamespace(publish=lambda batch: self.events.extend(batch.events), shutdown=lambda: None)

    return ComparedScheduler


class Grammar:
    """A request's structured output in quire's scheduler. It becomes ready when vLLM's scheduler has found it ready."""

    def __init__(self, shadow, request):
        self._shadow = shadow
        self._request = request
        self._ready = False

    @property
    def grammar(self):
        theirs = self._request.structured_output_request.grammar if not self._ready else None
        if isinstance(theirs, Exception):  # vLLM 0.32.0 ends a request with such a grammar
            return theirs
        if not self._ready and self._request.status != RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            self._ready = True
            self._shadow._journal.event_before("grammar", self._request.request_id)
        return self if self._ready else None

    def accept_tokens(self, request_id, tokens):
        return True

    def validate_tokens(self, tokens):
        valid = self._request.structured_output_request.grammar.validate_tokens(tokens)
        self._shadow._journal.answer("valid", self._request.request_id, len(valid))
        return valid


def copied_request(shadow, request: Request) -> Request:
    own = copy.copy(request)
    for name in ("_output_token_ids", "_all_token_ids", "block_hashes", "spec_token_ids", "events"):
        setattr(own, name, list(getattr(request, name)))
    own.prompt_token_ids = None if request.prompt_token_ids is None else list(request.prompt_token_ids)
    own.output_token_ids, own.all_token_ids = ConstantList(own._output_token_ids), ConstantList(own._all_token_ids)
    own.mm_features = [copy.copy(feature) for feature in request.mm_features]
    own.structured_output_request = None if request.structured_output_request is None else Grammar(shadow, request)
    return own


def copied_result(output):
    """Returns a copy, because vLLM's scheduler shortens the rows of sampled tokens and adds to the connector's statistics."""
    worker = output.kv_connector_output
    own = None if worker is None else dataclasses.replace(worker, kv_connector_stats=None)
    return dataclasses.replace(output, sampled_token_ids=[list(row) for row in output.sampled_token_ids or ()], kv_connector_output=own)


def plan_of(output) -> dict:
    return {name: value for name, value in compare.plan(output).items() if name not in ("kv_meta", "ec_meta")}
