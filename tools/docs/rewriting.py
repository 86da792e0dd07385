"""Rewrites the Markdown of a page for hooks.py before mkdocs reads it: GitHub's syntax becomes Python-Markdown's, and names become links.
In listings, only the language for the colours is added."""
import posixpath
import re

SHELL = re.compile(r"^(?:#|\$|quire|curl|pip|\./dev|vllm|apt|g\+\+|tar|python3?|git|cmake|systemctl|install|editor|man|journalctl|[A-Z_]+=\S+) ?")
PYTHON = re.compile(r"^(?:import|from|with|def|class) ")
FENCE = re.compile(r"^(`{3,}|~{3,})\s*([\w+-]*)(.*)$")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
NAMED_PAGE = r"(?:docs/[\w/]+|bench/\w+|ARCHITECTURE|CONTRIBUTING)\.md"
CODE = re.compile(r"(?<!`)(?P<marks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=marks)(?!`)")
MEMBER = re.compile(r"\b[A-Z]\w+(?:::(?:\w|\\_)+)+(?:\(\))?")


def language(first, named=""):
    if named:
        return named
    if SHELL.match(first):
        return "sh"
    return "python" if PYTHON.match(first) else "json" if first.startswith("{") else "text"


class Rewriter:
    def __init__(self, sources, made, places, repo):
        self.sources = sources  # path of a page in the repository -> its path in the site
        self.places = places  # C++ name -> (header page, anchor)
        self.made = made
        self.unknown = []  # members that pages name but that their classes do not have
        self.origin = {site: there for there, site in sources.items()}
        texts = {there: made[site] if site in made else (repo / there).read_text(encoding="utf-8") for there, site in sources.items()}
        self.titles = {there: title_of(text) for there, text in texts.items()}

    # Pages that exist only in the site. Pages of the repository name them in bold, and this script converts the names to links.
    MADE = {"reference/index.md": {"Commands and flags": "commands", "HTTP API": "http/index", "C++ headers": "cpp/index", "Python": "python/index"}}

    def page(self, text, uri):
        """Returns the rewritten page. `uri` is the page's path in the site."""
        for cell, there in self.MADE.get(uri, {}).items():
            text = text.replace(f"| {cell} |", f"| [{cell}]({there}.md) |")
        out, lines, at, before = [], text.split("\n"), 0, ""
        while at < len(lines):
            line = lines[at]
            fence = FENCE.match(line)
            if fence:
                end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith(fence[1])), len(lines) - 1)
                out += [f"{fence[1]}{language(lines[at + 1], fence[2])}", *lines[at + 1: end], fence[1]]
                at, before = end + 1, "fence"
                continue
            if line.startswith("    ") and not lines[at - 1].strip() and not before.startswith(("- ", "* ", "1.", "!!!", "???")):
                end = at
                while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip() and end + 1 < len(lines) and lines[end + 1].startswith("    ")):
                    end += 1
                block = [line[4:] for line in lines[at:end]]
                out += [f"```{language(block[0])}", *block, "```"]
                at, before = end, "fence"
                continue
            if line.strip() and not line.startswith(" "):
                before = line
            out.append(self.line(line, uri))
            at += 1
        return "\n".join(out)

    def line(self, line, uri):
        if line.startswith("|"):
            line = CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        if line.startswith("#"):
            return line
        out, at = [], 0
        for match in re.finditer(rf"{LINK.pattern}|{CODE.pattern}|{NAMED_PAGE}|<[^>]+>", line):
            out += [self.words(line[at:match.start()], uri), self.named(match[0], uri)]
            at = match.end()
        return "".join([*out, self.words(line[at:], uri)])

    def words(self, text, uri):
        """Adds links to names of members without backticks, as the comments of headers have them."""
        return MEMBER.sub(lambda match: self.member(match[0], uri, match[0]), text) if uri.startswith("reference/cpp/") else text

    def named(self, text, uri):
        link = LINK.fullmatch(text)
        if link:
            return self.link(link, uri)
        code = CODE.fullmatch(text)
        bare = code["code"].strip() if code else text
        if bare in self.sources:
            return f"[{self.titles[bare]}]({self.way(uri, self.sources[bare])})"
        if not code:
            return text
        header = re.fullmatch(r"(?:include/)?quire/([\w/]+)\.h", bare)
        if header and f"reference/cpp/{header[1]}.md" in self.made:
            return f"[{text}]({self.way(uri, f'reference/cpp/{header[1]}.md')})"
        return self.member(bare, uri, text)

    def member(self, name, uri, text):
        name = name.removesuffix("()").replace("\\_", "_")
        place = self.places.get(name)
        if place is None and "::" in name and name.rsplit("::", 1)[0] in self.places:
            self.unknown.append(f"{uri}: {name} is no member that the headers declare")
        if place is None or uri == f"reference/cpp/{place[0]}.md" and "::" not in name:
            return text
        return f"[{text}]({self.way(uri, f'reference/cpp/{place[0]}.md')}#{place[1]})"

    def link(self, match, uri):
        mark, text, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")) or uri not in self.origin:
            text_title = re.sub(r"^TITLE$", lambda _: self.title_at(uri, target), text)
            return f"{mark}[{text_title}]({target})"
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(self.origin[uri]), path))
        text = self.titles[text] if text in self.titles else text
        if there in self.sources:
            return f"{mark}[{text}]({self.way(uri, self.sources[there])}{'#' + anchor if anchor else ''})"
        if there.startswith("docs/"):
            return f"{mark}[{text}]({self.way(uri, there.removeprefix('docs/'))}{'#' + anchor if anchor else ''})"
        return f"`{there}`" if text == there else text

    def title_at(self, uri, target):
        there = "docs/" + posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))
        return self.titles.get(there, target)

    @staticmethod
    def way(uri, there):
        return posixpath.relpath(there, posixpath.dirname(uri) or ".")


def title_of(text):
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
