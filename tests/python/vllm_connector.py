"""Tests quire.vllm.Connector in a whole vLLM, on CPU or a GPU. Run by vLLM's Python.

    python vllm_connector.py FOLDER [CASE...] [--own-scheduler] [--rounds 2] [--options JSON] [--device cuda]

Cases: plain; layers (layer by layer); windows (every other layer has a window), window (all layers have one); disk (two engines over a
folder); errors (every third load fails); lost (the same with windows; not under vLLM 0.19.0); slow (copies take a second each, as the load
policy measures); sizes (offloaded blocks of two KV blocks); ranks (two workers, and a disk); spec (quire.vllm.offload under vLLM's
OffloadingConnector, without a disk). A suffix after a colon selects quire.vllm.Scheduler (disk:own).

Engines answer prompts with shared prefixes, four at a time, with a KV cache that fits a quarter of them and host memory that fits more.
Every answer must equal that of an engine without a connector, token by token. The results are printed as JSON.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
from pathlib import Path

import vllm_disk
from vllm_disk import BLOCK, BLOCK_BYTES, DEVICE, DTYPE, LAYERS, answers_of, make_model, make_prompts

WINDOW = 80
SOME_WINDOWS, ALL_WINDOWS = ["full_attention", "sliding_attention"] * (LAYERS // 2), ["sliding_attention"] * LAYERS
KINDS = {"windows": SOME_WINDOWS, "lost": SOME_WINDOWS, "window": ALL_WINDOWS}  # kinds of the layers
CASES = ("plain", "layers", "windows", "window", "disk", "errors", "lost", "slow", "sizes", "ranks", "spec")


def add_windows(model: Path, kinds: list[str]):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "layer_types": kinds, "sliding_window": WINDOW}))


def failing_connector():
    """Makes every third load fail and corrupts its bytes."""
    import quire.vllm._connector as connector

    start = connector.WorkerHalf._start_load
    end = connector.WorkerHalf._end_load
    connector.WorkerHalf.num_failed = 0

    def begins(self, job):
        if job.id % 3 == 0:
            job.slots = job.slots[1:] + job.slots[:1]
        start(self, job)

    def ends(self, id, is_good):
        self.num_failed += id % 3 == 0
        end(self, id, is_good and id % 3 != 0)

    connector.WorkerHalf._start_load, connector.WorkerHalf._end_load = begins, ends


def slow_copies():
    from quire.vllm._connector_costs import LoadCosts

    copied = LoadCosts.copied
    LoadCosts.copied = lambda self, num_blocks, seconds: copied(self, num_blocks, 1.0)


def engine(model, options, with_connector):
    from vllm import LLM

    config = None
    if with_connector:
        extra = {"cpu_bytes_to_use": options.host_blocks * BLOCK_BYTES, "policy": "exact", **options.extra}
        config = {"kv_connector": "Connector", "kv_connector_module_path": "quire.vllm", "kv_role": "kv_both",
                  "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra}  # fmt: skip
        if options.case == "spec":
            extra |= {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload"}
            config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    own = {"scheduler_cls": "quire.vllm.Scheduler"} if options.own_scheduler and with_connector else {}
    if options.sync:
        own["async_scheduling"] = False
    if options.case in KINDS:
        own["disable_hybrid_kv_cache_manager"] = False
    return LLM(model=str(model), skip_tokenizer_init=True, dtype=DTYPE, enforce_eager=True, max_model_len=1024, max_num_seqs=4,
               block_size=BLOCK, num_gpu_blocks_override=options.kv_blocks, tensor_parallel_size=options.ranks, kv_transfer_config=config, disable_log_stats=False, seed=0,
               enable_prefix_caching=with_connector, **own, **DEVICE)  # fmt: skip


def count_loads(manager, seen: dict):
    native, seen["loaded_tokens"] = manager.native, 0

    class Counting:
        def __getattr__(self, name):
            return getattr(native, name)

        def prepare_load(self, names):
            seen["loaded_tokens"] += len(names) * BLOCK
            return native.prepare_load(names)

    manager.native = Counting()


def run(connection, model, options, prompts, seed, with_connector):
    os.setpgid(0, 0)
    if options.case in ("errors", "lost") and with_connector:
        failing_connector()
    if options.case == "slow":
        slow_copies()
    llm = engine(model, options, with_connector)
    rng = random.Random(seed)
    half, seen = None, {}
    if with_connector and options.case == "spec":
        count_loads(llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager, seen)
    elif with_connector:
        from quire.vllm._connector_vllm import ConnectorStats

        counting = ConnectorStats.count

        def count(self, name, amount):
            seen[name] = seen.get(name, 0) + amount
            counting(self, name, amount)

        ConnectorStats.count = count
        half = llm.llm_engine.engine_core.engine_core.scheduler.connector.scheduler_half
        seen["groups"] = len(half._windows)
    order = list(range(len(prompts)))
    for _ in range(options.rounds if with_connector else 1):
        if with_connector:
            rng.shuffle(order)
        for at in range(0, len(order), options.batch):
            chosen = order[at : at + options.batch]
            for number, answer in zip(chosen, answers_of(llm, [prompts[number] for number in chosen])):
                connection.send((number, answer))
    if half is not None:
        seen["jobs"], seen["requests"], seen["loading"] = len(half._jobs), len(half._requests), half._loading.total()
        seen["read"] = half.native.stats()["num_read"] if half.has_disk else 0
        seen["copy_s"], seen["compute_s"] = half.costs._copy.seconds, half.costs._compute.seconds
    connection.send(("seen", seen))
    os.killpg(0, signal.SIGKILL)  # including its workers


def play(*arguments):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=run, args=(theirs, *arguments))
    child.start()
    theirs.close()
    told = []
    while True:
        try:
            told.append(ours.recv())
        except EOFError:
            break
    child.join()
    assert child.exitcode == -signal.SIGKILL, f"an engine ended by itself: {child.exitcode}"
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", default=["plain"])
    parser.add_argument("--own-scheduler", action="store_true")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--host-blocks", type=int, default=400)
    parser.add_argument("--kv-blocks", type=int, default=75)
    parser.add_argument("--options", default="{}")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    import vllm.entrypoints.llm  # noqa: F401, imported once for all forked processes

    right = {}  # keyed by the layers of the model and the number of ranks
    for case in given.cases:
        print(json.dumps({"case": case, **seen_in(case, given, right)}), flush=True)


def options_of(case: str, given):
    options = argparse.Namespace(**vars(given))
    options.case, _, own = case.partition(":")
    assert options.case in CASES, f"there is no case {case}; there are {', '.join(CASES)}"
    options.own_scheduler |= own == "own"
    options.extra, options.engines = json.loads(given.options), 1
    options.folder = given.folder / case.replace(":", "-")
    options.folder.mkdir()
    if options.case == "slow":
        options.extra["policy"] = "measured"
    if options.case == "layers":
        options.extra["layer_by_layer"] = True
    if options.case == "sizes":
        options.extra["block_size"] = 2 * BLOCK
    if options.case == "ranks":
        options.ranks = 2
    if options.case in ("disk", "ranks"):
        options.engines, options.host_blocks = 2, 60
        options.extra |= {"disk_path": str(options.folder / "kv"), "disk_bytes_to_use": 600 * (vllm_disk.PLACE_BYTES + 128) + 65536}
    return options


def seen_in(case: str, given, right: dict) -> dict:
    options = options_of(case, given)
    model = options.folder / "model"
    maker = multiprocessing.get_context("fork").Process(target=make_model, args=(model,))
    maker.start()
    maker.join()
    kinds = KINDS.get(options.case)
    if kinds:
        add_windows(model, kinds)
    prompts = make_prompts(1)
    like = (str(kinds), options.ranks)
    if like not in right:
        right[like] = {number: value[0] for number, value in play(model, options, prompts, 0, False) if number != "seen"}
    seen = {"answers": 0, "wrong": 0, "cached_tokens": 0}
    for i in range(options.engines):
        for what, value in play(model, options, prompts, i, True):
            if what == "seen":
                for name, amount in value.items():
                    seen[name] = seen.get(name, 0) + (amount or 0)
                continue
            seen["answers"] += 1
            seen["wrong"] += value[0] != right[like][what]
            seen["cached_tokens"] += value[1] or 0
    return seen


if __name__ == "__main__":
    main()
