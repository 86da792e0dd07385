#!/usr/bin/env python3
"""Checks which folder includes which. The allowed includes are defined only in cmake/: a room may include itself, include/quire and the
rooms after DEPS in its quire_room() line. A room after LINKS is linked through a facade and must not be included. The script checks
each #include "..." under src/, include/ and python/src, and the table of rooms in ARCHITECTURE.md. Neither rooms nor folders of public
headers may have include cycles. No two headers define a class of the same name.

Usage: check_includes.py [REPO]. Prints each wrong line, and exits with 1 if it found any.
"""
import pathlib
import re
import sys

from check_imports import circles

ROOM = re.compile(r"quire_room\(\s*(\w+)\s+(\S+)([^)]*)\)")
KEYWORDS = {"PART", "PCH", "DEPS", "LINKS", "LIBS", "EXCLUDE", "NO_PCH"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
NAMESPACE = re.compile(r"namespace ([\w:]+)")
CLASS = re.compile(r"(?:class|struct)\s+(?:QUIRE_API\s+)?(\w+)(?![\w:]*::)(?:\s+final)?\s*(?::[^;]*)?\{")
TABLE_ROW = re.compile(r"^\| `src/([^`]+)` \|.*\| *([^|]*?) *\|$")


def read_rooms(repo):
    """Returns a dict: folder under src/ -> the other folders under src/ that this folder may include."""
    folders, names = {}, {}
    for path in sorted(repo.glob("cmake/*.cmake")):
        if path.name == "QuireRoom.cmake":
            continue
        for name, folder, rest in ROOM.findall(path.read_text(encoding="utf-8")):
            keyword, deps = None, []
            for word in rest.split():
                keyword = word if word in KEYWORDS else keyword
                if keyword == "DEPS" and word != "DEPS":
                    deps.append(word)
            folders[name], names[folder] = folder, deps
    return {folder: {folders[dep] for dep in deps} for folder, deps in names.items()}


def room_of(path, rooms):
    """Returns the room of a path under src/: the longest prefix of the path that is a room, or None."""
    parts = path.split("/")[:-1]
    return next((name for length in range(len(parts), 0, -1) if (name := "/".join(parts[:length])) in rooms), None)


def check_file(path, repo, rooms):
    relative = path.relative_to(repo).as_posix()
    public, bindings = relative.startswith("include/"), relative.startswith("python/")
    source = None if public or bindings else room_of(relative.removeprefix("src/"), rooms)
    if not public and not bindings and source is None:
        yield f"{relative}: belongs to no room; add a quire_room() for its folder to cmake/Rooms.cmake, and a row to ARCHITECTURE.md"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match or match.group(1).startswith("quire/") or (bindings and (repo / "python/src" / match.group(1)).is_file()):
            continue
        target = room_of(match.group(1), rooms)
        if public or bindings:
            yield f"{relative}:{number}: public headers and the bindings may include public headers only"
        elif target is None:
            yield f'{relative}:{number}: write the include from the root: "room/file.h"'
        elif target != source and target not in rooms[source]:
            yield f"{relative}:{number}: {source} may not include {target}"


def check_architecture(text, rooms):
    """Checks that the table of ARCHITECTURE.md has one row per room, with the same DEPS as cmake/Rooms.cmake."""
    shown = {}
    for line in text.splitlines():
        if match := TABLE_ROW.match(line):
            shown[match.group(1)] = {word for word in re.split(r",\s*", match.group(2)) if word and word != "the facades"}
    for folder in sorted(rooms.keys() | shown.keys()):
        if folder not in shown:
            yield f"ARCHITECTURE.md: no row for src/{folder}"
        elif folder not in rooms:
            yield f"ARCHITECTURE.md: src/{folder} is not a room in cmake/Rooms.cmake"
        elif shown[folder] != rooms[folder]:
            yield f"ARCHITECTURE.md: src/{folder} may include {', '.join(sorted(rooms[folder])) or 'nothing'} (cmake/Rooms.cmake)"


def public_folders(repo):
    """Returns a dict: folder under include/ -> the other folders under include/ that the headers of this folder include."""
    graph = {}
    for path in repo.glob("include/**/*.h"):
        folder = path.relative_to(repo / "include").parent.as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        targets = {match.group(1).rpartition("/")[0] for line in lines if (match := INCLUDE.match(line))}
        graph.setdefault(folder, set()).update(targets - {folder})
    return graph


def repeated_classes(repo):
    """Yields an error for each class that two headers define under one name. Such classes share their inline functions in a program that links
    both (the one-definition rule), even if no file includes both headers. Classes of anonymous namespaces are not compared."""
    headers = {}
    for path in sorted([*repo.glob("src/**/*.h"), *repo.glob("include/**/*.h")]):
        scope, is_anonymous = "", False
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := NAMESPACE.match(line):
                scope = match.group(1)
            elif line in ("namespace {", "}  // namespace"):
                is_anonymous = line == "namespace {"
            elif not is_anonymous and (match := CLASS.match(line)):
                headers.setdefault(f"{scope}::{match.group(1)}", {})[path.relative_to(repo).as_posix()] = None
    for name, places in headers.items():
        first, *others = places
        yield from (f"{other}: {first} also defines {name}" for other in others)


def check(repo):
    rooms = read_rooms(repo)
    errors = [f"cmake/Rooms.cmake: include cycle: {' -> '.join(circle)}" for circle in circles(rooms)]
    errors += [f"include: include cycle: {' -> '.join(circle)}" for circle in circles(public_folders(repo))]
    errors += list(repeated_classes(repo))
    errors += list(check_architecture((repo / "ARCHITECTURE.md").read_text(encoding="utf-8"), rooms))
    for path in sorted([*repo.glob("src/**/*"), *repo.glob("include/**/*"), *repo.glob("python/src/**/*")]):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh", ".inc"):
            errors += check_file(path, repo, rooms)
    return errors


def main():
    repo = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    errors = check(repo)
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
