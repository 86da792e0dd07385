"""`python -m quire serve MODEL`: the server, where the package carries it (the wheel of ./dev package does, pip install ./python does not)."""

import os
import pathlib
import sys


def main() -> None:
    binary = pathlib.Path(__file__).with_name("bin") / "quire"
    if not binary.exists():
        sys.exit("quire: this installation has the library alone; the wheel that ./dev package makes has the command too")
    os.execv(binary, ["quire", *sys.argv[1:]])


if __name__ == "__main__":
    main()
