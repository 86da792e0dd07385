"""The scripted objects that a scheduler calls: KV connector, encoder cache connector, event publisher, grammar manager, routed experts,
encoder budget. Their answers depend only on the script's seed and on the call. Each call is written to the side's log.
"""

import functools
from types import SimpleNamespace

import numpy as np
import vllm.multimodal.encoder_budget as encoder_budget
import vllm.v1.metrics.perf as perf
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_events import BlockStored, EventPublisher, EventPublisherFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.encoder_cache_manager import compute_mm_encoder_budget

from . import versions
from .stage import current, draw


class Metadata(KVConnectorMetadata, ECConnectorMetadata):
    def __init__(self, number: int):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number


class Stats(KVConnectorStats):
    def is_empty(self):
        return not self.data

    def aggregate(self, other):
        self.data = {key: self.data.get(key, 0) + other.data.get(key, 0) for key in {**self.data, **other.data}}
        return self


def seen(request) -> tuple:
    """Returns the fields of a request that a scripted object reads: all fields that vLLM's own connectors and grammars read, and some more."""
    outputs, hashes = request.output_token_ids, request.block_hashes
    return (
        request.request_id,
        int(request.status),
        request.num_tokens,
        request.num_prompt_tokens,
        request.num_computed_tokens,
        request.num_output_placeholders,
        *versions.counts(request),
        request.num_preemptions,
        request.is_prefill_chunk,
        list(request.spec_token_ids),
        len(outputs),
        list(outputs[-4:]),
        list(request.all_token_ids[-4:]),
        len(hashes),
        hashes[-1] if hashes else None,
        request.kv_transfer_params,
    )


