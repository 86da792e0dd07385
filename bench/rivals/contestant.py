"""Workloads, and the properties of an engine for bench/serve.py."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

CACHE = Path(".cache")
HOME = CACHE / "rivals"  # installation folder of tools/dev/rivals.sh


@dataclasses.dataclass(frozen=True)
class Workload:
    """Every request has `shared` tokens in common with the others, then `own` separate tokens, and gets exactly `output` tokens."""

    name: str
    shared: int
    own: int
    output: int
    clients: tuple
    is_default: bool = True  # included in a run that names no workload
    least: int = 8  # requests per turn: few clients send several each, so that a turn is long enough to detect other load

    def tokens(self) -> int:
        return self.shared + self.own + self.output


WORKLOADS = {
    "distinct": Workload("distinct", 0, 128, 64, (1, 2, 4, 8, 16, 32, 64)),
    "shared": Workload("shared", 1024, 64, 32, (8, 32)),
    "alone": Workload("alone", 0, 512, 64, (1,)),  # measures prompts and output separately: Asker.alone, or the engine's own tool
    "long": Workload("long", 0, 8000, 64, (1,), is_default=False, least=1),
}


@dataclasses.dataclass
class Contestant:
    """An engine with its settings. `command` returns the server's command line for port, workload and number of clients. A server runs
    until its command changes. `body` contains the fields of a request that other engines do not have. `alone`, if the engine has a tool for
    this workload, returns its figures."""

    name: str
    about: str
    command: Callable
    is_ours: bool = False
    environment: dict = dataclasses.field(default_factory=dict)
    body: Callable = lambda workload: {}
    alone: Callable | None = None


class Unavailable(Exception):
    """Reason why an engine does not take part, and how to fix this."""


def installed_version(environment: Path, package: str) -> str:
    """Returns the version of `package` in a Python environment."""
    for found in environment.glob(f"lib/python3*/site-packages/{package}-*.dist-info"):
        return re.fullmatch(rf"{package}-(.*)\.dist-info", found.name).group(1)
    raise Unavailable(f"{environment} has no {package}; remove that folder and run the command again")
