"""Tests docs/options.md: it lists every field of CoreConfig and ServerOptions with the flag that sets it, or the reason why no flag exists."""
import os
import pathlib
import re
import subprocess

import quire

REPO = pathlib.Path(__file__).parents[2]
STRUCT = re.compile(r"^struct (?:QUIRE_API )?(\w+) \{\n(.*?)^\};", re.M | re.S)
FIELD = re.compile(r"^  ([\w:]+(?:<[\w:]+>)?) (\w+)( = [^,;]+)?(?:, (\w+)( = [^;]+)?)?(?:\{\})?;", re.M)
OF_THE_ENGINE = {"CacheOptions", "TraceOptions", "JournalOptions", "KvEventsOptions", "KvSwapOptions", "NgramOptions", "EngineOptions",
                 "AdapterModule", "AdapterOptions", "WeightsOptions"}


def fields_of_core():
    """Returns the fields of CoreConfig and of its groups."""
    text = "".join((REPO / "include/quire/base" / name).read_text(encoding="utf-8") for name in ("options.h", "core_config.h", "decision_profile.h"))
    structs = {name: body for name, body in STRUCT.findall(text) if name not in OF_THE_ENGINE}
    names = {"num_blocks", "groups"}  # in the KV cache's config
    for body in structs.values():
        for kind, first, _, second, _ in FIELD.findall(body):
            if kind not in structs and kind != "KvCacheConfig":
                names.update(name for name in (first, second) if name)
    return names


def fields_of_server():
    return {first for _, first, *_ in FIELD.findall((REPO / "include/quire/server_options.h").read_text(encoding="utf-8"))}


def table(first):
    """Returns the flag and the note of each field in the table that begins with this heading."""
    text = (REPO / "docs/options.md").read_text(encoding="utf-8").partition(f"\n| {first} | flag | notes |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (`--[\w-]+`|-) \| (.*?) ?\|$", text, re.M)
    assert len(rows) == len({field for field, _, _ in rows}), "each field must have one row"
    return {field: (flag.strip("`"), why) for field, flag, why in rows}


def test_every_option_of_the_core_has_a_row():
    assert len(fields_of_core()) > 50, "the headers must have more than 50 fields"
    assert table("field").keys() == fields_of_core()


# The first two are structs that flags are parsed into; the others are members of such a struct.
NOT_SCALAR = {"generation_defaults", "tenant_keys", "tenant", "key"}


def test_every_option_of_the_server_has_a_row():
    assert len(fields_of_server()) > 50, "the header must have more than 50 fields"
    assert table("server option").keys() - {"tenant_key", "tenant_keys_file"} == fields_of_server() - NOT_SCALAR


# `decisions` is an argument of Core's constructor; swap needs a host that executes the core's transfers.
NOT_IN_PYTHON = {"num_swap_slots", "num_slow_slots", "swap_choice"}


def test_python_has_every_option_of_the_core():
    assert {name for name in dir(quire.CoreConfig) if not name.startswith("_")} - {"validate"} == table("field").keys() - NOT_IN_PYTHON


def test_rows_name_flags_of_serve_or_a_reason():
    told = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"--[a-z][a-z-]+", told))
    for field, (flag, why) in (table("field") | table("server option")).items():
        assert flag in flags or (flag == "-" and why), field
