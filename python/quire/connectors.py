"""KV connectors written in Python, and a registry of connectors by name.

    class Mine(quire.connectors.Connector):
        def match(self, request, num_local_tokens):
            ...

    quire.connectors.register("Mine", "my_package.my_module:Mine")  # imported on first use
    core = quire.Core(config, connector=quire.connectors.create("Mine", size=3))

The connector decides which tokens of a prompt are loaded from outside the KV cache, and what is stored there. The host executes the
transfers in `Plan.transfers`, waits for the transfers in `Plan.fences` before the step, and passes the ends of transfers to
`Core.apply(completions=...)`. A host with several tiers distinguishes their transfers by `Transfer.tier`.
"""

import importlib
from collections.abc import Callable

from quire._core import RequestInfo, TransferList


class Connector:
    """The methods that the core calls, on the thread that calls the core. Every method has a default, with which nothing is stored. A
    method must not call the core. The rules follow vLLM V1's KVConnectorBase_V1 (scheduler side)."""

    def match(self, request: RequestInfo, num_local_tokens: int) -> tuple[int | None, bool]:
        """Returns (number of tokens that can be loaded after the first num_local_tokens, which are in the prefix cache; whether the request
        waits for the load). If the number is not known yet, returns None for it, and the core asks again in a later step. With True, the
        request waits while its blocks are loaded; with False, the step needs them. `request.names` contains the request's block hashes.
        """
        return 0, False

    def allocated(self, request: RequestInfo, blocks: list[list[int]], num_external_tokens: int) -> None:
        """Receives all blocks of the request, by cache group, and the number of tokens that the connector will load into them (0: none)."""

    def finished(self, request: RequestInfo, blocks: list[list[int]]) -> bool:
        """Returns True if the blocks must be kept until the request's transfers have ended."""
        return False

    def planned(self, plan) -> None:
        """Receives the plan of the step, before transfers are added."""

    def plan_transfers(self, transfers: TransferList) -> None:
        """Called after planned(). transfers.add(...) adds a transfer that begins with the step. A request that waits for its blocks needs a
        load in the plan that made it wait."""

    def completed(self, transfer: int, is_done: bool, bad_blocks: list[int]) -> None:
        """Called when a transfer has ended. bad_blocks: for a failed load, the blocks with invalid content; []: all blocks."""

    def sent(self, request: int) -> None:
        """Called when the last transfer that kept the blocks of a finished request has ended."""

    def step_output(self) -> None:
        """Called when a result with ended transfers is applied, after the core has taken the step's tokens and before it handles the
        transfers."""

    def reset(self) -> bool:
        """Deletes all stored blocks. Returns False if some blocks were not deleted."""
        return True


class EvictionPolicy:
    """Decides which blocks a tier evicts, for quire.OffloadManager(policy=...). All methods except evict() have a default. A slot is
    resident from insert() to remove() or evict()."""

    def insert(self, slot: int, key: bytes) -> None:
        """Called when a block was inserted, as the most recently used one. It cannot be evicted before its store has ended."""

    def remove(self, slot: int) -> None:
        """Called when the block was removed without an eviction."""

    def touch(self, slot: int, ready: bool) -> None:
        """Called when the block was looked up; while a request waits, this may happen in each step. ready: the block's store has ended."""

    def use(self, slot: int) -> None:
        """Called when a request that uses the block was admitted."""

    def evict(self, count: int, evictable: list[int], incoming: list[bytes]) -> list[int]:
        """Returns `count` of the evictable slots, which are then evicted, or [] to evict none. incoming: the keys that will be inserted."""
        raise NotImplementedError


_known: dict[str, str | Callable[..., Connector]] = {}


def register(name: str, target: str | Callable[..., Connector]) -> None:
    """Registers a connector. target: a class, a function that returns a connector, or the path "module:name" of either, which is imported
    on first use. Raises ValueError if the name is already registered."""
    if name in _known:
        raise ValueError(f"name: a connector {name} is registered already; use another name")
    _known[name] = target


def names() -> list[str]:
    return sorted(_known)


def create(name: str, **parameters) -> Connector:
    """Creates the connector with this name, with these parameters. Raises KeyError if the name is not registered, and ImportError or
    AttributeError if its path does not exist."""
    if name not in _known:
        raise KeyError(f"name: no connector {name} is registered; registered are {', '.join(names()) or 'none'}; call quire.connectors.register() first")
    target = _known[name]
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        target = getattr(importlib.import_module(module), attribute)
    return target(**parameters)
