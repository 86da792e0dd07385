"""The record that the C++ tests compare block names with is what Python's pickle, cbor2 and xxhash make here and now."""
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def test_the_record_is_what_python_makes(tmp_path):
    made = tmp_path / "block_hashes.txt"
    subprocess.run([sys.executable, REPO / "tools/record_block_hashes.py", made], check=True, cwd=REPO)
    assert made.read_text(encoding="ascii") == (REPO / "tests/golden/block_hashes.txt").read_text(encoding="ascii")
