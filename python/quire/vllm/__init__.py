"""quire's core as vLLM's scheduler:

    vllm serve MODEL --scheduler-cls quire.vllm.Scheduler

or beside it, only compared: quire.vllm.ShadowScheduler.

One adapter file per vLLM version; a version without one is refused when this package is imported.
"""

import importlib

import vllm

_ADAPTERS = {"0.19.0": "quire.vllm.v0_19"}


def _adapter():
    version = vllm.__version__.split("+")[0]
    if version not in _ADAPTERS:
        raise ImportError(
            f"quire.vllm serves vLLM {', '.join(_ADAPTERS)}, and this is vLLM {vllm.__version__}; "
            "install one of those, or leave out --scheduler-cls to go back to vLLM's own scheduler"
        )
    return importlib.import_module(_ADAPTERS[version])


Scheduler = _adapter().Scheduler


def __getattr__(name: str):
    if name == "ShadowScheduler":  # only who asks for it needs vLLM's own scheduler
        return importlib.import_module("quire.vllm._shadow").ShadowScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Scheduler", "ShadowScheduler"]
