"""What others may read of the scheduler's state: snapshots in the shapes that vLLM's own objects have."""

from collections import deque


class Block:
    """A KVCacheBlock to look at."""

    __slots__ = ("block_id", "ref_cnt", "block_hash", "is_null")

    def __init__(self, block_id: int, ref_cnt: int, block_hash: bytes | None):
        self.block_id = block_id
        self.ref_cnt = ref_cnt
        self.block_hash = block_hash
        self.is_null = block_id == 0

    @property
    def _block_hash(self) -> bytes | None:
        return self.block_hash

    def __repr__(self) -> str:
        return f"Block(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r})"


class Blocks:
    """The blocks of a request, as connectors are given them (vLLM's KVCacheBlocks)."""

    def __init__(self, native, block_ids: tuple):
        self._native = native
        self._block_ids = block_ids

    def get_block_ids(self, allow_none: bool = False):
        if allow_none and not any(self._block_ids):
            return None
        return tuple(list(group) for group in self._block_ids)

    @property
    def blocks(self) -> tuple:
        block = self._native.block
        return tuple([Block(i, *block(i)) for i in group] for group in self._block_ids)

    def get_unhashed_block_ids(self) -> list[int]:
        assert len(self._block_ids) == 1, "Only one group is supported"
        block = self._native.block
        return [i for i in self._block_ids[0] if block(i)[1] is None]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        block = self._native.block
        return [[i for i in group if i and block(i)[1] is None] for group in self._block_ids]


class BlockPool:
    """The pool of blocks, to look at. It cannot be changed from outside: blocks belong to the core."""

    def __init__(self, native, num_blocks: int):
        self._native = native
        self.num_gpu_blocks = num_blocks

    def get_num_free_blocks(self) -> int:
        return self._native().counts()[4]

    def get_usage(self) -> float:
        total = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / total if total else 0

    @property
    def blocks(self) -> list[Block]:
        native = self._native()
        return [Block(i, *native.block(i)) for i in range(self.num_gpu_blocks)]

    def __getattr__(self, name: str):
        raise NotImplementedError(
            f"quire.vllm.Scheduler's block pool has no {name!r}: connectors may look at blocks but not take, touch or free them; "
            "use a connector that leaves the pool alone, or leave out --scheduler-cls"
        )


class KvCacheManager:
    """What vLLM's KVCacheManager tells."""

    def __init__(self, native, kv_cache_config, enable_caching: bool):
        self._native = native
        self.kv_cache_config = kv_cache_config
        self.enable_caching = enable_caching
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.block_pool = BlockPool(native, kv_cache_config.num_blocks)

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()

    def get_block_ids(self, request_id: str) -> tuple:
        return self._native().block_ids(request_id)

    def get_blocks(self, request_id: str) -> Blocks:
        native = self._native()
        return Blocks(native, native.block_ids(request_id))


class Queue(deque):
    """A waiting queue as it was when asked for."""

    def peek_request(self):
        if not self:
            raise IndexError("peek from an empty queue")
        return self[0]
