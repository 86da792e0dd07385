"""Parses the list after --against, and returns the engines of the list that can be installed here."""

import subprocess
from pathlib import Path

from . import genai, llama_cpp, ours, vllm_serve
from .contestant import Unavailable

ENGINES = {"llama.cpp": llama_cpp, "vllm": vllm_serve, "openvino": genai}
INSTALLER = Path(__file__).resolve().parents[2] / "tools/dev/rivals.sh"


def parse(text: str) -> list:
    """Returns the names of engines, each once. Raises ValueError, whose text argparse prints."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ENGINES]
    if unknown or not names:
        raise ValueError(f"unknown engine {', '.join(unknown) or '(none given)'}. Choose from {', '.join(ENGINES)}")
    return list(dict.fromkeys(names))


def contestants(arguments) -> tuple:
    """Returns (contestants, quire first; reasons why engines are missing)."""
    found, problems = ours.contestants(arguments), []
    for name in arguments.against:
        try:
            if subprocess.run([INSTALLER, name, *(["avx2"] if arguments.as_avx2 else [])], check=False).returncode != 0:
                raise Unavailable(f"its installation failed, as printed above; {INSTALLER} {name} tries it again")
            found += ENGINES[name].contestants(arguments)
        except Unavailable as problem:
            problems.append(f"{name} is not measured: {problem}")
    return found, problems
