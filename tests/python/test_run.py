"""Tests the chat of `quire run` in the terminal: its commands, and messages of several lines."""
import os
import subprocess

import pytest


def test_commands_are_not_sent_to_the_model():
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    lines = '/help\n/sing\nHello.\n/clear\n"""Hello.\n"""\n/bye\nnever read\n'
    done = subprocess.run([binary, "run", model, "--kv-cache-memory", "64MiB", "--max-tokens", "4", "--temperature", "0"], input=lines,
                          capture_output=True, text=True, timeout=120, check=True)
    assert "/clear         forget the conversation" in done.stdout
    assert "unknown command '/sing'; /help lists the commands" in done.stderr
    answers = [line for line in done.stderr.splitlines() if "prompt tokens" in line]
    assert len(answers) == 2, done.stderr
    prompts = [int(line[1:].split()[0]) for line in answers]
    assert prompts[1] - prompts[0] in (0, 1), "after /clear, the second prompt has only the second message, with a line end"
