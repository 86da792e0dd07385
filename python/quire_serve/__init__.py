"""The command `quire` with its libraries, for every Python. `quire_serve.binary()` is the path of the program, for code that starts servers."""

import pathlib


def binary() -> pathlib.Path:
    """Returns the path of the program `quire`."""
    return pathlib.Path(__file__).resolve().with_name("bin") / "quire"
