"""Computes the offload keys of a request's blocks in host memory and on disk, and how many tokens of a prompt can be loaded.

The key of a block of the first cache group is vLLM's block hash, so that OffloadingConnector and quire.vllm.Connector can use the same
folder. Keys of other groups, and keys after a reset, are the block hash XORed with a mask that depends on the group and the number of
resets.
"""

import hashlib

KEY_BYTES = 32
ABSENT, STORED, STORING, LOADING, ON_DISK = range(5)  # the results of quire.OffloadManager.find()
REACHABLE = (STORED, LOADING, ON_DISK)


def _mask(generation: int, group: int) -> int:
    if (generation, group) == (0, 0):
        return 0
    return int.from_bytes(hashlib.sha256(f"quire.vllm.Connector {generation} {group}".encode()).digest(), "little")


class OffloadKeys:
    """Computes offload keys. `factor`: blocks of the KV cache per offloaded block."""

    def __init__(self, num_groups: int, factor: int):
        self._factor, self._generation, self._is_short = factor, 0, False
        self._masks = [_mask(0, group) for group in range(num_groups)]

    def of(self, request, group: int, begin: int, end: int) -> list[bytes]:
        """Returns the keys of the request's offloaded blocks from `begin` to `end`."""
        keys = request.block_hashes[begin * self._factor + self._factor - 1 : end * self._factor : self._factor]
        if keys and len(keys[0]) < KEY_BYTES:  # padded; the last byte is the length
            self._is_short = True
            keys = [bytes(key).ljust(KEY_BYTES - 1, b"\0") + bytes([len(key)]) for key in keys]
        return _masked(keys, self._masks[group])

    def keys_by_group(self, request, begin: int, end: int) -> list[list[bytes]]:
        return [self.of(request, group, begin, end) for group in range(len(self._masks))]

    def hashes(self, keys: list[bytes]) -> list[bytes]:
        """Returns vLLM's block hashes for keys of the first group."""
        keys = _masked(keys, self._masks[0])
        return [key[: key[-1]] for key in keys] if self._is_short else keys

    def start_again(self) -> None:
        """Changes all keys, so that blocks that are stored now are not found any more. They are evicted when other blocks need their slots."""
        self._generation += 1
        self._masks = [_mask(self._generation, group) for group in range(len(self._masks))]


def _masked(keys: list[bytes], mask: int) -> list[bytes]:
    if not mask:
        return list(keys)
    return [(int.from_bytes(key, "little") ^ mask).to_bytes(KEY_BYTES, "little") for key in keys]


def first_needed(window: int, num_tokens: int, block_size: int) -> int:
    """Returns the first block that a window of num_tokens computed tokens still covers; vLLM's get_num_skipped_tokens."""
    return max(0, num_tokens - window + 1) // block_size if window else 0


def end_of_hit(states: list, windows: list[int], start: int, block_size: int, good: tuple) -> int:
    """Returns the end of the blocks from `start` on that can be loaded. `states`: results of find() by group, for the blocks from `start`
    on.
    """
    most = start + len(states[0])
    for group, window in enumerate(windows):
        if not window:
            most = min(most, start + next((i for i, state in enumerate(states[group]) if state not in good), most - start))
    bounded = [(states[group], window) for group, window in enumerate(windows) if window]
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


def needed_keys(keys: list, windows: list[int], start: int, end: int, block_size: int) -> list[bytes]:
    """Returns the keys that a load from `start` to `end` needs, block by block. `keys`: by group, the keys of the blocks from `start` on."""
    first = [max(start, first_needed(window, end * block_size, block_size)) for window in windows]
    return [own[at - start] for at in range(start, end) for group, own in enumerate(keys) if at >= first[group]]
