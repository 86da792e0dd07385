#!/usr/bin/env python3
"""Checks or prints the table of request fields (src/server/request/request_fields.cpp). Without an option, prints the part of
docs/requests.md that comes from the table. With --check, compares the table with the parameters of the installed openai and anthropic
packages, and with the fields that the server's sources read.
"""
import importlib
import pathlib
import re
import sys
import typing

REPO = pathlib.Path(__file__).resolve().parents[1]
TABLE = REPO / "src/server/request/request_fields.cpp"
APIS = ("completion", "chat", "responses", "messages", "ollama_chat", "ollama_generate")
LETTERS = {"r": "read", "p": "passed", "a": "renamed", "i": "ignored", "x": "refused"}
# API -> definitions of its parameters: (module, type)
PARAMETERS = {
    "completion": [("openai.types.completion_create_params", "CompletionCreateParamsStreaming")],
    "chat": [("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming")],
    "responses": [("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
                  ("openai.types.responses.input_token_count_params", "InputTokenCountParams")],
    "messages": [("anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
                 ("anthropic.types.beta.message_create_params", "MessageCreateParamsStreaming"),
                 ("anthropic.types.message_count_tokens_params", "MessageCountTokensParams"),
                 ("anthropic.types.beta.message_count_tokens_params", "MessageCountTokensParams")],
}
# APIs -> source files that read the fields of their request bodies
READERS = {
    ("completion", "chat"): ["completion_request.cpp", "chat_messages.cpp", "tool_use.cpp", "structured_output.cpp", "thinking_fields.cpp",
                             "transfer_params.cpp", "routed_experts.cpp"],
    ("responses",): ["../api/responses/responses_request.cpp"],
    ("messages",): ["../api/anthropic/messages_request.cpp", "../api/anthropic/context_edits.cpp"],
    ("ollama_chat", "ollama_generate"): ["../api/ollama/ollama_request.cpp", "../api/ollama/ollama_messages.cpp"],
}
# Fields of nested objects, which the source files read with readers of the same name.
NESTED = {"schema", "strict", "remote_block_ids", "clear_tool_inputs", "keep"}
ROW = re.compile(r'\{"(\w+)", "([rpaix]{6})"')
READ = re.compile(r'\breader_?(?:\.|->)(?:find|text|boolean|number|integer|only|ignore)\("(\w+)"')


def table():
    """Returns {name of a field: {API: use}}."""
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    return {name: dict(zip(APIS, (LETTERS[letter] for letter in uses))) for name, uses in rows}


def documented(api):
    """Yields (field, package) for each parameter that a package defines for the API."""
    for module, name in PARAMETERS.get(api, ()):
        for field in typing.get_type_hints(getattr(importlib.import_module(module), name)):
            yield field, module.split(".")[0]


def complaints():
    rows = table()
    for api in APIS:
        for field, package in sorted(set(documented(api))):
            if field not in rows:
                yield f"{field}: {package} sends it to {api}, and the table has no row"
    for apis, files in READERS.items():
        for file in files:
            for field in sorted(set(READ.findall((TABLE.parent / file).read_text(encoding="utf-8"))) - NESTED):
                if field not in rows:
                    yield f"{field}: {file} reads it, and the table has no row"
                elif not any(rows[field][api] in ("read", "passed", "renamed") for api in apis):
                    yield f"{field}: {file} reads it, and the table says {rows[field]}"


def listed(use):
    """Returns the fields that have this use in every API, as Markdown."""
    return ", ".join(f"`{name}`" for name, uses in sorted(table().items()) if set(uses.values()) == {use})


def page():
    apis = "`/v1/completions`, `/v1/chat/completions`, `/v1/responses`, `/v1/messages`, `/api/chat` and `/api/generate`"
    refused = f"**Refused fields of all APIs.** {apis} refuse each of these fields, unless its value is neutral: {listed('refused')}."
    ignored = f"**Ignored fields of all APIs.** {apis} ignore each of these fields: {listed('ignored')}."
    return f"{refused}\n\n{ignored}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(complaints()) or 0)
    print(page())
