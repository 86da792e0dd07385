"""Tests quire.TieredOffload and quire.BlockCopier: a folder below host memory, used by a host that executes copies itself."""
import os
import random
import shutil
import subprocess
import sys
import time

import pytest

quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
np = pytest.importorskip("numpy", reason="numpy is not installed: ./dev build")
core = quire._core

PAGE, TENSORS, WORKERS = 1000, 3, 2
BLOCK = PAGE * TENSORS * WORKERS


def name(number):
    return number.to_bytes(4, "big") * 8


def content(number):
    """Returns a block of all workers, tensor after tensor."""
    return np.random.default_rng(number).integers(0, 256, (WORKERS * TENSORS, PAGE), dtype=np.uint8)


class Host:
    """Memory of two workers, used like in vLLM's connector."""

    def __init__(self, folder, slots=16, budget=1 << 20, fingerprint=b"f" * 32, **options):
        self.pages = [np.zeros((slots, PAGE), np.uint8) for _ in range(WORKERS * TENSORS)]
        self.written = [np.zeros(slots, np.uint64) for _ in range(WORKERS)]
        self.tiers = core.TieredOffload(
            num_slots=slots, pages=self.pages, written=self.written, folder=str(folder), budget_bytes=budget, fingerprint=fingerprint,
            **options,
        )  # fmt: skip

    def store(self, *numbers, workers=range(WORKERS)):
        answer = self.tiers.prepare_store([name(number) for number in numbers])
        if answer is None:
            return None
        keys, slots, marks, evicted = answer
        for key, slot, mark in zip(keys, slots, marks):
            block = content(int.from_bytes(key[:4], "big"))
            for i, page in enumerate(self.pages):
                page[slot] = block[i]
            for worker in workers:
                core.mark_written(self.written[worker], [slot], [mark])
        self.tiers.complete_store(keys)
        return keys, slots, evicted

    def wait(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition(self.tiers.stats()):
            assert time.monotonic() < end, self.tiers.stats()
            time.sleep(0.002)

    def look_up(self, *numbers):
        """Looks up until the answer is known, like a scheduler step after step."""
        end = time.monotonic() + 20
        while (found := self.tiers.lookup([name(number) for number in numbers])) is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        return found

    def load(self, *numbers):
        """Loads all hits and checks every byte."""
        found = self.look_up(*numbers)
        keys = [name(number) for number in numbers[:found]]
        for number, slot in zip(numbers, self.tiers.prepare_load(keys)):
            assert all((page[slot] == part).all() for page, part in zip(self.pages, content(number))), f"block {number} has wrong bytes"
        self.tiers.complete_load(keys)
        return found


def folder_bytes(folder):
    return sum(os.lstat(path).st_blocks * 512 for path in [folder, *folder.rglob("*")])


def test_stored_blocks_hit_after_a_restart(tmp_path):
    host = Host(tmp_path / "kv")
    host.store(*range(8))
    host.wait(lambda stats: stats["num_written"] == 8)
    assert host.load(*range(8)) == 8
    host.tiers.close()
    again = Host(tmp_path / "kv")
    again.wait(lambda stats: stats["num_held"] == 8)
    assert again.load(*range(9)) == 8
    assert again.tiers.stats()["num_read"] == 8 and again.tiers.stats()["num_written"] == 0, "stored blocks must not be written again"


def test_lookup_returns_none_until_blocks_are_in_memory(tmp_path):
    host = Host(tmp_path, slots=4)
    host.store(1, 2, 3, 4)
    host.wait(lambda stats: stats["num_written"] == 4)
    host.store(5, 6, 7, 8)
    assert host.tiers.lookup([name(5), name(6)]) == 2
    assert host.tiers.lookup([name(1), name(2)]) is None, "the blocks are only in the folder"
    assert host.load(1, 2) == 2


def test_bring_up_loads_blocks_into_memory(tmp_path):
    host = Host(tmp_path, slots=8)
    host.store(*range(8))
    host.wait(lambda stats: stats["num_written"] == 8)
    host.store(*range(10, 18))
    asked = [name(number) for number in (0, 1, 10, 99)]
    assert list(host.tiers.find(asked)) == [4, 4, 1, 0], "find must not load blocks"
    assert list(host.tiers.find(asked)) == [4, 4, 1, 0]
    host.tiers.touch(asked[:3])  # blocks in use are not evicted first
    assert host.tiers.bring_up(asked[:3])
    host.wait(lambda stats: stats["num_read"] == 2)
    end = time.monotonic() + 20
    while list(host.tiers.find(asked[:3])) != [1, 1, 1]:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert not host.tiers.bring_up(asked[:3]) and host.tiers.num_slots == 8, "all blocks are in memory"
    assert host.load(0, 1) == 2
    assert host.tiers.discard(name(0)) and list(host.tiers.find([name(0)])) == [4], "the folder must keep the block"


def test_block_counts_when_all_workers_have_copied_it(tmp_path):
    host = Host(tmp_path)
    host.store(1)
    host.store(2, workers=[0])
    host.wait(lambda stats: stats["num_written"] == 1)
    time.sleep(0.1)
    assert host.tiers.stats()["num_written"] == 1
    host.tiers.close()
    again = Host(tmp_path)
    again.wait(lambda stats: stats["num_held"] == 1)
    assert again.load(1) == 1 and again.load(2) == 0


def test_number_of_an_earlier_block_does_not_count_for_the_next(tmp_path):
    host = Host(tmp_path, slots=1)
    host.store(1, workers=[])
    host.store(2, workers=[0, 1])
    host.wait(lambda stats: stats["num_written"] == 1)
    assert host.tiers.stats()["num_dropped"] == 1
    host.tiers.close()
    again = Host(tmp_path)
    again.wait(lambda stats: stats["num_held"] == 1)
    assert again.load(2) == 1 and again.load(1) == 0


def test_budget_holds_and_least_recently_used_blocks_are_evicted(tmp_path):
    budget = 12 * 8192 + 32768
    host = Host(tmp_path / "kv", slots=64, budget=budget)
    places = host.tiers.stats()["num_places"]
    assert 4 <= places < 40
    host.store(*range(40))
    host.wait(lambda stats: stats["num_written"] == 40 and stats["num_held"] == places)
    assert folder_bytes(tmp_path / "kv") <= budget
    host.tiers.close()
    again = Host(tmp_path / "kv", slots=64, budget=budget)
    again.wait(lambda stats: stats["num_held"] == places)
    assert sum(again.load(number) for number in range(40)) == places


def test_prompts_that_evict_each_other_do_not_wait_forever(tmp_path):
    host = Host(tmp_path, slots=8)
    first, second = range(100, 108), range(200, 208)
    host.store(*first)
    host.wait(lambda stats: stats["num_written"] == 8)
    host.store(*second)
    host.wait(lambda stats: stats["num_written"] == 16)
    ends = 0
    for _ in range(200):  # two requests that wait and are never admitted
        ends += host.look_up(*first) >= 0
        ends += host.look_up(*second) >= 0
    assert ends == 400


def test_blocks_being_loaded_are_not_evicted(tmp_path):
    host = Host(tmp_path, slots=2)
    host.store(1, 2)
    host.wait(lambda stats: stats["num_written"] == 2)
    host.tiers.prepare_load([name(1), name(2)])
    assert host.store(3) is None, "both blocks are being loaded"
    host.tiers.complete_load([name(1), name(2)])
    assert host.store(3, 4)[2] == [name(1), name(2)]
    assert host.load(1, 2) == 2


@pytest.mark.parametrize("file", ["quire-blocks", "quire-table"])
def test_flipped_bytes_are_misses(tmp_path, file):
    rng = random.Random(5)
    host = Host(tmp_path, slots=32)
    host.store(*range(32))
    host.wait(lambda stats: stats["num_written"] == 32)
    host.tiers.close()
    seen = 0
    for _ in range(20):
        size = os.path.getsize(tmp_path / file) if file == "quire-table" else 32 * 8192
        with open(tmp_path / file, "r+b") as bytes_of:
            for _ in range(20):
                at = rng.randrange(size)
                bytes_of.seek(at)
                old = bytes_of.read(1)
                bytes_of.seek(at)
                bytes_of.write(bytes([old[0] ^ 1 << rng.randrange(8)]))
        try:
            host = Host(tmp_path, slots=32)
        except (ValueError, NotImplementedError) as error:  # the first bytes identify the folder's owner
            assert "is not the table of a disk tier" in str(error) or "another version" in str(error)
            os.unlink(tmp_path / file)
            host = Host(tmp_path, slots=32)
        time.sleep(0.05)
        seen += sum(host.load(number) for number in range(32))
        host.store(*range(32))
        host.wait(lambda stats: stats["num_held"] == 32)
        host.tiers.close()
    assert 0 < seen < 20 * 32


@pytest.mark.parametrize("file", ["quire-blocks", "quire-table"])
def test_truncated_files_are_misses(tmp_path, file):
    host = Host(tmp_path)
    host.store(*range(8))
    host.wait(lambda stats: stats["num_written"] == 8)
    host.tiers.close()
    os.truncate(tmp_path / file, 8192 + 300)
    host = Host(tmp_path)
    time.sleep(0.05)
    assert sum(host.load(number) for number in range(8)) < 8


def test_folder_removed_during_use_is_a_miss(tmp_path):
    host = Host(tmp_path / "kv", slots=4)
    host.store(1, 2)
    host.wait(lambda stats: stats["num_written"] == 2)
    shutil.rmtree(tmp_path / "kv")
    host.store(3, 4, 5, 6)
    host.wait(lambda stats: stats["loads_left_out"] and stats["stores_left_out"])
    assert host.look_up(1, 2) == 0 and host.load(3, 4) == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"fingerprint": b"g" * 32}, "folder: .* another model"),
        ({"fingerprint": b"short"}, "32 bytes"),
        ({"budget_bytes": 10}, "budget_bytes: "),
        ({"written": []}, "written"),
        ({"num_slots": 17}, "at least num_slots rows"),
        ({"policy": "mru"}, "eviction_policy"),
        ({"folder": "/proc/quire"}, "folder: .*/proc/quire"),
    ],
)  # fmt: skip
def test_refuses_invalid_options(tmp_path, change, text):
    Host(tmp_path).tiers.close()
    host = Host(tmp_path / "other")
    good = {"num_slots": 16, "pages": host.pages, "written": host.written, "folder": str(tmp_path), "budget_bytes": 1 << 20,
            "fingerprint": b"f" * 32}  # fmt: skip
    with pytest.raises(ValueError, match=text):
        core.TieredOffload(**(good | change))
    with pytest.raises(ValueError, match="uses"):
        core.TieredOffload(**(good | {"folder": str(tmp_path / "other")}))
    host.tiers.close()
    with pytest.raises(RuntimeError, match="closed"):
        host.tiers.lookup([])


