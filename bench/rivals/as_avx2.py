"""Makes an engine from PyPI run as on a processor with only AVX2. In a copy of its environment, each cpuid instruction is replaced by a
trap, and a small library answers the traps (as_avx2.c). The engine's settings are not sufficient: OpenVINO's oneDNN has such a setting, but
other parts execute cpuid again.
"""

import re
import shutil
import subprocess
from pathlib import Path

from .contestant import Unavailable

ANSWERS = Path(__file__).with_name("as_avx2.c")
CPUID, TRAP = b"\x0f\xa2", b"\xcc\x90"


def environment(home: Path) -> tuple:
    """Returns (copy of `home`, environment variables for its programs). The copy is made once per installed engine."""
    made = home.with_name(home.name + "-avx2")
    library = made / "as_avx2.so"
    installed = [stamp.name for stamp in home.glob(".ready-*")]  # of tools/dev/rivals.sh
    if not library.exists() or not all((made / name).exists() for name in installed):
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(home, made, symlinks=True)
        if sum(trap(file) for file in made.rglob("*.so*") if not file.is_symlink()) == 0:
            raise Unavailable(f"no library in {home} asks for the processor's features")
        subprocess.run(["clang-19", "-O2", "-shared", "-fPIC", "-o", library, ANSWERS], check=True)
    return made, {"LD_PRELOAD": str(library.resolve())}


def trap(library: Path) -> int:
    """Replaces every cpuid instruction of a library by a trap. Returns their number."""
    data = bytearray(library.read_bytes())
    if data[:4] != b"\x7fELF" or CPUID not in data:
        return 0
    loads = segments(library)
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True).stdout
    places = [int(place, 16) for place in re.findall(r"^ *([0-9a-f]+):\tcpuid", listing, re.M)]
    for place in places:
        at = next(place - address + offset for offset, address, size in loads if address <= place < address + size)
        assert data[at : at + 2] == CPUID, f"{library}: no cpuid at {at:#x}"
        data[at : at + 2] = TRAP
    library.write_bytes(data)
    return len(places)


def segments(library: Path) -> list:
    """Returns (offset in the file, address, size) of the loaded segments."""
    heads = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ *LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", heads, re.M)
    return [tuple(int(number, 16) for number in row) for row in rows]
