"""Writes sources that contain mutants next to the original code; the active mutant is chosen at run time. Line numbers do not change."""

import pathlib

from .sites import flat


class Rewriter:
    def __init__(self, source, mutants):
        """Takes the mutants of one file as (number, mutation)."""
        self.source = source
        self.by_range = {}
        for number, mutation in mutants:
            self.by_range.setdefault((mutation.start, mutation.end), []).append((number, mutation))
        self.ranges = sorted(self.by_range, key=lambda r: (r[0], -r[1]))

    def parts(self, start, end, itself):
        """Returns the text of a range, with its outermost mutated ranges rewritten."""
        out, at = [], start
        for inner in self.ranges:
            if inner[0] >= at and inner[1] <= end and (itself or inner != (start, end)):
                out += [self.source[at : inner[0]].decode(), self.mutated(*inner)]
                at = inner[1]
        return "".join(out) + self.source[at:end].decode()

    def mutated(self, start, end):
        text = self.parts(start, end, False)
        for number, mutation in self.by_range[start, end]:
            text = self.around(mutation.before, number) + text + self.around(mutation.after, number)
        return text

    def around(self, parts, number):
        return "".join(part.replace("#", str(number)) if isinstance(part, str) else flat(self.parts(*part, True)) for part in parts)


def write(root, folder, mutants):
    """Copies all files of the core with their mutants ({number: mutation}). An unchanged file is not written again."""
    by_path = {}
    for number, mutation in mutants.items():
        by_path.setdefault(mutation.path, []).append((number, mutation))
    paths = {str(p.relative_to(root)) for p in pathlib.Path(root, "src/core").rglob("*") if p.suffix in (".h", ".cpp")}
    for path in sorted(paths):
        source = pathlib.Path(root, path).read_bytes()
        text = Rewriter(source, by_path.get(path, [])).parts(0, len(source), True)
        copy = pathlib.Path(folder, path)
        if not copy.exists() or copy.read_text() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
    for stale in pathlib.Path(folder, "src").rglob("*"):
        if stale.is_file() and str(stale.relative_to(folder)) not in paths:
            stale.unlink()
