"""Makes pages of the site from docs/openapi.json: one per tag, with the fields and answers of each route. hooks.py calls this while the
site is built."""
import json

ROOT = "reference/http/"
# The title of each tag, and the page with more about it.
TAGS = {
    "generation": ("Answers", "Chats, completions, and the APIs of OpenAI and Anthropic around them."),
    "ollama": ("Ollama", "The routes of Ollama's API ([more](../../ollama.md))."),
    "llama_cpp": ("llama.cpp", "Routes of llama.cpp's server ([more](../../llama_cpp.md))."),
    "pooling": ("Vectors", "Embeddings, scores, reranking, the rows of all tokens ([more](../../embeddings.md))."),
    "sound": ("Sound", "Transcripts and translations of audio ([more](../../sound.md))."),
    "tokens": ("Tokens", "Converts text to token ids and back."),
    "server": ("Server", "Health checks, the served models, metrics and built-in pages."),
    "operator": ("Operator", "For operators: requests come from the same machine, or with `--allow-remote-admin` and a key."),
}
TOLD_AT = {
    "/": "chat.md", "/v1/chat/completions": "requests.md", "/v1/completions": "requests.md", "/v1/messages": "messages.md", "/v1/responses": "responses.md",
    "/v1/requests/{id}/explain": "explain.md", "/v1/requests/{id}/input": "sessions.md", "/v1/embeddings": "embeddings.md",
    "/api/chat": "ollama.md", "/api/generate": "ollama.md", "/api/embed": "ollama.md", "/api/show": "ollama.md",
    "/props": "llama_cpp.md", "/slots": "llama_cpp.md", "/apply-template": "llama_cpp.md",
    "/v1/audio/transcriptions": "sound.md", "/v1/audio/translations": "sound.md",
    "/v1/watch": "dashboard.md", "/dashboard": "dashboard.md", "/v1/journal/save": "journal.md", "/metrics": "metrics.md", "/v1/cache": "tiers.md", "/v1/cache/probe": "probe.md",
    "/v1/cache/warm": "probe.md", "/v1/cache/curve": "curve.md",
}
# A valid request body for some routes. tests/python/test_docs.py sends them.
EXAMPLES = {
    "/v1/cache/probe": {"messages": [{"role": "user", "content": "How does a heat pump work?"}]},
    "/v1/cache/warm": {"prompt": "You keep the records of a small town."},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 64},
    "/v1/completions": {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0},
    "/v1/messages": {"model": "smol", "max_tokens": 64, "messages": [{"role": "user", "content": "Name three rivers."}]},
    "/v1/messages/count_tokens": {"model": "smol", "messages": [{"role": "user", "content": "Name three rivers."}]},
    "/v1/responses": {"input": "Name three rivers.", "max_output_tokens": 64},
    "/v1/responses/input_tokens": {"input": "Name three rivers."},
    "/v1/embeddings": {"input": ["a text", "another one"]},
    "/api/chat": {"model": "smol", "messages": [{"role": "user", "content": "Name three rivers."}], "stream": False, "options": {"num_predict": 64}},
    "/api/generate": {"model": "smol", "prompt": "Name three rivers.", "stream": False, "options": {"num_predict": 64}},
    "/api/embed": {"model": "smol", "input": ["a text", "another one"]},
    "/api/embeddings": {"model": "smol", "prompt": "a text"},
    "/api/show": {"model": "smol"},
    "/apply-template": {"messages": [{"role": "user", "content": "Name three rivers."}]},
    "/pooling": {"input": "a text", "task": "token_embed"},
    "/v1/score": {"text_1": "a text", "text_2": ["the same text", "another one"]},
    "/v1/rerank": {"query": "rivers", "documents": ["the Rhine", "a mountain"], "top_n": 1},
    "/tokenize": {"prompt": "a text"},
    "/detokenize": {"tokens": [1, 2, 3]},
}


