"""Computes the worker's results for a plan: sampled tokens, draft tokens, transfers. They are derived from the first scheduler's plan
and a seed, and created separately for each scheduler, because schedulers change their arguments.
"""

import numpy as np
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, LogprobsLists, ModelRunnerOutput

from . import snapshot, versions
from .requests import doc_token
from .stage import draw


NOTHING = (0, False, False)  # result of peek() for a removed request


class Batch:
    """A plan in flight, with the facts about its requests at the time it was made."""

    def __init__(self, outputs: dict, first, makers: dict):
        plan = self.plan = outputs[first]
        self.outputs = outputs  # one per scheduler
        self.total = plan.total_num_scheduled_tokens
        self.pending = plan.pending_structured_output_tokens
        self.sync_loads = {}
        self.masks = {}  # request id -> its rows of the bitmask, with real grammars
        self.requests = {}  # vLLM's requests, to detect another request with the same id
        if first.name == "stock":
            self.requests = {request_id: first.scheduler.requests[request_id] for request_id in plan.num_scheduled_tokens}
        peeked = snapshot.peek(first.scheduler, plan.num_scheduled_tokens)
        self.rows = [
            (request_id, not is_prefill_chunk, bool(makers[request_id].spec.get("pooling")), num_tokens)
            for request_id, (num_tokens, is_prefill_chunk, _) in peeked.items()
        ]


class Result:
    def __init__(self):
        self.ids, self.sampled, self.pooled = [], [], None
        self.prompt_logprobs, self.nans, self.logprobs = {}, None, False
        self.kv = None
        self.graph = None
        self.received, self.sent = [], []

    def forget_transfers(self, connector) -> None:
        for request_id in self.received:
            connector.loading.pop(request_id, None)
        for request_id in self.sent:
            connector.sending.pop(request_id, None)

    def make(self) -> ModelRunnerOutput:
        sampled = [list(tokens) for tokens in self.sampled]
        return ModelRunnerOutput(
            req_ids=list(self.ids),
            req_id_to_index={request_id: index for index, request_id in enumerate(self.ids)},
            sampled_token_ids=sampled,
            logprobs=self._logprobs() if self.logprobs else None,
            prompt_logprobs_dict=dict(self.prompt_logprobs),
            pooler_output=None if self.pooled is None else list(self.pooled),
            kv_connector_output=None if self.kv is None else self.kv(),
            num_nans_in_logits=self.nans,
            cudagraph_stats=self.graph,
        )

    def _logprobs(self) -> LogprobsLists:
        starts = [0]
        for tokens in self.sampled:
            starts.append(starts[-1] + len(tokens))
        flat = np.array([token for tokens in self.sampled for token in tokens], dtype=np.int32).reshape(-1, 1)
        return LogprobsLists(flat, flat * -0.5, flat[:, 0], starts)


def sample(player, batch: Batch, seed: int) -> Result:
    config, result = player.config, Result()
    result.ids = [row[0] for row in batch.rows]
    drafts = batch.plan.scheduled_spec_decode_tokens
    invalid = batch.plan.num_invalid_spec_tokens or {}
    peeked = snapshot.peek(player.sides[0].scheduler, result.ids)
    for request_id, emits, pooling, num_tokens in batch.rows:
        tokens = []
        if request_id in batch.masks:
            tokens = _obeying(player, batch, seed, request_id)
        elif emits and not pooling:
            scheduled = drafts.get(request_id, ())
            accepted = draw(seed, "accepted", request_id) % (len(scheduled) + 1)
            accepted = min(accepted, len(scheduled) - invalid.get(request_id, 0))
            tokens = [token if token >= 0 else _token(player, seed, request_id, num_tokens + i) for i, token in enumerate(scheduled[:accepted])]
            tokens.append(_token(player, seed, request_id, num_tokens + accepted))
        result.sampled.append(tokens)
        if (tokens or pooling) and emits and not peeked.get(request_id, NOTHING)[2] and draw(seed, "prompt_logprobs", request_id) % 8 == 0:
            result.prompt_logprobs[request_id] = ("prompt logprobs", request_id)
    if any(row[2] for row in batch.rows):
        result.pooled = [("pooled", row[0]) if row[1] and row[2] else None for row in batch.rows]
    if not any(result.sampled) and draw(seed, "no samples") % 2:
        result.sampled = []
    result.logprobs = bool(result.sampled) and draw(seed, "logprobs") % 2 == 0
    if draw(seed, "nans") % 4 == 0:
        result.nans = {request_id: draw(seed, request_id) % 3 for request_id in result.ids}
    if draw(seed, "graph") % 8 == 0:
        result.graph = ("graph", seed)
    if config["connector"]:
        result.kv = _transfers(player, batch, seed, result)
    return result


