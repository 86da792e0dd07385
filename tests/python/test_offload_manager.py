"""Tests quire.OffloadManager, the ledger of a lower tier, from Python. The tests in tests/core/offload cover its decisions."""
import pytest

quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")


def names(*numbers):
    return [bytes([number]) * 32 for number in numbers]


def put(manager, *numbers):
    keys, slots, evicted = manager.prepare_store(names(*numbers))
    manager.complete_store(keys)
    return keys, slots, evicted


def test_blocks_are_stored_found_loaded_and_evicted():
    manager = quire.OffloadManager(3, enable_events=True)
    assert put(manager, 1, 2, 3) == (names(1, 2, 3), [0, 1, 2], [])
    assert manager.lookup(names(1, 2, 9, 3)) == 2
    assert manager.prepare_load(names(2)) == [1]
    manager.touch(names(1))
    assert put(manager, 4) == (names(4), [2], names(3)), "2 is being loaded, and 1 was used recently"
    manager.complete_load(names(2))
    assert manager.take_events() == [(names(1, 2, 3), False), (names(3), True), (names(4), False)]
    assert manager.take_events() == [] and manager.num_free == 0 and manager.num_slots == 3
    manager.check_invariants()


def test_store_without_room_changes_nothing():
    manager = quire.OffloadManager(2, "arc")
    manager.prepare_store(names(1))
    assert manager.prepare_store(names(2, 3)) is None
    assert manager.num_free == 1
    manager.complete_store(names(1), success=False)
    assert manager.num_free == 2 and manager.lists == [[], [], [], []]


def test_reused_blocks_stay_when_the_policy_counts_use():
    manager = quire.OffloadManager(4, "arc_paper")
    put(manager, 1, 2, 3, 4)
    manager.use(names(1))
    assert manager.lists[:2] == [names(2, 3, 4), names(1)]
    assert put(manager, 5, 6, 7)[2] == names(2, 3, 4)


def test_rare_blocks_are_not_stored_with_a_filter():
    manager = quire.OffloadManager(4, store_threshold=2)
    manager.lookup(names(1, 2))
    assert manager.prepare_store(names(1, 2)) == ([], [], [])
    manager.lookup(names(1))
    assert put(manager, 1, 2)[0] == names(1)
    assert manager.counted == [(names(2)[0], 1), (names(1)[0], 2)]


def test_find_does_not_count_lookups():
    manager = quire.OffloadManager(4, store_threshold=1)
    put(manager, 1)
    manager.prepare_store(names(2))
    assert list(manager.find(names(1, 2, 3))) == [1, 2, 0] and manager.counted == []


def test_discard_removes_blocks_that_are_not_being_loaded():
    manager = quire.OffloadManager(4)
    put(manager, 1, 2)
    manager.prepare_load(names(1))
    assert not manager.discard(names(1)[0]) and manager.discard(names(2)[0]) and not manager.discard(names(9)[0])
    manager.complete_load(names(1))
    assert manager.lookup(names(1)) == 1 and manager.discard(names(1)[0]) and manager.lookup(names(1)) == 0
    manager.check_invariants()


@pytest.mark.parametrize("options, text", [((-1,), "num_slots"), ((1, "fifo"), "eviction_policy"), ((1, "lru", 2, 0), "max_tracked_keys")])
def test_options_out_of_range_are_named(options, text):
    with pytest.raises(ValueError, match=text):
        quire.OffloadManager(*options)


def test_misuse_raises():
    manager = quire.OffloadManager(2)
    with pytest.raises(ValueError, match="the key is not in the tier"):
        manager.prepare_load(names(1))
    with pytest.raises(ValueError, match="the key is not being loaded"):
        manager.complete_load(names(1))
    with pytest.raises(ValueError, match="at most 32 bytes"):
        manager.lookup([b"x" * 33])


class Newest(quire.connectors.EvictionPolicy):
    """Evicts the most recently inserted block first."""

    def __init__(self):
        self.calls = []

    def insert(self, slot, key):
        self.calls.append(("insert", slot, key))

    def remove(self, slot):
        self.calls.append(("remove", slot))

    def touch(self, slot, ready):
        self.calls.append(("touch", slot, ready))

    def evict(self, count, evictable, incoming):
        self.incoming = incoming
        order = [slot for call, slot, *_ in self.calls if call == "insert" and slot in evictable]
        return list(dict.fromkeys(reversed(order)))[:count]


def test_python_policy_chooses_the_victims():
    policy = Newest()
    manager = quire.OffloadManager(3, policy)
    put(manager, 1, 2, 3)
    manager.touch(names(3))
    manager.prepare_load(names(3))
    assert put(manager, 4) == (names(4), [1], names(2)), "3 is being loaded"
    assert policy.incoming == names(4)
    assert policy.calls[3:] == [("touch", 2, True), ("insert", 1, names(4)[0])]
    manager.prepare_store(names(5))
    manager.complete_store(names(5), success=False)
    assert policy.calls[-1] == ("remove", 1)
    manager.check_invariants()


@pytest.mark.parametrize("answer, error", [([0], "from `evictable`"), ([1, 1], "different slots"), (None, "")])
def test_invalid_policy_raises_and_changes_nothing(answer, error):
    class Wrong(quire.connectors.EvictionPolicy):
        def evict(self, count, evictable, incoming):
            if answer is None:
                raise RuntimeError("no idea")
            return answer

    manager = quire.OffloadManager(2, Wrong())
    put(manager, 1, 2)
    manager.prepare_load(names(1))
    with pytest.raises(RuntimeError if answer is None else ValueError, match="no idea" if answer is None else error):
        manager.prepare_store(names(3))
    assert manager.lookup(names(1, 2)) == 2
    manager.complete_load(names(1))
    manager.check_invariants()
