"""`python -m quire serve MODEL`: the server, if the package contains it (the wheel of ./dev package does, pip install ./python does not).
"""

import os
import pathlib
import sys


def main() -> None:
    binary = pathlib.Path(__file__).with_name("bin") / "quire"
    if not binary.exists():
        sys.exit("quire: this installation contains only the library; the wheel of ./dev package also contains the command")
    os.execv(binary, ["quire", *sys.argv[1:]])


if __name__ == "__main__":
    main()
