#!/usr/bin/env python3
"""Measures the cost of structured output: one server gets the same prompts with a grammar on every request and without a grammar, in
alternating turns.

cost     output tokens per second of --clients clients: medians, and the geometric mean of the paired ratios with / without with its
         95 % interval
compile  the gaps between the tokens of other streams while one client requests one token after another, each under a new schema with a
         hundred properties, and while the client requests the same without a schema

Every answer has --output-tokens tokens on both sides: the grammar requires an array that is too long to end earlier.
"""

import asyncio
import json
import random
import sys

import machine
from good_load import GoodLoad, make_questions, percentile, request_bytes
from turns import compare, tokens_per_second

ENDLESS = {"type": "array", "minItems": 1000,
           "items": {"type": "object", "additionalProperties": False, "required": ["name", "price", "tags"],
                     "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,12}( [A-Z][a-z]{2,12})?$"}, "price": {"type": "number"},
                                    "tags": {"type": "array", "items": {"enum": ["new", "used", "rare"]}, "maxItems": 3}}}}  # fmt: skip
NUM_STREAMS = 4


def measure_cost(port: int, arguments) -> None:
    sides = {"without": {"ignore_eos": True}, "with": {"structured_outputs": {"json": ENDLESS}}}

    def turn(side: str, pair: int) -> float:
        rng = random.Random(pair)
        bodies = [{"prompt": [rng.randrange(1000, 40000) for _ in range(128)], "max_tokens": arguments.output_tokens, "temperature": 1,
                   "seed": i, "cache_salt": f"{side}-{pair}", **sides[side]} for i in range(arguments.clients * arguments.rounds)]  # fmt: skip
        return tokens_per_second(port, bodies, arguments.clients)

    middle, line = compare("cost", arguments.pairs, turn)
    print(f"cost at {arguments.clients} clients, {arguments.pairs} pairs: {line};"
          f" {(1 / middle['with'] - 1 / middle['without']) * 1e6:.0f} us more per token")  # fmt: skip


def wide_schema(rng: random.Random) -> dict:
    names = [f"field_{rng.randrange(1 << 40):x}" for _ in range(100)]
    kinds = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["a", "b", "c"]}, {"type": "array", "items": {"type": "number"}})
    return {"type": "object", "properties": {name: kinds[i % len(kinds)] for i, name in enumerate(names)}, "required": names}


async def ask_one_token(port: int, extra: dict) -> None:
    body = {"prompt": [1], "max_tokens": 1, "temperature": 0, **extra}
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes("POST", "/v1/completions", json.dumps(body).encode(), ("Connection: close",)))
    status = await reader.readline()
    await reader.read()
    writer.close()
    if b" 200 " not in status:
        raise RuntimeError(status.decode())


async def measure_compile(port: int, arguments) -> None:
    rng = random.Random(2)
    load = GoodLoad(port)
    questions = make_questions(rng, NUM_STREAMS, 200)
    await load.learn(questions)
    for part in range(arguments.parts):
        for phase in ("plain", "schema") if part % 2 == 0 else ("schema", "plain"):
            bodies = [{"structured_outputs": {"json": wide_schema(rng)}} if phase == "schema" else {"user": "x" * 5000} for _ in range(40)]
            stop = asyncio.Event()
            streams = [asyncio.create_task(load.stream_until(stop, question, 0)) for question in questions]
            await asyncio.sleep(1.0)
            load.phase = phase
            for body in bodies:
                await ask_one_token(port, body)
                await asyncio.sleep(0.05)
            load.phase = None
            stop.set()
            await asyncio.gather(*streams)
        print(f"\rcompile: part {part + 1} of {arguments.parts}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if load.bad:
        raise RuntimeError(f"a stream's answer changed: {load.bad[0]}")
    for share in (0.5, 0.99, 0.999):
        plain, schema = (percentile(load.samples[phase].gaps, share) * 1e3 for phase in ("plain", "schema"))
        print(f"gaps of {NUM_STREAMS} other streams, p{share * 100:g}: {plain:.2f} ms with requests without a schema, {schema:.2f} ms with"
              f" schemas of 100 properties, {schema - plain:+.2f} ms")  # fmt: skip
    print(f"{len(load.samples['schema'].gaps)} gaps with {40 * arguments.parts} schemas; every stream's answer was correct")


def main() -> int:
    parser = machine.parser(__doc__, clients=32, pairs=10, output_tokens=64)
    parser.add_argument("--rounds", type=int, default=2, help="requests per client in a turn (default: 2)")
    parser.add_argument("--parts", type=int, default=6, help="parts of the measurement of compiling, each with 40 schemas (default: 6)")
    arguments = parser.parse_args()
    machine.end_on_sigterm()
    print(machine.describe())
    port = machine.free_port()
    command = [arguments.binary, "serve", arguments.model, "--port", str(port)]
    with machine.Server("quire", command, port):
        measure_cost(port, arguments)
        asyncio.run(measure_compile(port, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