KILLED = """
import random, sys, time
from test_tiered_offload import Host
rng = random.Random(int(sys.argv[2]))
host = Host(sys.argv[1], slots=8, budget=20 * 8192 + 32768)
print("up", flush=True)
while True:
    first = rng.randrange(40)
    found = host.load(*range(first, first + 4))
    host.store(*range(first + found, first + 4))
"""


def test_loads_are_correct_after_random_kills(tmp_path):
    """Each run checks every loaded byte, after runs that were killed before it."""
    rng = random.Random(3)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    for i in range(20):
        run = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "kv", str(i)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert run.stdout.readline() == b"up\n", run.stderr.read().decode()
        time.sleep(rng.random() * 0.3)
        assert run.poll() is None, run.stderr.read().decode()
        run.kill()
        run.communicate()
        assert folder_bytes(tmp_path / "kv") <= 20 * 8192 + 32768
    host = Host(tmp_path / "kv", slots=64, budget=20 * 8192 + 32768)
    host.wait(lambda stats: stats["num_held"] > 0)
    assert sum(host.load(number) for number in range(44)) > 0


def test_copies_work_in_both_directions_and_are_marked(tmp_path):
    device = [np.random.default_rng(i).integers(0, 256, (10, 64), dtype=np.uint8) for i in range(2)]
    before = [tensor.copy() for tensor in device]
    host, written = [np.zeros((12, 64), np.uint8) for _ in range(2)], np.zeros(4, np.uint64)
    copier = core.BlockCopier(device, host, written)
    copier.submit(7, True, [9, 1, 4], [3, 4, 5], [1], [77])
    copier.wait([7])
    assert [(job, size) for job, size, _ in copier.take_over(True)] == [(7, 3 * 2 * 64)] and copier.take_over(False) == []
    assert written.tolist() == [0, 77, 0, 0]
    for tensor in device:
        tensor[:] = 0
    copier.submit(8, False, [9, 1, 4], [3, 4, 5])
    copier.wait([7, 8, 9])
    for tensor, old in zip(device, before):
        assert (tensor[[9, 1, 4]] == old[[9, 1, 4]]).all() and not tensor[0].any()
    host[0][:], host[1][:] = 1, 2
    copier.submit(10, False, [0, 1], [3, 4], tensors=[1])
    copier.wait([10])
    assert (device[1][[0, 1]] == 2).all() and not (device[0][[0, 1]] == 1).all()
    assert copier.take_over(False)[-1][:2] == (10, 2 * 64)
    with pytest.raises(ValueError, match="slots, numbers, tensors"):
        copier.submit(11, False, [0], [0], tensors=[2])
    for wrong in [([10], [0], [], []), ([0], [12], [], []), ([0, 1], [0], [], []), ([0], [0], [4], [1]), ([0], [0], [1], [])]:
        with pytest.raises(ValueError, match="pages, slots"):
            copier.submit(9, True, *wrong)
