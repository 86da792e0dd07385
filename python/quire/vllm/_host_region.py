"""The host memory of offloaded blocks: per worker a file in /dev/shm, which the scheduler's process also maps.

The worker creates the file when it has its KV cache, copies blocks in and out, and writes the number of the slot's block after each copy
(`written`). The scheduler's process maps the files of all workers and moves blocks between them and a folder. It unlinks the files
immediately, so that no file is left over if a process is killed.
"""

import fcntl
import hashlib
import json
import mmap
import os
import time
from pathlib import Path

import numpy as np

FOLDER = Path("/dev/shm")
PREFIX = "quire-kv-"
PAGE = 4096
HEADER_BYTES = 16 * PAGE
STALE_S = 60  # age in seconds from which an unlocked file is stale; a file is locked immediately after its creation


def _padded(size: int) -> int:
    return (size + PAGE - 1) // PAGE * PAGE


def _path(engine_id: str, rank: int) -> Path:
    return FOLDER / f"{PREFIX}{hashlib.sha256(engine_id.encode()).hexdigest()[:32]}-{rank}"


def _remove_stale():
    """Removes the files of engines that were killed before their scheduler had mapped them. No process holds the lock of such a file."""
    for path in FOLDER.glob(f"{PREFIX}*"):
        try:
            if time.time() - path.stat().st_mtime < STALE_S:
                continue
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)


class HostRegion:
    """Maps the file of one worker. `tensors`: per tensor i, a row of page_bytes[i] bytes per slot. `written`: a number per slot."""

    def __init__(self, descriptor: int, size: int, header: dict):
        self.num_slots, self.page_bytes, self.layout = header["num_slots"], header["page_bytes"], header["layout"]
        self.num_bytes = size
        self.memory = mmap.mmap(descriptor, size)
        self.address = np.frombuffer(self.memory, np.uint8).__array_interface__["data"][0]
        offset = HEADER_BYTES
        self.written = np.frombuffer(self.memory, np.uint64, self.num_slots, offset)
        offset += _padded(self.written.nbytes)
        self.tensors = []
        for page in self.page_bytes:
            self.tensors.append(np.frombuffer(self.memory, np.uint8, self.num_slots * page, offset).reshape(self.num_slots, page))
            offset += _padded(self.num_slots * page)

    @staticmethod
    def _size(num_slots: int, page_bytes: list[int]) -> int:
        return HEADER_BYTES + _padded(8 * num_slots) + sum(_padded(num_slots * page) for page in page_bytes)

    @classmethod
    def create(cls, engine_id: str, rank: int, num_slots: int, page_bytes: list[int], layout: str, is_shared: bool):
        """Creates the file. layout: properties on which the bytes of a page depend and that only the worker knows. Without is_shared, the
        file has no name."""
        _remove_stale()
        header = {"num_slots": num_slots, "page_bytes": page_bytes, "layout": layout}
        text = json.dumps(header).encode()
        assert len(text) < HEADER_BYTES, "the header fits into HEADER_BYTES"
        size, path = cls._size(num_slots, page_bytes), _path(engine_id, rank)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # held until the process ends, because the descriptor stays open
            os.posix_fallocate(descriptor, 0, size)
            os.pwrite(descriptor, text, 0)
            if not is_shared:
                path.unlink()
        except OSError as error:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise ValueError(
                f"cpu_bytes_to_use: {FOLDER} has no room for {size} bytes of worker {rank} ({error.strerror}); "
                "use a smaller value, or enlarge that file system (docker run --shm-size, Kubernetes emptyDir with medium Memory)"
            ) from error
        region = cls(descriptor, size, header)
        region.descriptor = descriptor
        return region

    @classmethod
    def attach(cls, engine_id: str, rank: int):
        path = _path(engine_id, rank)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise ValueError(
                f"disk_path: the host memory of worker {rank} is not in {FOLDER} of this machine ({error.strerror}); "
                "run all workers of an engine on the machine of its scheduler, with the same /dev/shm, or leave out disk_path"
            ) from error
        try:
            header = json.loads(os.pread(descriptor, HEADER_BYTES, 0).rstrip(b"\0"))
            return cls(descriptor, os.fstat(descriptor).st_size, header)
        finally:
            os.close(descriptor)

    @staticmethod
    def forget(engine_id: str, rank: int):
        _path(engine_id, rank).unlink(missing_ok=True)
