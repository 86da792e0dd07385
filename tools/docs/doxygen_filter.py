#!/usr/bin/env python3
"""Doxygen's input filter: the headers' plain comments become its own. What stands above a thing, or behind it on its line, documents it; what
opens a header is the header's. Comments are text, not markup: nothing in them is a command.

Usage: doxygen_filter.py HEADER. Prints the header, line for line.
"""
import re
import sys

SPECIAL = re.compile(r"([\\@<>#&%$\"])")
TRAILING = re.compile(r"^(?P<code>.*?\S)\s+// ?(?P<text>.*)$")


def text_of(comment):
    """`// // text`: the second mark keeps a comment apart from what was said before it."""
    return SPECIAL.sub(r"\\\1", comment.removeprefix("//").removeprefix(" ").removeprefix("// "))


def documented(lines):
    for number, line in enumerate(lines):
        bare = line.strip()
        trailing = TRAILING.match(line)
        if bare == "#pragma once" and number + 1 < len(lines) and lines[number + 1].startswith("//"):
            yield "/// \\file"
        elif bare.startswith("//"):
            yield line[: len(line) - len(line.lstrip())] + "/// " + text_of(bare)
        elif trailing and trailing["code"].count('"') % 2 == 0:
            yield f"{trailing['code']}  ///< {text_of(trailing['text'])}"
        else:
            yield line


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(documented(header.read().split("\n"))), end="")
