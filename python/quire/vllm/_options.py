"""Reads quire's part of --additional-config: options of the core without a flag in vLLM. docs/vllm.md lists them.

    --additional-config '{"quire": {"admission_watermark": 0.01, "pressure_high": 0.95, "pressure_preempts": true}}'
"""

import os

import quire
from quire.vllm._config import refuse

_CONTINUUM = ("pin_s", "longest_tool_s", "max_jobs", "max_tools", "pins_give_way", "pins_end_with_job", "jobless_in_order")
_CACHE = ("admission_watermark", "pressure_high", "pressure_low", "pressure_preempts", "lifo_free_blocks", "slru_share")
# Options of the core's step trace, with the defaults of quire serve --trace.
_TRACE = {"trace": "", "trace_every": 1, "trace_max_steps": 0, "trace_file_bytes": 2**28, "trace_files": 4}
_TRACE_PATH = "VLLM_SCHED_TRACE_PATH"  # environment variable with the value of `trace` if the option is not given
_JOURNAL = {"journal": "", "journal_max_bytes": 2**30, "journal_tokens": True}  # defaults of quire serve
_KNOWN = ("policy", *_CACHE, *_CONTINUUM, *_TRACE, *_JOURNAL)
_PRESSURE_LOW = 0.8  # default if only the upper limit is given, as in quire serve


def options_of(vllm_config) -> dict:
    """Returns options of quire.CoreConfig, or {} if none is given. The core checks their ranges."""
    given = _given(vllm_config)
    _refuse_block_copy_options(given)
    if unknown := sorted(set(given) - set(_KNOWN)):
        refuse(f"additional_config: quire.{unknown[0]}", f"use one of {', '.join(_KNOWN)}")
    policy = given.pop("policy", None)
    if policy not in (None, "continuum"):
        refuse(f"additional_config: quire.policy={policy!r}", 'use "continuum", or set a policy of vLLM with --scheduling-policy')
    if policy is None and (lost := [name for name in given if name in _CONTINUUM]):
        refuse(f"additional_config: quire.{lost[0]} without the policy continuum", 'add "policy": "continuum"')
    given = {name: value for name, value in given.items() if name not in _TRACE and name not in _JOURNAL}
    for name, value in given.items():
        _check_type(name, value, getattr(quire.CoreConfig(), name))
    if given.get("pressure_high") and not given.get("pressure_low"):
        given["pressure_low"] = min(_PRESSURE_LOW, given["pressure_high"])
    if policy is not None:
        given["policy"] = quire.SchedulingPolicy.CONTINUUM
    return given


def trace_of(vllm_config) -> dict:
    """Returns the trace options of VllmBridge, which checks their ranges, or {} without a trace. Each data-parallel engine writes separate
    files."""
    given = {name: value for name, value in _given(vllm_config).items() if name in _TRACE}
    for name, value in given.items():
        _check_type(name, value, _TRACE[name])
    path = given.get("trace") or os.environ.get(_TRACE_PATH, "")
    if not path:
        if given:
            refuse(f"additional_config: quire.{next(iter(given))} without a trace", 'add "trace": "PATH"')
        return {}
    parallel = vllm_config.parallel_config
    if parallel.data_parallel_size > 1:
        path += f".dp{parallel.data_parallel_index}"
    return {name.removeprefix("trace_"): value for name, value in {**_TRACE, **given}.items() if name != "trace"} | {"path": path}


def journal_of(vllm_config) -> dict:
    """Returns the journal options of VllmBridge, or {} without a journal. Each data-parallel engine writes a separate file at each start."""
    given = {name: value for name, value in _given(vllm_config).items() if name in _JOURNAL}
    for name, value in given.items():
        _check_type(name, value, _JOURNAL[name])
    if not given.get("journal"):
        if given:
            refuse(f"additional_config: quire.{next(iter(given))} without a journal", 'add "journal": "DIR"')
        return {}
    given = {**_JOURNAL, **given}
    return {"folder": given["journal"], "max_bytes": given["journal_max_bytes"], "tokens": given["journal_tokens"]}


def _given(vllm_config) -> dict:
    additional = getattr(vllm_config, "additional_config", None)
    given = additional.get("quire", {}) if isinstance(additional, dict) else {}
    if not isinstance(given, dict):
        refuse(f"additional_config: quire={given!r}", 'use an object, such as {"quire": {"admission_watermark": 0.01}}')
    return dict(given)


def _refuse_block_copy_options(given: dict) -> None:
    """Refuses forks and swapping: they copy blocks, or move them out of the cache and back, for which SchedulerOutput has no field."""
    for name in given:
        if "fork" in name:
            refuse(
                f"additional_config: quire.{name}: a fork copies a shared block when it writes to it, and vLLM 0.19.0's "
                "SchedulerOutput has no field for block copies",
                "leave it out: vLLM makes one request for each of the n answers",
            )
        if "swap" in name:
            refuse(
                f"additional_config: quire.{name}: swap moves the blocks of a preempted request out and back, and vLLM 0.19.0's "
                "SchedulerOutput has no field for that",
                "leave it out: preempted requests load the blocks that OffloadingConnector holds, and compute the others again",
            )


def _check_type(name: str, value, default) -> None:
    """Refuses a value of the wrong type. JSON has other types than the core. A bool is not accepted as a number, although it is one in
    Python."""
    kind = type(default)
    fits = type(value) is kind or (kind is float and type(value) is int)
    if not fits or (kind is int and not 0 <= value < 2**32):
        words = {bool: "true or false", int: "a whole number from 0 to 4294967295", float: "a number", str: "a string"}[kind]
        refuse(f"additional_config: quire.{name}={value!r}", f"use {words}")
