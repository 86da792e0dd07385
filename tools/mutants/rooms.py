"""Mutants of rooms outside the core. They are drawn first, and only the drawn ones are written into a copy of the tree, which builds the
test programs (build/mutants-rooms). The core has a separate build (play.py), because it keeps all of its mutants in one binary."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess

from . import play, report, sites
from .rewrite import Rewriter


@dataclasses.dataclass(frozen=True)
class Room:
    folders: tuple  # folders of the sources that are mutated
    programs: tuple  # test programs that may detect the change
    least_killed: float = 0.90


ROOMS = {
    "server": Room(("src/server",), ("server_test",)),
    "text": Room(("src/text",), ("text_test", "server_test")),
    "format": Room(("src/format",), ("format_test", "text_test", "model_test")),
    "tier": Room(("src/runtime/tier", "src/runtime/transport"), ("tier_test", "transport_test", "engine_test")),
    "remote": Room(("src/runtime/remote",), ("remote_test", "engine_test")),
    "engine": Room(("src/engine",), ("engine_test",)),
    "lab": Room(("src/lab",), ("lab_test",), 0.85),
}
MEMORY_GIB = "24"  # writable memory of a test program, which includes the stacks of thousands of threads


def seed_of_commit(root):
    """The seed from the commit's hash, so that it is not chosen by hand."""
    done = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    return int(done.stdout.strip(), 16)


def copy_tree(root, tree):
    """Copies the tracked and the new files, without mutants. Unchanged files keep their times, so that little is rebuilt."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True)
    paths = {path for path in listed.stdout.splitlines() if pathlib.Path(root, path).is_file()}
    tree.mkdir(parents=True, exist_ok=True)
    if not (tree / ".cache").exists():
        (tree / ".cache").symlink_to(root / ".cache")
    for path in sorted(paths):
        if not path.startswith("src/"):
            update(tree / path, pathlib.Path(root, path).read_bytes())
            shutil.copymode(root / path, tree / path)
    for stale in (tree / "src").rglob("*"):
        if stale.is_file() and str(stale.relative_to(tree)) not in paths:
            stale.unlink()
    return sorted(path for path in paths if path.startswith("src/"))


def update(path, content):
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_sources(root, tree, paths, mutants):
    by_path = {}
    for number, mutation in mutants.items():
        by_path.setdefault(mutation.path, []).append((number, mutation))
    for path in paths:
        source = pathlib.Path(root, path).read_bytes()
        if path in by_path:
            source = Rewriter(source, by_path[path]).parts(0, len(source), True).encode()
        update(tree / path, source)


def compile_programs(root, tree, build, programs, jobs):
    if not (build / "build.ninja").exists():
        flags = f"-w -Wno-c++11-narrowing -include {root}/tools/mutants/runtime.h"
        subprocess.run(["cmake", "-S", str(tree), "-B", str(build), "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++-19", "-DCMAKE_BUILD_TYPE=Release",
                        "-DQUIRE_MUTANTS=ON", "-DQUIRE_BUILD_TESTS=ON", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12",
                        f"-DCMAKE_CXX_FLAGS={flags}"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    done = subprocess.run(["ninja", "-C", str(build), "-k", "0", "-j", str(jobs), *programs], capture_output=True, text=True)
    return done.returncode, done.stdout


def draw(root, room, count, seed):
    """(drawn mutations, the remaining ones in the order of the draw)"""
    mutations = sites.find(root, room.folders)
    random.Random(seed).shuffle(mutations)
    return mutations[:count], mutations[count:]


def build_room(root, folder, room, count, seed, jobs):
    """{number: mutation} of `count` drawn mutations that compile."""
    tree, build = folder / "tree", folder / "build"
    drawn, further = draw(root, room, count, seed)
    paths = copy_tree(root, tree)
    numbered = dict(enumerate(drawn))
    while True:
        write_sources(root, tree, paths, numbered)
        code, output = compile_programs(root, tree, build, room.programs, jobs)
        if code == 0:
            return numbered
        errors = {(path.removeprefix(f"{tree}/"), int(line), int(column)) for path, line, column in play.COMPILE_ERROR.findall(output)}
        bad = {number for error in errors if error[0].startswith("src/") for number in play.blamed(tree, numbered, *error)}
        if not bad:
            raise SystemExit(f"mutants: the build fails in a line without a mutant:\n{output[-4000:]}")
        for number in bad:
            del numbered[number]
            if further:
                numbered[max(numbered, default=0) + len(drawn)] = further.pop(0)


class Programs:
    """Combines several test programs into one player: it knows which test of which program reaches which mutant."""

    def __init__(self, folder, programs):
        os.environ["QUIRE_MUTANT_MEMORY_GIB"] = MEMORY_GIB
        os.environ["MALLOC_ARENA_MAX"] = "2"
        self.players = []
        for program in programs:
            player = play.Player(folder / "tree", folder)
            player.binary = str(folder / "build" / program)
            player.reach_file = folder / f"reach-{program}.txt"
            self.players.append(player)

    def baseline(self):
        return sum(player.baseline() for player in self.players)

    def play(self, number):
        outcome = play.Outcome(False, "no test reaches it")
        for player in self.players:
            if number in player.reached_by:
                outcome = player.play(number)
                if outcome.killed:
                    break
        return outcome


def run(root, name, options, equivalent):
    """Returns True if enough mutants were killed."""
    room = ROOMS[name]
    folder = root / "build/mutants-rooms"
    folder.mkdir(parents=True, exist_ok=True)
    seed = options.seed if options.seed is not None else seed_of_commit(root)
    mutants = build_room(root, folder, room, options.count, seed, options.jobs)
    numbers = sorted(mutants)
    programs = Programs(folder, room.programs)
    tests = programs.baseline()
    print(f"{name}, seed {seed}: {len(numbers)} mutants, {tests} tests", flush=True)
    with play.concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(programs.play, numbers))
    drawn = [mutants[number] for number in numbers]
    (folder / f"survivors-{name}.json").write_text(json.dumps([m.key for m, o in zip(drawn, outcomes) if not o.killed and m.key not in equivalent]))
    return report.show_room(name, drawn, outcomes, equivalent, room.least_killed)
