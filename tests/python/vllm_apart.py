"""Tests prompts that one vLLM computes and another answers, on CPU, over vLLM's connectors. Run by vLLM's Python.

    python vllm_apart.py FOLDER [CASE...] [--seed 1] [--rounds 2] [--policy recompute]

A case is a connector, after a dash the event, after a colon the schedulers of both sides (stock, own, or stock/own): nixl, nixl:own,
nixl-windows:own (every other layer has a window, in a separate cache group), nixl-aborts:own (a quarter of the requests to either side is
aborted), nixl-kill:own (the prefill side is killed and replaced), nixl-away:own (a quarter of the computed prompts is never fetched),
nixl-mixed (blocks are exchanged in transit, so answers must be wrong), mooncake:own/stock, lmcache:own (over a folder), ... With Mooncake's
connector, aborts and kills also stop or hang vLLM 0.19.0 under its original scheduler.

Two processes have an engine each, and a proxy acts like vLLM's toy_proxy_server.py: each prompt goes to the first with max_tokens 1 and
do_remote_decode, and the returned parameters go to the second. The caches are smaller than the concurrent requests. Every answer must equal
that of one engine without a connector, token by token. The results are printed as JSON. All traffic stays on the loopback device.
"""

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import socket
import time
from pathlib import Path

import vllm_disk
import vllm_lmcache
from vllm_disk import BLOCK, LAYERS, make_model, make_prompts

WINDOW = 80
ANSWER = 16
AT_ONCE = 8
PATIENCE = 300.0  # seconds without a message from either side, after which a hang is assumed
BLOCKS = {"prefill": 70, "decode": 44}  # blocks of the KV caches; the second cache preempts
EVENTS = {"nixl": ("", "windows", "aborts", "kill", "away", "mixed"), "mooncake": ("", "away"), "lmcache": ("", "aborts", "kill")}

