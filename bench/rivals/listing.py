"""The list after --against, and the engines of it that can be installed here."""

import subprocess
from pathlib import Path

from . import genai, llama_cpp, ours, vllm_serve
from .contestant import Unavailable

ENGINES = {"llama.cpp": llama_cpp, "vllm": vllm_serve, "openvino": genai}
INSTALLER = Path(__file__).resolve().parents[2] / "tools/dev/rivals.sh"


def parse(text: str) -> list:
    """Names of engines, each once. Raises ValueError, which argparse shows as it is."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ENGINES]
    if unknown or not names:
        raise ValueError(f"no engine {', '.join(unknown) or 'named'}; there are {', '.join(ENGINES)}")
    return list(dict.fromkeys(names))


def contestants(arguments) -> tuple:
    """(contestants, quire first; why others are missing)"""
    found, problems = ours.contestants(arguments), []
    for name in arguments.against:
        try:
            if subprocess.run([INSTALLER, name, *(["avx2"] if arguments.as_avx2 else [])], check=False).returncode != 0:
                raise Unavailable(f"its installation failed, as told above; {INSTALLER} {name} tries it again")
            found += ENGINES[name].contestants(arguments)
        except Unavailable as problem:
            problems.append(f"{name} is not measured: {problem}")
    return found, problems