class OpenApiPages:
    def __init__(self, path):
        self.spec = json.loads(path.read_text(encoding="utf-8"))

    def resolved(self, node):
        while "$ref" in node:
            found = self.spec
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            node = found
        return node

    def kind(self, schema):
        """Returns a type in words, such as `array of string or integer`. Objects of the components are named."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            return f"[{name}](schemas.md#{name.lower()})"
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self.kind(part) for part in schema[key]))
        if "allOf" in schema:
            return " and ".join(self.kind(part) for part in schema["allOf"])
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
        named = schema.get("type", "any")
        named = " or ".join(named) if isinstance(named, list) else named
        if "items" in schema:
            return f"{named} of {self.kind(schema['items'])}" if schema["items"] else named
        return named

    def about(self, schema):
        """Returns further limits of a field in words: bounds and default."""
        told = []
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum"))
        if low is not None and high is not None:
            told.append(f"{'above ' if 'exclusiveMinimum' in schema else ''}{low} to {high}")
        elif low is not None:
            told.append(f"above {low}" if "exclusiveMinimum" in schema else f"at least {low}")
        elif high is not None:
            told.append(f"at most {high}")
        for key, words in (("minItems", "at least {} items"), ("maxItems", "at most {} items"), ("minLength", "at least {} characters"),
                           ("maxLength", "at most {} characters")):
            if key in schema:
                told.append(words.format(schema[key]))
        if "default" in schema:
            told.append(f"default `{json.dumps(schema['default'])}`")
        text = "; ".join(told)
        return " ".join(part for part in (schema.get("description", ""), f"({text})" if text else "") if part).replace("|", "&#124;")

    def rows(self, schema, prefix="", depth=0):
        """Yields the fields of an object. Fields of nested objects are named by their path."""
        schema = self.resolved(schema)
        for part in schema.get("allOf", []):
            yield from self.rows(part, prefix, depth)
        for name, field in schema.get("properties", {}).items():
            must = " *" if name in schema.get("required", []) else ""
            yield f"| `{prefix}{name}`{must} | {self.kind(field).replace('|', '&#124;')} | {self.about(field)} |"
            inner = field.get("items", field) if field.get("type") == "array" else field
            if depth < 3 and "properties" in inner:
                yield from self.rows(inner, f"{prefix}{name}{'[]' if inner is not field else ''}.", depth + 1)

    def table(self, schema):
        rows = list(self.rows(schema))
        return ["| field | type | |", "|---|---|---|", *rows, ""] if rows else []

    def body(self, content):
        for media, of in content.items():
            schema = of.get("schema", {})
            yield f"`{media}`: {self.kind(schema)} {self.about(schema)}".rstrip()
            yield ""
            yield from self.table(schema)

    def operation(self, path, method, operation):
        out = [f"## {method.upper()} `{path}` {{#{anchor(method, path)}}}", "", operation["summary"]]
        if operation.get("description"):
            out += ["", operation["description"]]
        if path in TOLD_AT:
            out += ["", f"More: [TITLE](../../{TOLD_AT[path]})."]
        if path in EXAMPLES:
            body = json.dumps(EXAMPLES[path]).replace("'", "'\\''")
            out += ["", "```sh", f"curl http://127.0.0.1:8000{path} -H 'Content-Type: application/json' \\", f"  -d '{body}'", "```"]
        parameters = [self.resolved(parameter) for parameter in operation.get("parameters", [])]
        if parameters:
            out += ["", "| parameter | in | type | |", "|---|---|---|---|"]
            out += [f"| `{p['name']}`{' *' if p.get('required') else ''} | {p['in']} | {self.kind(p.get('schema', {}))} | "
                    f"{p.get('description', '')} {self.about(p.get('schema', {}))} |" for p in parameters]
        if "requestBody" in operation:
            out += ["", "**Body**", "", *self.body(self.resolved(operation["requestBody"])["content"])]
        out += ["", "**Answers**", ""]
        for status, answer in operation["responses"].items():
            answer = self.resolved(answer)
            kinds = "; ".join(f"`{media}`: {self.kind(of.get('schema', {}))}" for media, of in answer.get("content", {}).items())
            out.append(f"- **{status}** {answer.get('description', '')}{' ' if kinds else ''}{kinds}")
        return [*out, ""]

    def pages(self):
        routes = [(path, method, operation) for path, methods in self.spec["paths"].items() for method, operation in methods.items()]
        yield ROOT + "index.md", self.index(routes)
        for tag in sorted({operation["tags"][0] for _, _, operation in routes}, key=lambda tag: list(TAGS).index(tag)):
            title, about = TAGS[tag]
            out = [f"# {title}", "", about, ""]
            for path, method, operation in routes:
                if operation["tags"][0] == tag:
                    out += self.operation(path, method, operation)
            yield f"{ROOT}{tag}.md", "\n".join(out)
        yield ROOT + "schemas.md", self.schemas()

    def index(self, routes):
        out = ["# HTTP API", "", self.spec["info"]["description"], "",
               "A running server has the same at `/docs`, and as OpenAPI at `/openapi.json`. Fields with a * are required. The meaning of "
               "each field, and refused fields: [Fields of a request](../../requests.md). Send a key as `Authorization: Bearer KEY`.", ""]
        for tag, (title, about) in TAGS.items():
            out += [f"## {title}", "", about, "", "| route | |", "|---|---|"]
            out += [f"| [{method.upper()} `{path}`]({tag}.md#{anchor(method, path)}) | {operation['summary']} |"
                    for path, method, operation in routes if operation["tags"][0] == tag]
            out.append("")
        return "\n".join(out)

    def schemas(self):
        out = ["# Schemas", "", "Objects that several routes share.", ""]
        for name, schema in self.spec["components"]["schemas"].items():
            out += [f"## {name} {{#{name.lower()}}}", "", schema.get("description", ""), "", *self.table(schema)]
        return "\n".join(out)


def anchor(method, path):
    return method + path.replace("/", "-").replace("{", "").replace("}", "").replace(".", "-").rstrip("-")
