"""Prints the files of a compilation database for clang-tidy, the slowest first: lint_units.py compile_commands.json"""
import json
import os
import sys

files = {entry["file"] for entry in json.load(open(sys.argv[1])) if "nanobind" not in entry["file"] and os.path.exists(entry["file"])}
# unity units are long; a longer unit takes longer
print("\n".join(sorted(files, key=lambda file: (-os.path.getsize(file), file))))
