"""Compares chat templates of real models, rendered by quire and by jinja2 with the settings of transformers.

QUIRE_TEMPLATE_TOOL is the built quire_template_tool, QUIRE_TEST_VOCABS the folder with templates/*.jinja, and QUIRE_TEST_MODEL (optional) a
GGUF file whose template is compared too. Results are equal if both give the same text or both refuse the conversation.
"""

import datetime
import functools
import json
import os
import pathlib
import struct
import subprocess

import jinja2
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1_764_598_325  # 2025-12-01 14:12:05
VOCABS = os.environ.get("QUIRE_TEST_VOCABS", "")
TOOL = os.environ.get("QUIRE_TEMPLATE_TOOL", "")
MODEL = os.environ.get("QUIRE_TEST_MODEL", "")
TEMPLATES = sorted(pathlib.Path(VOCABS, "templates").glob("*.jinja")) if VOCABS else []

# These families must be among the equal ones; the names are file names.
REQUIRED = [
    "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct",
    "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "HuggingFaceTB-SmolLM3-3B", "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small-3.2-24B-Instruct-2506", "google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct",
    "ibm-granite-granite-3.3-2B-Instruct", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
]  # fmt: skip


class Generation(jinja2.ext.Extension):
    """Handles {% generation %} like transformers' AssistantTracker when it does not track."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def reference_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(format)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


REFERENCE = reference_environment()
compile_reference = functools.lru_cache(maxsize=None)(REFERENCE.from_string)


def expected(template, context):
    """Returns the text or the exception."""
    try:
        return compile_reference(template).render(**context)
    except Exception as error:  # quire must refuse every template that fails here
        return error


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(self, template, context):
        self.process.stdin.write(json.dumps({"template": template, "context": context, "now": NOW}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def tool():
    if not TOOL:
        pytest.skip("QUIRE_TEMPLATE_TOOL is not set")
    tool = Tool(TOOL)
    yield tool
    tool.process.stdin.close()
    assert tool.process.wait(timeout=30) == 0


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a <place> & \"time\", in °C",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City's name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 18446744073709551615},
                "where": {"type": "object", "properties": {"lat": {"type": "number", "multipleOf": 0.5}, "lon": {"type": ["number", "null"]}}},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}  # fmt: skip
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
BARE = {"type": "function", "function": {"name": "bare", "description": "", "parameters": None, "strict": True}}


def call(name, arguments, identifier="abcde1234"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(name, content, identifier="abcde1234"):
    return {"role": "tool", "name": name, "tool_call_id": identifier, "content": content}


def with_tools(messages, tools=(WEATHER, CLOCK), **more):
    return {"messages": messages, "tools": list(tools), **more}


SYSTEM = {"role": "system", "content": "You are terse.\n"}
ARGUMENTS = {"city": "Zürich", "days": 2, "where": {"lat": 47.5, "lon": None}, "tags": ["a", "b"], "now": True}
ROUND = [user("Weather in Zürich?"), assistant("", tool_calls=[call("get_weather", ARGUMENTS)]), result("get_weather", '{"t": 3.5}')]

CONVERSATIONS = {
    "user": {"messages": [user("Hello there")]},
    "system": {"messages": [SYSTEM, user("Hi")]},
    "empty_system": {"messages": [{"role": "system", "content": ""}, user("Hi")]},
    "no_prompt": {"messages": [user("Hi"), assistant("Hello")], "add_generation_prompt": False},
    "turns": {"messages": [SYSTEM, user(" 1 "), assistant(" one\n"), user("2\n\n"), assistant("two"), user("3")]},
    "unicode": {"messages": [user("héllo 世界 👩‍👩‍👧 \u00a0\u3000 עברית"), assistant("\u2028 ß \t"), user("'\"\\ </s> {{ x }} {% if %}")]},
    "empty_content": {"messages": [user(""), assistant(""), user("")]},
    "no_messages": {"messages": []},
    "null_content": {"messages": [user("x"), assistant(None), user("y")]},
    "two_users": {"messages": [user("a"), user("b")]},
    "starts_with_assistant": {"messages": [assistant("a"), user("b")]},
    "unknown_role": {"messages": [{"role": "narrator", "content": "once"}, user("b")]},
    "developer": {"messages": [{"role": "developer", "content": "Be kind"}, user("b")]},
    "thinking": {"messages": [user("2+2?"), assistant("<think>\nfour\n</think>\n\n4"), user("and 3+3?")]},
    "reasoning": {"messages": [user("2+2?"), assistant("4", reasoning_content="four, surely"), user("more")]},
    "reasoning_last": {"messages": [user("2+2?"), assistant("4", reasoning_content="four"), ], "add_generation_prompt": False},
    "no_thinking": {"messages": [SYSTEM, user("quick")], "enable_thinking": False},
    "thinking_on": {"messages": [SYSTEM, user("slow")], "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "text", "text": " is it?"}]}]},
    "image": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]},
    "tools": with_tools([user("Weather?")]),
    "tools_system": with_tools([SYSTEM, user("Weather?")]),
    "tools_bare": with_tools([user("x")], [BARE]),
    "tools_empty": {"messages": [user("x")], "tools": []},
    "tool_call": with_tools(ROUND[:2], add_generation_prompt=False),
    "tool_call_string": with_tools([ROUND[0], assistant(None, tool_calls=[call("get_weather", json.dumps(ARGUMENTS))])]),
    "tool_result": with_tools(ROUND),
    "tool_answer": with_tools([SYSTEM, *ROUND, assistant("3.5 degrees"), user("Thanks")]),
    "tool_no_id": with_tools([user("x"), assistant("", tool_calls=[{"type": "function", "function": {"name": "clock", "arguments": {}}}]),
                              {"role": "tool", "content": "12:00"}]),
    "tool_two_calls": with_tools([user("both"), assistant("wait", tool_calls=[call("clock", {}, "aaaaaaaa1"), call("get_weather", ARGUMENTS, "bbbbbbbb2")]),
                                  result("clock", "12:00", "aaaaaaaa1"), result("get_weather", "cold", "bbbbbbbb2"), assistant("noon"), user("ok")]),
    "tool_result_object": with_tools([*ROUND[:2], {"role": "tool", "name": "get_weather", "tool_call_id": "abcde1234", "content": {"t": 3.5, "sky": None}}]),
    "tool_result_parts": with_tools([*ROUND[:2], {"role": "tool", "tool_call_id": "abcde1234", "content": [{"type": "text", "text": "cold"}]}]),
    "ipython": with_tools([*ROUND[:2], {"role": "ipython", "content": {"output": "é"}}]),
    "builtin_tools": {"messages": [SYSTEM, user("x")], "tools": None, "builtin_tools": ["code_interpreter", "brave_search"], "date_string": "1 Jan 2025"},
    "firefunction": {**with_tools([SYSTEM, user("x")]), "functions": "[]", "datetime": "2025-01-01"},
    "plain_arguments": {"messages": [user("x"), assistant("y", tool_calls=[{"name": "clock", "arguments": {"a": [1, "é"]}, "parameters": {"a": 1}}]), result("clock", "z")], "tools": [WEATHER["function"], CLOCK["function"]]},
    "documents": {"messages": [user("x")], "documents": [{"title": "A", "text": "alpha"}, {"doc_id": 2, "title": "B", "text": "beta"}]},
}  # fmt: skip


def context_of(name):
    context = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return {**context, **CONVERSATIONS[name]}


def compare(tool, template, contexts):
    """Returns the names of the contexts in which the two differ, with both results."""
    differences = []
    for name, context in contexts.items():
        want = expected(template, context)
        got = tool.render(template, context)
        same = got["ok"] and got["text"] == want if isinstance(want, str) else not got["ok"]
        if not same:
            differences.append((name, want, got.get("text", got.get("error"))))
    return differences


def report(differences):
    return "\n".join(f"{name}:\n  jinja2 {want!r}\n  quire  {got!r}" for name, want, got in differences)


@pytest.mark.skipif(not TEMPLATES, reason="QUIRE_TEST_VOCABS is not set")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_real_template_renders_like_jinja2(tool, path):
    template = path.read_text(encoding="utf-8")
    differences = compare(tool, template, {name: context_of(name) for name in CONVERSATIONS})
    assert not differences, report(differences)


@pytest.mark.skipif(not TEMPLATES, reason="QUIRE_TEST_VOCABS is not set")
def test_required_families_exist_and_render(tool):
    """A comparison in which both sides always refuse proves nothing."""
    names = {path.stem: path for path in TEMPLATES}
    for name in REQUIRED:
        template = names[name].read_text(encoding="utf-8")
        assert isinstance(expected(template, context_of("user")), str), name
        assert tool.render(template, context_of("user"))["ok"], name
    assert len(names) >= 30


def gguf_string(file, key):
    """Returns the string under `key` of a GGUF file's metadata."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(form):
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def value(kind):
        if kind == 8:
            return file.read(number("Q"))
        if kind == 9:
            element, count = number("I"), number("Q")
            return file.seek(sizes[element] * count, 1) if element in sizes else [value(element) for _ in range(count)]
        return file.read(sizes[kind])

    assert file.read(4) == b"GGUF"
    number("I"), number("Q")
    for _ in range(number("Q")):
        name, content = file.read(number("Q")), value(number("I"))
        if name.decode() == key:
            return content.decode()
    return None


