"""`python -m quire serve MODEL`: starts the command of the package quire-serve, if it is installed. This package contains only the library."""

import sys


def main() -> None:
    try:
        from quire_serve.__main__ import main as start
    except ImportError:
        sys.exit("quire: this package contains only the library. For the command, install the package quire-serve (docs/install.md)")
    start()


if __name__ == "__main__":
    main()
