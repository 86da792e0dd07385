"""The cases of field.py. Each is a complaint that users of several servers report in public, as a small program."""

import concurrent.futures
import dataclasses
import random
import re
import signal
import statistics
import time
import typing

from field_server import Server

MOST_GAP_S, MOST_SHORT_S, MOST_HEALTH_S, MOST_START_S = 0.5, 1.0, 1.0, 5.0
LEAST_CACHED = 0.75  # share of a prompt that counts as found


@dataclasses.dataclass
class Outcome:
    """`held`: whether the server keeps the promise; None if the case does not apply to the server."""

    held: bool | None
    measured: str


@dataclasses.dataclass
class Case:
    name: str
    complaint: str
    promise: str
    run: typing.Callable[[Server], Outcome]
    is_small: bool = False  # runs on a server whose KV cache has about 4,096 tokens
    reports: str = ""  # where users reported it


def document(seed: int, num_words: int) -> str:
    """Returns text of about one token per word, different for each seed from its first word on."""
    draw = random.Random(seed)
    words = "river stone paper window garden engine letter market winter signal copper thread island bridge candle forest".split()
    return f"Report {seed}. " + " ".join(draw.choice(words) for _ in range(num_words)) + "."


def together(server: Server, prompts: list[str], max_tokens: int) -> list:
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: server.complete(prompt, max_tokens, ignore_eos=True), prompts))


def metric(server: Server, names: str, default: float) -> float:
    """Returns the sum of a metric over its labels. `names` is a pattern of its names in different servers."""
    status, text = server.ask("/metrics")
    found = re.findall(rf"^(?:{names})(?:\{{[^}}]*\}})? (\S+)$".encode(), text, re.MULTILINE)
    return sum(map(float, found)) if status == 200 and found else default


def num_running(server: Server) -> float:
    return metric(server, "vllm:num_requests_running|llamacpp:requests_processing", -1.0)


def num_hits(server: Server) -> float:
    return metric(server, "vllm:prefix_cache_hits_total", 0.0)


def long_prompt(server: Server) -> Outcome:
    stream = server.stream(document(1, 20), 2000)
    stream.read(30)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        rest = pool.submit(stream.read)
        begin = time.monotonic()
        long = pool.submit(server.complete, document(2, 4300), 1)
        time.sleep(0.5)
        asked = time.monotonic()
        short = server.complete(document(3, 10), 1)
        short_s = time.monotonic() - asked
        tokens = long.result().prompt_tokens
        end = time.monotonic()
        stream.response.close()
        rest.exception()
    stream.close()
    times = [t for t in stream.times if begin <= t <= end]
    if short.status != 200 or len(times) < 2:
        gap = end - begin
    else:
        gap = max(b - a for a, b in zip([begin, *times], [*times, end]))
    return Outcome(gap <= MOST_GAP_S and short_s <= MOST_SHORT_S,
                   f"prompt of {tokens} tokens in {end - begin:.1f} s: longest pause {gap:.2f} s, short prompt answered after {short_s:.2f} s")


def changed_header(server: Server) -> Outcome:
    def ask(mark: str):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli; cch={mark};"},
                  {"type": "text", "text": document(10, 500)}]
        return server.post("/v1/messages", {"max_tokens": 4, "system": system, "messages": [{"role": "user", "content": "Hello"}]})

    if ask("0a1b2").status == 404:
        return Outcome(None, "no /v1/messages")
    before = num_hits(server)
    second = ask("f9e8d")
    tokens = second.body.get("usage", {}).get("input_tokens", 0) + second.cached_tokens
    found = second.cached_tokens or num_hits(server) - before  # not every server reports them in this API
    return Outcome(found >= LEAST_CACHED * tokens > 0, f"{found:.0f} of {tokens} tokens found")


