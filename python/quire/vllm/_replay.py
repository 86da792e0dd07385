"""Stand-ins for connectors and grammars, which return answers that were recorded. The shadow gives its scheduler the answers that vLLM's
scheduler got; a script of the shadow is played with the answers that it contains.
"""

from collections import defaultdict, deque

from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA


class MissingAnswer(Exception):
    """Raised if no answer was recorded, because vLLM's scheduler did not make this call."""


class Answers:
    """The recorded answers in order, per call and name. `given`: {call: {name: [answer, ...]}}."""

    def __init__(self, given: dict | None = None):
        self._queues = defaultdict(deque)
        for question, by_name in (given or {}).items():
            for name, answers in by_name.items():
                self._queues[question, name] = deque(answers)

    def note(self, question: str, name: str, answer) -> None:
        self._queues[question, name].append(answer)

    def take(self, question: str, name: str, *default):
        queue = self._queues.get((question, name))
        if not queue:
            if default:
                return default[0]
            raise MissingAnswer(f"{question} of {name!r}")
        answer = queue.popleft()
        if not queue:
            del self._queues[question, name]
        return answer


class ReplayConnector(SupportsHMA):
    """The scheduler side of a KV connector. `calls`: the calls that were made."""

    def __init__(self, answers: Answers):
        self._answers = answers
        self.calls = []
        self.has_pending_block_frees = lambda: False  # vLLM 0.32.0; as a method of the class it would mean that the connector frees blocks

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        num_tokens, load_async = self._answers.take("match", request.request_id)
        return num_tokens, load_async

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self.calls.append(("allocated", request.request_id, blocks.get_block_ids(), num_external_tokens))

    def request_finished_all_groups(self, request, block_ids):
        self.calls.append(("finished", request.request_id, tuple(list(group) for group in block_ids)))
        delay, params = self._answers.take("finished", request.request_id)
        return delay, params

    def build_connector_meta(self, scheduler_output):
        return None

    def update_connector_output(self, connector_output):
        pass

    def get_kv_connector_stats(self):
        return None

    def take_events(self):
        return self._answers.take("events", "", ())

    def reset_cache(self):
        return self._answers.take("reset", "")

    # Calls of vLLM 0.32.0.

    @property
    def requires_kv_delivery(self):
        return self._answers.take("delivery", "")

    def bind_kv_cache_manager(self, manager):
        pass

    def on_new_request(self, request):
        pass

    def get_external_cache_hit_sources(self, request, num_external_tokens):
        return self._answers.take("sources", request.request_id)

    def has_pending_push_work(self):
        return False

    def shutdown(self):
        pass


class ReplayEncoderConnector:
    def __init__(self, answers: Answers):
        self._answers = answers

    def has_cache_item(self, identifier):
        return self._answers.take("item", identifier)

    def update_state_after_alloc(self, request, index):
        pass

    def build_connector_meta(self, scheduler_output):
        return None


class ReplayGrammars:
    """Replaces vLLM's StructuredOutputManager."""

    def __init__(self, answers: Answers):
        self._answers = answers

    def should_advance(self, request):
        return request.use_structured_output and self._answers.take("advance", request.request_id)

    def accept_tokens(self, request, tokens):
        return not request.use_structured_output or bool(self._answers.take("accept", request.request_id))

    def validate_tokens(self, request, tokens):
        return list(tokens)[: self._answers.take("valid", request.request_id)] if request.use_structured_output else tokens

    def grammar_bitmask(self, requests, names, drafts):
        return None


class ReplayGrammar:
    """The grammar of one request."""

    def __init__(self, answers: Answers, name: str):
        self._answers = answers
        self._name = name

    def accept_tokens(self, request_id, tokens):
        return True

    def validate_tokens(self, tokens):
        return list(tokens)[: self._answers.take("valid", self._name)]
