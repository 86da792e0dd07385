"""docs/options.md: every field of CoreConfig, and the flag that sets it or why there is none."""
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


def fields():
    """Of CoreConfig and of its groups."""
    text = "".join((REPO / "include/quire/base" / name).read_text(encoding="utf-8") for name in ("options.h", "core_config.h"))
    structs = {name: body for name, body in STRUCT.findall(text) if name not in OF_THE_ENGINE}
    names = {"num_blocks", "groups"}  # of the KV cache's config
    for body in structs.values():
        for kind, first, _, second, _ in FIELD.findall(body):
            if kind not in structs and kind != "KvCacheConfig":
                names.update(name for name in (first, second) if name)
    return names


def table():
    rows = re.findall(r"^\| `(\w+)` \| (`--[\w-]+`|-) \| (.*?) ?\|$", (REPO / "docs/options.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == len({field for field, _, _ in rows}), "a field stands there once"
    return {field: (flag.strip("`"), why) for field, flag, why in rows}


def test_every_option_of_the_core_has_a_row():
    assert len(fields()) > 50, "the headers were read"
    assert table().keys() == fields()


def test_python_has_no_option_that_is_not_there():
    assert {name for name in dir(quire.CoreConfig) if not name.startswith("_")} - {"validate"} <= table().keys()


def test_every_flag_is_one_of_serve_and_what_has_none_says_why():
    told = subprocess.run([os.environ["QUIRE_BINARY"], "serve", "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"--[a-z][a-z-]+", told))
    for field, (flag, why) in table().items():
        assert flag in flags or (flag == "-" and why), field