def own_answer(server: Server) -> Outcome:
    messages = [{"role": "user", "content": document(20, 300) + " Describe it in a few words."}]
    first = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 60})
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And now shorter."}]
    second = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4})
    expected = first.prompt_tokens + first.body["usage"]["completion_tokens"]
    return Outcome(second.cached_tokens >= expected - 32, f"{second.cached_tokens} of {expected} tokens of the first turn found")


def flipped_bits(server: Server) -> Outcome:
    if not server.has_tier:
        return Outcome(None, "no tier on disk")
    prompt = document(30, 2000)
    before = server.complete(prompt, 24)
    time.sleep(2)
    server.stop()
    num_flipped = 0
    for path in server.tier.rglob("*"):
        if path.is_file() and path.stat().st_size >= 65536:
            with path.open("r+b") as file:
                for at in range(4096, path.stat().st_size - 64, 65536):
                    file.seek(at)
                    found = file.read(64)
                    if any(found):  # space that was never written stays so
                        file.seek(at)
                        file.write(bytes([found[0] ^ 0x40]))
                        num_flipped += 1
    server.start()
    after = server.complete(prompt, 24)
    return Outcome(after.status == 200 and after.text == before.text and num_flipped > 0,
                   f"{num_flipped} bits flipped; the answer {'is the same' if after.text == before.text else 'CHANGED'}")


def restart(server: Server) -> Outcome:
    shares = []
    for seed, number in ((40, signal.SIGTERM), (41, signal.SIGKILL)):
        prompt = document(seed, 2000)
        before = server.complete(prompt, 16)
        time.sleep(2)
        server.stop(number)
        server.start()
        after = server.complete(prompt, 16)
        shares.append(after.cached_share if after.text == before.text else 0.0)
    return Outcome(min(shares) >= LEAST_CACHED, f"found {shares[0]:.0%} after SIGTERM, {shares[1]:.0%} after SIGKILL")


def pressure(server: Server) -> Outcome:
    begin = time.monotonic()
    answers = together(server, [document(50 + i, 600) for i in range(10)], 200)
    complete = sum(a.status == 200 and a.body["usage"]["completion_tokens"] == 200 for a in answers)
    healthy = server.ask("/health", timeout_s=5)[0] == 200
    return Outcome(complete == 10 and healthy, f"{complete} of 10 answers are complete, after {time.monotonic() - begin:.0f} s")


def sweep(server: Server) -> Outcome:
    messages = [{"role": "user", "content": document(70, 500)}]
    for _ in range(2):
        answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 16})
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "Go on."}]
    for i in range(32):
        server.complete(document(71 + i, 700), 1)
    last = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 4})
    return Outcome(last.cached_share >= LEAST_CACHED, f"{last.cached_tokens} of {last.prompt_tokens} tokens found")


def flood(server: Server) -> Outcome:
    slowest = 0.0
    with concurrent.futures.ThreadPoolExecutor(300) as pool:
        asked = [pool.submit(server.complete, document(200 + i, 20), 4) for i in range(300)]
        while not all(one.done() for one in asked):
            begin = time.monotonic()
            server.ask("/health", timeout_s=60)
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.05)
    statuses = [one.result().status for one in asked]
    good, refused = statuses.count(200), sum(status in (429, 503) for status in statuses)
    return Outcome(good + refused == 300 and slowest <= MOST_HEALTH_S,
                   f"{good} answered, {refused} refused, {300 - good - refused} failed; slowest /health {slowest:.2f} s")


def aborts(server: Server) -> Outcome:
    for _ in range(10):
        streams = [server.stream(document(600 + i, 50), 1500) for i in range(4)]
        for stream in streams:
            stream.read(2)
            stream.close()
    begin = time.monotonic()
    while (running := num_running(server)) > 0 and time.monotonic() - begin < 10:
        time.sleep(0.05)
    answer = server.complete(document(700, 10), 4)
    return Outcome(answer.status == 200 and running == 0,
                   f"{running:.0f} of 40 still run after {time.monotonic() - begin:.1f} s" if running >= 0 else "no metric of running requests")


