"""The files of a compilation database that clang-tidy is to read, the slowest first: lint_units.py compile_commands.json"""
import json
import os
import sys

files = {entry["file"] for entry in json.load(open(sys.argv[1])) if "nanobind" not in entry["file"] and os.path.exists(entry["file"])}
# the units that CMake made of our sources are long; a longer one takes longer
print("\n".join(sorted(files, key=lambda file: (-os.path.getsize(file), file))))
