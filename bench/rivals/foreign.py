"""Measures the CPU use of other processes, which are neither the measured server nor its client."""

import os
import re
from pathlib import Path

PROC = Path("/proc")


def machine_ticks(text: str) -> tuple:
    """Returns (ticks used by processes, all ticks) since boot, from the first line of /proc/stat."""
    fields = [int(field) for field in text.splitlines()[0].split()[1:9]]  # the ticks of guests, which follow, are already included
    return sum(fields[:3]), sum(fields)


def process_ticks(text: str) -> tuple:
    """Returns (parent, ticks of the process and of its waited-for children) from a /proc/PID/stat. The process name in the file may have
    spaces and brackets."""
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(int(field) for field in fields[11:15])


def tree(root: int, processes: dict) -> list:
    """Returns `root` and all its descendants. processes: {pid: (parent, ticks)}."""
    found = [root]
    for pid in found:
        found += [child for child, (parent, _) in processes.items() if parent == pid]
    return [pid for pid in found if pid in processes]


def read_processes(proc: Path = PROC) -> dict:
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = process_ticks((folder / "stat").read_text())
            except (OSError, ValueError):
                pass  # the process has ended meanwhile
    return found


def tree_peak_mib(root: int) -> float:
    """Returns the peak resident memory, summed over the processes of the tree. Shared pages count for each process."""
    statuses = [(PROC / str(pid) / "status").read_text() for pid in tree(root, read_processes())]
    return sum(int(re.search(r"^VmHWM:\s+(\d+)", status, re.M).group(1)) for status in statuses) / 1024


class Watch:
    """Measures the share of the CPU that other processes have used since this object was created. This process, its waited-for children and
    the server's tree are not included. Other servers of this benchmark are included while they are not measured."""

    def __init__(self, server: int | None):
        self.server = server
        self.before = self._sample()

    def _sample(self) -> tuple:
        used, everything = machine_ticks((PROC / "stat").read_text())
        processes = read_processes()
        ours = processes[os.getpid()][1] + (sum(processes[pid][1] for pid in tree(self.server, processes)) if self.server else 0)
        return used - ours, everything

    def share(self) -> float:
        used, everything = self._sample()
        return max(0, used - self.before[0]) / max(1, everything - self.before[1])