def same_bits(server: Server) -> Outcome:
    prompts = [document(800 + i, 40) + " In other words," for i in range(8)]
    alone = [server.complete(prompt, 48, ignore_eos=True).text for prompt in prompts]
    cached = [server.complete(prompt, 48, ignore_eos=True).text for prompt in prompts]
    rounds = [[answer.text for answer in together(server, prompts, 48)] for _ in range(3)]
    differ = sum(a != b for other in (cached, *rounds) for a, b in zip(alone, other))
    return Outcome(differ == 0, f"{differ} of 32 answers differ from the answer alone")


def cached_tokens(server: Server) -> Outcome:
    prompt = document(900, 500)
    server.complete(prompt, 1)
    again = server.complete(prompt, 1)
    return Outcome(again.cached_share >= LEAST_CACHED, f"usage reports {again.cached_tokens} of {again.prompt_tokens} tokens")


def cold_start(server: Server) -> Outcome:
    times = []
    for _ in range(3):
        server.stop()
        times.append(server.start())
    return Outcome(statistics.median(times) <= MOST_START_S, f"first answer after {statistics.median(times):.2f} s (median of 3)")


CASES = [
    Case("long-prompt", "One long prompt stops every stream", f"A stream pauses for at most {MOST_GAP_S} s, and a short prompt is answered within "
         f"{MOST_SHORT_S:.0f} s", long_prompt, reports="vLLM #10774, #21495, #10235; omlx #2031; ATOM #1835"),
    Case("changed-header", "A line that the client changes in each request breaks the prefix", "At least 75 % of the prompt is found", changed_header,
         reports="claude-code #68900; vLLM #36829; SGLang #21064; ollama #14918; llama.cpp #20623"),
    Case("own-answer", "The next turn does not find the model's own answer", "Prompt and answer of the first turn are found, up to 32 tokens", own_answer,
         reports="SGLang #16521, #39866; llama.cpp #16632, #11970; vllm-mlx #714"),
    Case("flipped-bits", "Text is silently wrong after the cache was offloaded", "Flipped bits on disk do not change the answer", flipped_bits,
         reports="vLLM #31210, #29781, #45704; LMCache #4463; Dynamo #5068; SGLang #30321"),
    Case("restart", "The cache is lost when the server restarts", "At least 75 % of the prompt is found, and the answer is the same", restart,
         reports="llama.cpp #20697, #17107; vLLM #10611; open-webui #19046"),
    Case("pressure", "The scheduler stops when the KV cache is full", "Ten requests that need twice the cache together all end", pressure, is_small=True,
         reports="vLLM #53130, #45387, #54348, #39734"),
    Case("sweep", "Batch work evicts the live conversation", "After 32 documents, at least 75 % of the conversation is found", sweep, is_small=True,
         reports="mlx-serve #378; lmstudio #2320; vLLM #47802"),
    Case("flood", "A flood of requests takes the server down", f"300 requests are answered or refused, and /health answers within {MOST_HEALTH_S:.0f} s", flood,
         reports="vLLM #18826, #2901, #13395, #41250, #49330"),
    Case("aborts", "Requests of disconnected clients continue", "40 aborted streams end within 10 s", aborts,
         reports="vLLM #46283, #46289; llama.cpp #27604; SGLang #37103"),
    Case("same-bits", "Temperature 0 gives other answers in company, or from the cache", "The answers are the same alone, cached and together", same_bits,
         reports="vLLM #40896, #5543, #15437, #54487; SGLang #34683"),
    Case("cached-tokens", "The answer does not say what was cached", "usage reports the cached tokens", cached_tokens,
         reports="vLLM #44475; omlx #919; Dynamo #14932; OpenHands #2896"),
    Case("cold-start", "A new process takes minutes until it answers", f"First answer within {MOST_START_S:.0f} s", cold_start,
         reports="llm-d-autoscaling #1433; kserve #5527; Dynamo #3115"),
]  # fmt: skip
