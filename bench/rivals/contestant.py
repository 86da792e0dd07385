"""What bench/serve.py must know of an engine that takes part, and the workloads."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

CACHE = Path(".cache")
HOME = CACHE / "rivals"  # where tools/dev/rivals.sh installs


@dataclasses.dataclass(frozen=True)
class Workload:
    """Every request has `shared` tokens that all have in common, then `own` ones, and gets exactly `output` tokens."""

    name: str
    shared: int
    own: int
    output: int
    clients: tuple
    is_default: bool = True  # of a run that names none
    least: int = 8  # requests of a turn: with few clients each asks several times, or a turn would be too short to tell who else used the machine

    def tokens(self) -> int:
        return self.shared + self.own + self.output


WORKLOADS = {
    "distinct": Workload("distinct", 0, 128, 64, (1, 2, 4, 8, 16, 32, 64)),
    "shared": Workload("shared", 1024, 64, 32, (8, 32)),
    "alone": Workload("alone", 0, 512, 64, (1,)),  # prompts and output apart: Asker.alone, or the engine's own tool
    "long": Workload("long", 0, 8000, 64, (1,), is_default=False, least=1),
}


@dataclasses.dataclass
class Contestant:
    """An engine with its settings. `command` makes the server's command line of port, workload and number of clients; a server runs until
    this asks for another one. `body` is what a request has besides what all have. `alone`, where the engine has a tool of its own for it,
    gives the figures of that workload."""

    name: str
    about: str
    command: Callable
    is_ours: bool = False
    environment: dict = dataclasses.field(default_factory=dict)
    body: Callable = lambda workload: {}
    alone: Callable | None = None


class Unavailable(Exception):
    """Why an engine does not take part, and what to do about it."""


def installed_version(environment: Path, package: str) -> str:
    """Version of `package` in a Python environment."""
    for found in environment.glob(f"lib/python3*/site-packages/{package}-*.dist-info"):
        return re.fullmatch(rf"{package}-(.*)\.dist-info", found.name).group(1)
    raise Unavailable(f"{environment} has no {package}; remove that folder and run the command again")
