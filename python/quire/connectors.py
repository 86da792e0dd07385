"""KV connectors written in Python, and a registry of connectors by name.

    class Mine(quire.connectors.Connector):
        def match(self, request, num_local_tokens):
            ...

    quire.connectors.register("Mine", "my_package.my_module:Mine")  # imported on first use
    core = quire.Core(config, connector=quire.connectors.create("Mine", size=3))

The connector decides which tokens of a prompt are loaded from outside the KV cache, and what is stored there. The host moves the bytes that
`Plan.transfers` lists, waits for the transfers in `Plan.fences` before the step, and passes the ends of transfers to
`Core.apply(completions=...)`. A host that runs several tiers separates their transfers by `Transfer.tier`.
"""

import importlib
from collections.abc import Callable

from quire._core import RequestInfo, TransferList


class Connector:
    """The calls that the core makes, on the thread that calls the core. Every method has a default here: nothing is stored elsewhere. No
    method may call the core. The rules follow vLLM V1's KVConnectorBase_V1 (scheduler half)."""

    def match(self, request: RequestInfo, num_local_tokens: int) -> tuple[int | None, bool]:
        """Returns how many tokens after the first num_local_tokens, which are in the prefix cache, can be loaded, and whether the request
        waits. None: not known yet; the core asks again in a later step. True: the request waits while its blocks are loaded; False: the
        step needs them. `request.names` has its block hashes.
        """
        return 0, False

    def allocated(self, request: RequestInfo, blocks: list[list[int]], num_external_tokens: int) -> None:
        """Receives all blocks of the request, by cache group, and the number of tokens that the connector will load into them (0: none)."""

    def finished(self, request: RequestInfo, blocks: list[list[int]]) -> bool:
        """Returns True if the blocks must stay until the transfers of the request are over."""
        return False

    def planned(self, plan) -> None:
        """Receives the plan of the step, before its transfers are known."""

    def plan_transfers(self, transfers: TransferList) -> None:
        """Called after planned(): transfers.add(...) adds each transfer that begins with the step. A request that waits for its blocks
        needs a load in the plan that made it wait."""

    def completed(self, transfer: int, is_done: bool, bad_blocks: list[int]) -> None:
        """A transfer is over. bad_blocks: for a failed load, the blocks with invalid contents; []: all blocks."""

    def sent(self, request: int) -> None:
        """The last transfer that kept the blocks of a finished request is over."""

    def step_output(self) -> None:
        """Called when a result with ended transfers is applied: after the step's tokens are taken, before the transfers are."""

    def reset(self) -> bool:
        """Deletes all stored blocks. Returns False if some of them stay."""
        return True


class EvictionPolicy:
    """Decides which blocks a tier evicts, for quire.OffloadManager(policy=...). All methods but evict() have a default here. A slot is
    resident from insert() to remove() or evict()."""

    def insert(self, slot: int, key: bytes) -> None:
        """A block was inserted, as the most recently used one; it cannot be evicted before its store is over."""

    def remove(self, slot: int) -> None:
        """The block was removed without an eviction."""

    def touch(self, slot: int, ready: bool) -> None:
        """The block was looked up, perhaps in each step in which a request waits. ready: its store is over."""

    def use(self, slot: int) -> None:
        """A request that uses the block was admitted."""

    def evict(self, count: int, evictable: list[int], incoming: list[bytes]) -> list[int]:
        """Returns `count` of the evictable slots, which are evicted; []: none. incoming: the keys that are about to be inserted."""
        raise NotImplementedError


_known: dict[str, str | Callable[..., Connector]] = {}


def register(name: str, target: str | Callable[..., Connector]) -> None:
    """Registers a connector. target: a class or a function that makes a connector, or its path "module:name", which is imported on first
    use. Raises ValueError if the name is taken."""
    if name in _known:
        raise ValueError(f"name: a connector {name} is registered already; use another name")
    _known[name] = target


def names() -> list[str]:
    return sorted(_known)


def create(name: str, **parameters) -> Connector:
    """Returns a connector of that name, made with these parameters. Raises KeyError for a name that is not registered, and ImportError or
    AttributeError for a path that does not exist."""
    if name not in _known:
        raise KeyError(f"name: no connector {name} is registered; registered are {', '.join(names()) or 'none'}; call quire.connectors.register() first")
    target = _known[name]
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        target = getattr(importlib.import_module(module), attribute)
    return target(**parameters)
