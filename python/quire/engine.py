"""The whole engine in a Python program: a model, its KV cache, its scheduler and a thread that steps them.

    with quire.Engine("model.gguf", kv_cache_memory="256MiB") as engine:
        print(engine.generate("Once upon a time", max_tokens=20).text)
        for part in engine.stream([{"role": "user", "content": "Name three rivers."}], temperature=0):
            print(part.text, end="")

Calls may come from several threads; answers run together in one batch. What waits lets other Python threads run.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from typing import Union

try:
    from quire._engine import EngineConfig, Generation, NativeEngine, Output, SamplingParams
except ModuleNotFoundError as error:
    raise ImportError("quire.Engine: this installation has the core alone; the wheel that ./dev package makes has the engine too") from error

__all__ = ["Engine", "EngineConfig", "Generation", "Output", "SamplingParams"]

Prompt = Union[str, Sequence[int], Sequence[Mapping[str, str]]]

_SIZES = ("kv_cache_memory", "kv_swap", "kv_swap_disk_budget", "weights_cache_budget", "expert_memory", "kv_dram", "kv_disk_budget", "kv_remote_budget", "trace_file_bytes",
          "journal_max_bytes", "journal_memory")  # fmt: skip
_UNITS = {"": 1, "B": 1, "K": 2**10, "KiB": 2**10, "M": 2**20, "MiB": 2**20, "G": 2**30, "GiB": 2**30, "T": 2**40, "TiB": 2**40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _bytes(name: str, value: str) -> int:
    if value == "auto":
        return 0
    size = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", value)
    if size is None or size[2] not in _UNITS:
        raise ValueError(f"{name}: is {value!r}; write 512MiB, 2GiB or a number of bytes")
    return int(float(size[1]) * _UNITS[size[2]])


class Engine:
    """`model`: a GGUF file or a Hugging Face folder. `options`: those of EngineConfig, the flags of `quire serve` with underscores.

    ValueError or TypeError, naming the option, for what cannot be served; FileNotFoundError and OSError for the model's files.
    """

    def __init__(self, model, **options) -> None:
        sizes = {name: _bytes(name, options[name]) for name in _SIZES if isinstance(options.get(name), str)}
        self._native = NativeEngine(str(model), EngineConfig(**{**options, **sizes}))
        self._stop = weakref.finalize(self, self._native.close, 0.0)  # also when the interpreter ends

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
        """Begins an answer, and returns the iterator of its parts. It is under way from here on, whether they are taken or not.

        `prompt`: text, token ids, or the messages of a chat ({"role": ..., "content": ...}), for the model's own template. `sampling`: fields
        of SamplingParams, instead of `params`. `adapter`: the name of a LoRA adapter, whose files are read where they are not in memory.
        ValueError, naming the field, for what cannot be served; RuntimeError when too many wait.
        """
        if params is not None and sampling:
            raise TypeError(f"{next(iter(sampling))}: stands beside params; set it there")
        tags = {"priority": priority, "cache_salt": cache_salt, "job": job, "is_last_step": is_last_step, "tool": tool, "adapter": adapter}
        native = self._open()
        return native.submit(self.encode(prompt), params if params is not None else SamplingParams(**sampling), **tags)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **more) -> Output:
        """The same, and waits for the whole answer. An exception while it waits (KeyboardInterrupt) aborts it."""
        return self.stream(prompt, params, **more).rest()

    def abort(self, generation: Generation) -> None:
        """Ends an answer. Its last part says 'abort', with what was computed by then."""
        generation.abort()

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, as stream() takes it."""
        native = self._open()
        if isinstance(prompt, str):
            return native.encode(prompt)
        if prompt and isinstance(prompt[0], Mapping):
            return native.encode_chat([(turn["role"], turn["content"]) for turn in prompt])
        return list(prompt)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._native.decode(list(tokens))

    def stats(self) -> dict[str, int]:
        """What the engine counts since its start, and the blocks and requests of this moment. Also after close()."""
        return self._native.stats()

    def save_journal(self) -> dict:
        """Writes what the scheduler did in the last minutes (`journal_memory`) to a file for `quire replay`, in `journal_save` or `journal`.

        {"path", "bytes", "steps", "seconds"}. NotImplementedError where no folder is given, OSError where the file cannot be written.
        """
        return self._native.save_journal()

    def load_adapter(self, name: str, path, replace: bool = False) -> None:
        """Makes a LoRA adapter known, a folder as PEFT writes it (`enable_lora`). `replace`: also where one of that name is.

        ValueError, naming the field, for what cannot be served; FileNotFoundError for a folder that is not there.
        """
        self._open().load_adapter(name, str(path), replace)

    def unload_adapter(self, name: str) -> None:
        """Refuses it to new requests; those under way go on with it."""
        self._open().unload_adapter(name)

    def adapters(self) -> list[dict]:
        """[{"name", "path", "digest", "rank", "bytes", "resident"}] by name; what is not resident is read when a request names it."""
        return self._open().adapters()

    def probe(self, prompt: Prompt, cache_salt: str = "", adapter: str = "") -> dict:
        """What a prompt would find now, without asking in earnest: nothing is computed, loaded, counted or kept from eviction by it.

        {"prompt_tokens", "found": {"memory": tokens, "dram": tokens, ...}, "missed_tokens", "tiers_known", "wait_s", "load_s", "compute_s"};
        the seconds until a first token are None where they have not been measured yet. ValueError as of stream().
        """
        return self._open().probe(self.encode(prompt), cache_salt, adapter)

    def cache_curve(self) -> list[dict]:
        """The hit rate that other sizes of the KV cache would have had, the smallest first; "label" names those of now and of the tiers.

        [{"label", "bytes", "blocks", "hit_rate", "saved_prefill_tokens_per_s"}]; NotImplementedError where no block is followed (`curve_blocks`).
        """
        return self._open().cache_curve()

    def close(self, timeout: float = 0.0) -> int:
        """No new requests; waits so many seconds for those that are open, aborts the rest, and returns how many these were."""
        self._stop.detach()
        return self._native.close(timeout)

    def _open(self) -> NativeEngine:
        if not self._stop.alive:
            raise RuntimeError("Engine: it is closed; make another")
        return self._native

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_) -> None:
        self.close()
