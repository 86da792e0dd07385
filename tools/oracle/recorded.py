"""Plays a script of quire.vllm.ShadowScheduler on vLLM's scheduler and on quire's. The script is a run in vLLM, with the tokens that the
model sampled, and with the answers of its connectors and grammars.

    {"recorded": {question: {name: [answer, ...]}}, "config": {...}, "events": [[verb, argument, ...], ...]}

The verbs are the player's. Instead of `step`, the script has `schedule`, `update` (the workers' result), `drafts` and `drafts_in_output`.
"""

import copy

from quire.vllm._replay import Answers, ReplayConnector, ReplayEncoderConnector, ReplayGrammar, ReplayGrammars
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.outputs import KVConnectorOutput

from . import compare, config as configs, results
from .play import Player
from .stage import current


class RecordedConnector(ReplayConnector):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(current().recorded)
        current().connector = self
        self.loading, self.sending = {}, {}


class RecordedEncoderConnector(ReplayEncoderConnector):
    def __init__(self, vllm_config, role):
        super().__init__(current().recorded)


def _register(factory, name: str) -> None:
    if name not in factory._registry:
        factory.register_connector(name, __name__, name)


def _result(told: dict) -> results.Result:
    result = results.Result()
    result.ids = [name for name, _ in sorted(told["ids"], key=lambda item: item[1])]
    result.sampled = told["sampled"]
    result.nans = told.get("nans")
    if "pooled" in told:
        result.pooled = [("pooled", index) if flag else None for index, flag in enumerate(told["pooled"])]
    if "kv" in told:
        sending, receiving, invalid = told["kv"]
        result.kv = lambda: KVConnectorOutput(
            finished_sending=set(sending) or None, finished_recving=set(receiving) or None, invalid_block_ids=set(invalid)
        )
    return result


class RecordedPlayer(Player):
    def __init__(self, script: dict, names=("stock", "stock"), observer=None):
        _register(KVConnectorFactory, "RecordedConnector")
        _register(ECConnectorFactory, "RecordedEncoderConnector")
        super().__init__(script, names, observer)
        for side in self.sides:
            side.recorded = Answers(copy.deepcopy(script["recorded"]))

    def _construct(self, side):
        arguments = configs.scheduler_arguments(self.config, side)
        side.scheduler = configs.SIDES[side.name]({**arguments, "structured_output_manager": ReplayGrammars(side.recorded)})

    def _on_grammar(self, request_id: str) -> None:
        for side in self.sides:
            side.requests[request_id].structured_output_request.grammar = ReplayGrammar(side.recorded, request_id)

    def _on_schedule(self) -> None:
        outputs = self._both("schedule", self._plan, compare.plan)
        self.queue.append(dict(zip(self.sides, outputs)))
        self.num_steps += 1

    def _on_update(self, told: dict) -> None:
        plans, result = self.queue.popleft(), _result(told)
        self._both("update_from_output", lambda side: self._take(side, plans[side], result), compare.outputs)

    def _on_drafts(self, names: list, tokens: list) -> None:
        drafts = results.Drafts(names, tokens)
        self._both("update_draft_token_ids", lambda side: side.scheduler.update_draft_token_ids(drafts.make()))

    def _on_drafts_in_output(self, names: list, tokens: list) -> None:
        plans, drafts = self.queue[-1], results.Drafts(names, tokens)

        def update(side):
            side.scheduler.update_draft_token_ids_in_output(drafts.make(), plans[side])
            return plans[side]

        self._both("update_draft_token_ids_in_output", update, compare.plan_sent)

    def _empty(self) -> None:
        """Plays quire alone: the record has no answers to calls that vLLM did not make."""
