#!/usr/bin/env python3
"""Compares the disk tier's store with fio: the same bytes with the same block size and depth on the same file system, written and read at
random without the page cache, in alternating turns. The store computes a checksum of each block when it is stored and when it is loaded,
and writes a table entry for each block; fio does neither.

Prints for each block size MiB/s (medians), and the geometric mean of the paired ratios store / fio with its 95 % interval.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine
from flags import interval


def store_speed(arguments, folder: str, kib: int) -> dict:
    """Measures the store. All slots were written once before, so that the file system has allocated them, as for fio."""
    command = [arguments.binary, folder, str(arguments.mib), str(arguments.depth), str(kib)]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"write": float(line[3]), "read": float(line[4])}


def fio_speed(arguments, folder: str, kib: int) -> dict:
    path = pathlib.Path(folder) / "fio"
    speeds = {}
    for verb in ("lay", "write", "read"):
        command = ["fio", "--name=tier", f"--filename={path}", f"--size={arguments.mib}m", f"--bs={kib}k", f"--iodepth={arguments.depth}",
                   "--ioengine=io_uring", "--direct=1", f"--iomem={arguments.fio_memory}",
                   f"--rw=rand{'write' if verb == 'lay' else verb}", "--fallocate=posix", "--output-format=json"]  # fmt: skip
        job = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["jobs"][0]
        direction = job["read" if verb == "read" else "write"]
        speeds[verb] = direction["io_bytes"] / (direction["runtime"] / 1000) / 2**20
    path.unlink()
    return speeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/tier_bench")
    parser.add_argument("--folder", default="build", help="directory of the files (default: %(default)s)")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--fio-memory", default="malloc", choices=("malloc", "mmaphuge"),
                        help="mmaphuge: buffers in large pages, like the store's; reserve some (sysctl vm.nr_hugepages=64)")  # fmt: skip
    parser.add_argument("--kib", type=int, nargs="+", default=[64, 128, 360, 512, 1024, 2048])
    arguments = parser.parse_args()
    print(machine.describe())
    print(f"{'KiB':>5} {'':5} {'store':>8} {'fio':>8}   store / fio (95 % interval)")
    for kib in arguments.kib:
        turns = []
        for turn in range(arguments.turns):
            sides = [("store", store_speed), ("fio", fio_speed)]
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                turns.append({name: speed(arguments, folder, kib) for name, speed in (sides if turn % 2 else reversed(sides))})
        for verb in ("write", "read"):
            medians = {name: statistics.median(turn[name][verb] for turn in turns) for name in ("store", "fio")}
            ratios = interval([turn["store"][verb] / turn["fio"][verb] for turn in turns])
            print(f"{kib:5} {verb:5} {medians['store']:8.0f} {medians['fio']:8.0f}   {ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
