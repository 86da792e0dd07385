"""Tests the docs: listings use flags that their commands have, tables match the sources, the checks find their errors, and the built site
is complete and loads nothing from other hosts.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "tools"), str(REPO / "tools/docs")]
import check_docs  # noqa: E402
import check_site  # noqa: E402
import metrics_table  # noqa: E402
import openapi_pages  # noqa: E402
import options_table  # noqa: E402
import python_pages  # noqa: E402
import rewriting  # noqa: E402
from package import help_text  # noqa: E402
from quire_server import running  # noqa: E402

PAGES = sorted([*REPO.glob("docs/**/*.md"), REPO / "README.md", REPO / "CONTRIBUTING.md"])


@pytest.fixture(scope="module")
def flags():
    """Returns the flags of each quire command, by the command's words."""
    binary = os.environ.get("QUIRE_BINARY")
    if not binary:
        pytest.skip("QUIRE_BINARY is not set: ./dev test sets it")
    return {" ".join(command.path): {name for option in command.options for name in option.names} | {"--help"}
            for command in help_text.read(binary).walk()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())
def test_listings_use_flags_of_their_command(page, flags):
    for listing in check_docs.listings(page.read_text(encoding="utf-8")):
        for program, rest in check_docs.CALL.findall(listing):
            words = (["serve"] if program == "./dev" and rest.split()[:1] == ["serve"] else rest.split() if program == "quire" else [])
            command = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in flags), None)
            for flag in check_docs.FLAG.findall(rest) if command else ():
                assert flag in flags[command], f"quire {command} has no {flag}: {rest}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kv")
    with running("--kv-disk", str(folder), "--kv-disk-budget", "64MiB", "--journal-save", str(folder)) as url:
        yield url


@pytest.mark.parametrize("path", openapi_pages.EXAMPLES)
def test_route_accepts_its_example(path, server):
    asked = urllib.request.Request(server + path, json.dumps(openapi_pages.EXAMPLES[path]).encode(), {"Content-Type": "application/json"})
    assert json.load(urllib.request.urlopen(asked, timeout=120))


def fenced(page, kind):
    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    return [code for mark, code in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if mark == kind]


@pytest.mark.parametrize("page", ["start.md", "tasks/restart.md", "tasks/watch.md"])
def test_curl_listings_of_a_page_succeed(page, server):
    asked = [line for code in fenced(page, "sh") for line in code.replace("\\\n", " ").splitlines() if line.startswith("curl")]
    assert asked
    for line in asked:
        line = line.replace("http://127.0.0.1:8000", server).replace("curl ", "curl -sSf --max-time 120 ", 1)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0 and done.stdout.strip(), f"{line}: {done.stdout}{done.stderr}"


