#!/usr/bin/env python3
"""Names that the docs mention must exist: files, folders, Markdown links, `./dev` commands; files named in comments of code too. A listing
under the name of an example must be that example.

Usage: check_docs.py [REPO]. Prints each dead name and exits with 1 if there is one.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = "src|include|tests|tools|docs|bench|cmake|python|examples"
BACKTICKED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(rf"^(?:{TOP})/[\w./-]*$")
FILE_NAME = re.compile(r"^[\w-]+\.(?:h|cpp|py|cmake|sh|md)$")
COMMENTED = re.compile(rf"(?<![\w/.-])((?:{TOP})/[\w/.-]+\.(?:h|cpp|py|md|sh|cmake|txt|json|html|xz))\b")
LISTING = re.compile(r"^`(examples/[\w.]+)`[^\n]*\n+```cpp\n(.*?)```$", re.MULTILINE | re.DOTALL)
DEV = re.compile(r"\./dev (\w+)")
CODE = (".h", ".cpp", ".py", ".pyi", ".sh", ".cmake", ".txt", ".json", ".in")
MADE_LATER = ("build/",)
LEFT_BY_BUILDS = {".git", ".cache", ".venv", "build", "__pycache__"}


def listed_files(repo):
    """What git knows or would add; in a tree without a history (an archive of one, another user's), all but what builds leave."""
    command = ["git", "-C", str(repo), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True) if shutil.which("git") else None
    if listed and listed.returncode == 0:
        return {path for path in listed.stdout.split("\0") if path and (repo / path).exists()}
    found = set()
    for folder, folders, files in os.walk(repo):
        folders[:] = [name for name in folders if name not in LEFT_BY_BUILDS and not name.startswith("build-")]
        found |= {pathlib.Path(folder, name).relative_to(repo).as_posix() for name in files}
    return found


class Tree:
    def __init__(self, repo):
        self.files = listed_files(repo)
        self.folders = {parent.as_posix() for path in self.files for parent in pathlib.PurePosixPath(path).parents}
        self.names = {pathlib.PurePosixPath(path).name for path in self.files}
        self.commands = set(re.findall(r"\bcmd_(\w+)\(\)", (repo / "tools/dev/commands.sh").read_text(encoding="utf-8"))) | {"help"}

    def has(self, path):
        path = path.rstrip("/")
        return path in self.files or path in self.folders or path + ".in" in self.files  # .in: CMake makes it


def dead_in_docs(text, folder, tree):
    for name in BACKTICKED.findall(text):
        word = name.strip()
        if PATH.match(word) and not tree.has(word):
            yield f"there is no {word}"
        elif FILE_NAME.match(word) and word not in tree.names:
            yield f"no file is called {word}"
    for target in LINK.findall(text):
        if "://" not in target and not tree.has((folder / target).as_posix().removeprefix("./")):
            yield f"the link to {target} leads nowhere"
    for command in DEV.findall(text):
        if command not in tree.commands:
            yield f"./dev has no command '{command}'"


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
            found = [*dead_in_docs(text, relative.parent, tree), *outdated_listings(text, repo)]
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
