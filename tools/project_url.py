#!/usr/bin/env python3
"""Manages the project's public address, which stands only in tools/project_url.txt. The docs and python/pyproject.toml repeat the address, so
this script writes it there, and tools/check_docs.py checks it. Packages take it from the file.

Usage: project_url.py prints the address. project_url.py --set URL changes it everywhere. project_url.py --release also fails if the address
is still the placeholder.
"""
import argparse
import pathlib
import re
import sys
import urllib.parse

REPO = pathlib.Path(__file__).resolve().parents[1]
FILE = "tools/project_url.txt"
REPEATED_IN = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "python/pyproject.toml")
PLACEHOLDER_HOST = "example.org"
CLONE = re.compile(r"git clone +(?:(?:-\S+|\d+) +)*([^\s`]*[:/.][^\s`&;|]*)")


def read(repo=REPO):
    return (repo / FILE).read_text(encoding="utf-8").strip()


def problem_of(url):
    """Returns why `url` cannot be the project's address, or None."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or re.search(r"\s", url):
        return f"'{url}' is not an address like https://HOST/PATH"
    if url.endswith(("/", ".git")):
        return f"'{url}' must not end with / or .git"
    return None


def wrong_clones(text, url):
    """Yields the addresses that the `git clone` commands of a page name instead of the project's address."""
    yield from (given for given in CLONE.findall(text) if given != f"{url}.git")


def repeating_files(repo):
    return sorted(path for pattern in REPEATED_IN for path in repo.glob(pattern))


def set_url(repo, new):
    old = read(repo)
    for path in repeating_files(repo):
        text = path.read_text(encoding="utf-8")
        changed = re.sub(re.escape(old) + r"(?![\w-])", lambda _match: new, text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
            print(path.relative_to(repo))
    (repo / FILE).write_text(new + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", metavar="URL", help="change the address in all files")
    parser.add_argument("--release", action="store_true", help="fail if the address is the placeholder")
    asked = parser.parse_args()
    if asked.set is not None:
        if problem := problem_of(asked.set):
            sys.exit(f"--set: {problem}")
        set_url(REPO, asked.set)
        return
    url = read()
    if asked.release and urllib.parse.urlsplit(url).hostname == PLACEHOLDER_HOST:
        sys.exit(f"{FILE}: {url} is a placeholder. Set the project's address: tools/project_url.py --set URL")
    print(url)


if __name__ == "__main__":
    main()
