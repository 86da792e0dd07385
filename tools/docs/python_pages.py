"""Makes pages of the site for the package `quire` from its stubs and sources: signatures and docstrings, read as text. The build makes the
stubs; without a build, the pages say so. hooks.py calls this while the site is built."""
import ast

ROOT = "reference/python/"
PAGES = (
    ("engine", "quire.Engine", "The engine of `quire serve` in a program ([how to use it](../../python.md)).", ("engine.py", "_engine.pyi")),
    ("core", "quire.Core", "The core alone; its host steps it. `pip install ./python` installs it.", ("_core.pyi",)),
    ("connectors", "quire.connectors", "Seams of the core: custom connectors and eviction policies.", ("connectors.py",)),
)


def signature(node):
    """Returns the parameters as written in the source, without `self`."""
    arguments = ast.unparse(node.args)
    arguments = arguments.removeprefix("self, /, ").removeprefix("self, ")
    arguments = "" if arguments in ("self", "self, /") else arguments
    name, returns = node.name, f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({arguments}){returns}"
    if len(line) > 100:
        parts, depth, start = [], 0, 0
        for at, letter in enumerate(arguments):
            depth += (letter in "([{") - (letter in ")]}")
            if letter == "," and depth == 0:
                parts.append(arguments[start:at].strip())
                start = at + 1
        parts.append(arguments[start:].strip())
        line = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"
    return line


def text_of(node):
    text = ast.get_docstring(node) or ""
    return text.replace("*", "\\*").replace("<", "&lt;") if "\n    " not in text else text.replace("<", "&lt;")


def decorated(node, name):
    return any(ast.unparse(decorator).split(".")[-1] == name for decorator in node.decorator_list)


def members(node, name):
    rows, functions = [], []
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            if decorated(part, "setter") or part.name.startswith("_") and part.name != "__init__":
                continue
            if decorated(part, "property"):
                kind = ast.unparse(part.returns) if part.returns else ""
                told = (text_of(part) or "").replace("\n", " ").replace("|", "&#124;")
                rows.append(f"| `{part.name}` | {'`' + kind.replace('|', '&#124;') + '`' if kind else ''} | {told} |")
            elif part.name == "__init__":
                functions.insert(0, part)
            else:
                functions.append(part)
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and not part.targets[0].id.startswith("_"):
            rows.append(f"| `{part.targets[0].id}` | | |")
    out = []
    if rows:
        out += ["| | type | |", "|---|---|---|", *rows, ""]
    for function in functions:
        shown = signature(function)
        if function.name == "__init__":
            if shown != "__init__()" and shown != "__init__() -> None":
                out += ["```python", shown.replace("__init__", name, 1).removesuffix(" -> None"), "```", "", text_of(function), ""]
            continue
        out += [f"### `{name}.{function.name}()` {{#{name}-{function.name}}}", "", "```python", shown, "```", "", text_of(function), ""]
    return out


def page(title, about, sources):
    out, seen = [f"# {title}", "", about, ""], set()
    for source in sources:
        if not source.exists():
            out += [f"This site was built without `quire/{source.name}`. `./dev build` makes it.", ""]
            continue
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if getattr(node, "name", "_").startswith("_") or node.name in seen or node.name == "NativeEngine":
                continue
            if isinstance(node, ast.ClassDef):
                seen.add(node.name)
                out += [f"## class `{node.name}` {{#{node.name}}}", "", text_of(node), "", *members(node, node.name)]
            elif isinstance(node, ast.FunctionDef):
                seen.add(node.name)
                out += [f"## `{node.name}()` {{#{node.name}}}", "", "```python", signature(node), "```", "", text_of(node), ""]
    return "\n".join(out)


def pages(folder):
    rows = [f"| [`{title}`]({name}.md) | {about} |" for name, title, about, _ in PAGES]
    yield ROOT + "index.md", "\n".join(["# Python", "", "| | |", "|---|---|", *rows,
                                        "| [`quire.vllm.Scheduler`](../../vllm.md) | The core inside vLLM 0.19.0, by one flag. |", ""])
    for name, title, about, sources in PAGES:
        yield f"{ROOT}{name}.md", page(title, about, [folder / source for source in sources])
