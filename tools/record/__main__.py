"""The command line of the package: see __init__.py."""
import argparse
import ast
import importlib
import pathlib
import sys

from .files import GOLDEN


def recordings():
    """Returns {name of a recording: first line of its docstring}. Does not import the modules, because each of them needs other packages."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {getattr(name, "name", getattr(name, "id", None)) for node in tree.body if isinstance(node, (ast.Assign, ast.FunctionDef))
                 for name in ([node] if isinstance(node, ast.FunctionDef) else ast.walk(node))}
        if "main" in names and not path.name.startswith("_"):
            found[path.stem] = ast.get_docstring(tree).splitlines()[0]
    return found


def main():
    found = recordings()
    if len(sys.argv) < 2 or sys.argv[1] not in found:
        print("record NAME [--help]: NAME is one of", *(f"  {name:20} {line}" for name, line in found.items()), sep="\n")
        sys.exit(2)
    module = importlib.import_module(f".{sys.argv[1]}", __package__)
    parser = argparse.ArgumentParser(prog=f"record {sys.argv[1]}", description=module.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN / module.OUT, help="file or folder to write (default: %(default)s)")
    for option, (default, text) in getattr(module, "OPTIONS", {}).items():
        given = {"action": "store_true"} if isinstance(default, bool) else {"type": type(default)} if default is not None else {}
        parser.add_argument(f"--{option.replace('_', '-')}", default=default, help=text, **given)
    module.main(**vars(parser.parse_args(sys.argv[2:])))


if __name__ == "__main__":
    main()
