"""Writes the files of recordings."""
import json
import lzma
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"


def open_text(path, mode):
    """Opens a text file. A file whose name ends in .xz is compressed; equal texts give equal bytes."""
    if path.suffix == ".xz":
        return lzma.open(path, mode + "t", encoding="utf-8", **({"preset": 9} if mode == "w" else {}))
    return path.open(mode, encoding="utf-8")


def write_lines(path, lines):
    with open_text(path, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
    print(f"{path}: {len(lines)} lines, {path.stat().st_size} bytes")


def write_cases(path, record, cases, separators=None):
    """Writes a JSON object: the fields of `record`, and `cases` with one case per line."""
    lines = ",\n".join(json.dumps(case, separators=separators) for case in cases)
    path.write_text(json.dumps(record)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


def versions(*modules):
    return ", ".join(f"{module.__name__} {module.__version__}" for module in modules)
