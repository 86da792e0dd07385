"""Code that the benchmarks share: the description of the machine, the arguments, and a server process with its memory."""

import argparse
import contextlib
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import time

# Instruction sets that determine the speed of a matrix product, spelled as in /proc/cpuinfo.
INSTRUCTION_SETS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "sve")


def describe() -> str:
    """Returns processor, instruction sets, cores, memory, kernel and load, in one line."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", info, re.M))
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    sets = " ".join(name for name in INSTRUCTION_SETS if name in present) or "no listed instruction set"
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) / 2**20
    model = f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"
    return (f"machine: {model}; {sets}; {len(os.sched_getaffinity(0))} cores; {memory:.0f} GiB; "
            f"Linux {platform.release()}; load {os.getloadavg()[0]:.1f} at the start")  # fmt: skip


def parser(doc: str, **counts: int) -> argparse.ArgumentParser:
    """Returns the argument parser for benchmarks of a binary with a model. `counts` are integer arguments with their defaults:
    output_tokens=64 adds --output-tokens."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--binary", required=True, help="the quire binary")
    made.add_argument("--model", required=True, help="a GGUF file")
    for name, default in counts.items():
        made.add_argument("--" + name.replace("_", "-"), type=int, default=default, help="(default: %(default)s)")
    return made


def end_on_sigterm() -> None:
    """Makes SIGTERM raise an exception, so that servers are stopped on this signal, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process on a loopback port, ready when /health answers. As a context manager, it stops the server at the end of the block,
    also after an exception."""

    def __init__(self, name: str, command: list, port: int, environment: dict | None = None, log: pathlib.Path | None = None):
        self.name, self.port = name, port
        started = time.monotonic()
        with open(log or os.devnull, "w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(environment or {})})
        while not self._healthy():
            if self.process.poll() is not None:
                sys.exit(f"{name} ended with {self.process.returncode}: {' '.join(map(str, command))}{f'; its log is {log}' if log else ''}")
            time.sleep(0.02)
        self.ready_s = time.monotonic() - started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=10) as probe:
            probe.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return b" 200 " in probe.recv(64)
        return False

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Returns a field of /proc/PID/status in MiB. VmRSS: the resident memory now; VmHWM: its maximum so far."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", status, re.M).group(1)) / 1024

    def stop(self) -> int:
        """Stops the process, which may drain for a minute, and returns its exit code. A second call has no effect."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()
