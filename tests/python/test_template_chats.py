"""Tests chats as clients send them: they are adapted to the chat templates of real models and rendered, like in the server.

Every legal tool definition must render, instructions of any role must be shown, and no text may be dropped from a prompt silently. The
result must equal jinja2's result for the same messages and tools. Environment: see test_templates.py.
"""

import json
import random
import string

import pytest

from test_templates import NOW, TEMPLATES, TOOL, Tool, assistant, expected, user

# These templates are written for llama.cpp's Jinja or for names that no server provides. jinja2 does not render requests with tools for
# them either.
NEEDS_MORE = {"fireworks-ai-llama-3-firefunction-v2", "llama-cpp-deepseek-r1", "CohereForAI-c4ai-command-r-plus-tool_use"}
SHOWN = [path for path in TEMPLATES if path.stem not in NEEDS_MORE]
pytestmark = pytest.mark.skipif(not TEMPLATES, reason="QUIRE_TEST_VOCABS is not set")


@pytest.fixture(scope="module")
def tool():
    if not TOOL:
        pytest.skip("QUIRE_TEMPLATE_TOOL is not set")
    tool = Tool(TOOL)
    yield tool
    tool.process.stdin.close()
    assert tool.process.wait(timeout=30) == 0


def adapted(tool, path, messages, tools=None):
    context = {"tools": tools, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "messages": messages}
    line = {"template": path.read_text(encoding="utf-8"), "context": context, "now": NOW, "adapt": True}
    tool.process.stdin.write(json.dumps(line) + "\n")
    tool.process.stdin.flush()
    answer = json.loads(tool.process.stdout.readline())
    if answer["ok"]:
        assert answer["text"] == expected(line["template"], answer["context"]), path.stem
    return answer


def schema(random, depth=0):
    """Returns a random legal schema, with as few members as is legal."""
    kinds = ["string", "number", "integer", "boolean", "null", "array", "object", "several", "enum", "const", "any", "ref", "none", "empty"]
    kind = random.choice(kinds if depth < 3 else kinds[:5])
    found = {}
    if kind in ("string", "number", "integer", "boolean", "null"):
        found = {"type": kind}
    elif kind == "array":
        found = {"type": "array"}
        if random.random() < 0.6:
            found["items"] = random.choice([None, True, schema(random, depth + 1), [schema(random, depth + 1), {"type": "string"}]])
    elif kind == "object":
        found = {"type": "object"} if random.random() < 0.8 else {}
        if random.random() < 0.7:
            found["properties"] = {name: schema(random, depth + 1) for name in random.sample(["items", "type", "zone", "keys", "a_b"], 2)}
        if random.random() < 0.4:
            found["additionalProperties"] = random.choice([True, False, schema(random, depth + 1)])
        if random.random() < 0.4:
            found["required"] = random.choice([None, [], ["zone"], ["absent"]])
    elif kind == "several":
        found = {"type": random.sample(["string", "null", "array", "integer", "object"], 2)}
    elif kind == "enum":
        found = {"enum": random.choice([["x"], [1, 2.5], [None, "y"], [True]])}
    elif kind == "const":
        found = {"const": random.choice(["x", 4, None, {"k": []}])}
    elif kind == "any":
        found = {random.choice(["anyOf", "oneOf", "allOf"]): [schema(random, depth + 1), random.choice([{"type": "null"}, schema(random, depth + 1)])]}
    elif kind == "ref":
        found = {"$ref": "#/$defs/thing"}
    elif kind == "none":
        return random.choice([True, None])
    for field, values in {"description": ["what it is", "", None], "title": ["T", None], "default": [None, 0, "x", [], {"k": 1}],
                          "examples": [["x", 1]], "format": ["date-time"], "minimum": [0, 1.5], "nullable": [True], "x-vendor": [{"y": None}]}.items():
        if random.random() < 0.15:
            found[field] = random.choice(values)
    return found


