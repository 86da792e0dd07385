#!/usr/bin/env python3
"""Who may include whom: checks every #include "..." under src/ and include/ against the table of ARCHITECTURE.md.

Usage: check_includes.py [REPO]. Prints each forbidden line and exits with 1 if there is one.
"""
import pathlib
import re
import sys

# room -> rooms it may include, besides itself and include/quire. A room is the longest matching prefix of a path under src/.
ALLOWED = {
    "base": [],
    "format": ["base"],
    "text": ["base"],
    "core/kv": ["base"],
    "core/offload": ["base"],
    "core/agent": ["base"],
    "core/journal": ["base"],
    "core/connect": ["base", "core/kv", "core/offload"],
    "core/schedule": ["base", "core/kv", "core/offload", "core/agent", "core/journal", "core/connect"],
    "runtime/memory": ["base"],
    "runtime/kernel": ["base"],
    "runtime/sample": ["base", "text"],
    "runtime/model": ["base", "format", "runtime/memory", "runtime/kernel"],
    "runtime/worker": ["base", "runtime/memory", "runtime/kernel", "runtime/sample", "runtime/model"],
    "engine": ["base", "core", "runtime"],
    "server": ["base", "text"],
    "cli": ["base", "text", "server"],
    "python": [],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def room_of(path):
    """The room a path under src/ belongs to, or None."""
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if len(parts) > length and name in ALLOWED:
            return name
    return None


def allowed(source, target):
    return source == target or any(target == room or target.startswith(room + "/") for room in ALLOWED[source])


def check(repo):
    errors = []
    for path in sorted([*repo.glob("src/**/*"), *repo.glob("include/**/*"), *repo.glob("python/src/**/*")]):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh", ".inc"):
            continue
        relative = path.relative_to(repo).as_posix()
        public = relative.startswith("include/")
        bindings = relative.startswith("python/")  # their own headers lie in python/src
        source = "python" if bindings else None if public else room_of(relative.removeprefix("src/"))
        if not public and source is None:
            errors.append(f"{relative}: belongs to no room; add its folder to tools/check_includes.py and ARCHITECTURE.md")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or match.group(1).startswith("quire/"):
                continue
            if bindings and (repo / "python/src" / match.group(1)).is_file():
                continue
            target = room_of(match.group(1))
            if public:
                errors.append(f"{relative}:{number}: a public header may include public headers only")
            elif target is None:
                errors.append(f"{relative}:{number}: write the include from the root: \"room/file.h\"")
            elif not allowed(source, target):
                errors.append(f"{relative}:{number}: {source} may not include {target}")
    return errors


def main():
    repo = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    errors = check(repo)
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
