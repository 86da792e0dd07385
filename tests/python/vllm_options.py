"""Tests what --additional-config sets in quire.vllm.Scheduler; test_vllm_adapter.py runs it like vllm_adapter.py. usage: vllm_options.py
CASE
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from vllm_adapter import HERE, add, make, raises, result, stage


def pressure():
    """Watermark, pressure marks and the order of free blocks by --additional-config; unknown options and invalid values are refused by
    name.
    """

    def refused(text, **options):
        raises(ValueError, text, lambda: make(additional={"quire": options}))

    refused("quire.pressure_mark; use one of policy, admission_watermark, pressure_high,", pressure_mark=0.9)
    refused("quire.pressure_high='full'; use a number", pressure_high="full")
    refused("quire.pressure_high=True; use a number", pressure_high=True)
    refused("quire.pressure_preempts=1; use true or false", pressure_preempts=1, pressure_high=0.9)
    refused("quire.max_jobs=-1; use a whole number", max_jobs=-1, policy="continuum")
    refused("pressure.pressure_high: is 2", pressure_high=2.0)
    refused("pressure.admission_watermark: 1 is out of range", admission_watermark=1)
    refused("pressure.pressure_preempts: needs a pressure_high above 0", pressure_preempts=True)
    refused("SchedulerOutput has no field for block copies", max_fork_family=4)
    refused("swap moves the blocks of a preempted request out and back, and vLLM 0.19.0's SchedulerOutput", num_swap_slots=64)
    raises(ValueError, "quire=0.9; use an object", lambda: make(additional={"quire": 0.9}))

    def first_step(**options):
        scheduler = make(additional={"quire": options})
        add(scheduler, "a", n=28)
        add(scheduler, "b", n=28, doc=1)
        return scheduler, scheduler.schedule()

    assert list(first_step()[1].num_scheduled_tokens) == ["a", "b"]
    assert list(first_step(admission_watermark=0.7)[1].num_scheduled_tokens) == ["a"], "after b only 20 of 32 blocks are free"
    assert list(first_step(pressure_high=0.2)[1].num_scheduled_tokens) == ["a"], "a holds 7 of 32 blocks"

    scheduler, plan = first_step(pressure_high=0.5, pressure_preempts=True)
    steps = 0
    while not plan.preempted_req_ids and steps < 20:
        scheduler.update_from_output(plan, result(plan))
        plan = scheduler.schedule()
        steps += 1
    assert plan.preempted_req_ids == {"b"} and list(plan.num_scheduled_tokens) == ["a"], "the preemption must come before blocks run out"
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() > 32 // 2
    scheduler.check_invariants()

    def freed_last_is_next(**options):
        scheduler = make(additional={"quire": options}, prefix_caching=False)
        held = []
        for name in "ab":
            add(scheduler, name, max_tokens=1)
            plan = scheduler.schedule()
            held.append(set(plan.scheduled_new_reqs[0].block_ids[0]))
            scheduler.update_from_output(plan, result(plan))
        return bool(held[0] & held[1])

    assert freed_last_is_next(lifo_free_blocks=True) and not freed_last_is_next()

    def cached_after_sweep(**options):
        """Runs a prompt twice, then twelve other prompts once. Returns the number of its tokens that are cached when it runs again."""
        scheduler = make(additional={"quire": options})
        for number, doc in enumerate([0, 0, *range(1, 13), 0]):
            add(scheduler, f"request{number}", n=28, doc=doc, max_tokens=1)
            plan = scheduler.schedule()
            cached = plan.scheduled_new_reqs[0].num_computed_tokens
            scheduler.update_from_output(plan, result(plan))
        return cached

    assert cached_after_sweep(slru_share=0.5) == 24 > cached_after_sweep()


def trace():
    """The trace of quire serve inside vLLM: off by default, complete at shutdown, with the records and fields of docs/trace.md."""

    def refused(text, **options):
        raises(ValueError, text, lambda: make(additional={"quire": options}).schedule())

    refused("quire.trace=7; use a string", trace=7)
    refused('quire.trace_every without a trace; add "trace"', trace_every=2)
    refused("trace_every: 0 is out of range", trace="/nowhere", trace_every=0)
    refused("trace_files: 0 is out of range", trace="/nowhere", trace_files=0)
    refused("trace: '/nowhere/run.steps.jsonl' cannot be written", trace="/nowhere/run")
    assert make()._native.flush_trace() is None

    def written(path, kind):
        with open(f"{path}.{kind}.jsonl", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def run(**config):
        scheduler = make(**config)
        add(scheduler, "a", n=10, max_tokens=3, job="one")
        add(scheduler, "b", n=6, max_tokens=1, doc=1)
        counts = []
        while scheduler.get_num_unfinished_requests():
            plan = scheduler.schedule()
            counts.append(plan.total_num_scheduled_tokens)
            scheduler.update_from_output(plan, result(plan))
        scheduler.shutdown()
        return scheduler, counts

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run")
        scheduler, counts = run(connector="ScriptedConnector", additional={"quire": {"trace": path}})
        assert scheduler._native.flush_trace() == (len(counts), 0)
        steps, requests = written(path, "steps"), written(path, "requests")
        assert [sum(record["num_scheduled_tokens"].values()) for record in steps if record["event"] == "step_decision"] == counts
        assert {record["connector"] for record in steps if record["event"] == "prefix_cache_lookup"} == {"ScriptedConnector"}
        names = {record["req_id"]: record["quire"]["name"] for record in requests}
        assert sorted(names.values()) == ["a", "b"], "vLLM's ids must be next to quire's numbers"
        first = next(record for record in steps if record["event"] == "step_decision")
        assert [names[number] for number in first["scheduled_new_req_ids"]] == ["a", "b"]
        assert (requests[0]["job_id"], requests[0]["num_prompt_tokens"]) == ("one", 10)
        with open(os.path.join(HERE, "..", "..", "docs", "trace.md"), encoding="utf-8") as docs:
            told = set(re.findall(r"`(\w+)`", docs.read()))
        for record in steps + requests:
            assert set(record) <= told | {"event", "step", "ts", "policy", "quire"}, set(record) - told

        os.environ["VLLM_SCHED_TRACE_PATH"] = path = os.path.join(folder, "told")
        several = {"arguments": None, "change": lambda given: vars(given["vllm_config"].parallel_config).update(data_parallel_size=2)}
        run(**several)
        assert written(path + ".dp0", "steps") and os.stat(f"{path}.dp0.steps.jsonl").st_mode & 0o077 == 0
        del os.environ["VLLM_SCHED_TRACE_PATH"]


def whole_journal(options):
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make(connector="ScriptedConnector", additional={"quire": {"journal": folder, **options}})
        for number in range(12):
            add(scheduler, f"r{number}", n=4 + number, max_tokens=3, doc=number % 2)
        steps = 0
        while scheduler.get_num_unfinished_requests():
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, result(plan))
            steps += 1
        scheduler.shutdown()
        path, size, ended = scheduler._native.flush_journal()
        assert os.stat(path).st_mode & 0o077 == 0 and size > 500 and ended is None
        if "QUIRE_BINARY" in os.environ:
            done = subprocess.run([os.environ["QUIRE_BINARY"], "replay", "--json", path], capture_output=True, text=True, check=False)
            told = json.loads(done.stdout)
            assert done.returncode == 0 and told["identical"] and told["damage"] is None, done
            assert (told["requests"], told["steps"]) == (12, steps)


def journal():
    """The journal of quire serve inside vLLM: off by default, complete at shutdown, and quire replay finds every decision identical."""

    def refused(text, **options):
        raises(ValueError, text, lambda: make(additional={"quire": options}).schedule())

    refused("quire.journal=7; use a string", journal=7)
    refused('quire.journal_max_bytes without a journal; add "journal"', journal_max_bytes=2**30)
    refused("quire.journal_tokens=0; use true or false", journal="/nowhere", journal_tokens=0)
    refused("journal_max_bytes: is 5", journal="/nowhere", journal_max_bytes=5)
    assert make()._native.flush_journal() is None

    for options in ({}, {"journal_tokens": False}):
        whole_journal(options)

    # With a small budget the run continues in files and the oldest are removed. Each remaining file replays identically from its first
    # state.
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make(connector="ScriptedConnector", additional={"quire": {"journal": folder, "journal_max_bytes": 2**17}})
        for number in range(600):
            add(scheduler, f"r{number}", n=4 + number % 40, max_tokens=3, doc=number % 2)
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, result(plan))
        while scheduler.get_num_unfinished_requests():
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, result(plan))
        scheduler.shutdown()
        files = sorted(os.listdir(folder))
        assert len(files) > 2 and sum(os.stat(os.path.join(folder, name)).st_size for name in files) <= 2**17, files
        if "QUIRE_BINARY" in os.environ:
            paths = [os.path.join(folder, name) for name in files]
            done = subprocess.run([os.environ["QUIRE_BINARY"], "replay", "--json", *paths], capture_output=True, text=True, check=False)
            told = [json.loads(line) for line in done.stdout.splitlines()]
            assert done.returncode == 0 and all(one["identical"] and one["damage"] is None for one in told), done
            # shutdown() has written everything; the last file stays open as long as the scheduler exists.
            assert [one["end"] for one in told] == ["continued"] * (len(files) - 1) + ["cut"]
            assert [one["states"] for one in told[1:]] == [1] * (len(files) - 1), "a file must begin with the previous state"


if __name__ == "__main__":
    with stage.CLOCK:
        globals()[sys.argv[1]]()
