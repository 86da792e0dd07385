"""Tests tool calls as real chat templates write them, rendered by jinja2 with the settings of transformers and parsed by quire.

QUIRE_CALLS_TOOL is the built quire_calls_tool and QUIRE_TEST_VOCABS the folder with templates/*.jinja. Each template gets 1,000 random
answers, each also split into random chunks; the first answers are also split in two at every position.
"""

import functools
import json
import os
import pathlib
import random
import subprocess

import pytest
from test_templates import compile_reference

VOCABS = os.environ.get("QUIRE_TEST_VOCABS", "")
TOOL = os.environ.get("QUIRE_CALLS_TOOL", "")
ANSWERS = 1000
CUT_EVERYWHERE = 40
BROKEN = 200
HELD = 30

CHATML = ("<|im_start|>assistant\n", "<|im_end|>")
GRANITE = ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>")
DEEPSEEK = ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")
DEEPSEEK_BEGIN, DEEPSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
LLAMA = ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>")
MISTRAL = ("[/INST]", "</s>")

# Each template has the text before and after an answer, and the features that it supports. `text`: text next to calls. `most`: the maximum
# number of calls. `as_content`: the template writes no calls, and the answer has the form of the model's instructions. `plain_strings`: the
# template does not escape strings. `plain_tags`: it does not escape text between tags. `shown`: jinja2 can render these tools. `nothing`:
# the content of an answer that consists of calls only. `text_arguments`: the template needs arguments as JSON text
# (CallFormat::wants_text_arguments). `heads`: headers of messages in a truncated answer are not text.
TEMPLATES = {
    "Qwen-Qwen2.5-7B-Instruct": dict(ends=CHATML, text=True),
    "Qwen-Qwen3-0.6B": dict(ends=CHATML, text=True, thoughts=True),
    "Qwen-QwQ-32B": dict(ends=CHATML, text=True),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": dict(ends=CHATML, shown=False),
    "MiMo-VL": dict(ends=CHATML, text=True),
    "ibm-granite-granite-4.0": dict(ends=GRANITE, text=True),
    "ibm-granite-granite-3.3-2B-Instruct": dict(ends=GRANITE, as_content="<|tool_call|>{}"),
    "HuggingFaceTB-SmolLM3-3B": dict(ends=CHATML, as_content="<tool_call>\n{}\n</tool_call>", text=True),
    "meta-llama-Llama-3.1-8B-Instruct": dict(ends=LLAMA, most=1),
    "meta-llama-Llama-3.2-3B-Instruct": dict(ends=LLAMA, most=1),
    "meta-llama-Llama-3.3-70B-Instruct": dict(ends=LLAMA, most=1),
    "mistralai-Mistral-Nemo-Instruct-2407": dict(ends=MISTRAL),
    "Mistral-Small-3.2-24B-Instruct-2506": dict(ends=MISTRAL),
    "mistralai-Ministral-3-14B-Reasoning-2512": dict(ends=MISTRAL, text=True),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": dict(ends=DEEPSEEK, nothing=None, text_arguments=True, most=2),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": dict(ends=DEEPSEEK, nothing=None),
    "llama-cpp-deepseek-r1": dict(ends=DEEPSEEK, shown=False),
    "deepseek-ai-DeepSeek-V3.1": dict(ends=("<think></think>", DEEPSEEK[1]), text=True),
    "moonshotai-Kimi-K2": dict(ends=("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"), text=True),
    "LFM2.5-8B-A1B": dict(ends=CHATML, text=True, plain_strings=True),
    "Qwen3-Coder": dict(ends=CHATML, text=True, plain_tags=True),
    "GLM-4.6": dict(ends=("<|assistant|>\n<think></think>", "\x00"), text=True),
    "GLM-4.7-Flash": dict(ends=("<|assistant|></think>", "\x00"), text=True),
    "ByteDance-Seed-OSS": dict(ends=("<seed:bos>assistant\n", "<seed:eos>"), text=True, plain_strings=True),
    "NVIDIA-Nemotron-Nano-v2": dict(ends=("<SPECIAL_11>Assistant\n", "<SPECIAL_12>")),
    "unsloth-Apriel-1.5": dict(ends=("<|assistant|>\n", "\n<|end|>")),
    "openai-gpt-oss-120b": dict(ends=("<|start|>assistant", "<|call|>"), most=1, thoughts="thinking", heads=True),
    "google-gemma-2-2b-it": dict(ends=("<start_of_turn>model\n", "<end_of_turn>"), as_content="{}"),
}  # fmt: skip

PIECES = ["a", "B", " ", "é", "世界", '"', "'", "\\", "\n", "{", "}", "[", "]", "<", ">", "</tool_call>", "<tool_call>", "[TOOL_CALLS]", "[ARGS]",
          "<｜tool▁call▁end｜>", "😀", "\t", "True", "null", "12", ",", ":", "```", "|", "=", "(", ")", "/"]  # fmt: skip
WORDS = ["Let", "me", "look.", "né", "<b>", "{x}", "[1]", "1 < 2", "|"]


