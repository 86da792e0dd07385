"""Plays 10,000 random histories on the block tables of vLLM V1 (v0.19.0, MultiGroupBlockTable) and records digests of their contents.

Needs vllm 0.19.0.
tests/runtime/memory/block_tables_golden_test.cpp draws the same histories with the same generator and must compute the same digests. A
digest covers HISTORIES_PER_DIGEST histories. Each commit and the end of a history add these values of each group to the digest: the staged
rows (including the old values after the end of each row), the counts, and the committed rows. Each slot mapping adds the slots. The kernel
of the slot mapping is vLLM's; numpy runs it in place of Triton.
"""
import hashlib
import inspect
from types import SimpleNamespace

import numpy as np
import torch
from vllm.v1.worker import block_table, cp_utils

from . import files

NUM_HISTORIES = 10_000
HISTORIES_PER_DIGEST = 250
NUM_BLOCKS = 50
MASK = (1 << 64) - 1


class Random:
    """The generator of src/base/random.h."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


class Array(np.ndarray):
    def to(self, dtype):
        return self.astype(dtype)


class Pointer:
    def __init__(self, array, offset=0):
        self.array, self.offset = array, offset

    def __add__(self, offset):
        return Pointer(self.array, self.offset + offset)


class Language:
    """The part of triton.language that the kernel uses."""
    constexpr, int64 = None, np.int64

    def __init__(self, program, num_programs):
        self.program_id, self.num_programs = lambda axis: program, lambda axis: num_programs

    @staticmethod
    def arange(begin, end):
        return np.arange(begin, end).view(Array)

    @staticmethod
    def load(pointer, mask=None, other=None):
        at = np.asarray(pointer.offset)
        values = pointer.array[at] if mask is None else np.where(mask, pointer.array[np.where(mask, at, 0)], other)
        return np.asarray(values).view(Array)

    @staticmethod
    def store(pointer, values, mask):
        pointer.array[np.asarray(pointer.offset)[mask]] = np.broadcast_to(values, mask.shape)[mask]

    where = staticmethod(np.where)


SOURCE = inspect.getsource(getattr(block_table._compute_slot_mapping_kernel, "fn", block_table._compute_slot_mapping_kernel))
CODE = compile(SOURCE[SOURCE.index("def "):], block_table.__file__, "exec")


class Kernel:
    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            arguments = [Pointer(a.numpy().reshape(-1)) if isinstance(a, torch.Tensor) else a for a in arguments]
            for program in range(grid[0]):
                scope = {"tl": Language(program, grid[0])}
                exec(CODE, scope)
                scope["_compute_slot_mapping_kernel"](*arguments, **constants | {"BLOCK_SIZE": 8})
        return launch


block_table._compute_slot_mapping_kernel = Kernel()


class History:
    def __init__(self, seed):
        draw = self.draw = Random(seed)
        self.num_rows, self.max_model_len = 2 + draw.below(4), 40 + draw.below(160)
        dcp = (1, 1, 2, 4)[draw.below(4)]
        dcp_rank = draw.below(dcp)
        pcp = (1, 1, 3)[draw.below(3)]
        pcp_rank = draw.below(pcp)
        self.world = dcp * pcp
        for module in (block_table, cp_utils):
            module.get_dcp_group = lambda: SimpleNamespace(world_size=dcp, rank_in_group=dcp_rank)
            module.get_pcp_group = lambda: SimpleNamespace(world_size=pcp, rank_in_group=pcp_rank)
        interleave = (1, 1, 2, 4)[draw.below(4)]
        kernel_sizes, sizes = [], []
        for _ in range(1 + draw.below(3)):
            kernel_sizes.append((4, 8, 16)[draw.below(3)])
            sizes.append(kernel_sizes[-1] * (1, 1, 2, 3)[draw.below(4)])
        self.tables = block_table.MultiGroupBlockTable(self.num_rows, self.max_model_len, 64, False, torch.device("cpu"), sizes, kernel_sizes,
                                                       cp_kv_cache_interleave_size=interleave)
        self.committed = [np.zeros(self.num_rows, np.int32) for _ in sizes]

    def blocks(self, row, fresh):
        lists = []
        for table in self.tables.block_tables:
            room = table.max_num_blocks_per_req - (0 if fresh else int(table.num_blocks_per_row[row]))
            lists.append([self.draw.below(NUM_BLOCKS) for _ in range(self.draw.below(room // table.blocks_per_kv_block + 1))])
        return tuple(lists)

    def map_slots(self, digest):
        starts, positions = [0], []
        for row in range(self.num_rows):
            limit = min(int(counts[row]) * table.block_size * self.world for counts, table in zip(self.committed, self.tables.block_tables))
            for _ in range(self.draw.below(8)):
                if limit > 0:
                    positions.append(self.draw.below(limit))
            starts.append(len(positions))
        self.tables.compute_slot_mapping(self.num_rows, torch.tensor(starts, dtype=torch.int32), torch.tensor(positions, dtype=torch.int64))
        for table in self.tables.block_tables:
            digest.update(table.slot_mapping.gpu[:len(positions)].numpy().tobytes())

    def digest_state(self, digest):
        for table in self.tables.block_tables:
            digest.update(table.block_table.np.tobytes())
            digest.update(table.num_blocks_per_row.tobytes())
            digest.update(table.block_table.gpu.numpy().tobytes())

    def play(self, digest):
        draw, tables = self.draw, self.tables
        for _ in range(10 + draw.below(15)):
            kind, row, other = draw.below(10), draw.below(self.num_rows), draw.below(self.num_rows)
            if kind <= 2:
                tables.append_row(self.blocks(row, False), row)
            elif kind == 3:
                tables.add_row(self.blocks(row, True), row)
            elif kind == 4:
                tables.clear_row(row)
            elif kind == 5:
                tables.move_row(row, other)
            elif kind == 6:
                tables.swap_row(row, other)
            elif kind <= 8:
                count = draw.below(self.num_rows + 1)
                tables.commit_block_table(count)
                for committed, table in zip(self.committed, tables.block_tables):
                    committed[:count] = table.num_blocks_per_row[:count]
                self.digest_state(digest)
            else:
                self.map_slots(digest)
        self.digest_state(digest)


OUT = "block_tables.txt"


def main(out):
    torch.set_num_threads(1)
    lines = []
    for first in range(0, NUM_HISTORIES, HISTORIES_PER_DIGEST):
        digest = hashlib.sha256()
        for index in range(first, first + HISTORIES_PER_DIGEST):
            History(index).play(digest)
        lines.append(f"{first} {digest.hexdigest()}")
    files.write_lines(out, lines)
