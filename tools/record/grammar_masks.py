"""Records the masks that vLLM's `guidance` back end makes for random answers.

Needs the environment of ./dev oracle. --replay also needs quire's version of llguidance, because vLLM 0.19.0 installs 1.3.0:

    .cache/oracle/bin/pip install --no-deps --target NEWER llguidance==1.9.1
    PYTHONPATH=NEWER:tools .cache/oracle/bin/python -m record grammar_masks --model MODEL.gguf --replay

Each grammar has a line `G KIND TEXT`; TEXT is a JSON string. Each answer has a line `S GRAMMAR DIGEST TOKEN...`. DIGEST is the first 16
digits of the SHA-256 of the masks before each token and after the last token. The bits of control tokens are cleared. A byte after each
mask records whether the answer may end. (vLLM allows only the model's end-of-turn token there; quire allows every id that ends a
generation.) If the newer version of the library computes other masks, the line of the answer is `D GRAMMAR DIGEST NEWER TOKEN...` instead.
"""
import hashlib
import json
import os
import pathlib
import random

os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")

import llguidance  # noqa: E402
import llguidance.hf  # noqa: E402
import llguidance.torch  # noqa: E402
import tokenizers.decoders  # noqa: E402
import torch  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402
from vllm.v1.structured_output.backend_guidance import GuidanceGrammar, serialize_guidance_grammar  # noqa: E402
from vllm.v1.structured_output.backend_types import StructuredOutputOptions as Kind  # noqa: E402

from . import files  # noqa: E402

NUM_ANSWERS, MOST_TOKENS, NUM_CONTROL = 2100, 40, 17
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
                                           "mail": {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.org$"}},
          "required": ["name", "age"], "additionalProperties": False}
SCHEMAS = [
    PERSON, {"type": "object"}, {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 3}, {"enum": ["a", "ab", "abc", 1, None, True]},
    {"const": {"x": [1, 2]}}, {"type": "string", "minLength": 3, "maxLength": 9}, {"type": "number", "exclusiveMinimum": -1.5, "maximum": 20},
    {"type": "integer", "multipleOf": 3}, {"type": ["string", "null"]}, {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}], "items": False}, {"type": "object", "additionalProperties": {"type": "integer"}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/tree"}},
                                                "required": ["value"], "additionalProperties": False}}},
    {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"},
    {"type": "object", "patternProperties": {"^x_": {"type": "boolean"}}, "additionalProperties": False},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}}]},
]
REGEXES = ["[a-z]{3,10}", "(\\+\\d{1,3} )?\\d{3,4}-\\d{4}", "(yes|no|maybe)( (yes|no|maybe)){0,3}", "[^\"\\\\]*\\.", "\\p{Lu}\\p{Ll}+ö?", ".{5,20}"]
LARKS = ['start: "Rhine" | "Danube" | "D\\"e"', 'start: expr\nexpr: term (("+" | "-") term)*\nterm: /[0-9]+/ | "(" expr ")"',
         "start: line{1,4}\nline: /[a-z ]+/ \"\\n\"", 'start: "call " %json {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]} "!"']
GRAMMARS = ([("json_schema", json.dumps(s), Kind.JSON) for s in SCHEMAS] + [("regex", r, Kind.REGEX) for r in REGEXES]
            + [("lark", text, Kind.GRAMMAR) for text in LARKS])



def make_vocabulary(model: str) -> tuple:
    source = pathlib.Path(model).resolve()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # The decoder that transformers makes from a GGUF file is SentencePiece's. llguidance would take its output as the bytes of the tokens.
    tokenizer.backend_tokenizer.decoder = tokenizers.decoders.ByteLevel()
    vocabulary = llguidance.hf.from_tokenizer(tokenizer, len(tokenizer))
    assert vocabulary.decode_bytes([198]) == b"\n"
    return tokenizer, vocabulary


