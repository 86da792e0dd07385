"""Tests that the record of block hashes for the C++ tests equals the output of Python's pickle, cbor2 and xxhash."""
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def test_record_matches_pythons_hashes(tmp_path):
    made = tmp_path / "block_hashes.txt"
    subprocess.run([sys.executable, "-m", "record", "block_hashes", "--out", made], check=True, cwd=REPO / "tools")
    assert made.read_text(encoding="ascii") == (REPO / "tests/golden/block_hashes.txt").read_text(encoding="ascii")
