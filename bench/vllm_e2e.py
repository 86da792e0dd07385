"""Runs vLLM on the CPU with its own scheduler and with quire.vllm.Scheduler.

    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_e2e.py exact MODEL_FOLDER        same tokens, same steps
    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_e2e.py shadow MODEL_FOLDER       ShadowScheduler finds only a planted difference
    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_e2e.py throughput MODEL_FOLDER   paired ratios, alternating
    PYTHONPATH=build/release/python VLLM_PYTHON bench/vllm_e2e.py serve MODEL_FOLDER        vllm serve answers

MODEL_FOLDER is a Hugging Face folder (tools/gguf_to_hf.py makes one). The engine runs in one process, all requests are queued before the
first step, and sampling is greedy. `exact` and `shadow` use a cache so small that requests are preempted. On a machine with other load, set
OMP_NUM_THREADS=1: vLLM's threads wait for each other without sleeping.
"""

import argparse
import hashlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request

os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0"})
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # other processes use this machine, too


def mix(num: int, seed: int = 1) -> list:
    """Returns (prompt, output tokens): groups of prompts that share prefixes of all lengths, and single prompts."""
    rng = random.Random(seed)
    families = [[rng.randrange(100, 40000) for _ in range(rng.randrange(20, 300))] for _ in range(20)]
    requests = []
    for _ in range(num):
        own = [rng.randrange(100, 40000) for _ in range(rng.randrange(1, 60))]
        family = rng.choice(families)
        shared = family[: rng.randrange(len(family))] if rng.random() < 0.7 else []
        requests.append((shared + own, rng.randrange(1, 48)))
    return requests


def number(request_id: str) -> int:
    """Returns the index of a request in the mix, without the random suffix that vLLM adds to its id."""
    return int(request_id.split("-")[0])


def logged(base, log: list):
    """Returns a subclass of the scheduler class `base` that records every plan."""

    class Logged(base):
        def schedule(self):
            plan = super().schedule()
            cached = plan.scheduled_cached_reqs
            log.append(
                [
                    [(number(name), count) for name, count in plan.num_scheduled_tokens.items()],
                    [(number(new.req_id), [list(ids) for ids in new.block_ids], new.num_computed_tokens) for new in plan.scheduled_new_reqs],
                    [[number(name) for name in cached.req_ids], cached.new_block_ids, cached.num_computed_tokens],
                    sorted(map(number, cached.resumed_req_ids)),
                    sorted(map(number, plan.finished_req_ids)),
                    sorted(map(number, plan.preempted_req_ids or ())),
                ]
            )
            return plan

    return Logged


def planted_shadow():
    """Returns a shadow scheduler in which quire has one batch row less."""
    from quire.vllm import ShadowScheduler, _adapter

    whole = _adapter.core_config

    def smaller(scheduler):
        config = whole(scheduler)
        config.max_num_seqs -= 1
        return config

    _adapter.core_config = smaller
    return ShadowScheduler


def scheduler_class(name: str):
    if name == "quire":
        from quire.vllm import Scheduler
    elif name == "shadow":
        from quire.vllm import ShadowScheduler as Scheduler
    elif name == "planted":
        Scheduler = planted_shadow()
    else:
        from vllm.v1.core.sched.scheduler import Scheduler
    return Scheduler


def engine(model: str, cls, **options):
    from vllm import LLM

    return LLM(model=model, dtype="bfloat16", max_model_len=1024, enable_prefix_caching=True, block_size=16, scheduler_cls=cls, **options)


def generate(llm, requests: list):
    from vllm import SamplingParams

    params = [SamplingParams(temperature=0, max_tokens=num, ignore_eos=True) for _, num in requests]
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt, _ in requests], params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def one_run(arguments) -> None:
    """Runs one engine over the mix in a separate process. Its results go to a file."""
    log = []
    llm = engine(arguments.model, logged(scheduler_class(arguments.side), log), max_num_seqs=32, max_num_batched_tokens=256,
                 num_gpu_blocks_override=arguments.blocks)  # fmt: skip
    tokens = generate(llm, mix(arguments.requests))
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    shadow = {name: getattr(scheduler, name, None) for name in ("difference", "script", "num_steps")}
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"tokens": tokens, "steps": log, "shadow": shadow}, file)


def child(command: list) -> None:
    subprocess.run([sys.executable, __file__, *map(str, command)], check=True)


def exact(arguments) -> int:
    results = []
    for side in ("stock", "quire"):
        out = os.path.join(arguments.work, f"{side}.json")
        child(["run", arguments.model, "--side", side, "--out", out, "--requests", arguments.requests, "--blocks", arguments.blocks])
        with open(out, encoding="utf-8") as file:
            results.append(json.load(file))
    stock, ours = results
    preempted = sum(len(step[5]) for step in stock["steps"])
    num_tokens = sum(map(len, stock["tokens"]))
    print(f"{len(stock['tokens'])} requests, {num_tokens} tokens, {len(stock['steps'])} steps, {preempted} preemptions")
    digest = hashlib.sha256(json.dumps(stock["steps"]).encode()).hexdigest()[:16]
    same_tokens, same_steps = stock["tokens"] == ours["tokens"], stock["steps"] == ours["steps"]
    print(f"tokens {'equal' if same_tokens else 'DIFFER'}, step log {'equal' if same_steps else 'DIFFERS'} ({digest})")
    if not same_steps:
        number = next(i for i, (a, b) in enumerate(zip(stock["steps"], ours["steps"])) if a != b)
        print(f"first at step {number}:\n  vLLM:  {stock['steps'][number]}\n  quire: {ours['steps'][number]}")
    return 0 if same_tokens and same_steps else 1


