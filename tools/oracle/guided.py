"""Gives both schedulers vLLM's own StructuredOutputManager with the `guidance` back end, and a worker that obeys its masks. Only expensive
objects are cached: the vocabulary, the library's representation of the vocabulary, and each compiled grammar. The script decides when a
compilation in another thread has ended.
"""

import functools
import os
import pathlib
from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace

import llguidance.hf
import llguidance.torch
import numpy as np
import tokenizers.decoders
import transformers
import vllm.v1.structured_output as structured_output
from vllm.v1.structured_output.backend_guidance import GuidanceBackend, GuidanceGrammar

from .generate_grammars import END, END_THINK, NUM_TOKENS, THINK
from .parties import seen
from .stage import draw

LIKELY = 40  # single characters have small ids; preferring them among the allowed tokens lets an answer reach its end


@functools.cache
def vocabulary():
    """Returns the default model's tokenizer, with special tokens that begin and end reasoning."""
    path = pathlib.Path(os.environ.get("QUIRE_ORACLE_MODEL", "QUIRE_ORACLE_MODEL")).resolve()
    if not path.exists():
        raise FileNotFoundError(f"{path}: set QUIRE_ORACLE_MODEL to the default model's GGUF file, as ./dev oracle does")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # The tokenizer that transformers makes from a GGUF file decodes like a SentencePiece model first; llguidance would use these bytes as
    # the tokens' bytes.
    tokenizer.backend_tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.add_tokens(["<think>", "</think>"], special_tokens=True)
    ids = tokenizer.get_vocab()
    assert (len(tokenizer), tokenizer.eos_token_id, ids["<think>"], ids["</think>"]) == (NUM_TOKENS, END, THINK, END_THINK)
    tokenizer.get_vocab = lambda: ids
    return tokenizer


@functools.cache
def install_once() -> None:
    """Makes vLLM's classes find the vocabulary without a model's folder, and creates the library's representation of it once."""
    os.environ.setdefault("LLGUIDANCE_LOG_LEVEL", "0")
    transformers.logging.set_verbosity_error()
    from_tokenizer = functools.cache(llguidance.hf.from_tokenizer)
    llguidance.hf.from_tokenizer = lambda tokenizer, num_tokens: from_tokenizer(tokenizer, num_tokens)
    structured_output.cached_tokenizer_from_config = lambda model_config: vocabulary()
    structured_output.GuidanceBackend = CachingBackend
    assert from_tokenizer(vocabulary(), NUM_TOKENS).decode_bytes([198]) == b"\n"


class SeenGrammar(GuidanceGrammar):
    """vLLM's grammar, which records the scheduler's calls. (The manager also calls it while it fills a mask, and then rolls everything
    back.)"""

    manager = None

    def accept_tokens(self, request_id, tokens):
        ended = self.terminated
        answer = super().accept_tokens(request_id, tokens)
        if not self.manager.is_filling:
            self.manager.note("accept", (request_id, list(tokens)), answer)
            self.manager.counts["tokens accepted" if answer else "tokens refused"] += len(tokens)
            self.manager.counts["grammars ended"] += self.terminated - ended
        return answer

    def validate_tokens(self, tokens):
        answer = super().validate_tokens(tokens)
        self.manager.note("validate", list(tokens), list(answer))
        self.manager.counts["drafts kept"] += len(answer)
        self.manager.counts["drafts filtered"] += len(tokens) - len(answer)
        return answer


class CachingBackend(GuidanceBackend):
    compiled = {}

    def compile_grammar(self, request_type, grammar_spec):
        key = (request_type, grammar_spec, self.disable_any_whitespace, self.disable_additional_properties)
        if key not in self.compiled:
            self.compiled[key] = super().compile_grammar(request_type, grammar_spec)
        return SeenGrammar(ll_matcher=self.compiled[key].ll_matcher.deep_copy(), ll_tokenizer=self.ll_tokenizer, vocab_size=self.vocab_size)


class Compiler:
    """Replaces the manager's executor: the script decides when a compilation has ended."""

    def __init__(self):
        self.jobs = {}  # request id -> [(Future, function, Request), ...]

    def submit(self, function, request) -> Future:
        future = Future()
        self.jobs.setdefault(request.request_id, []).append((future, function, request))
        return future

    def finish(self, request_id: str) -> None:
        for future, function, request in self.jobs.pop(request_id, ()):
            future.set_result(function(request))


