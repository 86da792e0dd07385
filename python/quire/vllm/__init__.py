"""quire's core as vLLM's scheduler:

    vllm serve MODEL --scheduler-cls quire.vllm.Scheduler

`quire.vllm.ShadowScheduler` runs the core next to vLLM's scheduler and only compares both. `quire.vllm.Connector` is a KV connector for
vLLM's scheduler or quire's.

Each supported version of vLLM has an adapter. With another version, the scheduler refuses to start; the shadow uses the decisions of the
nearest version and logs this.
"""

import importlib
import logging
import re

import vllm

_ADAPTERS = {"0.19.0": "quire.vllm.v0_19", "0.32.0": "quire.vllm.v0_32"}


def _numbers(version: str) -> tuple:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def nearest(version: str) -> str:
    """Returns the newest version with an adapter that is not newer than `version`. If none exists, returns the oldest version with an
    adapter."""
    older = [known for known in _ADAPTERS if _numbers(known) <= _numbers(version)]
    return max(older, key=_numbers) if older else min(_ADAPTERS, key=_numbers)


_VERSION = vllm.__version__.split("+")[0]


def _module_for(version: str):
    return importlib.import_module(_ADAPTERS[version])


def _refusal() -> ImportError:
    return ImportError(
        f"quire.vllm supports vLLM {' and '.join(_ADAPTERS)}, and this is vLLM {vllm.__version__}; install version {nearest(_VERSION)}, or leave out "
        "--scheduler-cls to use vLLM's own scheduler. --scheduler-cls quire.vllm.ShadowScheduler reports where the decisions of this version differ"
    )


def _shadow_class():
    if _VERSION not in _ADAPTERS:
        logging.getLogger("vllm.quire").warning(
            "quire.vllm.ShadowScheduler: quire has no adapter for vLLM %s; vLLM's scheduler is compared with the decisions of vLLM %s, so a "
            "difference may be a difference between the two versions",
            vllm.__version__,
            nearest(_VERSION),
        )
    return importlib.import_module("quire.vllm._shadow").ShadowScheduler


def __getattr__(name: str):
    if name == "ShadowScheduler":  # imported on first use, because only this class needs vLLM's own scheduler
        return _shadow_class()
    if name == "Scheduler":
        if _VERSION not in _ADAPTERS:
            raise _refusal()
        return _module_for(_VERSION).Scheduler
    if name == "Connector":
        if _VERSION not in _ADAPTERS:
            raise ImportError(
                f"quire.vllm.Connector supports vLLM {' and '.join(_ADAPTERS)}, and this is vLLM {vllm.__version__}; install one of these versions"
            )
        return importlib.import_module("quire.vllm._connector").Connector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_served() -> bool:
    """Returns whether an adapter exists for exactly the installed version."""
    return _VERSION in _ADAPTERS


def scheduler_for_shadow():
    """Returns the class of quire's scheduler that the shadow runs next to vLLM's own scheduler."""
    return _module_for(_VERSION if _VERSION in _ADAPTERS else nearest(_VERSION)).Scheduler


__all__ = ["Connector", "Scheduler", "ShadowScheduler"]
