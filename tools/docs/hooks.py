"""Hooks of mkdocs (mkdocs.yml names this file). They add the pages made from the headers, openapi.json, the Python package, the command and
the repository's own pages. They also convert the names of pages, headers and classes to links, and put drawings into their pages.

`./dev docs` sets environment variables for available inputs: QUIRE_DOCS_XML (doxygen's output for the headers), QUIRE_BINARY,
QUIRE_PYTHON_PACKAGE.
"""
import os
import pathlib
import posixpath
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]
import commands_page  # noqa: E402
import cpp_pages  # noqa: E402
import openapi_pages  # noqa: E402
import python_pages  # noqa: E402
import rewriting  # noqa: E402

# Pages of the repository outside docs/.
MEASUREMENTS = {f"bench/{page.name}": f"inside/measurements/{'index.md' if page.stem == 'README' else page.name}"
                for page in sorted((REPO / "bench").glob("*.md"))}
ELSEWHERE = {"ARCHITECTURE.md": "inside/architecture.md", "CONTRIBUTING.md": "inside/contributing.md", **MEASUREMENTS}
NO_CPP = """# C++ headers

This site was built without doxygen (Debian's package `doxygen`), which reads the headers. They are contracts by themselves: `include/quire`, or
`PREFIX/include/quire` where quire is installed. [Embedding quire](../../embedding.md) says which of them gives what.
"""
# The search ranks written pages above generated lists.
LISTS = "---\nsearch:\n  boost: 0.3\n---\n\n"
STATE = {}


def on_config(config):
    xml, binary = os.environ.get("QUIRE_DOCS_XML"), os.environ.get("QUIRE_BINARY")
    made = {site: (REPO / there).read_text(encoding="utf-8") for there, site in ELSEWHERE.items()}
    places = {}
    if xml:
        headers = cpp_pages.CppPages(xml)
        made.update(headers.pages())
        places = headers.places
        under(config.nav, "C++ headers", headers.nav())
    else:
        made[cpp_pages.ROOT + "index.md"] = NO_CPP
    made.update(openapi_pages.OpenApiPages(REPO / "docs/openapi.json").pages())
    made.update(python_pages.pages(pathlib.Path(os.environ.get("QUIRE_PYTHON_PACKAGE") or REPO / "python") / "quire"))
    made[commands_page.URI] = commands_page.page(binary)
    unnamed(config.nav, made)
    sources = {f"docs/{path.relative_to(REPO / 'docs').as_posix()}": path.relative_to(REPO / "docs").as_posix()
               for path in sorted((REPO / "docs").rglob("*.md"))}
    STATE.update(made=made, rewriter=rewriting.Rewriter({**sources, **ELSEWHERE}, made, places, REPO))
    return config


def named(nav):
    for part in nav:
        for inner in part.values() if isinstance(part, dict) else (part,):
            yield from named(inner) if isinstance(inner, list) else (inner,)


def unnamed(nav, made):
    """Adds pages that mkdocs.yml does not name to the end of the reference."""
    known = set(named(nav))
    there = sorted({path.relative_to(REPO / "docs").as_posix() for path in (REPO / "docs").rglob("*.md")} | set(made))
    rest = [uri for uri in there if uri not in known]
    if rest:
        next(part for part in nav if "Reference" in part)["Reference"].append({"Further": rest})


def under(nav, title, entries):
    """Replaces the only page with this title by these entries."""
    for part in nav:
        for name, inner in list(part.items()) if isinstance(part, dict) else ():
            if name == title:
                part[name] = entries
            elif isinstance(inner, list):
                under(inner, title, entries)


def on_files(files, config):
    for uri, text in STATE["made"].items():
        files.append(File.generated(config, uri, content=(LISTS if uri.startswith("reference/") else "") + text))
    return files


def on_page_markdown(markdown, page, **_):
    return STATE["rewriter"].page(markdown, page.file.src_uri)


def on_page_content(html, page, **_):
    """Puts drawings into the page as inline SVG, so that they have the page's colours, light or dark."""
    def drawing(match):
        path = REPO / "docs" / posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match["src"]))
        if not path.is_file():
            raise PluginError(f"{page.file.src_uri}: there is no drawing {match['src']}")
        svg = re.sub(r"<\?xml.*?\?>\s*|<!--.*?-->\s*", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        return f'<figure class="drawing">{svg}</figure>'
    return re.sub(r'(?:<p>)?<img alt="[^"]*" src="(?P<src>[^"]+\.svg)"\s*/?>(?:</p>)?', drawing, html)


def on_env(env, **_):
    """Called when all pages have been read."""
    if STATE["rewriter"].unknown:
        raise PluginError("\n".join(dict.fromkeys(STATE["rewriter"].unknown)))
    return env


@event_priority(-100)
def on_post_build(config, **_):
    """Makes the search index a script, because a page that was opened from a folder, without a server, may run scripts but not read files."""
    folder = pathlib.Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text("var __index = " + (folder / "search_index.json").read_text(encoding="utf-8"), encoding="utf-8")