class Manager(structured_output.StructuredOutputManager):
    def __init__(self, side, vllm_config, settings: dict):
        self.side = side
        self.settings = settings
        self.counts = Counter()
        self.is_filling = False
        super().__init__(_manager_config(vllm_config, settings))
        self.executor = Compiler()

    def _create_grammar(self, request):
        grammar = super()._create_grammar(request)
        grammar.manager = self
        return grammar

    def note(self, what: str, question, answer) -> None:
        self.side.log.append((what, question, answer))
        if self.side.tape is not None:
            self.side.tape.note(what, answer)

    def should_advance(self, request):
        answer = super().should_advance(request)
        if request.use_structured_output:
            self.note("advance", seen(request), (answer, request.structured_output_request.reasoning_ended))
        return answer

    def grammar_bitmask(self, requests, ids, drafts):
        question = [seen(requests[i]) for i in ids], [(i, list(drafts.get(i, ()))) for i in ids]
        self.is_filling = True
        try:
            mask = super().grammar_bitmask(requests, ids, drafts)
        finally:
            self.is_filling = False
        self.note("bitmask", question, (len(mask), [requests[i].structured_output_request.reasoning_ended for i in ids]))
        self.counts["masks"] += len(mask)
        return mask.copy()  # the manager overwrites the mask in the next step

    def is_bound(self, structured) -> bool:
        """Returns whether the grammar applies now: reasoning has ended, or the grammar also applies to reasoning."""
        return self.reasoner is None or self.enable_in_reasoning or bool(structured.reasoning_ended)


def _manager_config(vllm_config, settings: dict) -> SimpleNamespace:
    """Returns the attributes of a VllmConfig that the manager reads."""
    return SimpleNamespace(
        scheduler_config=vllm_config.scheduler_config,
        speculative_config=vllm_config.speculative_config,
        parallel_config=SimpleNamespace(distributed_executor_backend=None if settings["compiles_aside"] else "external_launcher"),
        model_config=SimpleNamespace(skip_tokenizer_init=False, get_vocab_size=lambda: NUM_TOKENS),
        structured_outputs_config=SimpleNamespace(
            reasoning_parser=settings["reasoner"],
            reasoning_parser_plugin="",
            enable_in_reasoning=settings["in_reasoning"],
            disable_any_whitespace=not settings["any_whitespace"],
            disable_additional_properties=not settings["additional_properties"],
        ),
    )


# The worker.
def rows_of(batch, answer) -> dict:
    """Returns {request id: its rows of the bitmask}: one row per draft token, and one more."""
    rows, first = {}, 0
    drafts = batch.plan.scheduled_spec_decode_tokens
    for request_id in answer.structured_output_request_ids:
        count = 1 + len(drafts.get(request_id, ()))
        rows[request_id] = answer.grammar_bitmask[first : first + count]
        first += count
    assert first == len(answer.grammar_bitmask)
    return rows


def _is_allowed(row, token: int) -> bool:
    return bool(row[token // 32] >> (token % 32) & 1)


def _pick(row, value: int, thinks: bool) -> int:
    """Returns a token that the mask allows, with a preference for tokens that lead to an end."""
    percent, value = value % 100, value // 100
    is_free = bool((row == -1).all())
    if is_free and thinks and percent < 20:
        return END_THINK
    if _is_allowed(row, END) and percent < (3 if is_free else 30):
        return END
    if is_free:
        return value % NUM_TOKENS
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[:NUM_TOKENS])
    if len(allowed) == 0:
        return END
    return int(allowed[value % min(len(allowed), LIKELY if percent % 3 else NUM_TOKENS)])


def _long_draw(*parts) -> int:
    return draw(*parts) << 32 | draw(*parts, 1)


def sampled(settings: dict, seed: int, request_id: str, drafts: list, num_valid: int, rows) -> list:
    """Returns the result of a sampler with the masks: the draft tokens that it accepts, and one more token."""
    tokens, thinks = [], bool(settings["reasoner"])
    wanted = min(draw(seed, "accepted", request_id) % (len(drafts) + 2), num_valid)
    for row, draft in zip(rows, drafts[:wanted]):
        token = draft if draft >= 0 else _pick(row, _long_draw(seed, "draft", request_id, len(tokens)), thinks)
        if not _is_allowed(row, token):
            break
        tokens.append(token)
    value = _long_draw(seed, "token", request_id, len(tokens))
    stray = draw(seed, "stray", request_id) % 100 < settings["stray"]
    tokens.append(value % NUM_TOKENS if stray else _pick(rows[len(tokens)], value, thinks))
    return tokens


def proposed(manager, request, seed: int, count: int) -> list | None:
    """Returns draft tokens for a request with a grammar, of which most match the grammar. Returns None if the grammar does not apply."""
    structured = request.structured_output_request
    if structured is None or structured.grammar is None or not manager.is_bound(structured):
        return None
    good = manager.settings["good_drafts"]
    matcher, tokens = structured.grammar.ll_matcher.deep_copy(), []
    row = llguidance.torch.allocate_token_bitmask(1, structured.grammar.ll_tokenizer.vocab_size)
    for index in range(count):
        value = _long_draw(seed, "draft token", request.request_id, index)
        if matcher.is_stopped() or value % 100 >= good:
            tokens.append(value // 100 % NUM_TOKENS)
            continue
        llguidance.torch.fill_next_token_bitmask(matcher, row, 0)
        tokens.append(_pick(row[0].numpy(), value // 100, False))
        matcher.consume_token(tokens[-1])
    return tokens
