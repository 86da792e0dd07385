"""Passes the core's calls during a step to vLLM's Python objects."""

import weakref

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.logger import init_logger

from quire.vllm import _continuum, _requests
from quire.vllm._views import Blocks

logger = init_logger("vllm.quire")


class Hooks:
    """One method per call of the core. Requests are refreshed before each call."""

    def __init__(self, scheduler):
        self._scheduler = weakref.proxy(scheduler)  # weak, because the scheduler owns the core, which owns this object
        self._encoder = scheduler.ec_connector
        self._grammar = scheduler.structured_output_manager

    @property
    def _connector(self):
        return self._scheduler.connector  # read each time, because it may be replaced

    def match(self, request, num_local_tokens):
        num_tokens = request.num_tokens
        answer = self._connector.get_num_new_matched_tokens(request, num_local_tokens)
        if request.num_tokens != num_tokens:
            raise NotImplementedError(
                f"the connector changed request {request.request_id} from {num_tokens} to {request.num_tokens} tokens in "
                "get_num_new_matched_tokens(), which quire does not support; leave out --scheduler-cls"
            )
        return answer

    def allocated(self, request, block_ids, num_external_tokens):
        self._connector.update_state_after_alloc(request, Blocks(self._scheduler._native, block_ids), num_external_tokens)

    def finished(self, request, block_ids):
        if isinstance(self._connector, SupportsHMA):
            return self._connector.request_finished_all_groups(request, block_ids)
        return self._connector.request_finished(request, block_ids[0])

    def planned(self, pieces):
        output = self._scheduler.make_output(pieces)
        output.kv_connector_metadata = self._scheduler._build_kv_connector_meta(self._connector, output)
        self._scheduler._plan_output = output

    def order_failed(self, names, num_async):
        # vLLM iterates over sets of names. These sets are built in vLLM's order, so that their iteration order is the same.
        waiting, running = set(), set()
        for index, name in enumerate(names):
            (waiting if index < num_async else running).add(name)
        failed = waiting | running
        return list(set(failed)), list(failed)

    def step_output(self):
        self._connector.update_connector_output(self._scheduler._worker_output)

    def reset(self):
        return self._connector.reset_cache() is not False

    def encoder_has(self, identifier):
        return self._encoder.has_cache_item(identifier)

    def encoder_allocated(self, request, index):
        self._encoder.update_state_after_alloc(request, index)

    def grammar_ready(self, request):
        structured = request.structured_output_request
        return bool(structured and structured.grammar)

    def grammar_should_advance(self, request):
        return self._grammar.should_advance(request)

    def grammar_accept(self, request, tokens):
        accepted = request.structured_output_request.grammar.accept_tokens(request.request_id, tokens)
        if not accepted:
            logger.warning("Unexpected: grammar rejected tokens %s for request %s.", tokens, request.request_id)
        return accepted

    def grammar_count_valid(self, request, drafts):
        return len(request.structured_output_request.grammar.validate_tokens(drafts))

    def session_input_taken(self, request, num_prompt_tokens):
        return _requests.take_session_input(request, request.streaming_queue.popleft(), num_prompt_tokens)

    def tool_of(self, request):
        decode = self._scheduler.decode_output
        return _continuum.tool_in(decode(list(request.output_token_ids))) if decode is not None else ""

    def routed_experts(self, block_ids, num_tokens):
        scheduler = self._scheduler
        size = scheduler.kv_cache_config.kv_cache_groups[scheduler._routed_group].kv_cache_spec.block_size
        blocks = np.array(block_ids, dtype=np.int32).reshape(-1, 1)
        slots = (np.arange(0, size).reshape(1, -1) + blocks * size).flatten()[:num_tokens]
        return scheduler.routed_experts_reader.get_routed_experts(indices=slots)