class Calls:
    """Generates random answers."""

    def __init__(self, seed, config):
        self.random = random.Random(seed)
        self.config = config

    def text(self):
        pieces = PIECES
        if self.config.get("no_marks"):
            pieces = [piece for piece in pieces if len(piece) == 1 or piece.isalnum()]
        if self.config.get("plain_strings"):
            pieces = [piece for piece in pieces if "'" not in piece and "\\" not in piece]
        text = "".join(self.random.choice(pieces) for _ in range(self.random.randrange(6)))
        return text.strip("\n") if self.config.get("plain_tags") else text

    def value(self, depth=0):
        kind = self.random.randrange(6 if depth > 2 or self.config.get("flat") else 8)
        if kind == 0:
            return None
        if kind == 1:
            return self.random.random() < 0.5
        if kind == 2:
            return self.random.randrange(-(10**6), 10**6)
        if kind == 3:
            return self.random.choice([0.5, -1e-7, 3.25e12, 1e16, self.random.uniform(-10, 10)])
        if kind < 6:
            return self.text()
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.text() or "k": self.value(depth + 1) for _ in range(self.random.randrange(4))}

    def answer(self):
        calls = []
        for _ in range(self.random.randrange(self.config.get("most", 3)) + 1):
            arguments = {f"key_{self.random.randrange(9)}": self.value() for _ in range(self.random.randrange(4))}
            calls.append((self.random.choice(["get_weather", "clock", "web.search-2"]), arguments))
        says = " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(5))) if self.config.get("text") else ""
        thinks = " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(5))) if self.config.get("thoughts") else ""
        return calls, says, thinks


def schema_of(value):
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null"}
    return {"type": kinds[type(value)]}


def tools_of(calls):
    """Returns one tool per call whose schema describes its arguments, because Qwen3-Coder's format does not."""
    schemas = {}
    for name, arguments in calls:
        for key, value in arguments.items():
            schemas.setdefault(name, {})[key] = schema_of(value)
        schemas.setdefault(name, {})
    return [{"type": "function", "function": {"name": name, "description": "x", "parameters": {"type": "object", "properties": fields}}}
            for name, fields in schemas.items()]  # fmt: skip


def written(calls, form):
    objects = [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls]
    if form.startswith("<tool_call>"):
        return "\n".join(form.format(call) for call in objects)
    return form.format("[" + ", ".join(objects) + "]" if form != "{}" or len(objects) > 1 else objects[0])


def render(template, config, calls, says, thinks):
    """Returns the text of the answer as the template writes it."""
    message = {"role": "assistant", "content": says or config.get("nothing", "")}
    if thinks:
        message["thinking" if config.get("thoughts") == "thinking" else "reasoning_content"] = thinks
    if "as_content" in config:
        message["content"] = "\n".join(part for part in [says, written(calls, config["as_content"])] if part)
    else:
        as_sent = functools.partial(json.dumps, ensure_ascii=False) if config.get("text_arguments") else lambda arguments: arguments
        message["tool_calls"] = [{"id": f"abcd{i:05}", "type": "function", "function": {"name": name, "arguments": as_sent(arguments)}}
                                 for i, (name, arguments) in enumerate(calls)]  # fmt: skip
    context = {"messages": [{"role": "user", "content": "?"}, message], "documents": None,
               "tools": tools_of(calls) if config.get("shown", True) else [],
               "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": True}  # fmt: skip
    text = compile_reference(template).render(**context)
    begin, end = config["ends"]
    first = text.index(begin) + len(begin) if begin != "[/INST]" else text.rindex(begin) + len(begin)
    last = text.rfind(end)  # R1's original template omits the end after one call and writes it after two
    return text[first : last if last > first else None]


def untwice(calls):
    """Makes each key have one type in all calls of the same name, because these calls share a tool."""
    kinds = {}
    for name, arguments in calls:
        for key in list(arguments):
            if kinds.setdefault((name, key), type(arguments[key])) is not type(arguments[key]):
                del arguments[key]
    return calls


def in_order(calls):
    """Sorts keys, because grammars require the order of the schema."""
    return [(name, dict(sorted(arguments.items()))) for name, arguments in calls]


