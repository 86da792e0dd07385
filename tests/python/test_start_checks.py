"""Tests the refusals and warnings of `quire serve` at startup: more memory than the machine has, and flags without effect."""
import json
import os
import re
import socket
import subprocess
import urllib.request

import pytest

from quire_server import free_port, started

GIB = 1 << 30


def binary_and_model():
    binary, model = os.environ.get("QUIRE_BINARY"), os.environ.get("QUIRE_TEST_MODEL")
    if not binary or not model:
        pytest.skip("QUIRE_BINARY and QUIRE_TEST_MODEL are not set: ./dev test sets them")
    return binary, model


def total_memory():
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:"))


def refused(command, *flags):
    binary, model = binary_and_model()
    done = subprocess.run([binary, command, model, *flags], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize("flags, named", [
    (("--kv-cache-memory", "TOTAL"), "--kv-cache-memory"), (("--kv-cache-memory", "7TiB"), "--kv-cache-memory"),
    (("--num-blocks", "9000000"), "--num-blocks"), (("--kv-dram", "TOTAL"), "--kv-dram"), (("--kv-swap", "900GiB"), "--kv-swap"),
    # Each size fits alone, but both do not fit together.
    (("--kv-cache-memory", "HALF", "--kv-dram", "HALF"), "--kv-"), (("--kv-swap", "HALF", "--kv-dram", "HALF"), "--kv-"),
    (("--kv-connector", "OffloadingConnector,cpu_bytes_to_use=3000000000000"), "--kv-connector"),
    (("--kv-cache-memory", "auto", "--kv-dram", "800GiB"), "--kv-")])
def test_refuses_more_memory_than_the_machine_has(flags, named):
    total = total_memory()
    flags = [{"TOTAL": str(total), "HALF": str(total // 2)}.get(flag, flag) for flag in flags]
    told = refused("serve", "--port", str(free_port()), *flags)
    assert named in told and "GiB" in told
    assert f"{total / GIB:.2f} GiB" in told or float(re.search(r"has ([\d.]+) GiB|finds ([\d.]+) GiB", told)[1] or 0) <= total / GIB


@pytest.mark.parametrize("flags", [
    ("--max-num-seqs", "0"), ("--threads", "9999"), ("--isa", "neon"), ("--max-audio-seconds", "0"), ("--max-body-bytes", "1"),
    ("--media-timeout-ms", "0"), ("--response-store", "9999TiB"), ("--tenant-key", "foo"), ("--allowed-host", "a b"), ("--trusted-proxy", "x"),
    ("--max-model-len", "1"), ("--long-prefill-token-threshold", "4000000000")])
def test_errors_name_the_flag(flags):
    if flags == ("--isa", "neon") and os.uname().machine == "aarch64":
        pytest.skip("this machine has NEON")
    assert refused("serve", "--port", str(free_port()), *flags).startswith(f"quire: {flags[0]}"), flags


def test_quire_alone_prints_its_help():
    binary, _ = binary_and_model()
    alone, help_text = (subprocess.run([binary, *words], capture_output=True, text=True, timeout=60, check=True) for words in ([], ["--help"]))
    assert alone.stdout == help_text.stdout and "quire serve model.gguf" in alone.stdout and alone.stderr == ""


def test_misspelt_words_are_refused_with_the_nearest_name():
    binary, _ = binary_and_model()
    for words, text in ((["sreve", "x"], "unknown command 'sreve'; did you mean 'serve'? See quire --help"),
                        (["serve", "x", "--portt", "1"], "unknown flag --portt; did you mean --port? See quire serve --help")):
        done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"quire: {text}\n")
    assert "--port: '99999' is not a whole number from 0 to 65535" in refused("serve", "--port", "99999")


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_port_in_use_is_refused_before_the_model_is_read(command):
    binary, _ = binary_and_model()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run([binary, command, "no-such-model.gguf", "--port", str(port)], capture_output=True, text=True, timeout=60,
                              check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"quire: --port: cannot listen on 127.0.0.1:{port}: Address already in use; choose another port"), done.stderr


def test_config_file_sets_flags_and_the_command_line_has_priority(tmp_path):
    binary, model = binary_and_model()
    port = free_port()
    config = tmp_path / "quire.yaml"
    config.write_text(f"model: {model}\nport: 1  # the command line sets the port\nserved-model-name:\n- small\n- 'other'\n"
                      "kv-cache-memory: 64MiB\nenable-prefix-caching: false\noverride-generation-config: {\"top_k\": 3}\n")
    process = subprocess.Popen([binary, "serve", "--port", str(port), "--config", str(config)], stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Try"):
                break
        models = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30))["data"]
    finally:
        process.terminate()
        process.wait(60)
    assert [model["id"] for model in models] == ["small", "other"]
    assert any(line.startswith("Sampling defaults: top_k 3 (from --override-generation-config") for line in lines), lines


@pytest.mark.parametrize("text, problem", [
    ("portt: 1", "line 1: 'portt' is not a flag of quire serve; did you mean 'port'?"),
    ("host: a\n\nport: [1, 2]", "line 3: port: the flag does not take a list; give one value"),
    ("kv-lifo: 1", "line 1: kv-lifo: '1' is not true or false; use true or false"),
    ("speculative-config:\n  method: ngram", "line 2: the line is indented, but is no item of a list; write an object as JSON on one line")])
def test_config_file_with_mistakes_is_refused(tmp_path, text, problem):
    config = tmp_path / "quire.yaml"
    config.write_text(text)
    assert refused("serve", "--config", str(config)).startswith(f"quire: --config: {config}: {problem}")


def test_values_of_a_config_file_are_checked_like_flags(tmp_path):
    config = tmp_path / "quire.yaml"
    config.write_text("port: 99999")
    assert refused("serve", "--config", str(config)).startswith("quire: --port: '99999' is not a whole number")
    config.write_text("kv-dram-policy: arc")
    assert "--kv-dram" in refused("serve", "--config", str(config)), "the flag needs another one"
    assert "cannot be read" in refused("serve", "--config", str(tmp_path / "none.yaml"))


def test_old_names_of_flags_are_accepted_and_not_shown():
    binary, _ = binary_and_model()
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "--max-audio-seconds" in text and "--max-sound-seconds" not in text
    assert refused("serve", "--port", str(free_port()), "--max-sound-seconds", "0").startswith("quire: --max-audio-seconds")


def test_other_commands_name_the_flag_too():
    assert "--kv-cache-memory" in refused("run", "--kv-cache-memory", "6TiB", "Hello")


def test_inspect_reports_what_does_not_fit():
    binary, model = binary_and_model()
    for size, fits in (("3TiB", False), ("96MiB", True)):
        told = subprocess.run([binary, "inspect", model, "--memory", size], capture_output=True, text=True, timeout=60, check=True).stdout
        assert ("does not fit" in told) == (not fits)


# Each flag has its value and the text that its warning must contain. All flags are given together, and none has its feature.
IDLE = {
    ("--kv-policy", "exact"): "--kv-dram", ("--kv-join-loads",): "--kv-disk", ("--kv-store-threshold", "3"): "--kv-dram",
    ("--kv-max-tracker-size", "500"): "--kv-store-threshold", ("--kv-load-failure-policy", "fail"): "--kv-remote",
    ("--kv-key", "/nonexistent"): "--kv-peers", ("--kv-role", "none", "--kv-lease", "9"): "--kv-role",
    ("--kv-host", "127.0.0.1"): "--kv-role", ("--kv-port", "7"): "--kv-role", ("--kv-producers", "127.0.0.1"): "--kv-role",
    ("--kv-swap-choice", "always"): "--kv-swap", ("--prompt-lookup-min", "3"): "--num-speculative-tokens",
    ("--prompt-lookup-max", "9"): "--num-speculative-tokens", ("--continuum-pin", "3"): "--scheduling-policy",
    ("--continuum-longest-tool", "4"): "continuum", ("--continuum-max-jobs", "50"): "continuum", ("--continuum-max-tools", "50"): "continuum",
    ("--max-loras", "3"): "--enable-lora", ("--max-lora-rank", "64"): "--enable-lora", ("--max-cpu-loras", "9"): "--enable-lora",
    ("--allow-runtime-lora-updating",): "--enable-lora", ("--trace-every", "2"): "--trace", ("--trace-max-steps", "8"): "--trace",
    ("--trace-file-bytes", "1000000"): "--trace", ("--trace-files", "3"): "--trace", ("--journal-max-bytes", "2GiB"): "--journal",
    ("--limit-mm-per-prompt", "image=2"): "images", ("--enable-mm-embeds",): "images", ("--allowed-media-domains", "example.com"): "images",
    ("--max-media-bytes", "2048"): "--allowed-media-domains", ("--media-timeout-ms", "100"): "--allowed-media-domains",
    ("--max-audio-seconds", "5"): "audio", ("--max-audio-bytes-in-flight", "200000000"): "audio",
    ("--no-enable-prefix-caching", "--prefix-caching-hash-algo", "sha256"): "--no-enable-prefix-caching",
    ("--prefix-caching-hash-seed", "7"): "--no-enable-prefix-caching",
    ("--tenant-secret", "s"): "--tenant-keys-file", ("--otlp-service-name", "x"): "--otlp-traces-endpoint"}


def warnings_of(capfd, *flags):
    with started(*flags, "--log-format", "json"):
        pass
    lines = [line for line in capfd.readouterr().err.splitlines() if '"flag_without_effect"' in line]
    return {re.search(r'"flag":"([^"]+)"', line)[1]: re.search(r'"why":"([^"]+)"', line)[1] for line in lines}


def test_flags_without_their_feature_are_warned_about(capfd):
    told = warnings_of(capfd, *(word for flag in IDLE for word in flag))
    for words, needed in IDLE.items():
        flag = [word for word in words if word.startswith("--") and word not in ("--kv-role", "--no-enable-prefix-caching")][0]
        assert flag in told, flag
        assert "has no effect without" in told[flag] and needed in told[flag], told[flag]


def test_flags_with_their_feature_are_not_warned_about(capfd, tmp_path):
    told = warnings_of(capfd, "--kv-dram", "16MiB", "--kv-policy", "exact", "--kv-join-loads", "--kv-store-threshold", "2",
                       "--kv-max-tracker-size", "100", "--kv-load-failure-policy", "fail", "--kv-swap", "4MiB", "--kv-swap-choice", "always",
                       "--enable-lora", "--max-loras", "2", "--trace", str(tmp_path / "t"), "--trace-every", "2", "--journal", str(tmp_path),
                       "--journal-max-bytes", "1MiB", "--prefix-caching-hash-algo", "sha256", "--scheduling-policy", "continuum",
                       "--continuum-pin", "1", "--num-speculative-tokens", "3", "--prompt-lookup-max", "5")
    assert told == {}


def flags_that_need_others():
    """Returns (flag, required flag) as --help states them."""
    binary, _ = binary_and_model()
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    flags, flag = [], None
    for line in text.splitlines():
        named = re.match(r"\s+(--[a-z0-9-]+)", line)
        flag = named[1] if named else flag
        needed = re.search(r"(?:Needs|REQUIRES|needs): (--[a-z-]+)", line)
        if needed:
            flags.append((flag, needed[1]))
    return flags


def test_flags_are_refused_without_their_required_flag():
    values = {"--kv-dram-policy": "arc", "--kv-disk-policy": "arc", "--kv-remote-key": "/x", "--kv-remote-ca": "/x", "--kv-host": "127.0.0.1",
              "--kv-cache-metrics-sample": "0.5", "--kv-pressure-low": "0.5"}
    switches = ("--kv-disk-write-through", "--kv-pressure-preempt", "--kv-connector-longest")
    found = flags_that_need_others()
    assert len(found) > 10, found
    for flag, needed in found:
        told = refused("serve", flag, *([] if flag in switches else [values.get(flag, "1")]))
        assert flag in told and needed in told, told
