#!/usr/bin/env python3
"""Doxygen's input filter: converts the headers' plain comments to doxygen comments. A comment above a declaration, or at the end of its
line, documents the declaration; a comment at the top of a header documents the header. The text is escaped, so that doxygen finds no
commands in it.

Usage: doxygen_filter.py HEADER. Prints the header, line by line.
"""
import re
import sys

SPECIAL = re.compile(r"([\\@<>#&%$\"])")
TRAILING = re.compile(r"^(?P<code>.*?\S)\s+// ?(?P<text>.*)$")


def text_of(comment):
    """Returns the text of a comment line. In `// // text`, the second mark separates the comment from the comment before it."""
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
