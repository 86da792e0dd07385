#!/usr/bin/env python3
"""Checks that the Python files of tools/, bench/ and python/ have no import cycles. Imports inside functions count too.

Usage: check_imports.py [REPO]. Prints each cycle, and exits with 1 if it found any.
"""
import ast
import pathlib
import sys

FOLDERS = ("tools", "bench", "python")


def imported(path):
    """Yields (level, parts of the module's path) for each import in a file, including imports in functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            yield from ((node.level, [*module, alias.name]) for alias in node.names)
            yield node.level, module


def find(level, names, path, repo, files):
    """Returns the file in `files` that an import in `path` refers to, or None. Scripts can import files next to them, and packages of
    python/ and tools/."""
    folders = [path.parents[level - 1]] if level > 0 else [path.parent, repo / "python", repo / "tools"]
    candidates = [folder.joinpath(*names) for folder in folders if names]
    return next((file for place in candidates for file in (place.with_suffix(".py"), place / "__init__.py") if file in files), None)


def read_graph(repo):
    """Returns {file: files of the same folders that it imports}."""
    files = {path for folder in FOLDERS for path in (repo / folder).glob("**/*.py")}
    return {path: {found for level, names in imported(path) if (found := find(level, names, path, repo, files))} - {path} for path in files}


def circles(graph):
    """Returns the import cycles as [[node, ..., node]]: for each node the first cycle that it leads to, unless an earlier node leads to
    this cycle."""
    found, done = [], set()

    def visit(node, way):
        if node in way:
            found.append([*way[way.index(node) :], node])
        elif node not in done:
            for other in sorted(graph.get(node, ())):
                visit(other, [*way, node])
            done.add(node)

    for node in sorted(graph):
        visit(node, [])
    return found


def main():
    repo = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = circles(read_graph(repo))
    for circle in found:
        print("import cycle: " + " -> ".join(path.relative_to(repo).as_posix() for path in circle))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
