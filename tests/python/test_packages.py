"""Tests the other files of the packages: man page and completions name all flags of --help, and systemd accepts the service."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tools"))
from package import completions, help_text, man_page  # noqa: E402

UNIT = REPO / "tools/package/quire.service"
DEFAULTS = REPO / "tools/package/quire.default"


def binary():
    path = os.environ.get("QUIRE_BINARY")
    if not path:
        pytest.skip("QUIRE_BINARY is not set: ./dev test sets it")
    return path


@pytest.fixture(scope="module")
def root():
    return help_text.read(binary())


def flags_in_help(*command):
    """Returns flags and subcommands in a command's --help, found without the code under test."""
    text = subprocess.run([binary(), *command, "--help"], check=True, capture_output=True, text=True).stdout
    flags = {name for names in re.findall(r"^  (-\S+)", text, re.MULTILINE) for name in names.replace("{false}", "").split(",")}
    listed = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.MULTILINE)
    return flags, re.findall(r"^  (\w+)", listed[1], re.MULTILINE) if listed else []


def every_command(*command):
    flags, commands = flags_in_help(*command)
    yield command, flags
    for name in commands:
        yield from every_command(*command, name)


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")


def complete(script, *words):
    """Returns what bash offers for the last word."""
    program = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quire; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", program, script, *words], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_parser_finds_all_flags_of_help(root):
    parsed = {command.path: {name for option in command.options for name in option.names} for command in root.walk()}
    assert parsed == dict(every_command())
    assert len(parsed[("serve",)]) > 50 and ("cache", "verify") in parsed


def test_man_page_and_completions_name_every_flag(root):
    page = man_page.page(root, "1").replace("\\-", "-")
    bash, zsh = completions.bash(root), completions.zsh(root)
    for command, flags in every_command():
        assert " ".join(command) in page
        for name in command[-1:]:
            assert re.search(rf'"[\w ]*/{name}"\)', bash) and f"        {name}) " in zsh
        for flag in flags:
            assert f"\\fB{flag}\\fR" in page, flag
            assert re.search(rf'[" ]{flag}[" ]', bash) and f"{flag}[" in zsh, flag


def test_values_and_defaults_are_in_the_man_page(root):
    page = man_page.page(root, "1").replace("\\-", "-")
    assert "\\fB--port\\fR \\fIUINT\\fR\n" in page and "Default: 8000." in page
    assert "\\fB--isa\\fR \\fIamx|avx2|avx512|avx512_bf16|avx_vnni|best|neon|neon_i8mm|reference\\fR" in page
    assert "Also from the environment variable QUIRE_API_KEY." in page


def test_man_shows_the_page_without_a_warning(root, tmp_path):
    needs("man")
    (tmp_path / "quire.1").write_text(man_page.page(root, "1"), encoding="utf-8")
    shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", tmp_path / "quire.1"], capture_output=True, text=True,
                           env={**os.environ, "MANWIDTH": "100", "MANPAGER": "cat", "LC_ALL": "C.UTF-8"})
    assert shown.returncode == 0 and not shown.stderr and "--kv-disk-budget SIZE" in shown.stdout


def test_bash_completes_commands_flags_and_values(root, tmp_path):
    script = tmp_path / "quire.bash"
    script.write_text(completions.bash(root), encoding="utf-8")
    (tmp_path / "model.gguf").touch()
    assert {"serve", "run", "cache"} <= set(complete(script, "quire", ""))
    assert sorted(complete(script, "quire", "ca")) == ["cache", "calibrate"]
    assert set(complete(script, "quire", "cache", "")) == {"stat", "ls", "verify", "drop"}
    assert complete(script, "quire", "cache", "drop", "--y") == ["--yes"]
    assert complete(script, "quire", "serve", "m.gguf", "--kv-disk-b") == ["--kv-disk-budget", "--kv-disk-bandwidth"]
    assert complete(script, "quire", "serve", "m.gguf", "--scheduling-policy", "c") == ["continuum"]
    assert complete(script, "quire", "serve", f"{tmp_path}/m") == [f"{tmp_path}/model.gguf"]
    assert complete(script, "quire", "serve", "m.gguf", "--port", "") == []


def test_zsh_accepts_its_completion(root, tmp_path):
    needs("zsh")
    (tmp_path / "_quire").write_text(completions.zsh(root), encoding="utf-8")
    done = subprocess.run(["zsh", "-n", tmp_path / "_quire"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr


def test_unknown_line_of_help_is_an_error():
    with pytest.raises(help_text.HelpError, match="nothing known"):
        help_text.parse((), "About\nUsage: quire [OPTIONS]\n\nOptions:\n    nothing known\n", None)


def test_groups_of_flags_are_read_and_the_footer_is_none():
    text = "About\nUsage: quire [OPTIONS]\n\nOptions:\n  -h,--help                   Help\n\nKV cache:\n  --kv-lifo                   Last in\n\nExamples:\n  quire\n"
    parsed = help_text.parse((), text, None)
    assert [option.names for option in parsed.options] == [("-h", "--help"), ("--kv-lifo",)] and parsed.footer == "Examples:\n  quire"


@pytest.mark.parametrize("left, expected", [
    ("-h,--help", dict(names=("-h", "--help"), value="", repeatable=False)),
    ("--a,--no-a{false}", dict(names=("--a", "--no-a"), value="")),
    ("--port INT=8000", dict(value="INT", default="8000")),
    ("--tenant-key NAME=KEY ...", dict(value="NAME=KEY", default="", repeatable=True)),
    ("--kv-connector NAME[,key=value...] ...", dict(value="NAME[,key=value...]", default="", repeatable=True)),
    ("--budget UINT:SIZE=auto Needs: --kv-disk", dict(value="SIZE", default="auto", needs=("--kv-disk",))),
    ("--key TEXT (Env:QUIRE_API_KEY)", dict(value="TEXT", env="QUIRE_API_KEY")),
    ("--pooling TEXT:{last,cls}", dict(value="last|cls", choices=("last", "cls"))),
    ("model MODEL REQUIRED", dict(names=("model",), value="MODEL", required=True)),
])
def test_reads_left_columns(left, expected):
    option = help_text.parse_option(left, "")
    assert {name: getattr(option, name) for name in expected} == expected


def test_version_matches_the_project_and_names_the_commit():
    version = re.search(r"^project\(quire VERSION (\S+) ", (REPO / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    told = subprocess.run([binary(), "--version"], check=True, capture_output=True, text=True).stdout
    assert re.fullmatch(rf"quire {re.escape(version)}( \([0-9a-f]{{12,}}(-dirty)?\))?\n", told)


def test_service_starts_serve_with_existing_flags():
    unit = UNIT.read_text(encoding="utf-8")
    assert "ExecStart=/usr/bin/quire serve ${QUIRE_MODEL} $QUIRE_FLAGS\n" in unit and "EnvironmentFile=-/etc/default/quire\n" in unit
    flags, _ = flags_in_help("serve")
    named = set(re.findall(r"--[a-z][a-z-]+", unit + DEFAULTS.read_text(encoding="utf-8"))) - {"--now"}
    assert len(named) > 3 and named <= flags


def test_systemd_accepts_the_service_and_rates_it_secure(tmp_path):
    needs("systemd-analyze")
    unit = tmp_path / "quire.service"
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/bin/quire", "/bin/true").replace("man:quire(1)", "man:true(1)"), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "quire.service" not in verified.stderr.replace("Command 'man true(1)' failed", ""), verified.stderr
    # The exposure is in tenths of 100. The network and the address families of sockets cause the remaining exposure.
    judged = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout[-300:]
