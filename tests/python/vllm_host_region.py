"""Tests quire.vllm's host memory with stand-ins for vLLM: the files of workers, a full /dev/shm, and files of dead processes.

usage: vllm_host_region.py VERSION CASE...
"""

import fcntl
import mmap
import os
import subprocess
import sys
import time

from vllm_connector_halves import raises

from quire.vllm import _host_region as region
from quire.vllm._host_region import HostRegion


def regions():
    """Two workers' files: header, slots and numbers as the scheduler's process maps them; names are forgotten; a second file is refused."""
    engine = f"regions {os.getpid()}"
    made = [HostRegion.create(engine, rank, 3, [3000, 5000], f"layout {rank}", True) for rank in range(2)]
    seen = [HostRegion.attach(engine, rank) for rank in range(2)]
    for rank, (own, other) in enumerate(zip(made, seen)):
        assert (other.num_slots, other.page_bytes, other.layout) == (3, [3000, 5000], f"layout {rank}")
        assert [tensor.shape for tensor in other.tensors] == [(3, 3000), (3, 5000)] and other.written.shape == (3,)
        for i, tensor in enumerate(own.tensors):
            tensor[:] = 10 * rank + i + 1
        own.written[:] = [7, 8, 9 + rank]
        assert [set(tensor.ravel().tolist()) for tensor in other.tensors] == [{10 * rank + 1}, {10 * rank + 2}] and other.written.tolist() == [7, 8, 9 + rank]
        path = region._path(engine, rank)
        assert path.stat().st_size == own.num_bytes == other.num_bytes and path.stat().st_mode & 0o077 == 0
        assert own.address % mmap.PAGESIZE == 0 and path.name.startswith("quire-kv-") and path.name.endswith(f"-{rank}")
        assert all(tensor.__array_interface__["data"][0] % mmap.PAGESIZE == 0 for tensor in (*own.tensors, own.written))
    raises("File exists", lambda: HostRegion.create(engine, 0, 3, [100], "", True), FileExistsError)
    HostRegion.forget(engine, 0)
    assert not region._path(engine, 0).exists() and region._path(engine, 1).exists()
    HostRegion.forget(engine, 0)
    raises("disk_path: the host memory of worker 0 is not in /dev/shm of this machine (No such file or directory); run all workers",
           lambda: HostRegion.attach(engine, 0))  # fmt: skip
    HostRegion.forget(engine, 1)
    seen[1].tensors[1][2, 4999] = 77
    assert made[1].tensors[1][2, 4999] == 77, "the memory stays without its name"
    alone = HostRegion.create(engine, 0, 2, [10], "", False)
    assert not region._path(engine, 0).exists()
    alone.tensors[0][:] = 1
    assert alone.num_bytes == region.HEADER_BYTES + 2 * 4096 == HostRegion._size(512, [8]), "whole pages are not padded"
    assert HostRegion._size(513, [8, 1]) == region.HEADER_BYTES + 2 * 4096 + 2 * 4096 + 4096


def full():
    """A worker without room is refused, with the size, and leaves no file."""
    engine, room = f"full {os.getpid()}", os.statvfs("/dev/shm")
    slots = room.f_blocks * room.f_frsize // 4096 + 10
    raises(f"cpu_bytes_to_use: /dev/shm has no room for {HostRegion._size(slots, [4096])} bytes of worker 3 (No space left on device); use a smaller value",
           lambda: HostRegion.create(engine, 3, slots, [4096], "", True))  # fmt: skip
    assert not region._path(engine, 3).exists()


HOLDER = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(descriptor, fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


def stale():
    """Files of dead processes are removed when the next file is made; files of living processes and new files stay."""
    engine = f"stale {os.getpid()}"
    dead, living, young, other = (region._path(f"{engine} {name}", 0) for name in ("dead", "living", "young", "other"))
    other = other.with_name(f"other-{os.getpid()}")
    odd = region._path(f"{engine} odd", 0)
    odd.mkdir()  # not a file that can be opened
    for path in (dead, living, young, other):
        path.write_bytes(b"x")
    old = time.time() - region.STALE_S - 1
    for path in (dead, living, other, odd):
        os.utime(path, (old, old))
    os.utime(young, (time.time() - region.STALE_S + 30,) * 2)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, living], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        HostRegion.create(engine, 0, 1, [8], "", False)
        assert [path.exists() for path in (dead, living, young, other)] == [False, True, True, True]
        holder.communicate()
        os.utime(living, (old, old))
        made = HostRegion.create(engine, 0, 1, [8], "", True)
        assert not living.exists()
        # The file itself is locked: it stays, however old it is.
        path = region._path(engine, 0)
        os.utime(path, (old, old))
        HostRegion.create(engine, 1, 1, [8], "", False)
        assert path.exists() and made.descriptor
        check = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(check, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("the file must be locked")
        except OSError:
            os.close(check)
    finally:
        holder.kill()
        odd.rmdir()
        for path in (dead, living, young, other, region._path(engine, 0)):
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
