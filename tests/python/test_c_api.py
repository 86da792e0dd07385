"""Builds the examples of the C API in C, Rust and Go against the build's libquire_c.so, and lets them answer with the test model."""
import os
import pathlib
import shutil
import subprocess

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("QUIRE_BINARY", REPO / "build/release/quire")).resolve().parent
MODEL = os.environ.get("QUIRE_TEST_MODEL", "")
FRANCE = "What is the capital of France?"

pytestmark = [
    pytest.mark.skipif(not (BUILD / "libquire_c.so").exists(), reason="built without libquire_c.so (QUIRE_BUILD_C)"),
    pytest.mark.skipif(not MODEL, reason="QUIRE_TEST_MODEL is not set"),
]


def tool(*names):
    """Returns the path of the first program that exists, or skips the test."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin", str(pathlib.Path.home() / ".cargo/bin")])
    for name in names:
        if found := shutil.which(name, path=places):
            return found
    pytest.skip(f"{' or '.join(names)} is not installed")


def build(*command, **more):
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    assert made.returncode == 0, made.stderr


def run(program, *arguments):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD)}
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, env=environment)


def answer(program, *questions):
    done = run(program, MODEL, *questions)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expect_error(program):
    """The program prints the message of quire's error, which names the file."""
    done = run(program, "/no/such/model.gguf", FRANCE)
    assert done.returncode == 1
    assert "/no/such/model.gguf" in done.stderr


def test_c_example_streams_explains_and_cancels(tmp_path):
    program = tmp_path / "stream"
    build(tool("cc", "gcc", "clang-19"), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{REPO}/include", str(REPO / "examples/c/stream.c"),
          f"-L{BUILD}", "-lquire_c", "-o", str(program))
    text, explanation, end = answer(program, FRANCE).rstrip("\n").rsplit("\n", 2)
    assert "Paris" in text
    assert explanation.startswith('{"object":"request.explanation"')
    assert end == "cancelled"
    expect_error(program)


def test_rust_example_streams_and_explains(tmp_path):
    program = tmp_path / "stream"
    build(tool("rustc"), "--edition", "2021", "-D", "warnings", str(REPO / "examples/rust/stream.rs"), "-L", str(BUILD), "-l", "quire_c", "-o", str(program))
    text, explanation = answer(program, FRANCE).rstrip("\n").rsplit("\n", 1)
    assert "Paris" in text
    assert explanation.startswith('{"object":"request.explanation"')
    expect_error(program)


def test_go_example_streams_two_answers(tmp_path):
    program = tmp_path / "stream"
    tool("cc", "gcc", "clang")  # cgo needs a C compiler
    environment = {**os.environ, "CGO_ENABLED": "1", "CGO_CFLAGS": f"-I{REPO}/include", "CGO_LDFLAGS": f"-L{BUILD}", "GOFLAGS": "-mod=mod",
                   "GOCACHE": str(tmp_path / "cache"), "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    build(tool("go"), "build", "-o", str(program), ".", cwd=REPO / "examples/go", env=environment)
    done = answer(program, FRANCE, "Is the sky blue?")
    assert "Paris" in done
    assert done.index(FRANCE) < done.index("Is the sky blue?")
    expect_error(program)
