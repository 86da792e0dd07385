#!/usr/bin/env python3
"""Tests structured output on the JSON Schema Test Suite (drafts 2020-12 and 7) and on schemas of real tools: is each finished output valid,
and does it have the value that the model prefers?

Each accepted schema is answered --outputs times at temperature 1 with different seeds, --clients at a time. `jsonschema` validates finished
outputs. A refusal of a schema must name one of its keywords. A table per keyword and the errors are printed, also after Ctrl-C. Then some
prompts contain a valid value of each schema, in different spellings of JSON, and the model continues the prompt, free and constrained by
the schema, at temperature 0. If the free value is valid, the constrained value must be equal. The exit status is 1 unless all finished
outputs are valid, 80 % are finished, no value differs, and all schemas that use only the keywords of MUST are accepted.

The suite is in the source archive of `jsonschema`. The tools are from the Berkeley Function Calling Leaderboard (`bfcl-eval`, its "live"
functions, which users have sent in). Both are fetched from PyPI and checked.
"""

import asyncio
import collections
import importlib.util
import json
import pathlib
import re
import sys
import tarfile

import jsonschema
import machine
import openai
import tqdm

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHIVES = {
    "jsonschema": ("jsonschema-4.26.0.tar.gz", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"),
    "bfcl-eval": ("bfcl_eval-2026.3.23.tar.gz", "4a3869673721fa59be93d8f55ca92d69ab5797058aed792149c6adafda064bc1"),
}
DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
MUST = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "anyOf", "$ref"}  # fmt: skip
SILENT = {"$schema", "$comment", "title", "description", "default", "examples", "$id", "$defs", "definitions"}
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None, "list": "array", "bool": "boolean", "int": "integer", "str": "string"}


def archive(project: str) -> tarfile.TarFile:
    name, digest = ARCHIVES[project]
    path = ROOT / ".cache" / name
    if not path.exists():
        spec = importlib.util.spec_from_file_location("fetch_pypi", ROOT / "tools/fetch_pypi.py")
        fetch = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fetch)
        path.parent.mkdir(exist_ok=True)
        if fetch.download(fetch.file_url(project, name), path) != digest:
            path.unlink()
            sys.exit(f"{name} does not have the expected checksum")
    return tarfile.open(path)


def suite() -> list:
    """Returns (origin, draft, schema) of the suite, each schema once."""
    found, seen = [], set()
    with archive("jsonschema") as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            place = re.search(r"/json/tests/(draft2020-12|draft7)/([\w.-]+)\.json$", member.name)
            if not place:
                continue
            for group in json.load(files.extractfile(member)):
                text = json.dumps(group["schema"], sort_keys=True)
                if (place[1], text) not in seen:
                    seen.add((place[1], text))
                    schema = group["schema"]
                    if place[1] == "draft7" and isinstance(schema, dict):
                        schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}  # otherwise it would use the newest draft
                    found.append((f"{place[1]}/{place[2]}: {group['description']}", place[1], schema))
    return found


