"""How much of the processors others used: neither the server that is measured nor its client."""

import os
import re
from pathlib import Path

PROC = Path("/proc")


def machine_ticks(text: str) -> tuple:
    """(used by processes, all) since boot, of the first line of /proc/stat"""
    fields = [int(field) for field in text.splitlines()[0].split()[1:9]]  # the guests' that follow are in these already
    return sum(fields[:3]), sum(fields)


def process_ticks(text: str) -> tuple:
    """(parent, ticks of it and of children that it has waited for), of a /proc/PID/stat. The name in it may have spaces and brackets."""
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), sum(int(field) for field in fields[11:15])


def tree(root: int, processes: dict) -> list:
    """`root` and all that descend from it; processes: {pid: (parent, ticks)}"""
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
                pass  # it ended meanwhile
    return found


def tree_peak_mib(root: int) -> float:
    """The most that was resident, of each process of the tree. Pages that several share count for each."""
    statuses = [(PROC / str(pid) / "status").read_text() for pid in tree(root, read_processes())]
    return sum(int(re.search(r"^VmHWM:\s+(\d+)", status, re.M).group(1)) for status in statuses) / 1024


class Watch:
    """From its making on: the share of all processors that processes used which are neither this one nor of the server's tree. This one counts
    with children that it has waited for; servers that it runs beside are foreign as long as they are not the one measured."""

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
