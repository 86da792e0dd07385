"""Tests connectors written in Python: the contract of all connectors (the suite of tests/engine/tiers/connector_contract_test.cpp, for
quire.Core), and the lookup by name.
"""
import random
import sys

import pytest

quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
from quire.connectors import Connector  # noqa: E402

BLOCK = 4
LOAD, STORE = quire.TransferDirection.LOAD, quire.TransferDirection.STORE


class PrefixStore(Connector):
    """Stores the full blocks of a finished request, and loads them while a request whose prompt begins with them waits."""

    def __init__(self, size=1000):
        self.size, self.places, self.storing, self.in_use = size, {}, set(), {}
        self.first, self.pending, self.moving, self.next_place = {}, [], {}, 0

    def match(self, request, num_local_tokens):
        first = self.first[request.id] = num_local_tokens // BLOCK
        end = first
        while end < (len(request.tokens) - 1) // BLOCK and request.names[end] in self.places:
            end += 1
        return (end - first) * BLOCK, end > first

    def allocated(self, request, blocks, num_external_tokens):
        if num_external_tokens == 0:
            return
        first = self.first[request.id]
        expected = request.names[first : first + num_external_tokens // BLOCK]
        for name in expected:
            self.in_use[name] = self.in_use.get(name, 0) + 1
        self.pending.append((request.id, LOAD, expected, blocks[0][first : first + len(expected)], [self.places[key] for key in expected]))

    def finished(self, request, blocks):
        self.first.pop(request.id, None)
        for moving in [m for m in self.pending if m[0] == request.id]:
            self.pending.remove(moving)
            self.end(moving, False)
        if request.status not in (quire.RequestStatus.FINISHED_STOPPED, quire.RequestStatus.FINISHED_LENGTH):
            return False
        full = min(len(request.names), request.num_computed_tokens // BLOCK)
        new = [i for i in range(full) if request.names[i] not in self.places and request.names[i] not in self.storing]
        while self.places and len(self.places) + len(self.storing) + len(new) > self.size:
            unused = next((name for name in self.places if name not in self.in_use), None)
            if unused is None:
                return False
            del self.places[unused]
        if not new:
            return False
        names = [request.names[i] for i in new]
        self.storing.update(names)
        places = range(self.next_place, self.next_place + len(new))
        self.next_place += len(new)
        self.pending.append((request.id, STORE, names, [blocks[0][i] for i in new], list(places)))
        return True

    def plan_transfers(self, transfers):
        waiting = []
        for moving in self.pending:
            request, direction, _, blocks, places = moving
            number = transfers.add(request, direction, blocks, places)
            if number is None:
                waiting.append(moving)
            else:
                self.moving[number] = moving
        self.pending = waiting

    def completed(self, transfer, is_done, bad_blocks):
        moving = self.moving.pop(transfer)
        self.end(moving, is_done)
        if moving[1] == LOAD and not is_done:
            for name in moving[2]:
                self.places.pop(name, None)

    def end(self, moving, is_done):
        _, direction, names, _, places = moving
        for name, place in zip(names, places):
            if direction == LOAD:
                self.in_use[name] -= 1
                if self.in_use[name] == 0:
                    del self.in_use[name]
            else:
                self.storing.discard(name)
                if is_done:
                    self.places[name] = place

    def reset(self):
        self.places.clear()
        return True


class Host:
    """Executes the core's plans: the worker fails on each wrong entry that it reads, and transfers end at random times."""

    def __init__(self, connector, seed, late=0.3, failed=0.0, lost_stores=0.0, asynchronous=False):
        options = {"kv_load_failure": quire.KvLoadFailurePolicy.RECOMPUTE} if connector else {}
        config = quire.CoreConfig(
            num_blocks=30, block_size=BLOCK, max_model_len=96, max_num_seqs=5, max_num_batched_tokens=32,
            async_scheduling=asynchronous, reserve_full_isl=False, **options,
        )  # fmt: skip
        self.core, self.depth, self.draw = quire.Core(config, connector), 2 if asynchronous else 1, random.Random(seed)
        self.late, self.failed, self.lost_stores = late, failed, lost_stores
        self.memory, self.content = {}, {}
        self.tables, self.histories, self.outputs = {}, {}, {}
        self.queue, self.over, self.results = [], [], []

    def carry_out(self, transfer):
        self.queue.remove(transfer)
        fails = self.draw.random() < self.failed
        for block, place in zip(transfer.blocks, transfer.places):
            if transfer.direction == STORE and not fails:
                self.content[place] = dict(self.memory.get(block, {}))
            elif transfer.direction == LOAD:
                self.memory[block] = {} if fails else dict(self.content[place])
        if transfer.direction == LOAD or self.draw.random() >= self.lost_stores:
            self.over.append((transfer.id, not fails, []))

    def some(self, items, share):
        return [item for item in items if self.draw.random() < share]

    def run(self, plan):
        for entered in plan.admitted:
            self.histories[entered.id], self.tables[entered.id] = list(entered.tokens), []
        for delta in plan.table_deltas:
            table = self.tables[delta.id]
            if delta.update == quire.TableUpdate.REPLACE_ALL:
                table.clear()
            table.extend(delta.blocks)
        sampled = {}
        for one in plan.scheduled:
            history, table = self.histories[one.id], self.tables[one.id]
            for at in range(one.num_computed_tokens, one.num_computed_tokens + one.num_tokens):
                self.memory.setdefault(table[at // BLOCK], {})[at % BLOCK] = hash(tuple(history[: at + 1]))
        for one in plan.scheduled:
            history, table = self.histories[one.id], self.tables[one.id]
            for at in range(one.num_computed_tokens + one.num_tokens):
                assert self.memory[table[at // BLOCK]][at % BLOCK] == hash(tuple(history[: at + 1])), "the slot has another token"
            if one.samples:
                sampled[one.id] = [hash(tuple(history)) % 500]
                history += sampled[one.id]
        return sampled

    def step(self):
        plan = self.core.schedule()
        self.queue += [t for t in plan.transfers if t.direction == STORE]
        for transfer in [t for t in self.queue if t.id in plan.fences]:
            self.carry_out(transfer)
        self.queue += [t for t in plan.transfers if t.direction == LOAD]
        for transfer in self.some(self.queue, 1 - self.late):
            self.carry_out(transfer)
        self.results.append(self.run(plan))
        if len(self.results) < self.depth:
            return
        told = self.some(self.over, 1 - self.late)
        # A transfer can end at the earliest with the result of the plan that started it.
        begun = {t.id for t in plan.transfers} if self.depth > 1 else set()
        told = [one for one in told if one[0] not in begun]
        self.over = [one for one in self.over if one not in told]
        for update in self.core.apply(self.results.pop(0), completions=told).updates:
            self.outputs.setdefault(update.id, []).extend(update.tokens)
        self.core.check_invariants()

    def is_over(self):
        return not (self.core.has_work or self.core.num_awaiting_transfers or self.queue or self.over)

    def play(self, between=lambda number: None, count=60):
        draw, added = random.Random(5), 0
        for _ in range(4000):
            if added < count and draw.random() < 0.3:
                family = draw.randrange(4)
                prompt = [family * 50 + i for i in range(draw.randrange(1, 50))] + [draw.randrange(500) for _ in range(draw.randrange(1, 6))]
                self.core.add(prompt, max_tokens=draw.randrange(1, 25), id=added)
                added += 1
                between(added)
            self.step()
            if added == count and self.is_over():
                break
        assert self.is_over(), "no progress"
        while self.core.num_outstanding_plans:
            self.core.apply(self.results.pop(0))
        assert self.core.num_free_blocks == 29
        return self.outputs


@pytest.fixture(scope="module")
def expected():
    return Host(None, 1).play()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("size", [12, 1000])
@pytest.mark.parametrize("failed", [0.0, 0.25])
def test_tokens_do_not_depend_on_the_fate_of_transfers(expected, asynchronous, size, failed):
    connector = PrefixStore(size)
    host = Host(connector, 7, failed=failed, asynchronous=asynchronous)
    assert host.play() == expected
    assert host.core.num_preemptions > 0 and connector.next_place > 20, "the run must preempt and store enough"
    assert not connector.moving and not connector.pending and not connector.storing and not connector.in_use


def test_reset_during_a_run_changes_no_token(expected):
    host = Host(PrefixStore(), 8, late=0.6)
    done = []

    def reset(number):
        if number % 5 == 0:
            try:
                done.append(host.core.reset_prefix_cache(number % 10 == 0, reset_connector=True))
            except ValueError as refused:  # a transfer holds blocks
                assert "wait until the transfers in flight have ended" in str(refused)

    assert host.play(reset) == expected
    assert any(done), "at least one reset must succeed"


def test_unreported_stores_do_not_block_other_requests():
    host = Host(PrefixStore(), 9, late=0.0, lost_stores=1.0)
    for number in range(3):
        host.core.add(list(range(100 * number, 100 * number + 9)), max_tokens=3, id=number)
    for _ in range(40):
        host.step()
    assert {number: len(tokens) for number, tokens in host.outputs.items()} == {0: 3, 1: 3, 2: 3}
    assert host.core.num_awaiting_transfers == 3


def test_aborted_requests_leave_no_transfers():
    connector = PrefixStore()
    host = Host(connector, 10, late=0.7)
    host.play(lambda number: number % 2 == 0 and host.core.finish(host.draw.randrange(number)))
    assert not connector.moving and not connector.pending


def test_exception_of_a_connector_is_raised_by_schedule():
    class Broken(Connector):
        def match(self, request, num_local_tokens):
            raise RuntimeError("out of order")

    core = quire.Core(quire.CoreConfig(num_blocks=8, block_size=BLOCK, max_model_len=32), Broken())
    core.add([1, 2, 3], max_tokens=1)
    with pytest.raises(RuntimeError, match="out of order") as raised:
        core.schedule()
    assert [one.num_tokens for one in raised.value.plan.scheduled] == [3]
    assert core.apply({0: [7]}).updates[0].finished


@pytest.mark.parametrize("answer", [3, (3,), ("x", True), (99, False)])
def test_invalid_answer_of_match_raises_a_type_error(answer):
    class Odd(Connector):
        def match(self, request, num_local_tokens):
            return answer

    core = quire.Core(quire.CoreConfig(num_blocks=8, block_size=BLOCK, max_model_len=32), Odd())
    core.add([1, 2, 3], max_tokens=1)
    with pytest.raises(TypeError):
        core.schedule()


def test_connectors_are_found_by_name(monkeypatch):
    monkeypatch.setattr(quire.connectors, "_known", {})
    quire.connectors.register("Prefix", PrefixStore)
    quire.connectors.register("Later", f"{__name__}:PrefixStore")
    quire.connectors.register("Nowhere", "no_such_module:Nothing")
    with pytest.raises(ValueError, match="name: a connector Prefix is registered already"):
        quire.connectors.register("Prefix", PrefixStore)
    assert quire.connectors.create("Prefix", size=3).size == 3
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    assert type(quire.connectors.create("Later")).__name__ == "PrefixStore"
    with pytest.raises(KeyError, match="name: no connector Mine is registered; registered are Later, Nowhere, Prefix"):
        quire.connectors.create("Mine")
    with pytest.raises(ImportError):
        quire.connectors.create("Nowhere")
