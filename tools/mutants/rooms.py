"""Mutants of rooms outside the core. They are selected first, and only the selected ones are written into a copy of the tree, which builds
the test programs (build/mutants-rooms). The core has a separate build (play.py), which contains all of its mutants in one binary."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess

from . import play, report, sites
from .python_files import PROGRAMS, PythonFiles
from .rewrite import Rewriter


@dataclasses.dataclass(frozen=True)
class Room:
    folders: tuple  # folders of the sources that are mutated
    programs: tuple  # test programs that may detect a mutant
    python: tuple = ()  # files of tests/python that may detect a mutant, without test_ and .py
    least_killed: float = 0.90


SERVER_FILES = ("messages", "responses", "openai_client", "server_errors", "strict_fields", "request_fields", "structured_output", "explain",
                "cache_probe", "operator", "tenants", "spans", "embeddings", "transcriptions", "pictures", "hidden_states", "sessions", "openapi",
                "tools", "curve", "dashboard", "kv_events")  # fmt: skip
ROOMS = {
    "server": Room(("src/server",), ("server_test",), SERVER_FILES),
    "text": Room(("src/text",), ("text_test", "server_test"), ("templates", "template_chats", "tool_calls", "tokenizer", "ranked_tokenizers", "added_tokens")),
    "format": Room(("src/format",), ("format_test", "text_test", "model_test"), ("tokenizer", "generation_config", "lora", "pictures")),
    "tier": Room(("src/runtime/tier", "src/runtime/transport"), ("tier_test", "transport_test", "engine_test")),
    "remote": Room(("src/runtime/remote",), ("remote_test", "engine_test")),
    "engine": Room(("src/engine",), ("engine_test",)),
    "lab": Room(("src/lab",), ("lab_test",), ("plot_page", "curve"), 0.85),
}
MOST_IN_ROOM = 8192  # runtime.cpp has numbers for 32 rooms
MEMORY_GIB = "24"  # writable memory of a test program in GiB, which includes the stacks of thousands of threads


def seed_of_commit(root):
    """Returns a seed from the commit's hash, so that the seed is not chosen by hand."""
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
    for folder in ("src", "tests"):  # CMake compiles all files that exist
        for stale in (tree / folder).rglob("*"):
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
    """Returns (selected mutations, the other mutations in random order)."""
    mutations = sites.find(root, room.folders)
    random.Random(seed).shuffle(mutations)
    return mutations[:count], mutations[count:]


@dataclasses.dataclass
class Draw:
    """The mutants of one room in the common build."""

    mutants: dict  # {number: mutation}
    further: list  # replacements for mutations that do not compile


def draw_rooms(root, names, count, seed):
    """Returns {room: Draw}. The numbers of mutants are unique over all rooms."""
    draws = {}
    for index, name in enumerate(names):
        drawn, further = draw(root, ROOMS[name], count, seed)
        draws[name] = Draw({index * MOST_IN_ROOM + i: mutation for i, mutation in enumerate(drawn)}, further)
    return draws


def replace_broken(draw, bad):
    for number in bad & draw.mutants.keys():
        following = max(draw.mutants) + 1
        del draw.mutants[number]
        if draw.further:
            draw.mutants[following] = draw.further.pop(0)


def build_rooms(root, folder, draws, jobs):
    """Builds the programs of all rooms together, so that each source is compiled once. Mutants that do not compile are replaced."""
    tree, build = folder / "tree", folder / "build"
    paths = copy_tree(root, tree)
    programs = sorted({*PROGRAMS.values(), *(program for name in draws for program in ROOMS[name].programs)})
    while True:
        numbered = {number: mutation for d in draws.values() for number, mutation in d.mutants.items()}
        write_sources(root, tree, paths, numbered)
        code, output = compile_programs(root, tree, build, programs, jobs)
        if code == 0:
            return
        errors = {(path.removeprefix(f"{tree}/"), int(line), int(column)) for path, line, column in play.COMPILE_ERROR.findall(output)}
        bad = {number for error in errors if error[0].startswith("src/") for number in play.blamed(tree, numbered, *error)}
        if not bad:
            raise SystemExit(f"mutants: the build fails in a line without a mutant:\n{output[-4000:]}")
        for d in draws.values():
            replace_broken(d, bad)


class Programs:
    """The test programs of all rooms: knows which test of which program reaches which mutant."""

    def __init__(self, folder, programs_of):
        os.environ["QUIRE_MUTANT_MEMORY_GIB"] = MEMORY_GIB
        os.environ["MALLOC_ARENA_MAX"] = "2"
        self.programs_of = programs_of  # {room: names of its test programs}
        self.players = {}
        for program in sorted({program for programs in programs_of.values() for program in programs}):
            player = play.Player(folder / "tree", folder)
            player.binary = str(folder / "build" / program)
            player.reach_file = folder / f"reach-{program}.txt"
            self.players[program] = player

    def baseline(self, jobs):
        with play.concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return sum(pool.map(lambda player: player.baseline(), self.players.values()))

    def play(self, room, number):
        outcome = play.Outcome(False, "no test reaches it")
        for program in self.programs_of[room]:
            if number in self.players[program].reached_by:
                outcome = self.players[program].play(number)
                if outcome.killed:
                    break
        return outcome


def run(root, names, options, equivalent, seed):
    """Returns whether enough mutants of each room were killed."""
    folder = root / "build/mutants-rooms"
    folder.mkdir(parents=True, exist_ok=True)
    draws = draw_rooms(root, names, options.count, seed)
    build_rooms(root, folder, draws, options.jobs)
    programs = Programs(folder, {name: ROOMS[name].programs for name in names})
    tests = programs.baseline(options.jobs)
    files = PythonFiles(root, folder, sorted({file for name in names for file in ROOMS[name].python}))
    files.baseline(options.jobs)
    print(f"seed {seed}: {tests} tests and {len(files.files)} files of Python tests", flush=True)
    results = [play_room(folder, name, draws[name].mutants, programs, files, options, equivalent) for name in names]
    return all(results)


def play_room(folder, name, mutants, programs, files, options, equivalent):
    def outcome_of(number):
        outcome = programs.play(name, number)
        return outcome if outcome.killed else files.play(number, ROOMS[name].python) or outcome

    numbers = sorted(mutants)
    drawn = [mutants[number] for number in numbers]
    outcomes = []
    with open(folder / f"outcomes-{name}.txt", "w", buffering=1) as log, play.concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(drawn, pool.map(outcome_of, numbers)):
            outcomes.append(outcome)
            print("killed" if outcome.killed else "survived", outcome.by, f"{mutant.path}:{mutant.line}", mutant.key, sep=" | ", file=log)
    (folder / f"survivors-{name}.json").write_text(json.dumps([m.key for m, o in zip(drawn, outcomes) if not o.killed and m.key not in equivalent]))
    return report.show_room(name, drawn, outcomes, equivalent, ROOMS[name].least_killed)
