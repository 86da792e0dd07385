"""Scenarios with vLLM's answers, in a form that needs no vLLM to be compared with: one JSON text per line, compressed with xz.

    {"script": {...}, "answers": [[what was called, its answer, calls to the outside, digest of the state afterwards], ...]}
"""

import enum
import hashlib
import json
import lzma
import os

from . import generate, play, snapshot

PORTABLE_HASHES = ("sha256", "sha256_cbor")  # the others need packages that the tests have not


def plain(value):
    """JSON for a value of either side; objects are told by their class and fields, parameters only by their class."""
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
        return {key.hex() if isinstance(key, bytes) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return _object(value)


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
    return json.dumps(plain(value), separators=(",", ":"), sort_keys=True)


def digest(state) -> str:
    return hashlib.sha256(text(state).encode()).hexdigest()[:16]


class Recorder:
    """An observer of a Player with one side."""

    def __init__(self):
        self.answers = []

    def __call__(self, player, what: str, answers: list) -> None:
        side = player.sides[0]
        state = "" if side.scheduler is None else digest(snapshot.of(side.scheduler))
        self.answers.append([what, plain(answers[0]), plain(side.log), state])


def record(script: dict) -> dict | None:
    """One line of the file; None when vLLM itself gives up on the script."""
    recorder = Recorder()
    player = play.Player(script, ("stock",), recorder).play()
    return None if player.raised else {"script": script, "answers": recorder.answers}


def _features(script: dict) -> frozenset:
    """What a scenario exercises, coarsely: a small set of scenarios should have all of it."""
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
            *[("verb", event[0], config["async"]) for event in script["events"]],
        ]
    )


def choose(count: int):
    """`count` scripts from the first seeds on: those first that bring something new."""
    seen, others = set(), []
    for seed in range(20 * count):
        script = generate.script(seed)
        if script["config"]["hash"] not in PORTABLE_HASHES:
            continue
        new = _features(script) - seen
        if new:
            seen |= new
            yield script
        else:
            others.append(script)
    yield from others


def run(arguments) -> int:
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, "scenarios.jsonl.xz")
    written = 0
    with lzma.open(path, "wt", preset=9, encoding="utf-8") as file:
        for script in choose(arguments.scenarios):
            line = record(script)
            if line is None:
                continue
            file.write(json.dumps(line, separators=(",", ":"), sort_keys=True) + "\n")
            written += 1
            if written == arguments.scenarios:
                break
    print(f"{written} scenarios, {os.path.getsize(path):,} bytes: {path}")
    return 0


def read(path: str):
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


class Replayer:
    """An observer of a Player with one side that compares with a recorded line."""

    def __init__(self, line: dict):
        self.left = iter(line["answers"])

    def __call__(self, player, what: str, answers: list) -> None:
        from .compare import Difference

        expected = next(self.left, ["nothing", None, None, ""])
        side = player.sides[0]
        got = json.loads(text([what, answers[0], side.log]))
        if got != expected[:3]:
            raise Difference(player.index, player.events[player.index], what, expected[:3], got)
        state = "" if side.scheduler is None else digest(snapshot.of(side.scheduler))
        if state != expected[3]:
            raise Difference(player.index, player.events[player.index], f"{what}: digest of the state", expected[3], state)


def replay(line: dict, name: str = "quire") -> int:
    """Plays a recorded line; returns the number of steps, raises Difference."""
    replayer = Replayer(line)
    player = play.Player(line["script"], (name,), replayer).play()
    if next(replayer.left, None) is not None:
        raise RuntimeError(f"the play ended early: {player.raised}")
    return player.num_steps
