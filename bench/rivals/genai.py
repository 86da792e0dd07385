"""OpenVINO GenAI with continuous batching, on the same GGUF file. PyPI has no server for OpenVINO GenAI: genai_front.py is a minimal server
in a separate process.
"""

from pathlib import Path

from . import as_avx2
from .contestant import HOME, Contestant, installed_version

FRONT = Path(__file__).with_name("genai_front.py")


def contestants(arguments) -> list:
    home, environment = HOME / "openvino", {}
    if arguments.as_avx2:
        home, environment = as_avx2.environment(home)

    def command(port, workload, clients):
        return [home / "bin/python", FRONT, arguments.model, str(port)]

    about = f"OpenVINO GenAI {installed_version(home, 'openvino_genai')}, same GGUF, ContinuousBatchingPipeline with a minimal HTTP front"
    return [Contestant("OpenVINO GenAI", about, command, environment=environment)]