def with_types(schema):
    """Returns the schema with JSON Schema's names of types; the leaderboard uses Python's names."""
    if isinstance(schema, list):
        return [with_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            out[key] = {name: with_types(inner) for name, inner in value.items()}
        elif key == "type" and isinstance(value, str):
            if (name := TYPES.get(value.lower(), value.lower())) is not None:
                out[key] = name
        elif key in ("items", "required", "enum", "description", "minimum", "maximum", "additionalProperties"):
            out[key] = with_types(value) if key in ("items", "additionalProperties") else value
    return out


def tools(count: int) -> list:
    found = {}
    with archive("bfcl-eval") as files:
        for name in ("live_simple", "live_multiple"):
            path = next(m for m in files.getmembers() if m.name.endswith(f"data/BFCL_v4_{name}.json") and "possible" not in m.name)
            for line in files.extractfile(path).read().decode().splitlines():
                for function in json.loads(line)["function"]:
                    schema = with_types(function["parameters"])
                    try:
                        jsonschema.Draft202012Validator.check_schema(schema)
                    except jsonschema.SchemaError:
                        continue  # some user entries are not schemas
                    found.setdefault(function["name"], schema)
    names = sorted(found)
    return [(f"tool {name}", "draft2020-12", found[name]) for name in (names[i * len(names) // count] for i in range(count))]


def keywords(schema, names=None) -> set:
    """Returns the keywords in positions of a schema, or in positions that look like one."""
    names = set() if names is None else names
    if isinstance(schema, dict):
        for key, value in schema.items():
            names.add(key)
            if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas") and isinstance(value, dict):
                for inner in value.values():
                    keywords(inner, names)
            elif key not in ("enum", "const", "default", "examples"):
                keywords(value, names)
    elif isinstance(schema, list):
        for item in schema:
            keywords(item, names)
    return names


KNOWN = MUST | {"$dynamicRef", "$dynamicAnchor", "format"} | {word for draft in DRAFTS.values() for word in draft.VALIDATORS}


class Case:
    def __init__(self, where, draft, schema):
        self.where, self.draft, self.schema = where, draft, schema
        self.keywords = keywords(schema) - SILENT
        self.refusal = None
        self.finished = self.valid = self.asked = 0
        self.invalid = []
        self.values = []  # valid outputs
        self.compared, self.differing = 0, []

    def judge(self, text: str) -> None:
        self.finished += 1
        try:
            value = json.loads(text)
            DRAFTS[self.draft](self.schema).validate(value)
            self.valid += 1
            self.values.append(value)
        except Exception as error:  # noqa: BLE001 - whatever a validator says is the finding
            self.invalid.append(f"{text[:200]!r}: {str(error).splitlines()[0][:200]}")


def question(schema) -> dict:
    return {"role": "user", "content": f"Write one short JSON value for this JSON schema: {json.dumps(schema)[:1500]}"}


# Limits the length, because a model of this size does not stop by itself.
SHOWN = (({"type": "string"}, "Oslo"), ({"properties": {"a": {"type": "integer"}}}, {"a": 7}), ({"type": "array"}, [1, 2]), (True, "yes"),
         ({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}, {"city": "Oslo", "days": 2}))  # fmt: skip
SHOWN = [turn for schema, value in SHOWN for turn in (question(schema), {"role": "assistant", "content": json.dumps(value)})]


async def ask(client, case, seed, arguments) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": case.schema, "strict": True}}
    try:
        answer = await client.chat.completions.create(model="", messages=[*SHOWN, question(case.schema)], temperature=1, seed=seed,
                                                      max_tokens=arguments.max_tokens, response_format=form)  # fmt: skip
    except openai.BadRequestError as refusal:
        case.refusal = refusal.message
        return
    case.asked += 1
    choice = answer.choices[0]
    if choice.finish_reason == "stop":
        case.judge(choice.message.content)


# Spellings of a value: Python with and without ensure_ascii, JavaScript, PHP, and a spelling with reversed keys.
WRITERS = (json.dumps, lambda value: json.dumps(value, ensure_ascii=False), lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
           lambda value: json.dumps(value).replace("/", "\\/"),
           lambda value: json.dumps(dict(reversed(value.items())) if isinstance(value, dict) else value))  # fmt: skip


def parsed(text: str):
    """Parses a text. Returns a value in which True and 1 compare unequal; None if the text is not JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return None


async def compare(client, case, index, arguments) -> None:
    """Compares the model's output without the schema with its output under the schema, and records a difference in the case. Outputs that
    are invalid without the schema are not compared.
    """
    line = WRITERS[index % len(WRITERS)](max(case.values, key=lambda value: len(json.dumps(value))))
    if len(line) > 400:
        return

    async def say(**more) -> str:
        answer = await client.completions.create(model="", prompt=(line + "\n") * 5, temperature=0, max_tokens=arguments.max_tokens, stop=["\n"], **more)
        return answer.choices[0].text

    free = await say()
    try:
        DRAFTS[case.draft](case.schema).validate(json.loads(free))
    except Exception:  # noqa: BLE001 - the free output differs
        return
    held = await say(extra_body={"structured_outputs": {"json": case.schema}})
    case.compared += 1
    if parsed(held) != parsed(free):
        case.differing.append(f"{free[:200]!r} became {held[:200]!r}")


async def answer_all(url, cases, arguments) -> None:
    gate = asyncio.Semaphore(arguments.clients)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
    with tqdm.tqdm(total=len(cases) * arguments.outputs, unit="answer", disable=not sys.stderr.isatty()) as bar:

        async def one(case, seed):
            async with gate:
                if case.refusal is None:
                    await ask(client, case, seed, arguments)
                bar.update()

        await asyncio.gather(*(one(case, seed) for seed in range(arguments.outputs) for case in cases))

    async def compared(case, index):
        async with gate:
            await compare(client, case, index, arguments)

    await asyncio.gather(*(compared(case, index) for index, case in enumerate(cases) if case.values))


def report(cases, name) -> bool:
    taken = [case for case in cases if case.refusal is None]
    asked, finished, valid = (sum(getattr(case, field) for case in taken) for field in ("asked", "finished", "valid"))
    print(f"\n{name}: {len(cases)} schemas, {len(taken)} taken, {len(cases) - len(taken)} refused; of {asked} outputs {finished} finished"
          f" ({finished / max(1, asked):.1%}), of which {valid} are valid ({valid / max(1, finished):.2%})")  # fmt: skip
    num_compared, differing = sum(case.compared for case in taken), [(case, problem) for case in taken for problem in case.differing]
    print(f"  {num_compared} values generated freely and under their schema, {len(differing)} differ")
    for case, problem in differing:
        print(f"  differs: {case.where}: {problem}")
    good = finished == valid and finished >= 0.8 * asked and not differing
    for case in taken:
        for problem in case.invalid[:2]:
            print(f"  not valid: {case.where}: {problem}")
    # Schemas that no value satisfies are refused, too.
    refused = [case for case in cases if case.refusal is not None and "nsatisfiable" not in case.refusal]
    nameless = [case for case in refused if not any(word in case.refusal for word in KNOWN)]
    for case in nameless:
        print(f"  refused without a keyword: {case.where}: {case.refusal[:200]}")
    wanted = [case for case in refused if case.keywords <= MUST and not any(word in case.refusal for word in KNOWN - MUST)]
    for case in wanted:
        print(f"  refused: {case.where}: {case.refusal[:200]}")
    return good and not nameless and not wanted


def table(cases) -> None:
    print("\n| keyword | schemas | taken | finished | valid |\n|---|---|---|---|---|")
    by_keyword = collections.defaultdict(list)
    for case in cases:
        for word in case.keywords:
            by_keyword[word].append(case)
    for word in sorted(by_keyword, key=lambda word: (word not in MUST, word)):
        if word not in KNOWN:
            continue
        group = by_keyword[word]
        asked, finished, valid = (sum(getattr(case, field) for case in group) for field in ("asked", "finished", "valid"))
        taken = sum(case.refusal is None for case in group)
        shares = f"{finished / asked:.0%} | {valid / max(1, finished):.0%}" if asked else "- | -"
        print(f"| `{word}` | {len(group)} | {taken} | {shares} |")


def main() -> int:
    parser = machine.parser(__doc__, clients=32, max_tokens=600)
    parser.add_argument("--outputs", type=int, default=20, help="outputs of each schema (default: 20)")
    parser.add_argument("--tools", type=int, default=100, help="number of schemas of tools (default: 100)")
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    groups = {"JSON Schema Test Suite": [Case(*case) for case in suite()], "tools": [Case(*case) for case in tools(arguments.tools)]}
    cases = [case for group in groups.values() for case in group]
    port = machine.free_port()
    with machine.Server("quire", [arguments.binary, "serve", arguments.model, "--port", str(port)], port):
        try:
            asyncio.run(answer_all(f"http://127.0.0.1:{port}", cases, arguments))
        except KeyboardInterrupt:
            print("\nStopped. Results so far:", end="")
    good = all([report(group, name) for name, group in groups.items()])
    table(cases)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