@pytest.mark.skipif(not MODEL, reason="QUIRE_TEST_MODEL is not set")
def test_default_models_template_renders_like_jinja2(tool):
    with open(MODEL, "rb") as file:
        template = gguf_string(file, "tokenizer.chat_template")
    differences = compare(tool, template, {name: context_of(name) for name in CONVERSATIONS})
    assert not differences, report(differences)
    assert tool.render(template, context_of("tool_answer"))["ok"]


def snippets():
    """Each file of template_snippets holds snippets of one subject, separated by lines of dashes."""
    for path in sorted(pathlib.Path(__file__).with_name("template_snippets").glob("*.txt")):
        for number, snippet in enumerate(path.read_text(encoding="utf-8").split("\n----\n"), 1):
            yield pytest.param(snippet, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("snippet", snippets())
def test_construct_renders_like_jinja2(tool, snippet):
    """Each snippet is one construct of the language. None may be refused as unsupported, because the subset covers them."""
    context = {"n": 3, "f": 2.5, "s": "aXb c", "u": "Ünï\u00a0ç", "l": [3, 1, 2], "d": {"b": 1, "a": None, "items": 7}, "t": True, "none": None,
               "people": [{"name": "Bo", "age": 3}, {"name": "Al", "age": 5, "x": {"y": 1}}, {"name": "bo", "age": 3}], "e": "", "now": NOW}  # fmt: skip
    want = expected(snippet, context)
    got = tool.render(snippet, context)
    if isinstance(want, str):
        assert got.get("text") == want, (snippet, want, got)
    else:
        assert not got["ok"] and got["code"] == 0, (snippet, want, got)


def test_unknown_name_is_an_error_when_it_is_reached(tool):
    """jinja2 refuses an unknown name at compile time, except in a condition, where it fails when the name is reached."""
    for snippet, is_refused in [("{{ s | no_such_filter }}", True), ("{{ s is no_such_test }}", True),
                                ("{% if true %}{{ s | no_such_filter }}{% endif %}", True),
                                ("{% if false %}{{ s | no_such_filter }}{% elif s is no_such_test %}{% endif %}x", True),
                                ("{{ 'a' if true else s | no_such_filter }}", False),
                                ("{% if false %}{{ s is no_such_test }}{% else %}x{% endif %}", False)]:  # fmt: skip
        assert isinstance(expected(snippet, {"s": "a"}), str) != is_refused, snippet
        answer = tool.render(snippet, {"s": "a"})
        assert answer["ok"] != is_refused, (snippet, answer)
        if is_refused:
            assert "is not supported" in answer["error"] and "line 1" in answer["error"], answer
