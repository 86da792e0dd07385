"""quire's core as vLLM's scheduler:

    vllm serve MODEL --scheduler-cls quire.vllm.Scheduler

or beside it, only compared: quire.vllm.ShadowScheduler. And a KV connector, with vLLM's scheduler or quire's: quire.vllm.Connector.

One adapter per vLLM version. Under a version without one the scheduler is refused; the shadow compares with the nearest one's decisions,
and says so.
"""

import importlib
import logging
import re

import vllm

_ADAPTERS = {"0.19.0": "quire.vllm.v0_19", "0.32.0": "quire.vllm.v0_32"}


def _numbers(version: str) -> tuple:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def nearest(version: str) -> str:
    """Of the versions that have an adapter: the newest that is not newer than `version`, else the oldest."""
    older = [known for known in _ADAPTERS if _numbers(known) <= _numbers(version)]
    return max(older, key=_numbers) if older else min(_ADAPTERS, key=_numbers)


_VERSION = vllm.__version__.split("+")[0]


def _module_for(version: str):
    return importlib.import_module(_ADAPTERS[version])


def _refusal() -> ImportError:
    return ImportError(
        f"quire.vllm serves vLLM {' and '.join(_ADAPTERS)}, and this is vLLM {vllm.__version__}; install the nearest, {nearest(_VERSION)}, or leave out "
        "--scheduler-cls to go back to vLLM's own scheduler. --scheduler-cls quire.vllm.ShadowScheduler finds out where this version decides otherwise"
    )


def _shadow_class():
    if _VERSION not in _ADAPTERS:
        logging.getLogger("vllm.quire").warning(
            "quire.vllm.ShadowScheduler: quire has no adapter for vLLM %s; vLLM's scheduler is compared with the decisions of vLLM %s, and a "
            "difference may be one of the two versions",
            vllm.__version__,
            nearest(_VERSION),
        )
    return importlib.import_module("quire.vllm._shadow").ShadowScheduler


def __getattr__(name: str):
    if name == "ShadowScheduler":  # only who asks for it needs vLLM's own scheduler
        return _shadow_class()
    if name == "Scheduler":
        if _VERSION not in _ADAPTERS:
            raise _refusal()
        return _module_for(_VERSION).Scheduler
    if name == "Connector":
        if _VERSION not in _ADAPTERS:
            raise ImportError(
                f"quire.vllm.Connector is for vLLM {' and '.join(_ADAPTERS)}, and this is vLLM {vllm.__version__}; install one of these"
            )
        return importlib.import_module("quire.vllm._connector").Connector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_served() -> bool:
    """There is an adapter for this very version."""
    return _VERSION in _ADAPTERS


def scheduler_for_shadow():
    """The class that the shadow computes beside vLLM's own."""
    return _module_for(_VERSION if _VERSION in _ADAPTERS else nearest(_VERSION)).Scheduler


__all__ = ["Connector", "Scheduler", "ShadowScheduler"]
