"""Records scenarios with vLLM's answers, for comparisons without vLLM: one JSON text per line, compressed with xz.

    {"script": {...}, "answers": [[call, its answer, calls to the outside, digest of the state afterwards], ...], "end": kind}

With real grammars, "tape" contains their answers and the worker's (tape.py), and the answers contain only the number of rows of a bitmask.
The digest is "" if the script does not compare the state. "end" exists if vLLM stopped with an error after the last answer; quire then
continues alone. Dicts are compared including their order.

The digest is "" if the script does not compare the state. "end" exists if vLLM stopped with an error after the last answer: quire then
continues alone. Dicts are compared in their order.
"""

import collections
import enum
import hashlib
import json
import lzma
import os

from . import ends, generate, play, snapshot, versions
from .tape import Tape

SEEDS_PER_SCENARIO = 4  # number of plays per recorded scenario
PREEMPTING = 0.5  # minimum share of recorded scenarios with a preemption
OF_EACH_END = 4


def plain(value):
    """Converts a value of either scheduler to JSON. Objects are written as their class and fields, parameters only as their class."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value))
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return _object(value)


def _key(key) -> str:
    return key.hex() if isinstance(key, bytes) else str(key.value if isinstance(key, enum.Enum) else key)


def _object(value):
    name = type(value).__name__
    if isinstance(value, play.Raised):
        return "raised"
    if name in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
        fields = value.__struct_fields__ if hasattr(value, "__struct_fields__") else value.__dataclass_fields__
        return [name, *[plain(getattr(value, field)) for field in fields]]
    if name == "Metadata":
        return [name, value.number]
    return value.lora_name if name == "LoRARequest" else name


def text(value) -> str:
    return json.dumps(plain(value), separators=(",", ":"))


def digest(player, look: bool) -> str:
    """Returns a digest of the state. Dicts in the state have no order."""
    if not look or player.sides[0].scheduler is None:
        return ""
    state = json.dumps(plain(snapshot.of(player.sides[0].scheduler)), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(state.encode()).hexdigest()[:16]


def _without_bits(player, what: str, answer):
    """Returns the part of an answer that a play without the vocabulary can also produce."""
    if what != "get_grammar_bitmask" or not player.guided or not isinstance(answer, tuple):
        return answer
    return answer[0], len(answer[1])


class Recorder:
    """Observer of a Player that runs a single scheduler. Records for each call the answer, the calls that the scheduler made (to its connector,
    grammar and publisher), and a digest of the state."""

    def __init__(self):
        self.answers = []

    def __call__(self, player, what: str, answers: list, look: bool) -> None:
        self.answers.append([what, plain(_without_bits(player, what, answers[0])), plain(player.sides[0].log), digest(player, look)])


def record(script: dict) -> tuple:
    """Returns (one line of the file, the Player)."""
    recorder = Recorder()
    tape = Tape() if script["config"].get("guided") else None
    player = play.Player(script, ("stock",), recorder, tape).play()
    line = {"script": script, "answers": recorder.answers}
    if tape is not None:
        line["tape"] = list(tape.entries)
    if player.raised:
        line["end"] = ends.kind_of(player.raised.where())
    return line, player


def _features(script: dict) -> frozenset:
    """Returns the main features that a scenario uses: a small set of scenarios should cover all of them."""
    config = script["config"]
    kinds = tuple(sorted({group["kind"] for group in config["groups"]}))
    return frozenset(
        [
            ("kinds", kinds, config["mamba_mode"]),
            ("spec", config["spec"], config["async"]),
            ("policy", config["policy"], config["async"]),
            ("connector", config["connector"], config["load_failure"]),
            ("pp", config["pp"], config["async"]),
            ("caching", config["prefix_caching"], config["hash"]),
            *[(key, bool(config[key])) for key in ("multimodal", "max_loras", "kv_events", "v2_runner", "ec_connector", "kv_metrics", "encoder_decoder")],
            *[("guided", key, value) for key, value in config.get("guided", {}).items()],
            *[("verb", event[0], config["async"]) for event in script["events"]],
        ]
    )


class Choice:
    """Selects scenarios to record: first scenarios with new features, then some of each end, then many with preemption, then any."""

    def __init__(self, count: int):
        self.count = count
        self.seen = set()
        self.ends = collections.Counter()
        self.kept, self.preempting, self.others = [], [], []

    def add(self, line: dict, player) -> None:
        text_ = json.dumps(line, separators=(",", ":"))
        new = _features(line["script"]) - self.seen
        end = line.get("end")
        self.ends[end] += end is not None
        if new or end and self.ends[end] <= OF_EACH_END:
            self.seen |= new
            self.kept.append((text_, player.num_preemptions > 0))
        else:
            (self.preempting if player.num_preemptions else self.others).append(text_)

    def lines(self) -> list:
        wanted = int(PREEMPTING * self.count) - sum(preempts for _, preempts in self.kept)
        chosen = [text_ for text_, _ in self.kept] + self.preempting[: max(0, wanted)]
        return (chosen + self.others + self.preempting[max(0, wanted) :])[: self.count]


def run(arguments) -> int:
    os.makedirs(arguments.out, exist_ok=True)
    name = "scenarios" if arguments.profile == "default" else arguments.profile
    name += "_0_32" if versions.IS_NEWER else ""
    path = os.path.join(arguments.out, f"{name}.jsonl.xz")
    choice = Choice(arguments.scenarios)
    for seed in range(SEEDS_PER_SCENARIO * arguments.scenarios):
        line, player = record(generate.script(seed, arguments.profile))
        if "tape" not in line or "end" not in line:  # if vLLM stops with an error, its grammars' answers also end
            choice.add(line, player)
    lines = choice.lines()
    with lzma.open(path, "wt", preset=9, encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
    print(f"{len(lines)} scenarios, {os.path.getsize(path):,} bytes: {path}")
    return 0


def read(path: str):
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


class Replayer:
    """Observer of a Player that runs a single scheduler. Compares each answer with a recorded line. If vLLM's play ended with an error, the
    scheduler then continues without comparisons."""

    def __init__(self, line: dict):
        self.left = collections.deque(line["answers"])
        self.ends = "end" in line

    def __call__(self, player, what: str, answers: list, look: bool) -> None:
        from .compare import Difference

        if player.alone:
            return
        if not self.left and self.ends:
            player.alone = True
            return
        expected = self.left.popleft() if self.left else ["nothing", None, None, ""]
        got = [what, plain(answers[0]), plain(player.sides[0].log)]
        if text(got) != text(expected[:3]):
            raise Difference(player.index, player.events[player.index], what, expected[:3], json.loads(text(got)))
        state = digest(player, look)
        if state != expected[3]:
            raise Difference(player.index, player.events[player.index], f"{what}: digest of the state", expected[3], state)


def replay(line: dict, name: str = "quire") -> int:
    """Plays a recorded line. Returns the number of steps. Raises Difference if an answer differs."""
    replayer = Replayer(line)
    tape = Tape(line["tape"]) if "tape" in line else None
    player = play.Player(line["script"], (name,), replayer, tape).play()
    if replayer.left:
        raise RuntimeError(f"the play ended early: {player.raised}")
    return player.num_steps
