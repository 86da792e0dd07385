"""Prints the files of a compilation database for clang-tidy, the slowest first: lint_units.py compile_commands.json"""
import json
import os
import sys

files = {entry["file"] for entry in json.load(open(sys.argv[1])) if "nanobind" not in entry["file"] and os.path.exists(entry["file"])}
# The time for a file grows with its length.
print("\n".join(sorted(files, key=lambda file: (-os.path.getsize(file), file))))
