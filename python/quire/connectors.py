"""KV connectors written in Python, and by name.

    class Mine(quire.connectors.Connector):
        def match(self, request, num_local_tokens):
            ...

    quire.connectors.register("Mine", "my_package.my_module:Mine")  # imported when it is asked for
    core = quire.Core(config, connector=quire.connectors.create("Mine", size=3))

Which tokens of a prompt another place has, and what is stored there, is decided by the connector; the host moves the bytes that
`Plan.transfers` names, waits for those in `Plan.fences` before the step, and gives the ends of transfers to `Core.apply(completions=...)`.
A host that runs several tiers keeps their transfers apart by `Transfer.tier`.
"""

import importlib
from collections.abc import Callable

from quire._core import RequestInfo, TransferList


class Connector:
    """What the core asks, on the thread that calls it; all have answers of their own here, and say that there is nothing elsewhere. None of
    them may call the core. The rules are those of vLLM V1's KVConnectorBase_V1 (scheduler half)."""

    def match(self, request: RequestInfo, num_local_tokens: int) -> tuple[int | None, bool]:
        """Tokens beyond the first num_local_tokens, which the cache has, that another place has; None: not known yet, ask again in a later
        step. True: the request waits while its blocks are filled; False: the step needs them. `request.names` has the names of its blocks.
        """
        return 0, False

    def allocated(self, request: RequestInfo, blocks: list[list[int]], num_external_tokens: int) -> None:
        """All its blocks, by cache group, and for how many tokens the connector will fill them: 0 where it has nothing."""

    def finished(self, request: RequestInfo, blocks: list[list[int]]) -> bool:
        """True: its blocks stay until the transfers for it are over."""
        return False

    def planned(self, plan) -> None:
        """What the step will do; its transfers are not known yet."""

    def plan_transfers(self, transfers: TransferList) -> None:
        """Thereafter: transfers.add(...) for what begins with the step. A request that waits for its blocks needs a load in the plan that
        has let it wait."""

    def completed(self, transfer: int, is_done: bool, bad_blocks: list[int]) -> None:
        """A transfer is over. Of a load that failed: the blocks that hold nothing good; []: all of them."""

    def sent(self, request: int) -> None:
        """What kept the blocks of a finished request is over."""

    def step_output(self) -> None:
        """A step's result is taken."""

    def reset(self) -> bool:
        """Forgets what is stored. False: it does not."""
        return True


class EvictionPolicy:
    """Which blocks leave a tier when others need room: for quire.OffloadManager(policy=...). All have answers of their own here but evict().
    A slot is resident from insert() to remove() or evict()."""

    def insert(self, slot: int, key: bytes) -> None:
        """A block has come, the most recently used; it cannot go before its store is over."""

    def remove(self, slot: int) -> None:
        """It is gone, without having been evicted."""

    def touch(self, slot: int, ready: bool) -> None:
        """It was looked up, perhaps in each step in which a request waits. ready: its store is over."""

    def use(self, slot: int) -> None:
        """A request that wants it was admitted."""

    def evict(self, count: int, evictable: list[int], incoming: list[bytes]) -> list[int]:
        """So many of the evictable slots, which leave; []: none. incoming: the keys that are about to be inserted."""
        raise NotImplementedError


_known: dict[str, str | Callable[..., Connector]] = {}


def register(name: str, target: str | Callable[..., Connector]) -> None:
    """target: a class or a function that makes a connector, or where one is, "module:name", which is imported when it is asked for.
    ValueError when the name is taken."""
    if name in _known:
        raise ValueError(f"there is a connector {name} already; give it another name")
    _known[name] = target


def names() -> list[str]:
    return sorted(_known)


def create(name: str, **parameters) -> Connector:
    """The connector of that name, made with these parameters. KeyError for a name that nobody has registered; ImportError or AttributeError
    for a target that is not where it was said to be."""
    if name not in _known:
        raise KeyError(f"there is no connector {name}; there are {', '.join(names()) or 'none'}; quire.connectors.register adds one")
    target = _known[name]
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        target = getattr(importlib.import_module(module), attribute)
    return target(**parameters)
