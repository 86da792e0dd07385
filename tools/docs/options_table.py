#!/usr/bin/env python3
"""Makes the tables of docs/options.md from the rows of include/quire/base/core_option_table.h and include/quire/server_option_table.h.
Prints them; with --write, writes them into the page. A test compares the page with this output."""
import pathlib
import re
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
STRING = r'"((?:[^"\\]|\\.)*)"'
CONSTANT = re.compile(rf"constexpr const char\* (k\w+) = {STRING};")
ROW = re.compile(r"^    \{(?:member<|\[\]|nullptr).*?\}\},$", re.MULTILINE | re.DOTALL)


def fields(header):
    """Returns (field, flag, note) of each option, in the order of the tables. The flag is empty if users cannot set the field."""
    text = (REPO / "include/quire" / header).read_text(encoding="utf-8")
    text = re.sub(r'"\s*\n\s*"', "", text)
    constants = dict(CONSTANT.findall(text))

    def value(row, name):
        found = re.search(rf"\.{name} = (?:{STRING}|(k\w+))", row)
        return "" if found is None else constants[found[2]] if found[2] else found[1]

    for row in ROW.findall(text):
        flag = value(row, "flag")
        member = re.match(r"    \{member<&\w+::(\w+)>", row)
        yield member[1] if member else value(row, "field") or flag.removeprefix("--").replace("-", "_"), flag, value(row, "note")


def table(first, header):
    rows = [f"| {first} | flag | notes |", "|---|---|---|"]
    for field, flag, note in fields(header):
        rows.append(f"| `{field}` | {f'`{flag}`' if flag else '-'} | {note}{' ' if note else ''}|")
    return "\n".join(rows)


def tables():
    return [table("field", "base/core_option_table.h"), table("server option", "server_option_table.h")]


def write():
    page = REPO / "docs/options.md"
    text = page.read_text(encoding="utf-8")
    for made in tables():
        head = made.partition("\n")[0]
        text, count = re.subn(rf"^{re.escape(head)}\n(?:\|.*\n)+", lambda _: made + "\n", text, flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"docs/options.md: has no table that begins with '{head}'")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    elif len(sys.argv) > 1:
        sys.exit("usage: options_table.py [--write]")
    else:
        print("\n\n".join(tables()))