os.environ |= {"VLLM_HOST_IP": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "UCX_NET_DEVICES": "lo", "UCX_TLS": "tcp,self",
               "MC_TCP_BIND_ADDRESS": "127.0.0.1", "NIXL_LOG_LEVEL": "ERROR", "MC_LOG_LEVEL": "ERROR", "GLOG_minloglevel": "3"}  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def transfer_config(case, side: str) -> dict:
    if case.connector == "lmcache":
        return {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    config = {"kv_connector": f"{case.connector.capitalize()}Connector", "kv_buffer_device": "cpu", "kv_load_failure_policy": case.policy}
    if case.connector == "mooncake":
        return config | {"kv_role": "kv_producer" if side == "prefill" else "kv_consumer",
                         "kv_connector_extra_config": {"mooncake_protocol": "tcp", "num_workers": 2}}  # fmt: skip
    return config | {"kv_role": "kv_both"}


def engine(case, side: str | None):
    """Creates the engine of one side or, without a side, of the engine that does both."""
    from vllm import LLM

    options = {"num_gpu_blocks_override": BLOCKS.get(side, 200), "enable_prefix_caching": side is not None}
    if side is not None:
        options["kv_transfer_config"] = transfer_config(case, side)
    if side is not None and case.schedulers[side] == "own":
        options["scheduler_cls"] = "quire.vllm.Scheduler"
    if case.event == "windows":
        options["disable_hybrid_kv_cache_manager"] = False
    return LLM(model=str(case.folder / "model"), skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=1024,
               max_num_seqs=4, max_num_batched_tokens=256, block_size=BLOCK, disable_log_stats=True, seed=0, **options)  # fmt: skip


def count_bytes(case, seen: dict):
    """Counts the bytes received by NIXL or from LMCache, or sent by Mooncake."""
    seen["bytes"] = seen["failed"] = 0
    if case.connector == "lmcache":
        return vllm_lmcache.use_lmcache(case.folder / case.text.replace(":", "-").replace("/", "-"), seen)
    if case.connector == "nixl":
        from vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector import NixlKVConnectorStats as Stats

        record = Stats.record_transfer

        def recorded(self, telemetry):
            seen["bytes"] += telemetry.totalBytes
            record(self, telemetry)

        Stats.record_transfer = recorded
        failed = Stats.record_failed_transfer

        def failing(self):
            seen["failed"] += 1
            failed(self)

        Stats.record_failed_transfer = failing
        return
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector

    class Bootstrap(mooncake_connector.MooncakeBootstrapServer):
        def __init__(self, _, port):
            super().__init__("127.0.0.1", port)  # vLLM's server listens on all addresses

    mooncake_connector.MooncakeBootstrapServer = Bootstrap
    send = mooncake_connector.MooncakeConnectorWorker._send_blocks

    def sent(self, session, sources, targets, lengths):
        seen["bytes"] += sum(lengths)
        return send(self, session, sources, targets, lengths)

    mooncake_connector.MooncakeConnectorWorker._send_blocks = sent


def count_plans(scheduler, seen: dict):
    seen["preempted"], plan_next = 0, scheduler.schedule

    def planned(*arguments):
        plan = plan_next(*arguments)
        seen["preempted"] += len(plan.preempted_req_ids or ())
        return plan

    scheduler.schedule = planned


def serve(connection, case, side: str | None, ports: dict):
    """Runs one side: it gets requests over the connection and steps while it has any."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: the process does not outlive its parent
    os.environ |= {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(ports["prefill"] if side == "prefill" else free_port()),
                   "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(ports["prefill"])}  # fmt: skip
    if case.event == "away":
        os.environ |= {"VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "2", "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "2"}
    seen: dict = {}
    processors = os.sched_getaffinity(0)
    if side is not None:
        count_bytes(case, seen)
    llm = engine(case, side)
    os.sched_setaffinity(0, processors)  # NixlConnector binds the calling thread to the last processor, here the processor of both sides
    core = llm.llm_engine.engine_core.engine_core
    count_plans(core.scheduler, seen)
    transfer = core.vllm_config.kv_transfer_config
    connection.send(("ready", transfer and transfer.engine_id, type(core.scheduler).__module__))
    unfinished: set[str] = set()
    while True:
        while connection.poll(0 if core.scheduler.has_requests() else None):  # like vLLM's loop: ended requests are reported one step later
            what, *values = connection.recv()
            if what == "end":
                pool = core.scheduler.kv_cache_manager.block_pool
                seen["held"] = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
                seen["requests"] = len(core.scheduler.requests)
                seen["groups"] = len(core.scheduler.kv_cache_config.kv_cache_groups)
                connection.send(("seen", seen))
                os.kill(os.getpid(), signal.SIGKILL)
            elif what == "abort":
                if values[0] in unfinished:
                    llm.llm_engine.abort_request([values[0]])
                    unfinished.remove(values[0])
                    connection.send(("aborted", values[0]))
            else:
                add(llm.llm_engine, *values)
                unfinished.add(values[0])
        for output in llm.llm_engine.step():
            if output.finished:
                unfinished.remove(output.request_id)
                one = output.outputs[0]
                told = (list(one.token_ids), output.num_cached_tokens, output.kv_transfer_params, one.finish_reason)
                connection.send(("answer", output.request_id, *told))


def add(engine, name: str, prompt: list[int], max_tokens: int, params: dict | None):
    from vllm import SamplingParams

    extra = {"kv_transfer_params": params} if params else None
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, extra_args=extra)
    engine.add_request(name, {"prompt_token_ids": prompt}, sampling)


class Side:
    """A process with an engine, as the proxy uses it."""

    def __init__(self, case, side: str | None, ports: dict):
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, case, side, ports), daemon=True)
        self.process.start()
        theirs.close()
        self.asked: set[str] = set()

    def begin(self):
        what, self.engine_id, self.scheduler = self.told()
        assert what == "ready", what
        return self

    def told(self):
        assert self.connection.poll(PATIENCE), f"no message about {sorted(self.asked)}"
        return self.connection.recv()

    def ask(self, name: str, prompt: list[int], max_tokens: int, params: dict | None = None):
        self.asked.add(name)
        self.connection.send(("ask", name, prompt, max_tokens, params))

    def answer(self, name: str, prompt: list[int], max_tokens: int):
        """Sends an ordinary request while no other request runs."""
        self.ask(name, prompt, max_tokens)
        what, told, tokens, *_ = self.told()
        assert (what, told) == ("answer", name), (what, told)
        self.asked.remove(name)
        return tokens

    def end(self) -> dict:
        self.connection.send(("end",))
        what, seen = self.told()
        assert what == "seen", what
        self.process.join()
        return seen

    def kill(self):
        self.process.kill()
        self.process.join()
        self.connection.close()


class Proxy:
    """Sends every request to the prefill side and then to the decode side; with Mooncake, every other request goes to both at the same
    time.
    """

    def __init__(self, case, prompts: list, ports: dict):
        self.case, self.prompts, self.ports = case, prompts, ports
        self.prefill, self.decode = Side(case, "prefill", ports), Side(case, "decode", ports)
        for side in (self.prefill, self.decode):
            side.begin()
        self.rng = random.Random(case.seed)
        self.aborts: list[tuple[float, Side, str]] = []
        self.answers: list[tuple[int, list[int]]] = []
        self.seen = {"prefilled": 0, "cached_tokens": 0, "aborted": 0, "errors": 0, "killed": 0, "away": 0}

    def in_flight(self) -> set[str]:
        return self.prefill.asked | self.decode.asked

    def question(self, number: int, turn: int):
        name, params = f"{number}:{turn}", {"do_remote_prefill": False, "do_remote_decode": True} if self.case.connector != "lmcache" else None
        if self.case.connector == "mooncake":
            params["transfer_id"] = f"t{name}"
        self.ask(self.prefill, name, 1, params)
        if self.case.connector == "mooncake" and turn % 2:
            self.ask(self.decode, name, ANSWER, self.mooncake_params(name))

    def ask(self, side: Side, name: str, max_tokens: int, params: dict | None):
        side.ask(name, self.prompts[int(name.split(":")[0])], max_tokens, params)
        if self.case.event == "aborts" and self.rng.random() < 0.25:
            self.aborts.append((time.monotonic() + self.rng.random() * self.rng.choice((0.005, 0.1)), side, name))

    def mooncake_params(self, name: str) -> dict:
        return {"do_remote_prefill": True, "do_remote_decode": False, "transfer_id": f"t{name}", "remote_engine_id": self.prefill.engine_id,
                "remote_bootstrap_addr": f"http://127.0.0.1:{self.ports['prefill']}"}  # fmt: skip

    def hear(self, side: Side, what: str, name: str, *values):
        side.asked.remove(name)
        if what == "aborted":
            self.seen["aborted"] += 1
            if side is self.prefill and name in self.decode.asked:
                self.aborts.append((0.0, self.decode, name))  # no more output follows
            return
        tokens, num_cached, params, reason = values
        if side is self.decode:
            self.seen["cached_tokens"] += num_cached or 0
            self.seen["errors"] += reason == "error"
            if reason != "error":
                self.answers.append((int(name.split(":")[0]), tokens))
            return
        self.seen["prefilled"] += 1
        if self.case.event == "away" and name not in self.decode.asked and self.rng.random() < 0.25:
            self.seen["away"] += 1
            return
        if self.case.event == "mixed":
            params["remote_block_ids"] = [ids[1:] + ids[:1] for ids in params["remote_block_ids"]]
        if self.case.connector != "mooncake":
            self.ask(self.decode, name, ANSWER, params)
        elif name not in self.decode.asked and int(name.split(":")[1]) % 2 == 0:
            self.ask(self.decode, name, ANSWER, self.mooncake_params(name))

    def wait(self):
        """Waits until a side sends a message or a request must be aborted."""
        end = min((at for at, *_ in self.aborts), default=time.monotonic() + PATIENCE)
        sides = {side.connection: side for side in (self.prefill, self.decode)}
        ready = multiprocessing.connection.wait(list(sides), max(0.0, end - time.monotonic()))
        assert ready or self.aborts, f"hangs: {sorted(self.prefill.asked)} at the first, {sorted(self.decode.asked)} at the second"
        for connection in ready:
            self.hear(sides[connection], *connection.recv())
        now = time.monotonic()
        for at, side, name in self.aborts:
            if at <= now and name in side.asked:
                with contextlib.suppress(BrokenPipeError):
                    side.connection.send(("abort", name))
        self.aborts = [one for one in self.aborts if one[0] > now]

    def kill(self):
        """Requests in progress at the prefill side are lost; the decode side is still asked to fetch the finished ones."""
        lost = sorted(self.prefill.asked)
        self.prefill.kill()
        for name in lost:
            self.ask(self.decode, name, ANSWER, None)
        self.seen["killed"] += len(lost)
        while self.decode.asked:
            what, *values = self.decode.told()
            self.hear(self.decode, what, *values)
        self.prefill = Side(self.case, "prefill", self.ports).begin()

    def run(self, rounds: int):
        turns = [(number, turn) for turn in range(rounds) for number in self.rng.sample(range(len(self.prompts)), len(self.prompts))]
        for i, (number, turn) in enumerate(turns):
            while len(self.in_flight()) >= AT_ONCE:
                self.wait()
            if self.case.event == "kill" and i == len(turns) // 2:
                self.kill()
            self.question(number, turn)
        while self.in_flight():
            self.wait()

    def end(self, right: list) -> dict:
        """Sends ordinary requests to both sides, because their steps report the end of the last transfers."""
        time.sleep(2.2 if self.case.event == "away" else 0.0)
        for side in (self.prefill, self.decode):
            for i in range(2):
                self.answers.append((i, side.answer(f"last {i}", self.prompts[i], ANSWER)))
                time.sleep(0.1)
        told = {"prefill": self.prefill.end(), "decode": self.decode.end()}
        wrong = sum(tokens != right[number] for number, tokens in self.answers)
        return {
            "schedulers": [self.prefill.scheduler, self.decode.scheduler], "answers": len(self.answers), "wrong": wrong, **self.seen,
            "bytes": sum(one["bytes"] for one in told.values()), **{name: told["decode"][name] for name in ("groups", "failed", "preempted")},
            "held": {side: one["held"] for side, one in told.items()}, "requests": {side: one["requests"] for side, one in told.items()},
        }  # fmt: skip


def parsed(text: str, given) -> argparse.Namespace:
    case = argparse.Namespace(**vars(given))
    case.text = text
    what, _, schedulers = text.partition(":")
    case.connector, _, case.event = what.partition("-")
    assert case.event in EVENTS.get(case.connector, ()), f"there is no case {text}; there are {EVENTS}"
    first, _, second = (schedulers or "stock").partition("/")
    case.schedulers = {"prefill": first, "decode": second or first}
    # Mooncake's connector uses the third last dimension of a KV cache as its block size; on CPU that dimension is the number of heads.
    case.kv_heads = BLOCK if case.connector == "mooncake" else vllm_disk.HEADS
    case.folder = given.folder / f"{case.kv_heads}{'w' if case.event == 'windows' else ''}"
    return case


def make(case):
    if case.folder.exists():
        return
    case.folder.mkdir(parents=True)
    model = case.folder / "model"
    maker = multiprocessing.get_context("fork").Process(target=make_model, args=(model, max(4, case.kv_heads), case.kv_heads))
    maker.start()
    maker.join()
    if case.event == "windows":
        config = json.loads((model / "config.json").read_text())
        kinds = ["full_attention", "sliding_attention"] * (LAYERS // 2)
        (model / "config.json").write_text(json.dumps({**config, "layer_types": kinds, "sliding_window": WINDOW}))


def alone(case, prompts: list) -> list:
    """Returns the answers of one engine that does both."""
    side = Side(case, None, {"prefill": free_port()}).begin()
    answers = [side.answer(str(i), prompt, ANSWER) for i, prompt in enumerate(prompts)]
    side.connection.send(("end",))
    side.told()
    side.process.join()
    assert len({tuple(answer) for answer in answers}) > len(answers) // 2, "the model gives the same answer to most prompts"
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", default=["nixl", "nixl:own"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=["recompute", "fail"], default="recompute")
    given = parser.parse_args()
    import vllm.entrypoints.llm  # noqa: F401, imported once for all forked processes

    prompts, right = make_prompts(given.seed), {}
    for text in given.cases:
        case = parsed(text, given)
        make(case)
        if case.folder not in right:
            right[case.folder] = alone(case, prompts)
        proxy = Proxy(case, prompts, {"prefill": free_port()})
        proxy.run(given.rounds)
        print(json.dumps({"case": text, **proxy.end(right[case.folder])}), flush=True)


if __name__ == "__main__":
    main()