class ScriptedConnector(KVConnectorBase_V1):
    """The scheduler side of a connector. `loading` and `sending` are the transfers that its worker side has in flight; the player reports
    them.

    It keeps the requests of its calls and reads them later, as vLLM's own connectors do.
    """

    def __init__(self, vllm_config, role, kv_cache_config):
        self.side = current()
        self.side.connector = self
        self.answers = self.side.answers
        self.loading = {}  # request id -> ids of blocks that are being filled
        self.sync_loads = {}  # the same for loads for which the next forward pass waits
        self.sending = {}
        self._queries = {}
        self._asked = {}
        self._kept = {}  # request id -> the Request object
        self._num_meta = 0
        self._kv_cache_config = kv_cache_config
        self._kv_transfer_config = vllm_config.kv_transfer_config

    def on_new_request(self, request):
        self.side.log.append(("new", seen(request)))

    def _look(self, when: str) -> None:
        if self._kept:
            self.side.log.append((f"kept at {when}", [seen(request) for request in self._kept.values()]))

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        request_id, answers = request.request_id, self.answers
        count = self._queries[request_id] = self._queries.get(request_id, 0) + 1
        pick = draw(self.side.seed, "match", request_id, count)
        result = self._match(request.num_tokens - num_computed_tokens, pick % 100, pick // 100, answers)
        self._asked[request_id] = result
        if self.answers["keep"]:
            self._kept[request_id] = request
        self.side.log.append(("match", seen(request), num_computed_tokens, result))
        return result

    @staticmethod
    def _match(rest, percent, value, answers):
        if percent < answers["unknown"]:
            return None, False
        percent -= answers["unknown"]
        if percent < answers["async"] and rest > 0:
            return _rounded(1 + value % rest, rest, answers), True
        percent -= answers["async"]
        if percent < answers["sync"] and rest > 1:
            return _rounded(1 + value % (rest - 1), rest - 1, answers), False
        return 0, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        ids = blocks.get_block_ids()
        self.side.log.append(("allocated", seen(request), ids, num_external_tokens))
        if self.answers["inspect"]:
            self.side.log.append(("unhashed", blocks.get_unhashed_block_ids_all_groups(), blocks.get_block_ids(allow_none=True)))
            if len(ids) == 1:
                self.side.log.append(("unhashed", blocks.get_unhashed_block_ids()))
        if num_external_tokens:
            is_async = self._asked[request.request_id][1]
            (self.loading if is_async else self.sync_loads)[request.request_id] = [b for group in ids for b in group if b]

    def build_connector_meta(self, scheduler_output):
        self._num_meta += 1
        self.side.log.append(("meta", list(scheduler_output.num_scheduled_tokens.items())))
        state = getattr(scheduler_output, "kv_connector_block_state", None)
        if state is not None and self.answers["inspect"]:
            names = scheduler_output.num_scheduled_tokens
            self.side.log.append(("block state", sorted(state.req_ids), [state.get_block_ids(name) for name in names], state.boundary_state_offloads))
        self._look("meta")
        return Metadata(self._num_meta)

    def update_connector_output(self, connector_output):
        self.side.log.append(("output", connector_output.finished_sending, connector_output.finished_recving))
        self._look("output")

    def request_finished(self, request, block_ids):
        request_id = request.request_id
        pick = draw(self.side.seed, "finished", request_id) % 100
        delay = pick < self.answers["delay"] and request_id not in self.loading
        params = {"remote": request_id, "blocks": block_ids} if pick % 2 and self.answers["params"] else None
        if delay:
            self.sending[request_id] = True
        self._kept.pop(request_id, None)
        self.side.log.append(("finished", seen(request), block_ids, delay))
        return delay, params

    def get_kv_connector_stats(self):
        self.side.log.append(("stats",))
        self._look("stats")
        return Stats(data={"loads": 1}) if self.answers["stats"] > 1 else None

    def take_events(self):
        self._look("events")
        if not self.answers["events"] or draw(self.side.seed, "events", self._num_meta) % 4:
            return ()
        return [BlockStored([self._num_meta], None, [1, 2], 2, None, "CPU", None)]

    def reset_cache(self):
        self.side.log.append(("reset",))
        return self.answers["reset"]

    def shutdown(self):
        self.side.log.append(("shutdown",))

    # Methods of the worker side, which the fuzzer never calls.
    def start_load_kv(self, forward_context, **kwargs):
        raise NotImplementedError

    def wait_for_layer_load(self, layer_name):
        raise NotImplementedError

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        raise NotImplementedError

    def wait_for_save(self):
        raise NotImplementedError


def _rounded(tokens, limit, answers):
    unit = answers["unit"]
    return min(limit, -(-tokens // unit) * unit)


class ScriptedHybridConnector(ScriptedConnector, SupportsHMA):
    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids)


class PoolBindingConnector(ScriptedHybridConnector):
    def bind_gpu_block_pool(self, pool):
        self.side.log.append(("bind", pool.num_gpu_blocks, pool.get_num_free_blocks()))


class ScriptedEncoderConnector(ECConnectorBase):
    def __init__(self, vllm_config, role):
        self.side = current()
        self._num_meta = 0

    def has_cache_item(self, identifier):
        answer = draw(self.side.seed, "item", identifier) % 100 < self.side.answers["encoder"]
        self.side.log.append(("has_item", identifier, answer))
        return answer

    def update_state_after_alloc(self, request, index):
        self.side.log.append(("item_allocated", seen(request), index))

    def build_connector_meta(self, scheduler_output):
        self._num_meta += 1
        return Metadata(self._num_meta)

    def start_load_caches(self, encoder_cache, **kwargs):
        raise NotImplementedError

    def save_caches(self, encoder_cache, mm_hash, **kwargs):
        raise NotImplementedError


class Publisher(EventPublisher):
    def __init__(self, **_):
        self.side = current()

    def publish(self, events):
        self.side.log.append(("events", events.ts, events.data_parallel_rank, list(events.events)))

    def shutdown(self):
        self.side.log.append(("publisher_shutdown",))


class Grammar:
    """Accepts draft tokens that are not divisible by `step`. Also checks sampled tokens, but only reports the result."""

    def __init__(self, side, step: int):
        self.side = side
        self.step = step

    def accept_tokens(self, request_id, tokens):
        self.side.log.append(("accept", request_id, list(tokens)))
        return all(token % self.step for token in tokens)

    def validate_tokens(self, tokens):
        self.side.log.append(("validate", list(tokens)))
        for index, token in enumerate(tokens):
            if token % self.step == 0:
                return list(tokens[:index])
        return tokens


class GrammarManager:
    """Replaces vLLM's StructuredOutputManager. A reasoning part ends after `reasoning` output tokens."""

    def __init__(self, side, reasoning: int):
        self.side = side
        self.reasoning = reasoning

    def should_advance(self, request):
        if not request.use_structured_output:
            return False
        advance = request.num_output_tokens > self.reasoning
        self.side.log.append(("advance", seen(request), advance))
        return advance

    def grammar_bitmask(self, requests, ids, drafts):
        self.side.log.append(("bitmask", [seen(requests[i]) for i in ids], [(i, list(drafts.get(i, ()))) for i in ids]))
        assert all(requests[i].structured_output_request.grammar for i in ids)
        return np.full((len(ids), 1), len(ids), dtype=np.int32)


class NewerGrammarManager(GrammarManager):
    """Has the calls of vLLM 0.32.0: for each request with tokens, and whether the tokens end the request."""

    def accept_tokens(self, request, tokens):
        if not request.use_structured_output:
            return True
        self.side.log.append(("accept tokens", seen(request), list(tokens)))
        if request.num_output_tokens <= self.reasoning:
            return True
        return request.structured_output_request.grammar.accept_tokens(request.request_id, tokens)

    def validate_tokens(self, request, tokens):
        if not request.use_structured_output:
            return tokens
        self.side.log.append(("validate tokens", seen(request), list(tokens)))
        tokens = [token for token in tokens if token >= 0]
        if request.num_output_tokens <= self.reasoning:
            return tokens
        return request.structured_output_request.grammar.validate_tokens(tokens)


class ExpertsReader:
    def attach_buffer(self, max_num_kv_tokens, vllm_config):
        current().log.append(("experts", max_num_kv_tokens))

    def get_routed_experts(self, indices):
        return np.array(indices)


class Budget:
    """Replaces vLLM's MultiModalBudget, without a model."""

    def __init__(self, vllm_config, mm_registry):
        limits = vllm_config.mm_max_toks_per_item
        self.mm_max_toks_per_item = limits
        self.encoder_compute_budget, self.encoder_cache_size = compute_mm_encoder_budget(vllm_config.scheduler_config, limits)


class ModelMetrics:
    """Replaces vLLM's estimate of operations per step, which is passed on with the statistics."""

    def __init__(self, vllm_config):
        pass

    def is_enabled(self):
        return True

    def get_step_perf_stats_per_gpu(self, scheduler_output):
        return ("perf", scheduler_output.total_num_scheduled_tokens)


class Registry:
    def __init__(self, multimodal: bool):
        self.multimodal = multimodal

    def supports_multimodal_inputs(self, model_config):
        return self.multimodal


@functools.cache
def install_once() -> None:
    """Makes vLLM's factories return the scripted objects. Called once per process, before a scheduler is created."""
    import vllm.v1.core.sched.scheduler as stock

    for name in ("ScriptedConnector", "ScriptedHybridConnector", "PoolBindingConnector"):
        KVConnectorFactory.register_connector(name, __name__, name)
    ECConnectorFactory.register_connector("ScriptedEncoderConnector", __name__, "ScriptedEncoderConnector")
    EventPublisherFactory.register_publisher("scripted", Publisher)
    if versions.IS_NEWER:
        from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

        register_all_kvcache_specs(None)
    else:
        from vllm.model_executor.layers.fused_moe.routed_experts_capturer import RoutedExpertsReader

        RoutedExpertsReader.create = staticmethod(ExpertsReader)
    perf.ModelMetrics = stock.ModelMetrics = ModelMetrics
    encoder_budget.MultiModalBudget = stock.MultiModalBudget = Budget


def transfer_config(name: str, policy: str, role: str) -> SimpleNamespace:
    return SimpleNamespace(
        kv_connector=name,
        kv_connector_module_path=None,
        engine_id="oracle",
        kv_load_failure_policy=policy,
        kv_role=role,
        is_kv_consumer=role != "kv_producer",
        is_kv_producer=role != "kv_consumer",
        kv_connector_extra_config={},
    )
