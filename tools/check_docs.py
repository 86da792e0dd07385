#!/usr/bin/env python3
"""Checks that names in the docs exist: files, folders, Markdown links and their headings, `./dev` commands, flags of `quire` and `./dev` in
listings, and files named in code comments. A listing with the name of an example must equal the example, and `git clone` must name the
project's address. Needs no build: the script finds flags in the sources (tests/python/test_docs.py asks each command).

Usage: check_docs.py [REPO]. Prints each name that does not exist, and exits with 1 if it found any.
"""
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import project_url

TOP = "src|include|tests|tools|docs|bench|cmake|python|examples"
BACKTICKED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"^(```+|~~~+)[^\n]*\n(.*?)^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}[^\n]*\n)+", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
CALL = re.compile(r"(?:^|(?<=[\s;|(`]))(quire|\./dev) ((?:[a-z_]+ )?[^|;#\n]*)", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
PATH = re.compile(rf"^(?:{TOP})/[\w./-]*$")
FILE_NAME = re.compile(r"^[\w-]+\.(?:h|cpp|py|cmake|sh|md)$")
COMMENTED = re.compile(rf"(?<![\w/.-])((?:{TOP})/[\w/.-]+\.(?:h|cpp|py|md|sh|cmake|txt|json|html|xz))\b")
LISTING = re.compile(r"^`(examples/[\w./]+)`[^\n]*\n+```(?:cpp|c)\n(.*?)```$", re.MULTILINE | re.DOTALL)
DEV = re.compile(r"\./dev (\w+)")
CODE = (".h", ".cpp", ".py", ".sh", ".cmake", ".txt", ".json", ".in")
MADE_LATER = ("build/",)
LEFT_BY_BUILDS = {".git", ".cache", ".venv", "build", "__pycache__"}


def listed_files(repo):
    """Returns the files in git, and new files that git does not ignore. In a tree without a usable history, returns all files except build
    outputs."""
    command = ["git", "-C", str(repo), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True) if shutil.which("git") else None
    if listed and listed.returncode == 0:
        return {path for path in listed.stdout.split("\0") if path and (repo / path).exists()}
    found = set()
    for folder, folders, files in os.walk(repo):
        folders[:] = [name for name in folders if name not in LEFT_BY_BUILDS and not name.startswith("build-")]
        found |= {pathlib.Path(folder, name).relative_to(repo).as_posix() for name in files}
    return found


def slugs(text):
    """Returns the anchors that GitHub gives to headings; the site uses the same anchors."""
    found = {}
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if i == 0 else f"{slug}-{i}" for slug, last in found.items() for i in range(last + 1)}


def listings(text):
    """Yields fenced and indented code, and code between backticks. Continued lines are joined."""
    for part in (*(match[2] for match in FENCED.finditer(text)), *INDENTED.findall(text), *BACKTICKED.findall(FENCED.sub("", text))):
        yield re.sub(r"\\\n\s*", " ", part)


def flags_in(repo, *patterns):
    """Returns all flags that the files name."""
    return {flag for pattern in patterns for path in repo.glob(pattern) for flag in FLAG.findall(path.read_text(encoding="utf-8"))}


class Tree:
    def __init__(self, repo):
        self.repo = repo
        self.url = project_url.read(repo)
        self.flags = {"quire": flags_in(repo, "src/cli/**/*.cpp", "include/quire/**/*option_table.h") | {"--help", "--version"}}
        self.flags["./dev"] = self.flags["quire"] | flags_in(repo, "dev", "tools/dev/*.sh", "bench/*.py", "bench/*.cpp", "tools/*/*.py")
        self.files = listed_files(repo)
        self.folders = {parent.as_posix() for path in self.files for parent in pathlib.PurePosixPath(path).parents}
        self.names = {pathlib.PurePosixPath(path).name for path in self.files}
        self.commands = set(re.findall(r"\bcmd_(\w+)\(\)", (repo / "tools/dev/commands.sh").read_text(encoding="utf-8"))) | {"help"}

    def slugs(self, path):
        return slugs((self.repo / path).read_text(encoding="utf-8"))

    def has(self, path):
        path = path.rstrip("/")
        return path in self.files or path in self.folders or path + ".in" in self.files  # CMake generates the file from its .in file


def dead_links(text, path, tree):
    for target, place in LINK.findall(FENCED.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if not tree.has(there):
            yield f"the link to {target} leads nowhere"
        elif place and there.endswith(".md") and place not in tree.slugs(there):
            yield f"the link to {target}#{place} leads to no heading"


def unknown_flags(text, tree):
    for listing in listings(text):
        for command, rest in CALL.findall(listing):
            yield from (f"{command} has no flag {flag} ({command} {rest.strip()})" for flag in FLAG.findall(rest) if flag not in tree.flags[command])


def dead_in_docs(text, path, tree):
    for name in BACKTICKED.findall(text):
        word = name.strip()
        if PATH.match(word) and not tree.has(word):
            yield f"there is no {word}"
        elif FILE_NAME.match(word) and word not in tree.names:
            yield f"no file is called {word}"
    yield from dead_links(text, path, tree)
    yield from unknown_flags(text, tree)
    for command in DEV.findall(text):
        if command not in tree.commands:
            yield f"./dev has no command '{command}'"
    for given in project_url.wrong_clones(text, tree.url):
        yield f"`git clone {given}` is not the address in {project_url.FILE}: write git clone {tree.url}.git"


def outdated_listings(text, repo):
    for name, listing in LISTING.findall(text):
        if (repo / name).exists() and (repo / name).read_text(encoding="utf-8") != listing:
            yield f"the listing is not {name}"


def check(repo):
    tree = Tree(repo)
    for path in sorted(tree.files):
        relative = pathlib.PurePosixPath(path)
        if relative.suffix == ".md":
            text = (repo / path).read_text(encoding="utf-8")
            found = [*dead_in_docs(text, path, tree), *outdated_listings(text, repo)]
        elif (relative.suffix in CODE or path == "dev") and not path.startswith(("tests/golden/", "tests/fuzz/corpus/")):
            text = (repo / path).read_text(encoding="utf-8", errors="replace")
            found = (f"there is no {name}" for name in COMMENTED.findall(text) if not tree.has(name) and not name.startswith(MADE_LATER))
        else:
            continue
        for complaint in dict.fromkeys(found):
            yield f"{path}: {complaint}"


def main():
    complaints = list(check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
