"""Tests that the server accepts the commands of deploy/ and docs/fleet.md: every server of a compose file or manifest starts up to the
missing model.
"""

import os
import pathlib
import re
import subprocess

import pytest
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("*/*.yaml"))
BINARY = os.environ.get("QUIRE_BINARY")


def containers(node):
    """Yields everything that has an image, at any depth."""
    if isinstance(node, dict):
        if "image" in node:
            yield node
        for value in node.values():
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def servers(file: pathlib.Path) -> list:
    documents = list(yaml.safe_load_all(file.read_text()))
    return [box for document in documents for key, part in document.items() if not key.startswith("x-") for box in containers(part)
            if box["image"] == "quire"]  # fmt: skip


def environment(box: dict) -> dict:
    given = box.get("environment") or {item["name"]: item.get("value", "10.0.0.1") for item in box.get("env", [])}
    # Replaces references that are set at run time: ${NAME:?why} in compose files, $(NAME) in manifests.
    return {name: re.sub(r"\$(\{[^}]*\}|\([^)]*\))", "filled-in", value) for name, value in given.items()}


def test_files_of_both_kinds_exist():
    assert {file.parent.name for file in FILES} == {"compose", "kubernetes"}
    assert sorted({file.name for file in FILES if file.parent.name == "compose"}) == [
        file.name for file in FILES if file.parent.name == "kubernetes"
    ]


@pytest.mark.skipif(not BINARY, reason="QUIRE_BINARY is not set: ./dev test sets it")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_server_accepts_its_flags(file, tmp_path):
    key = tmp_path / "kv.key"
    key.write_text("0123456789abcdef")
    found = servers(file)
    assert found, f"{file} has no server"
    for box in found:
        command = [str(part) for part in box.get("command") or box["args"]]
        assert command[0] == "/model/model.gguf"
        mounts = "".join(str(mount) for mount in box.get("volumes") or box["volumeMounts"])
        assert "/model" in mounts, "the model must be mounted at its path"
        command = [re.sub(r"(?<=-key=)/.*", str(key), part) for part in command[1:]]
        run = subprocess.run(
            [BINARY, "serve", str(tmp_path / "model.gguf"), *command],
            env=os.environ | environment(box), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert run.returncode == 2 and "model.gguf: no such file" in run.stderr, run.stderr
        assert "QUIRE_API_KEY" in environment(box), "a server on all addresses must have a key"


@pytest.mark.parametrize("file", [file for file in FILES if file.parent.name == "kubernetes"], ids=lambda file: file.stem)
def test_probes_use_routes_of_the_server(file):
    for box in servers(file):
        assert box["readinessProbe"]["httpGet"]["path"] == "/ready"
        assert box["livenessProbe"]["httpGet"]["path"] == "/health"
        assert box["securityContext"]["readOnlyRootFilesystem"]


def test_server_has_time_to_drain():
    for file in FILES:
        text = file.read_text()
        grace = re.findall(r"(?:stop_grace_period|terminationGracePeriodSeconds): (\d+)", text)
        assert grace and all(int(seconds) > 30 for seconds in grace), file


def test_page_names_each_file():
    page = (DEPLOY.parent / "docs/fleet.md").read_text()
    assert {f"`{file.name}`" for file in FILES} <= set(re.findall(r"`[a-z_]+\.yaml`", page))
