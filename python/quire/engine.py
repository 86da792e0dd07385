"""The whole engine in a Python program: a model, its KV cache, its scheduler and a thread that steps them.

    with quire.Engine("model.gguf", kv_cache_memory="256MiB") as engine:
        print(engine.generate("Once upon a time", max_tokens=20).text)
        for part in engine.stream([{"role": "user", "content": "Name three rivers."}], temperature=0):
            print(part.text, end="")

Several threads may call the engine; their answers are computed in one batch. A call that waits lets other Python threads run.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Union

try:
    from quire._engine import SIZE_OPTIONS, EngineConfig, Generation, NativeEngine, Output, SamplingParams
except ModuleNotFoundError as error:
    raise ImportError("quire.Engine: this installation contains only the core; the wheel of ./dev package also contains the engine") from error

__all__ = ["Engine", "EngineConfig", "Generation", "Output", "SamplingParams"]

Prompt = Union[str, Sequence[int], Sequence[Mapping[str, str]]]

_UNITS = {"": 1, "B": 1, "K": 2**10, "KiB": 2**10, "M": 2**20, "MiB": 2**20, "G": 2**30, "GiB": 2**30, "T": 2**40, "TiB": 2**40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


_PROMPTS = 'Give text, token ids, or the messages of a chat ([{"role": ..., "content": ...}])'


def _turn(index: int, turn: Mapping) -> tuple[str, str]:
    for key in ("role", "content"):
        if not isinstance(turn.get(key), str):
            found = f"is a {type(turn[key]).__name__}" if key in turn else "is missing"
            raise ValueError(f"prompt[{index}].{key}: {found}. Give a string")
    return turn["role"], turn["content"]


def _bytes(name: str, value: str) -> int:
    if value == "auto":
        return 0
    size = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", value)
    if size is None or size[2] not in _UNITS:
        raise ValueError(f"{name}: {value!r} is not a size; use 512MiB, 2GiB or a number of bytes")
    return int(float(size[1]) * _UNITS[size[2]])


class Engine:
    """`model`: a GGUF file or a Hugging Face folder. `options`: fields of EngineConfig, which are the flags of `quire serve` with
    underscores.

    Raises ValueError or TypeError, naming the option, if the model cannot be served with these options, and FileNotFoundError or OSError if
    its files cannot be read.
    """

    def __init__(self, model, **options) -> None:
        sizes = {name: _bytes(name, options[name]) for name in SIZE_OPTIONS if isinstance(options.get(name), str)}
        self._native = NativeEngine(str(model), EngineConfig(**{**options, **sizes}))
        self._stop = weakref.finalize(self, self._native.close, 0.0)  # also called when the interpreter exits

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str = "",
        job: str = "",
        is_last_step: bool = False,
        tool: str = "",
        adapter: str = "",
        **sampling,
    ) -> Generation:
        """Begins an answer and returns the iterator of its parts. The answer is computed whether its parts are taken or not.

        `prompt`: text, token ids, or the messages of a chat ({"role": ..., "content": ...}), which are rendered with the model's chat
        template. `sampling`: fields of SamplingParams, instead of `params`. `adapter`: the name of a LoRA adapter, whose files are read if
        it is not in memory. Raises ValueError, naming the field, if the request cannot be served, and RuntimeError if too many requests are
        waiting.
        """
        if params is not None and sampling:
            raise TypeError(f"{next(iter(sampling))}: cannot be combined with params; set it in params")
        tags = {"priority": priority, "cache_salt": cache_salt, "job": job, "is_last_step": is_last_step, "tool": tool, "adapter": adapter}
        native = self._open()
        return native.submit(self.encode(prompt), params if params is not None else SamplingParams(**sampling), **tags)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **more) -> Output:
        """Returns the whole answer of stream(). An exception while it waits (KeyboardInterrupt) aborts the answer."""
        return self.stream(prompt, params, **more).rest()

    def abort(self, generation: Generation) -> None:
        """Ends an answer. Its last part has the finish reason 'abort' and the tokens that were computed before."""
        generation.abort()

    def encode(self, prompt: Prompt) -> list[int]:
        """Returns the token ids of a prompt, which may have any form that stream() accepts."""
        native = self._open()
        if isinstance(prompt, str):
            return native.encode(prompt)
        if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
            raise TypeError(f"prompt: is a {type(prompt).__name__}. {_PROMPTS}")
        parts = list(prompt)
        if parts and all(isinstance(part, Mapping) for part in parts):
            return native.encode_chat([_turn(index, turn) for index, turn in enumerate(parts)])
        for index, part in enumerate(parts):
            if isinstance(part, str):
                raise TypeError(f"prompt[{index}]: is text, and one call takes one prompt. Call stream() for each text; their answers run in one batch")
            if isinstance(part, bool) or not hasattr(part, "__index__"):
                raise TypeError(f"prompt[{index}]: is a {type(part).__name__}. {_PROMPTS}")
        return [int(part) for part in parts]

    def decode(self, tokens: Sequence[int]) -> str:
        return self._native.decode(list(tokens))

    def stats(self) -> dict[str, int]:
        """Returns counts since the start, and the current numbers of blocks and requests. May be called after close()."""
        return self._native.stats()

    def save_journal(self) -> dict:
        """Writes the scheduler calls of the last minutes (`journal_memory`) to a file for `quire replay`, in the folder `journal_save` or
        `journal`.

        Returns {"path", "bytes", "steps", "seconds"}. Raises NotImplementedError if no folder is set, and OSError if the file cannot be
        written.
        """
        return self._native.save_journal()

    def load_adapter(self, name: str, path, replace: bool = False) -> None:
        """Registers a LoRA adapter, a folder in PEFT's format (`enable_lora`). With `replace`, the name may already be registered.

        Raises ValueError, naming the field, if the adapter cannot be served, and FileNotFoundError if the folder does not exist.
        """
        self._open().load_adapter(name, str(path), replace)

    def unload_adapter(self, name: str) -> None:
        """Removes the adapter for new requests. Requests in flight continue to use it."""
        self._open().unload_adapter(name)

    def adapters(self) -> list[dict]:
        """Returns [{"name", "path", "digest", "rank", "bytes", "resident"}], sorted by name. An adapter that is not resident is read when a
        request needs it."""
        return self._open().adapters()

    def probe(self, prompt: Prompt, cache_salt: str = "", adapter: str = "") -> dict:
        """Returns how many tokens of the prompt could be reused now. It computes and loads nothing, changes no statistics, and does not
        protect blocks from eviction.

        The result is {"prompt_tokens", "found": {"memory": tokens, "dram": tokens, ...}, "missed_tokens", "tiers_known", "wait_s",
        "load_s", "compute_s"}. Times are `None` if they were not measured yet. Raises ValueError like stream().
        """
        return self._open().probe(self.encode(prompt), cache_salt, adapter)

    def cache_curve(self) -> list[dict]:
        """Returns estimated hit rates at other cache sizes, smallest first. "label" names the current size and the sizes of the tiers.

        The result is [{"label", "bytes", "blocks", "hit_rate", "saved_prefill_tokens_per_s"}]. Raises NotImplementedError if no blocks are
        sampled (`curve_blocks`).
        """
        return self._open().cache_curve()

    def close(self, timeout: float = 0.0) -> int:
        """Refuses new requests, waits up to `timeout` seconds for open requests, and aborts the others. Returns the number of aborted
        requests."""
        self._stop.detach()
        return self._native.close(timeout)

    def _open(self) -> NativeEngine:
        if not self._stop.alive:
            raise RuntimeError("Engine: the engine is closed; create another one")
        return self._native

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()