def test_python_listing_of_the_start_page_runs(server):
    (code,) = fenced("start.md", "python")
    done = subprocess.run([sys.executable, "-c", code.replace("http://127.0.0.1:8000", server)], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_models_match_the_readme():
    def one_line(path):
        return " ".join((REPO / path).read_text(encoding="utf-8").split())
    told = re.search(r"\*\*Models\*\*: (.*?); with images", one_line("README.md"))[1]
    assert told in one_line("docs/tasks/serve.md")


def test_table_of_metrics_matches_the_sources():
    text = (REPO / "docs/metrics.md").read_text(encoding="utf-8")
    assert len(list(metrics_table.metrics())) > 90, "the sources must have more than 90 metrics"
    missing = [row for row in metrics_table.table().splitlines() if row not in text]
    assert not missing and metrics_table.table() in text, "run tools/docs/metrics_table.py --write; these rows are missing:\n" + "\n".join(missing)
    sources = "".join((REPO / source).read_text(encoding="utf-8") for source in metrics_table.SOURCES)
    named = set(re.findall(r'"((?:vllm|quire):[a-z0-9_]*[a-z0-9])"', sources))
    known = {name for name, *_ in metrics_table.metrics()} | {old for _, old in metrics_table.renamed()}
    assert named <= known, "each metric must have a row"
    assert len(metrics_table.renamed()) > 20 and metrics_table.renamed_table() in text, "run tools/docs/metrics_table.py --write"


def test_the_tables_of_options_match_the_source():
    for table in options_table.tables():
        assert table.count("\n") > 50, "the source was read"
        assert table + "\n" in (REPO / "docs/options.md").read_text(encoding="utf-8"), "run tools/docs/options_table.py --write"


@pytest.mark.parametrize(("text", "complaint"), [
    ("[a](tiers.md)", None),
    ("[a](tiers.md#a-heading-with-code)", None),
    ("[a](tiers.md#a-heading-with-code-1)", None),
    ("[a](../docs/tiers.md#nowhere)", "leads to no heading"),
    ("[a](#nowhere)", "leads to no heading"),
    ("[a](gone.md)", "leads nowhere"),
    ("```\nquire serve m --port 1\n```", None),
    ("```\nquire serve m \\\n  --prot 1\n```", "no flag --prot"),
    ("    quire serve m --prot 1\n", "no flag --prot"),
    ("`quire serve --prot`", "no flag --prot"),
    ("```\nvllm serve m --prot 1   # quire serve\n```", None),
    ("`./dev serve --port 1`", None),
    ("`./dev test --everything`", "no flag --everything"),
    ("```\ngit clone https://host.example/quire.git && cd quire\n```", None),
    ("```\ngit clone -q --depth 1 https://host.example/quire.git\n```", None),
    ("```\ngit clone https://elsewhere.example/quire.git\n```", "is not the address"),
    ("`git clone ... quire`", "is not the address"),
    ("A git clone of the repository is enough; `git clone` makes it.", None),
])
def test_finds_dead_links_flags_and_addresses(tmp_path, text, complaint):
    for name, content in {"tools/project_url.txt": "https://host.example/quire\n",
                          "tools/dev/commands.sh": "cmd_serve() {\n}\ncmd_test() {\n}\n", "dev": "", "src/cli/serve.cpp": 'add("--port");',
                          "docs/tiers.md": "# Other\n\n## A heading, with `code`\n\n## A heading with code\n", "docs/trace.md": text}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    found = list(check_docs.check(tmp_path))
    assert [complaint] if complaint is None and not found else any(complaint in one for one in found) if complaint else not found, found


@pytest.mark.parametrize(("html", "complaint"), [
    ('<a href="other.html#there">x</a><img src="data:image/png;base64,AA"><a href="https://example.org/">x</a>', None),
    ('<a href="other.html#here">x</a>', "leads to no place"),
    ('<a href="gone.html">x</a>', "leads nowhere"),
    ('<script src="https://cdn.example.org/x.js"></script>', "asks another host"),
    ('<script src="//cdn.example.org/x.js"></script>', "asks another host"),
    ('<link rel="preconnect" href="https://fonts.example.org">', "asks another host"),
    ("<style>@import 'https://fonts.example.org/x.css'</style>", "asks another host"),
    ('<p style="background: url(https://example.org/x.png)">x</p>', "asks another host"),
])
def test_finds_incomplete_sites_and_external_hosts(tmp_path, html, complaint):
    (tmp_path / "index.html").write_text(html, encoding="utf-8")
    (tmp_path / "other.html").write_text('<h2 id="there">x</h2>', encoding="utf-8")
    found = list(check_site.check(tmp_path))
    assert len(found) == 1 and complaint in found[0] if complaint else not found, found


def test_every_route_is_documented():
    pages = openapi_pages.OpenApiPages(REPO / "docs/openapi.json")
    text = "\n".join(text for _, text in pages.pages())
    routes = [(method.upper(), path) for path, methods in pages.spec["paths"].items() for method in methods]
    assert len(routes) > 30
    for method, path in routes:
        assert f"## {method} `{path}` {{#" in text
    for page in openapi_pages.TOLD_AT.values():
        assert (REPO / "docs" / page).exists(), page


def test_every_name_of_the_package_is_documented():
    quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
    pages = dict(python_pages.pages(pathlib.Path(quire.__file__).parent))
    text = "\n".join(pages.values())
    names = re.search(r"from quire\._core import \((.*?)\)", (REPO / "python/quire/__init__.py").read_text(encoding="utf-8"), re.DOTALL)[1]
    for name in {*re.findall(r"[A-Z]\w+", names), "Engine", "EngineConfig", "Generation", "Output", "SamplingParams", "Connector"}:
        assert f"class `{name}`" in text, name


def test_rewrites_links_for_the_site():
    page = rewriting.Rewriter({"docs/trace.md": "trace.md", "docs/tiers.md": "tiers.md", "ARCHITECTURE.md": "inside/architecture.md"},
                              {"trace.md": "# First\n", "tiers.md": "# Second\n", "inside/architecture.md": "# Rooms\n", "reference/cpp/core.md": ""},
                              {"Core": ("core", "Core"), "Core::add": ("core", "Core-add")}, REPO)
    cases = {
        "see docs/tiers.md, [docs/tiers.md](tiers.md#x)": "see [Second](tiers.md), [Second](tiers.md#x)",
        "`ARCHITECTURE.md`, [how](../ARCHITECTURE.md)": "[Rooms](inside/architecture.md), [how](inside/architecture.md)",
        "`include/quire/core.h` and `Core::add()`": "[`include/quire/core.h`](reference/cpp/core.md) and [`Core::add()`](reference/cpp/core.md#Core-add)",
        "    quire serve m\n    more": "```sh\nquire serve m\nmore\n```",
        "```python openai\nx = 'docs/tiers.md'\n```": "```python\nx = 'docs/tiers.md'\n```",
        "- one\n\n    of the same item, docs/tiers.md": "- one\n\n    of the same item, [Second](tiers.md)",
        "| `a\\|b` | [LICENSE](../LICENSE) |": "| `a|b` | `LICENSE` |",
        "# docs/tiers.md": "# docs/tiers.md",
    }
    for text, expected in cases.items():
        assert page.page("\n" + text, "trace.md").lstrip("\n") == expected
    assert not page.unknown
    page.page("`Core::gone()`, `Other::gone()`", "trace.md")
    assert page.unknown == ["trace.md: Core::gone is no member that the headers declare"]


def test_navigation_names_existing_pages():
    made = {uri for uri, _ in [*openapi_pages.OpenApiPages(REPO / "docs/openapi.json").pages(), *python_pages.pages(REPO / "python/quire")]}
    made |= {"reference/commands.md", "reference/cpp/index.md", "inside/architecture.md", "inside/contributing.md"}
    made |= {f"inside/measurements/{'index' if page.stem == 'README' else page.stem}.md" for page in (REPO / "bench").glob("*.md")}
    config = (REPO / "tools/docs/mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"[\w/]+\.md$", config.split("\nnav:")[1], re.MULTILINE)
    assert len(named) == len(set(named)) > 50
    for uri in named:
        assert uri in made or (REPO / "docs" / uri).exists(), uri


def built(folder, **environment):
    mkdocs = REPO / ".cache/docs/bin/mkdocs"
    if not mkdocs.exists():
        pytest.skip("mkdocs is not there: ./dev docs installs it")
    kept = {name: value for name, value in os.environ.items() if name not in ("QUIRE_DOCS_XML", "QUIRE_BINARY")}
    done = subprocess.run([mkdocs, "build", "-q", "--strict", "-f", "tools/docs/mkdocs.yml", "-d", folder], cwd=REPO, timeout=300,
                          env={**kept, **environment, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_site_without_doxygen_is_complete_and_self_contained(tmp_path):
    built(tmp_path / "site")
    assert list(check_site.check(tmp_path / "site")) == []


def test_site_is_complete_and_self_contained(tmp_path):
    if not shutil.which("doxygen"):
        pytest.skip("doxygen is not installed: ./dev docs installs it")
    setup = 'source tools/dev/setup.sh; source tools/dev/docs.sh; read_headers >&2; echo "$QUIRE_DOCS_XML"'
    xml = subprocess.run(["bash", "-euc", setup], cwd=REPO, check=True, capture_output=True, text=True, timeout=120).stdout.strip()
    built(tmp_path / "site", QUIRE_DOCS_XML=xml, **{name: os.environ[name] for name in ("QUIRE_BINARY",) if name in os.environ})
    assert list(check_site.check(tmp_path / "site")) == []
    headers = {path.relative_to(REPO / "include/quire") for path in (REPO / "include/quire").rglob("*.h")}
    pages = {path.relative_to(tmp_path / "site/reference/cpp").with_suffix(".h") for path in (tmp_path / "site/reference/cpp").rglob("*.html")}
    assert headers - pages <= {pathlib.Path("base/version.h")}, "each header with declarations must have a page"
