"""Snapshots of the scheduler's state, in the form of vLLM's own objects.

They are created when vLLM's connectors, metrics or tests read them, on the thread that steps the scheduler. Changes to them do not affect
the core.
"""

from collections import OrderedDict, defaultdict, deque


class Block:
    """A read-only KVCacheBlock with the block's values at the time of reading."""

    __slots__ = ("_native", "block_id", "is_null")

    def __init__(self, native, block_id: int):
        self._native = native
        self.block_id = block_id
        self.is_null = block_id == 0

    @property
    def ref_cnt(self) -> int:
        return self._native.block(self.block_id)[0]

    @property
    def block_hash(self) -> bytes | None:
        return self._native.block(self.block_id)[1]

    @property
    def _block_hash(self) -> bytes | None:
        return self.block_hash

    def __repr__(self) -> str:
        return f"Block(block_id={self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r})"


class Blocks:
    """The blocks of a request, in the form that connectors receive (vLLM's KVCacheBlocks)."""

    def __init__(self, native, block_ids: tuple):
        self._native = native
        self._block_ids = block_ids

    def get_block_ids(self, allow_none: bool = False, *, group_ids=None):
        groups = self._block_ids if group_ids is None else [self._block_ids[group] for group in group_ids]
        if allow_none and not any(groups):
            return None
        return tuple(list(group) for group in groups)

    @property
    def blocks(self) -> tuple:
        return tuple([Block(self._native, i) for i in group] for group in self._block_ids)

    def get_unhashed_block_ids(self) -> list[int]:
        assert len(self._block_ids) == 1, "Only one group is supported"
        block = self._native.block
        return [i for i in self._block_ids[0] if block(i)[1] is None]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        block = self._native.block
        return [[i for i in group if i and block(i)[1] is None] for group in self._block_ids]


class FreeQueue:
    """The blocks that no request holds, in the order in which they will be allocated."""

    def __init__(self, pool):
        self._pool = pool

    @property
    def num_free_blocks(self) -> int:
        return self._pool.get_num_free_blocks()

    def get_all_free_blocks(self) -> list[Block]:
        native = self._pool._native()
        return [Block(native, i) for i in native.snapshot()["free_blocks"]]


class PrefixIndex:
    """The blocks of each cache key (block hash and group id)."""

    def __init__(self, pool):
        self._pool = pool

    def _by_key(self) -> dict[bytes, list[int]]:
        core, found = self._pool._native().snapshot(), {}
        for block_id in core["cached_blocks"]:
            found.setdefault(core["keys"][block_id], []).append(block_id)
        return found

    def __len__(self) -> int:
        return len(self._by_key())

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key()

    def get_one_block(self, key: bytes) -> Block | None:
        native, block_ids = self._pool._native(), self._by_key().get(key)
        return Block(native, block_ids[0]) if block_ids else None


class BlockPool:
    """The pool of blocks, read-only: blocks belong to the core."""

    def __init__(self, native, num_blocks: int):
        self._native = native
        self.num_gpu_blocks = num_blocks
        self.free_block_queue = FreeQueue(self)
        self.cached_block_hash_to_block = PrefixIndex(self)

    def get_num_free_blocks(self) -> int:
        return self._native().counts()[4]

    def get_usage(self) -> float:
        total = self.num_gpu_blocks - 1
        return 1.0 - self.get_num_free_blocks() / total if total else 0

    @property
    def blocks(self) -> list[Block]:
        native = self._native()
        return [Block(native, i) for i in range(self.num_gpu_blocks)]

    def __getattr__(self, name: str):
        raise NotImplementedError(
            f"quire.vllm.Scheduler's block pool does not have {name!r}: connectors can read blocks, but not allocate, touch or free them; "
            "use a connector that only reads the pool, or leave out --scheduler-cls"
        )


class GroupManager:
    """The values of vLLM's SingleTypeKVCacheManager for one cache group."""

    def __init__(self, native, group: int, spec):
        self._native = native
        self.kv_cache_group_id = group
        self.kv_cache_spec = spec
        self.block_size = spec.block_size

    def _requests(self) -> list[tuple[str, dict]]:
        native = self._native()
        requests = native.snapshot()["requests"]
        return list(zip(native.names_of([request["id"] for request in requests]), requests))

    @property
    def req_to_blocks(self) -> dict[str, list[Block]]:
        native, group = self._native(), self.kv_cache_group_id
        held = {name: request["blocks"][group] for name, request in self._requests() if request["blocks"][group]}
        return defaultdict(list, {name: [Block(native, i) for i in blocks] for name, blocks in held.items()})

    @property
    def num_cached_block(self) -> dict[str, int]:
        cached = ((name, request["num_cached_blocks"][self.kv_cache_group_id]) for name, request in self._requests())
        return {name: count for name, count in cached if count is not None}


class Coordinator:
    def __init__(self, native, kv_cache_config):
        groups = kv_cache_config.kv_cache_groups
        self.single_type_managers = tuple(GroupManager(native, i, group.kv_cache_spec) for i, group in enumerate(groups))


class KvCacheManager:
    """The values of vLLM's KVCacheManager."""

    def __init__(self, native, kv_cache_config, enable_caching: bool):
        self._native = native
        self.kv_cache_config = kv_cache_config
        self.enable_caching = enable_caching
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.block_pool = BlockPool(native, kv_cache_config.num_blocks)
        self.coordinator = Coordinator(native, kv_cache_config)

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()

    def get_block_ids(self, request_id: str) -> tuple:
        return self._native().block_ids(request_id)

    def get_blocks(self, request_id: str) -> Blocks:
        native = self._native()
        return Blocks(native, native.block_ids(request_id))


class EncoderCache:
    """The values of vLLM's EncoderCacheManager. For encoder-decoder models, it has `allocated` and `to_free`."""

    def __init__(self, state: dict, cache_size: int):
        self.cache_size = cache_size
        self.cached = {identifier: set(names) for identifier, names in state["cached"].items()}
        self.freeable = OrderedDict(state["freeable"])
        self.freed = list(state["freed"])
        self.num_free_slots = state["free_slots"]
        self.num_freeable_slots = state["freeable_slots"]
        self.allocated = list(state["allocated"])
        self.to_free = list(state["to_free"])


class Queue(deque):
    """A copy of a waiting queue."""

    def peek_request(self):
        if not self:
            raise IndexError("peek from an empty queue")
        return self[0]

    def pop_request(self):
        return self.popleft()

    def add_request(self, request) -> None:
        self.append(request)

    def remove_requests(self, requests) -> None:
        gone = {id(request) for request in requests}
        kept = [request for request in self if id(request) not in gone]
        self.clear()
        self.extend(kept)

    def remove_request(self, request) -> None:
        self.remove_requests([request])
