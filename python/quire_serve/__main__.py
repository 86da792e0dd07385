"""The entry point of the command: `quire serve MODEL`, or `python -m quire_serve serve MODEL`. The program replaces the Python process."""

import os
import sys

from quire_serve import binary


def main() -> None:
    program = binary()
    try:
        os.execv(program, ["quire", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"quire: {program} cannot be started: {error.strerror}. Install the package quire-serve again")


if __name__ == "__main__":
    main()