class Answer:
    """An answer under a grammar: its tokens, and the digest of its masks."""

    def __init__(self, vocabulary: tuple, kind: Kind, text: str) -> None:
        self.tokenizer, tokens = vocabulary
        matcher = llguidance.LLMatcher(tokens, serialize_guidance_grammar(kind, text), log_level=0)
        self.grammar = GuidanceGrammar(ll_matcher=matcher, ll_tokenizer=tokens, vocab_size=len(self.tokenizer))
        self.bitmask = llguidance.torch.allocate_token_bitmask(1, tokens.vocab_size)
        self.digest, self.tokens = hashlib.sha256(), []

    def add_mask(self) -> bool:
        """Adds the mask of the next token. Returns whether the answer may end."""
        self.grammar.fill_bitmask(self.bitmask, 0)
        assert not self.grammar.ll_matcher.get_error(), self.grammar.ll_matcher.get_error()
        self.words = self.bitmask[0].clone()
        end = self.tokenizer.eos_token_id
        may_end = bool(self.words[end // 32] >> (end % 32) & 1)
        self.words[0] &= ~((1 << NUM_CONTROL) - 1)
        self.digest.update(self.words.numpy().tobytes() + bytes([may_end]))
        return may_end

    def accept(self, token: int) -> bool:
        self.tokens.append(token)
        return self.grammar.accept_tokens("", [token])

    def name(self) -> str:
        return self.digest.hexdigest()[:16]


def record(vocabulary: tuple) -> list[str]:
    rng = random.Random(12)
    out = [f"G {kind} {json.dumps(text)}" for kind, text, _ in GRAMMARS]
    for number in range(NUM_ANSWERS):
        index = number % len(GRAMMARS)
        answer = Answer(vocabulary, GRAMMARS[index][2], GRAMMARS[index][1])
        while True:
            may_end = answer.add_mask()
            bits = torch.nonzero((answer.words.unsqueeze(1) >> torch.arange(32, dtype=torch.int32)) & 1)
            allowed = (bits[:, 0] * 32 + bits[:, 1]).tolist()
            if not allowed or len(answer.tokens) == MOST_TOKENS or (may_end and rng.random() < 0.15):
                break
            # Half of the draws take one of the first 100 allowed tokens, which are common in text.
            assert answer.accept(rng.choice(allowed if rng.random() < 0.5 else allowed[:100]))
        out.append(f"S {index} {answer.name()} {' '.join(map(str, answer.tokens))}".rstrip())
    return out


def replayed(vocabulary: tuple, lines: list[str]) -> list[str]:
    """Returns the lines for this version of the library. If its masks differ or a token is refused, the new digest or `refused` follows the
    recorded digest."""
    out = []
    for line in lines:
        what, *rest = line.split()
        if what == "G":
            out.append(line)
            continue
        index, digest, tokens = int(rest[0]), rest[1], [int(token) for token in rest[2 + (what == "D"):]]
        answer = Answer(vocabulary, GRAMMARS[index][2], GRAMMARS[index][1])
        answer.add_mask()
        newer = ""
        for token in tokens:
            if not answer.accept(token):
                newer = "refused"
                break
            answer.add_mask()
        newer = newer or answer.name()
        text = " ".join(map(str, tokens))
        out.append((f"S {index} {digest} {text}" if newer == digest else f"D {index} {digest} {newer} {text}").rstrip())
    return out


OUT = "grammar_masks.txt"
OPTIONS = {"model": ("", "GGUF file of the default model"), "replay": (False, "add the masks that a newer library makes for the recorded answers")}


def main(out, model, replay):
    vocabulary = make_vocabulary(model)
    lines = replayed(vocabulary, out.read_text(encoding="utf-8").splitlines()) if replay else record(vocabulary)
    files.write_lines(out, lines)
    print(f"{sum(line[0] != 'G' for line in lines)} answers; {sum(line[0] == 'D' for line in lines)} of them differ between libraries")
