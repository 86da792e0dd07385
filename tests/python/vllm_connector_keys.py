"""Tests the keys of offloaded blocks of quire.vllm.Connector, and the rules of windows, with stand-ins for vLLM.

usage: vllm_connector_keys.py VERSION CASE...
"""

import sys
from types import SimpleNamespace

from vllm_connector_halves import BLOCK

from quire.vllm._connector_keys import OffloadKeys, end_of_hit, first_needed, needed_keys


def keys():
    """Keys of short hashes are padded and come back as hashes; rules of windows at their boundaries."""
    request = SimpleNamespace(block_hashes=[bytes([i + 1] * 8) for i in range(4)])
    names = OffloadKeys(2, 2)
    own, other = names.keys_by_group(request, 0, 2)
    assert own == [hash_.ljust(31, b"\0") + b"\x08" for hash_ in request.block_hashes[1::2]] and not set(own) & set(other)
    assert names.of(request, 0, 1, 2) == own[1:] and names.of(request, 0, 2, 2) == []
    assert names.hashes(own) == request.block_hashes[1::2]
    names.start_again()
    masked = names.of(request, 0, 0, 2)
    names.start_again()
    assert names.of(request, 0, 0, 2) != masked and names.hashes(names.of(request, 0, 0, 2)) == request.block_hashes[1::2]
    assert [first_needed(32, tokens, BLOCK) for tokens in (0, 31, 47, 48, 63, 64)] == [0, 0, 1, 1, 2, 2] and first_needed(0, 99, BLOCK) == 0
    assert needed_keys([["a", "b", "c"], ["x", "y", "z"]], [0, 32], 1, 4, BLOCK) == ["a", "b", "y", "c", "z"]
    assert needed_keys([["a", "b", "c"], ["x", "y", "z"]], [0, 17], 1, 4, BLOCK) == ["a", "b", "c", "z"]
    assert end_of_hit([[1, 1, 0, 1]], [0], 3, BLOCK, (1,)) == 5 and end_of_hit([[]], [0], 3, BLOCK, (1,)) == 3
    assert end_of_hit([[0, 1, 1, 1], [1, 1, 1, 1]], [33, 0], 0, BLOCK, (1,)) == 4 and end_of_hit([[0, 1, 0, 1]], [33], 0, BLOCK, (1,)) == 0


if __name__ == "__main__":
    for case in sys.argv[1:]:
        globals()[case]()
        print(f"{case}: ok", flush=True)
