"""What the blocks of a request are called in host memory and on disk, and how far a prompt can be loaded.

A block of the first cache group has vLLM's own name, so that a folder is the same for OffloadingConnector and for quire.vllm.Connector. Names
of other groups, and those from after a reset, are the same bits under a mask that nobody else has.
"""

import hashlib

NAME_BYTES = 32
ABSENT, STORED, STORING, COMING, BELOW = range(5)  # quire.OffloadManager.find()
REACHABLE = (STORED, COMING, BELOW)


def _mask(generation: int, group: int) -> int:
    if (generation, group) == (0, 0):
        return 0
    return int.from_bytes(hashlib.sha256(f"quire.vllm.Connector {generation} {group}".encode()).digest(), "little")


class Names:
    """`factor`: blocks of the cache that make one here."""

    def __init__(self, num_groups: int, factor: int):
        self._factor, self._generation, self._is_short = factor, 0, False
        self._masks = [_mask(0, group) for group in range(num_groups)]

    def of(self, request, group: int, begin: int, end: int) -> list[bytes]:
        """Of its offloaded blocks from `begin` to `end`."""
        names = request.block_hashes[begin * self._factor + self._factor - 1 : end * self._factor : self._factor]
        if names and len(names[0]) < NAME_BYTES:  # filled up, with the length behind
            self._is_short = True
            names = [bytes(name).ljust(NAME_BYTES - 1, b"\0") + bytes([len(name)]) for name in names]
        return _masked(names, self._masks[group])

    def of_all(self, request, begin: int, end: int) -> list[list[bytes]]:
        return [self.of(request, group, begin, end) for group in range(len(self._masks))]

    def hashes(self, names: list[bytes]) -> list[bytes]:
        """vLLM's, of the first group's."""
        names = _masked(names, self._masks[0])
        return [name[: name[-1]] for name in names] if self._is_short else names

    def begin_anew(self) -> None:
        """What has been stored so far is found by nobody any more, and goes as others need its place."""
        self._generation += 1
        self._masks = [_mask(self._generation, group) for group in range(len(self._masks))]


def _masked(names: list[bytes], mask: int) -> list[bytes]:
    if not mask:
        return list(names)
    return [(int.from_bytes(name, "little") ^ mask).to_bytes(NAME_BYTES, "little") for name in names]


def first_needed(window: int, num_tokens: int, block_size: int) -> int:
    """The first block that a window still has when so many tokens are computed; vLLM's get_num_skipped_tokens."""
    return max(0, num_tokens - window + 1) // block_size if window else 0


def end_of_hit(places: list, windows: list[int], start: int, block_size: int, good: tuple) -> int:
    """The last block up to which a prompt can be loaded from block `start` on; `places`: by group, of the blocks behind start."""
    most = start + len(places[0])
    for group, window in enumerate(windows):
        if not window:
            most = min(most, start + next((i for i, place in enumerate(places[group]) if place not in good), most - start))
    bounded = [(places[group], window) for group, window in enumerate(windows) if window]
    if not bounded:
        return most
    runs = [0] * len(bounded)
    end = start
    for at in range(start, most):
        fits = True
        for i, (own, window) in enumerate(bounded):
            runs[i] = runs[i] + 1 if own[at - start] in good else 0
            fits = fits and runs[i] >= at + 1 - max(start, first_needed(window, (at + 1) * block_size, block_size))
        if fits:
            end = at + 1
    return end


def wanted(names: list, windows: list[int], start: int, end: int, block_size: int) -> list[bytes]:
    """Those that a load from `start` to `end` takes, block by block; `names`: by group, of the blocks behind start."""
    first = [max(start, first_needed(window, end * block_size, block_size)) for window in windows]
    return [own[at - start] for at in range(start, end) for group, own in enumerate(names) if at >= first[group]]
