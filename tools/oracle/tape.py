"""The answers of vLLM's own grammars in a play, and the tokens of a worker that obeys them, in the order of the calls. They are recorded on
a machine with vLLM and the vocabulary, and played on machines without.
"""

from collections import deque

from .parties import seen


class Tape:
    def __init__(self, entries=None):
        self.entries = deque(entries or ())  # [call, answer]
        self.is_read = entries is not None

    def note(self, question: str, answer) -> None:
        if not self.is_read:
            self.entries.append([question, answer])

    def take(self, question: str):
        expected, answer = self.entries.popleft() if self.entries else ("nothing", None)
        if expected != question:
            raise RuntimeError(f"{question} is asked, where the record has {expected}")
        return answer


class Grammar:
    """Answers from the tape, and writes the same log as guided.SeenGrammar."""

    def __init__(self, manager):
        self.manager = manager

    def accept_tokens(self, request_id, tokens):
        return self.manager.told("accept", (request_id, list(tokens)))

    def validate_tokens(self, tokens):
        return self.manager.told("validate", list(tokens))


class Manager:
    """Replaces guided.Manager."""

    def __init__(self, side, settings: dict):
        self.side = side
        self.compiles_aside = settings["compiles_aside"]
        self.jobs = {}
        self.executor = self
        self.counts = {}

    def told(self, what: str, question):
        answer = self.side.tape.take(what)
        self.side.log.append((what, question, answer))
        return answer

    def grammar_init(self, request) -> None:
        if request.structured_output_request is not None:
            self.jobs.setdefault(request.request_id, []).append(request)
            if not self.compiles_aside:
                self.finish(request.request_id)

    def finish(self, request_id: str) -> None:
        for request in self.jobs.pop(request_id, ()):
            request.structured_output_request.grammar = Grammar(self)

    def should_advance(self, request):
        if not request.use_structured_output:
            return False
        answer, request.structured_output_request.reasoning_ended = self.told("advance", seen(request))
        return answer

    def grammar_bitmask(self, requests, ids, drafts):
        question = [seen(requests[i]) for i in ids], [(i, list(drafts.get(i, ()))) for i in ids]
        num_rows, ended = self.told("bitmask", question)
        for request_id, has_ended in zip(ids, ended):
            requests[request_id].structured_output_request.reasoning_ended = has_ended
        return num_rows  # the bits follow from the calls of the grammars