@pytest.fixture(scope="module")
def tool():
    if not TOOL:
        pytest.skip("QUIRE_CALLS_TOOL is not set")
    process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def read(request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield read
    process.stdin.close()
    assert process.wait(timeout=30) == 0


@pytest.mark.skipif(not VOCABS, reason="QUIRE_TEST_VOCABS is not set")
@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_round_trip(tool, name):
    template = pathlib.Path(VOCABS, "templates", name + ".jinja").read_text(encoding="utf-8")
    config = TEMPLATES[name]
    source = Calls(name, config)
    for i in range(ANSWERS):
        calls, says, thinks = source.answer()
        calls = untwice(calls)
        text = render(template, config, calls, says, thinks)
        request = {"template": template, "tools": tools_of(calls), "text": text, "seed": i}
        read = tool({**request, "every_cut": True} if i < CUT_EVERYWHERE else request)
        assert read["same"], text
        assert [(call["name"], json.loads(call["arguments"])) for call in read["calls"]] == calls, text
        assert read["content"].strip() == says.strip(), text
        assert read["reasoning"].strip() == thinks, text


@pytest.mark.skipif(not VOCABS, reason="QUIRE_TEST_VOCABS is not set")
@pytest.mark.parametrize("name", TEMPLATES)
def test_truncated_calls_are_text(tool, name):
    """A truncated answer keeps its complete calls, however it is split into chunks. An answer without a complete call is text, unless it has
    reasoning or its template has `heads`."""
    template = pathlib.Path(VOCABS, "templates", name + ".jinja").read_text(encoding="utf-8")
    config = TEMPLATES[name]
    source = Calls(name + "broken", config)
    for i in range(BROKEN):
        calls, says, thinks = source.answer()
        calls = untwice(calls)
        text = render(template, config, calls, says, thinks)
        text = text[: source.random.randrange(len(text) + 1)]
        read = tool({"template": template, "tools": tools_of(calls), "text": text, "seed": i})
        whole = [(call["name"], json.loads(call["arguments"])) for call in read["calls"]]
        assert read["same"] and whole == calls[: len(whole)], text
        if not whole and "think" not in text.lower() and not config.get("heads"):
            assert read["content"].strip() == text.strip(), text


@pytest.mark.skipif(not VOCABS, reason="QUIRE_TEST_VOCABS is not set")
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("control_tokens", [False, True])
def test_grammars_accept_what_templates_write(tool, name, control_tokens):
    """Runs with the real llguidance: delimiters are text or control tokens."""
    template = pathlib.Path(VOCABS, "templates", name + ".jinja").read_text(encoding="utf-8")
    config = {**TEMPLATES[name], "no_marks": control_tokens, "flat": "plain_strings" in TEMPLATES[name]}
    source = Calls(name, config)
    for _ in range(HELD):
        calls, says, thinks = source.answer()
        calls = in_order(untwice(calls))
        text = render(template, config, calls, says, thinks)
        if DEEPSEEK_BEGIN in text and not text.endswith(DEEPSEEK_END):
            text += DEEPSEEK_END  # R1's original template omits it after one call
        tools = tools_of(calls)
        for tool_of_name in tools:
            schema = tool_of_name["function"]["parameters"]
            schema["properties"] = dict(sorted(schema["properties"].items()))
        for required in [False] if says else [False, True]:
            answer = text.lstrip("\n") if required else text
            request = {"template": template, "tools": tools, "text": answer, "required": required, "parallel": True,
                       "control_tokens": control_tokens}  # fmt: skip
            held = tool(request)
            if "does not include llguidance" in held.get("error", ""):
                pytest.skip("built without llguidance")
            assert held.get("taken") == answer, (held, required)


SPELLINGS = {  # spellings of {"t": "a\n\"", "b": True}: the canonical one, then others
    'tools <tool_call> "arguments"': ('<tool_call>\n{"name": "f", "arguments": {%s}}\n</tool_call>', [
        r'"t": "a\n\"", "b": true', r'"t": "a\u000a\"", "b": true', r'"t": "a\n\u0022", "b": true', r'"t":"a\n\"","b":true',
        r'"b": true, "t": "a\n\""', r'"t": "a\n\"",  "b": true', r'"t" : "a\n\"", "b": true']),
    "<|tool_call_start|>": ("<|tool_call_start|>[f(%s)]<|tool_call_end|>", [
        r't="a\n\"", b=True', r't="a\u000a\"", b=True', r"t='a\n\"', b=True", r't="a\n\"", b=true', r'b=True, t="a\n\""', r't="a\n\"",b=True']),
    "<tool_call> <parameter=": ("<tool_call>\n<function=f>\n%s</function>\n</tool_call>", [
        "<parameter=t>\na\n\"\n</parameter>\n<parameter=b>\ntrue\n</parameter>\n",
        "<parameter=t>\na\n\"\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n",
        "<parameter=b>\ntrue\n</parameter>\n<parameter=t>\na\n\"\n</parameter>\n"]),
}  # fmt: skip


@pytest.mark.parametrize("template", SPELLINGS)
def test_canonical_grammar_accepts_one_spelling(tool, template):
    """Runs with the real llguidance: XML and Python forms always fix the order of arguments; the option fixes everything else."""
    form, (first, *others) = SPELLINGS[template]
    schema = {"type": "object", "properties": {"t": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["t", "b"]}

    def is_taken(arguments, **more):
        text = form % arguments
        held = tool({"template": template, "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}], "text": text,
                     "required": True, "parallel": True, "control_tokens": False, **more})  # fmt: skip
        if "does not include llguidance" in held.get("error", ""):
            pytest.skip("built without llguidance")
        return held["taken"] == text

    assert is_taken(first) and is_taken(first, is_canonical=True)
    assert not any(is_taken(other, is_canonical=True) for other in others)
    free = [other for other in others if is_taken(other)]
    is_json = "arguments" in template
    assert free == [other for other in others if is_json or "\\u000a" in other or "='" in other or "True\n" in other], "the option excludes these"
