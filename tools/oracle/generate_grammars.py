"""Generates random grammars, and the other plain values that a scenario with vLLM's own StructuredOutputManager needs."""

import json
import random

# Token ids of the default model's vocabulary. Two tokens are added (guided.py adds them and checks this).
NUM_TOKENS, END, THINK, END_THINK = 49154, 2, 49152, 49153

_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/tree"}},
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS = (
    _PERSON,
    _TREE,
    {"type": "array", "items": _PERSON, "minItems": 1, "maxItems": 2},
    {"enum": ["a", "ab", "abc", 1, None, True]},
    {"const": {"x": [1, 2]}},
    {"type": "string", "minLength": 3, "maxLength": 9},
    {"type": "number", "exclusiveMinimum": -1.5, "maximum": 20},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}], "items": False},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.org$"},
)
REGEXES = ("[a-z]{3,10}", "(\\+\\d{1,3} )?\\d{3,4}-\\d{4}", "(yes|no|maybe)( (yes|no|maybe)){0,3}", "\\p{Lu}\\p{Ll}+ö?", ".{5,20}", "a*")
LARKS = (
    'start: expr\nexpr: term (("+" | "-") term)*\nterm: /[0-9]+/ | "(" expr ")"',
    'start: line{1,4}\nline: /[a-z ]+/ "\\n"',
    'start: "call " %json {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]} "!"',
)
_TAGS = {
    "structures": [
        {"begin": "<f>", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}, "end": "</f>"},
        {"begin": "<g>", "schema": {"type": "boolean"}, "end": "</g>"},
    ],
    "triggers": ["<f", "<g"],
}


def grammar(rng: random.Random) -> dict:
    """Returns the arguments of a StructuredOutputsParams."""
    pick = rng.random()
    if pick < 0.5:
        return {"json": json.dumps(rng.choice(SCHEMAS))}
    if pick < 0.7:
        return {"regex": rng.choice(REGEXES)}
    if pick < 0.8:
        return {"choice": rng.choice((["Rhine", "Danube"], ["yes", "no", "yes, but"], ["x"]))}
    if pick < 0.9:
        return {"grammar": rng.choice(LARKS)}
    return {"json_object": True} if pick < 0.95 else {"structural_tag": json.dumps(_TAGS)}


def manager(rng: random.Random) -> dict:
    """Returns the configuration of a scenario's manager, and how the model behaves with it."""
    return {
        "reasoner": rng.choice(("", "", "qwen3", "deepseek_r1", "deepseek_v3")),
        "in_reasoning": rng.random() < 0.2,
        "compiles_aside": rng.random() < 0.8,  # otherwise a grammar is ready when its request arrives
        "any_whitespace": rng.random() < 0.5,
        "additional_properties": rng.random() < 0.7,
        "good_drafts": rng.choice((0, 60, 90, 100)),  # percentage of draft tokens that are drawn from the grammar
        "stray": rng.choice((0, 0, 0, 3)),  # percentage of sampled tokens that ignore the mask
    }


def thoughts(rng: random.Random) -> list:
    """Returns a possible end of a prompt, for the reasoning parsers."""
    return rng.choice(([], [THINK], [THINK], [THINK, 198, END_THINK]))