def definition(random, name):
    function = {"name": name}
    if random.random() < 0.6:
        function["description"] = random.choice(["What it does", "", None])
    shape = random.randrange(6)
    if shape == 1:
        function["parameters"] = random.choice([None, {}, {"type": "object"}])
    elif shape > 1:
        function["parameters"] = {"type": "object", "properties": {p: schema(random) for p in random.sample(["where", "items", "values", "n", "q"], 3)}}
        if random.random() < 0.5:
            function["parameters"]["required"] = random.choice([["where"], [], None])
        if random.random() < 0.3:
            function["parameters"]["$defs"] = {"thing": {"type": "string"}}
        if random.random() < 0.3:
            function["parameters"].update(random.choice([{"additionalProperties": False}, {"$schema": "http://json-schema.org/draft-07/schema#"},
                                                         {"title": None}, {"anyOf": [{"required": ["where"]}]}]))
    if random.random() < 0.3:
        function["strict"] = random.choice([True, False, None])
    return {"type": "function", "function": function}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_every_legal_tool_definition_is_rendered(tool, path):
    source = random.Random(path.stem)
    for number in range(150):
        names = [f"wevlo_{number}", f"drusk_{number}"]
        tools = [definition(source, name) for name in names]
        answer = adapted(tool, path, [user("Hi")], tools)
        assert answer["ok"], (answer, tools)
        for name in names:
            assert name in answer["text"], (name, tools)


def words(source, count):
    return ["".join(source.choices(string.ascii_lowercase, k=9)) for _ in range(count)]


INSTRUCTED = [
    ["system", "developer", "user"],  # the roles that Codex sends
    ["developer", "user"],
    ["developer", "developer", "user", "assistant", "user"],
    ["system", "system", "developer", "user"],
    ["system", "user", "assistant", "developer", "user"],
    ["developer", "user", "assistant", "system", "system", "user"],
    ["user", "developer"],
    ["system", "user", "assistant", "user", "system"],
]


@pytest.mark.parametrize("path", [path for path in SHOWN if "Hermes" not in path.stem], ids=lambda path: path.stem)
@pytest.mark.parametrize("with_tools", [False, True], ids=["plain", "tools"])
def test_instructions_of_any_role_are_rendered(tool, path, with_tools):
    source = random.Random(path.stem)
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}]
    for roles in INSTRUCTED:
        said = words(source, len(roles))
        messages = [{"role": role, "content": word} for role, word in zip(roles, said, strict=True)]
        answer = adapted(tool, path, messages, tools if with_tools else None)
        assert answer["ok"], (roles, answer)
        assert [word for word in said if word not in answer["text"]] == [], roles


def called(name, number, **more):
    return {"type": "function", "function": {"name": name, "arguments": {"k": f"argument{number}qzw"}}, **more}


def result(text, identifier=None, **more):
    return {"role": "tool", "content": text, **({"tool_call_id": identifier} if identifier else {}), **more}


def conversation(source):
    """Returns turns with calls and results: parallel, without ids, with a duplicate id, or of an earlier round. Each text is a unique word.
    """
    fresh = iter(words(source, 100))
    messages = [{"role": "system", "content": next(fresh)}] if source.random() < 0.5 else []
    identifiers = []
    for turn in range(source.randint(1, 3)):
        messages.append(user(next(fresh)))
        for number in range(source.randint(0, 2)):
            identifier = f"call_{turn}_{number}"
            has_id = source.random() < 0.7
            messages.append(assistant(next(fresh) if source.random() < 0.4 else "",
                                      tool_calls=[called("lookup", f"{turn}{number}", **({"id": identifier} if has_id else {}))]))
            named = source.choice([identifier, None]) if has_id else None
            messages.append(result(next(fresh), named, **({"name": "lookup"} if source.random() < 0.5 else {})))
            identifiers.append(identifier)
        messages.append(assistant(next(fresh)))
    messages.append(user(next(fresh)))
    return messages


# These models are trained without text next to calls. gpt-oss shows the text as reasoning, which is dropped after the answer. Mistral's
# models show either text or calls, and accept no second message of the assistant.
LEAVES_OUT_TEXT_BESIDE_CALLS = {"openai-gpt-oss-120b", "Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407"}
# These templates change a list, which the sandbox of transformers forbids.
REFUSES_CALLS = {"Kimi-K2-Instruct", "Kimi-K2-Thinking"}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_no_text_of_a_conversation_is_dropped(tool, path):
    source = random.Random(path.stem)
    tools = [{"type": "function", "function": {"name": "lookup", "description": "d",
                                               "parameters": {"type": "object", "properties": {"k": {"type": "string", "description": "d"}}}}}]  # fmt: skip
    shown = 0
    for _ in range(60):
        messages = conversation(source)
        answer = adapted(tool, path, json.loads(json.dumps(messages)), tools)
        if not answer["ok"]:
            continue
        shown += any("tool_calls" in message for message in messages)
        for message in messages:
            if message.get("tool_calls") and path.stem in LEAVES_OUT_TEXT_BESIDE_CALLS:
                continue
            assert message["content"] in answer["text"], (message, messages)
            if message["role"] == "tool":
                assert answer["text"].count(message["content"]) == 1, (message, messages)
    assert shown > 20 or path.stem in REFUSES_CALLS