def shadow(arguments) -> int:
    failures = []
    for side, num_requests in (("shadow", arguments.requests), ("planted", 60)):
        out = os.path.join(arguments.work, f"{side}.json")
        os.environ["QUIRE_SHADOW_DIR"] = arguments.work
        child(["run", arguments.model, "--side", side, "--out", out, "--requests", num_requests, "--blocks", arguments.blocks])
        with open(out, encoding="utf-8") as file:
            run = json.load(file)
        difference, steps = run["shadow"]["difference"], run["steps"]
        preempted = sum(len(step[5]) for step in steps)
        print(f"{side}: {len(run['tokens'])} requests, {sum(map(len, run['tokens']))} tokens, {len(steps)} steps, {preempted} preemptions; "
              f"{run['shadow']['num_steps']} compared, {difference or 'no difference'}")  # fmt: skip
        if (difference is None) != (side == "shadow"):
            failures.append(side)
        if difference is not None:
            print(f"its script: {run['shadow']['script']}")
    print(f"WRONG: {failures}" if failures else "silent where both agree, and the planted difference was found")
    return 1 if failures else 0


def interval(ratios: list) -> tuple:
    """Returns the geometric mean of the ratios with its 95 % interval. Uses the first terms of the expansion of Student's t, with an error
    within 1 % from 5 ratios on."""
    logs, free = [math.log(ratio) for ratio in ratios], max(1, len(ratios) - 1)
    middle = statistics.fmean(logs)
    t = 1.960 + 2.372 / free + 2.823 / free**2 + 2.556 / free**3
    half = t * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def settle(native) -> float:
    """Waits until quire's tiers have not written to the disk for a quarter of a second. Returns the seconds waited."""
    begin, written, since = time.perf_counter(), -1, time.perf_counter()
    while time.perf_counter() - since < 0.25:
        now = native.stats()["bytes_written"]
        if now != written:
            written, since = now, time.perf_counter()
        time.sleep(0.01)
    return time.perf_counter() - begin - 0.25


def throughput(arguments) -> int:
    """Measures throughput. Both engines exist at the same time. Each pair is one run of each engine, in turns, with new prompts. All pairs
    count, because an early stop would bias the result."""
    llms = {
        side: engine(arguments.model, scheduler_class(side), max_num_seqs=64, max_num_batched_tokens=2048) for side in ("stock", "quire")
    }
    rng = random.Random(7)

    def workload():
        return [([rng.randrange(100, 40000) for _ in range(128)], arguments.tokens) for _ in range(64)]

    def run(side, requests):
        begin = time.perf_counter()
        generate(llms[side], requests)
        return time.perf_counter() - begin

    for side in llms:
        run(side, workload()[:8])
    ratios = []
    for pair in range(arguments.pairs):
        requests = workload()
        order = ("stock", "quire") if pair % 2 == 0 else ("quire", "stock")
        seconds = {side: run(side, requests) for side in order}
        ratios.append(seconds["stock"] / seconds["quire"])
        middle, low, high = interval(ratios)
        print(f"pair {pair + 1}: {seconds['stock']:.2f} s vLLM, {seconds['quire']:.2f} s quire; "
              f"throughput ratio {middle:.4f}, 95 % interval {low:.4f} to {high:.4f}", flush=True)  # fmt: skip
    return 0 if low > 0.99 else 1


def post(port: int, path: str, body: dict) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def serve(arguments) -> int:
    """Tests vLLM's OpenAI server with --scheduler-cls; its engine runs in a separate process as usual."""
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", arguments.model, "--port", str(arguments.port),
               "--max-model-len", "1024", "--max-num-seqs", "16", "--scheduler-cls", "quire.vllm.Scheduler"]  # fmt: skip
    with open(os.path.join(arguments.work, "serve.log"), "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.time() + 600
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{arguments.port}/health", timeout=5)
                    break
                except OSError:
                    if server.poll() is not None or time.time() > deadline:
                        print(f"the server did not start: see {log.name}")
                        return 1
                    time.sleep(1)
            text = {"model": arguments.model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
            print("completion:", post(arguments.port, "/v1/completions", text)["choices"][0]["text"])
            chat = {"model": arguments.model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}
            print("chat:", post(arguments.port, "/v1/chat/completions", chat)["choices"][0]["message"]["content"])
        finally:
            server.terminate()
            server.wait(60)
    with open(log.name, encoding="utf-8") as file:
        used = "quire.vllm.Scheduler: quire" in file.read()
    print("the log names quire.vllm.Scheduler" if used else "the log does NOT name quire.vllm.Scheduler")
    return 0 if used else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exact", "shadow", "throughput", "serve", "run"))
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--blocks", type=int, default=160, help="KV-cache blocks of `exact` and `shadow`")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64, help="output tokens of `throughput`")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--work", default="/tmp")
    parser.add_argument("--side")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    return {"exact": exact, "shadow": shadow, "throughput": throughput, "serve": serve, "run": one_run}[arguments.what](arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