def masks_of(player, batch: Batch, answer) -> dict:
    if answer is None:
        return {}
    if player.tape is not None and player.tape.is_read:
        return dict.fromkeys(answer.structured_output_request_ids)
    from . import guided

    return guided.rows_of(batch, answer)


def _taped(player, question: str, make):
    """Returns the result of `make`, or the recorded result."""
    if player.tape is None:
        return make()
    if player.tape.is_read:
        return player.tape.take(question)
    answer = make()
    player.tape.note(question, answer)
    return answer


def _obeying(player, batch: Batch, seed: int, request_id: str) -> list:
    def make():
        from . import guided

        drafts = batch.plan.scheduled_spec_decode_tokens.get(request_id, ())
        num_valid = len(drafts) - (batch.plan.num_invalid_spec_tokens or {}).get(request_id, 0)
        return guided.sampled(player.guided, seed, request_id, drafts, num_valid, batch.masks[request_id])

    return _taped(player, "sampled", make)


def _proposed(player, seed: int, request_id: str, count: int) -> list | None:
    side = player.sides[0]
    if not player.guided or request_id not in side.requests:
        return None

    def make():
        from . import guided

        return guided.proposed(side.grammars, side.requests[request_id], seed, count)

    return _taped(player, "drafts", make)


def _token(player, seed: int, request_id: str, position: int) -> int:
    config, pick = player.config, draw(seed, "token", request_id, position)
    if pick % 100 < config["follow"]:
        return doc_token(player.makers[request_id].spec["doc"], position, config["vocab"])
    return pick // 100 % config["vocab"]


class Drafts:
    def __init__(self, ids: list, tokens: list):
        self.ids, self.tokens = ids, tokens

    def make(self) -> DraftTokenIds:
        return DraftTokenIds(list(self.ids), [list(tokens) for tokens in self.tokens])


def drafts(player, batch: Batch, seed: int) -> Drafts:
    """Returns draft tokens after a step, or for a deferred step: up to num_spec_tokens for each request of the batch."""
    limit, ids, tokens = player.config["num_spec_tokens"], [], []
    for request_id, _, _, num_tokens in batch.rows:
        pick = draw(seed, "drafts", request_id)
        count = limit if pick % 3 else pick // 3 % (limit + 1)
        ids.append(request_id)
        wanted = _proposed(player, seed, request_id, count)
        tokens.append([_token(player, seed + 1, request_id, num_tokens + 1 + i) for i in range(count)] if wanted is None else wanted)
    return Drafts(ids, tokens)


def _transfers(player, batch: Batch, seed: int, result: Result):
    """Computes the ended and failed transfers, as the worker side of the connector. Returns a function that makes an equal
    KVConnectorOutput each time."""
    answers, connector = player.config["answers"], player.sides[0].connector
    received = [r for r in connector.loading if draw(seed, "received", r) % 100 < answers["finish"]]
    sent = [r for r in connector.sending if draw(seed, "sent", r) % 100 < answers["finish"]]
    invalid = []
    if draw(seed, "invalid") % 100 < answers["invalid"]:
        for request_id, blocks in [*connector.loading.items(), *batch.sync_loads.items()]:
            if blocks and draw(seed, "fails", request_id) % 2:
                first = draw(seed, "block", request_id) % len(blocks)
                invalid += blocks[first : first + 1 + draw(seed, "blocks", request_id) % 2]
                if request_id in connector.loading and request_id not in received:
                    received.append(request_id)
    failed = []
    if draw(seed, "failed") % 100 < answers.get("failed", 0):
        failed = [request_id for request_id in connector.loading if draw(seed, "load fails", request_id) % 2]
        received += [request_id for request_id in failed if request_id not in received]
    result.received, result.sent = received, sent
    with_stats = answers["stats"] and draw(seed, "stats") % 2

    def make() -> KVConnectorOutput:
        from .parties import Stats

        return KVConnectorOutput(
            finished_sending=set(sent) or None,
            finished_recving=set(received) or None,
            kv_connector_stats=Stats(data={"bytes": len(received) + 1}) if with_stats else None,
            invalid_block_ids=set(invalid),
            **({"failed_recving": set(failed)} if versions.IS_NEWER else {}),
        )

    return make
