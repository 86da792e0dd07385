"""Runs third-party programs that test the server from outside: they know only its address and docs/openapi.json."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))  # quire_server
