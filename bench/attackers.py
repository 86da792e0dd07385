"""Hostile clients, one process per kind, at the lowest priority (nice 19). Their requests are created before the measurement starts.

Each kind has its requests and the answers that are correct for them. Any other answer is a failure of the server.
"""

import base64
import collections
import contextlib
import json
import multiprocessing
import os
import select
import socket
import struct
import threading
import time
import zlib
from dataclasses import dataclass

from good_load import request_bytes

MIB = 1 << 20
PATIENCE_S = 5  # after this time a client disconnects and sends the next request
LEFT_WAITING = f"no answer in {PATIENCE_S} s"
# 429 and 503: busy. A request may wait if its body is invalid. A request whose header suffices for a refusal must not wait.
REFUSED = frozenset({400, 413, 422, 429, 431, 503, LEFT_WAITING})
UNANSWERED = frozenset({"cut off", "no connection", "held at the end"})  # allowed at any time
HALF_HEADERS, NUM_IDLE = 4096, 4000


@dataclass(frozen=True)
class Kind:
    what: str
    requests: tuple  # bytes, sent in rotation
    expected: frozenset
    threads: int = 4
    hold: int = 0  # connections that each send one request and then nothing; 0: send complete requests and wait for the answers


def texts(key: str, text: str) -> list:
    """Returns requests with the same text in every field that accepts text."""
    headers = (f"Authorization: Bearer {key}",)
    bodies = [("/v1/completions", {"prompt": text, "max_tokens": 1}), ("/tokenize", {"prompt": text}),
              ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1})]  # fmt: skip
    return [request_bytes("POST", path, json.dumps(body, ensure_ascii=False).encode(), headers) for path, body in bodies]


def nested(key: str) -> list:
    headers = (f"Authorization: Bearer {key}",)
    deep = "[" * MIB + "]" * MIB
    objects = '{"a":' * (MIB // 2) + "1" + "}" * (MIB // 2)
    wide = "[" + ",".join(["[[[[1]]]]"] * (MIB // 4)) + "]"
    tool = '{"type":"function","function":{"name":"f","parameters":{"a":%s}}}' % wide
    bodies = [("/v1/completions", '{"prompt":%s}' % deep), ("/v1/completions", '{"prompt":%s}' % wide), ("/tokenize", '{"prompt":"x","a":%s}' % objects),
              ("/v1/chat/completions", '{"messages":[{"role":"user","content":%s}]}' % objects),
              ("/v1/chat/completions", '{"messages":[{"role":"user","content":"x"}],"tools":[%s]}' % tool)]  # fmt: skip
    return [request_bytes("POST", path, body.encode(), headers) for path, body in bodies]


def foreign(key: str) -> list:
    """Returns requests of a browser for a foreign page, and requests with a rebound host name. The key is valid; only Host, Origin or the
    content type is wrong."""
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).encode()
    bearer = f"Authorization: Bearer {key}"
    wrong = [("Host: rebound.example",), ("Origin: http://page.example",), ("Origin: null",), ("Content-Type: text/plain",),
             ("Host: rebound.example:8000", "Origin: http://rebound.example:8000")]  # fmt: skip
    return [request_bytes("POST", "/v1/chat/completions", body, (bearer, *headers)) for headers in wrong]


def admin(_key: str) -> list:
    """Returns requests through a proxy on this machine that forwards Host, and adds at most one header."""
    paths = ("/pause?mode=abort", "/pause?mode=keep", "/reset_prefix_cache?reset_running_requests=true")
    proxies = [("Host: quire.example",), ("Host: quire.example", "X-Forwarded-For: 192.0.2.7"), ("Forwarded: for=192.0.2.7",)]
    return [request_bytes("POST", path, b"", headers) for path in paths for headers in proxies]


def marks(key: str) -> list:
    quarter = MIB // 4
    return texts(key, "a" + "\u0301" * quarter + "\u0323" * quarter) + texts(key, "\u0323\u0301" * MIB)


def ones(key: str) -> list:
    body = b'{"prompt":[' + b"1," * (15 * MIB // 2) + b"1]}"
    return [request_bytes("POST", path, body, (f"Authorization: Bearer {key}",)) for path in ("/v1/completions", "/detokenize")]


def keyless(_key: str) -> list:
    body = json.dumps({"prompt": "x" * (8 * MIB), "max_tokens": 1}).encode()
    return [request_bytes("POST", "/v1/completions", body, headers) for headers in ((), ("Authorization: Bearer wrong",))]


def half_header(_key: str) -> list:
    return [b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "]


def grammars(key: str) -> list:
    """Returns requests with unsupported schemas, expressions, tools and ids, for each API that accepts these."""
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8}
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "parameters": {"type": "object"}}} for i in range(1000)]

    def form(schema):
        return {**chat, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}

    deep = {"type": "string"}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    bodies = [
        ("/v1/chat/completions", form({"enum": ["x" * 100 + str(i) for i in range(100_000)]})),  # 11 MB
        ("/v1/chat/completions", form({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(50_000)}})),
        ("/v1/chat/completions", form(deep)),
        ("/v1/chat/completions", form({"type": "integer", "minimum": 5, "maximum": 1})),
        ("/v1/chat/completions", form({"$ref": "#"})),
        ("/v1/chat/completions", form({"type": "array", "uniqueItems": True})),
        ("/v1/chat/completions", {**chat, "guided_regex": "(" * 100_000}),
        ("/v1/chat/completions", {**chat, "guided_grammar": "root ::= root root" * 10_000}),
        ("/v1/chat/completions", {**chat, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "gone"}}}),
        ("/v1/chat/completions", {**chat, "messages": [*chat["messages"], {"role": "tool", "tool_call_id": "gone", "content": "x"}]}),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_gone"}),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_gone_0"}] * 10_000}),
        ("/v1/messages", {"model": "x", "max_tokens": 8, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone"}]}]}),
        ("/v1/requests/cmpl-gone/input", {"prompt": "x" * MIB}),
    ]  # fmt: skip
    return [request_bytes("POST", path, json.dumps(body).encode(), (f"Authorization: Bearer {key}",)) for path, body in bodies]


# name: description, requests (created with the key), and the allowed answers
KINDS = {
    "marks": ("1 and 4 MB of combining marks", marks, REFUSED),
    "letter": ("1 and 12 MB of one letter", lambda key: texts(key, "a" * MIB) + texts(key, "a" * (12 * MIB)), REFUSED),
    "spaces": ("1 and 12 MB of spaces", lambda key: texts(key, " " * MIB + "1") + texts(key, " " * (12 * MIB) + "1"), REFUSED),
    "nested": ("2 and 3 MB of nested JSON", nested, REFUSED),
    "ones": ("15 MB of [1,1,...]", ones, REFUSED),
    "grammars": ("unsupported schemas, tools and ids", grammars, REFUSED | {404}),
    "no-key": ("8 MB bodies without a key", keyless, frozenset({401, 503})),
    "foreign": ("foreign Host, Origin and type", foreign, frozenset({403, 415, 421, 503})),
    "admin": ("admin through a proxy", admin, frozenset({401, 403, 421, 503})),
    "half-header": (f"{HALF_HEADERS} connections with half a header", half_header, frozenset({408, 431, 503})),
}


def make_kind(name: str, key: str) -> Kind:
    what, make, expected = KINDS[name]
    return Kind(what, tuple(make(key)), expected, hold=HALF_HEADERS if name == "half-header" else 0)


def announced(key: str, size: int, sent: bytes = b"", path: str = "/v1/chat/completions") -> bytes:
    """Returns a request header that announces `size` bytes, followed by only `sent`."""
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {size}\r\n\r\n").encode() + sent  # fmt: skip


def chunked(key: str) -> bytes:
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\nffffff\r\n{").encode()  # fmt: skip


def black_png(width: int, height: int) -> bytes:
    """Returns an image with many pixels in few bytes."""
    rows = zlib.compress(bytes((3 * width + 1) * height), 9)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts)


def picture_chat(pngs: list) -> dict:
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}} for png in pngs]
    return {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}


def declared_bodies(key: str) -> Kind:
    openings = (announced(key, 16 * MIB), announced(key, 64 << 10), announced(key, 1000, b'{"'), chunked(key))
    return Kind("400 connections with a header and a few bytes of the body", openings, frozenset({400, 408, 503}), hold=400)


def unfinished_bodies(key: str) -> Kind:
    size = 15 * MIB
    return Kind("8 bodies of 15 MiB but for the last byte", (announced(key, size, b" " * (size - 1)),), frozenset({400, 408, 503}), hold=8)


def empty_messages(key: str) -> Kind:
    body = json.dumps({"messages": [{"role": "user", "content": ""}] * 300_000, "max_tokens": 1}, separators=(",", ":")).encode()
    return Kind("bodies of 300,000 empty messages", (request_bytes("POST", "/v1/chat/completions", body, (f"Authorization: Bearer {key}",)),), REFUSED)


def large_pictures(key: str) -> Kind:
    bodies = [picture_chat([black_png(8192, 4096)] * count) for count in (60, 8)]
    requests = [request_bytes("POST", "/v1/chat/completions", json.dumps(body).encode(), (f"Authorization: Bearer {key}",)) for body in bodies]
    return Kind("60 and 8 images of 8192 x 4096 a body", tuple(requests), REFUSED | {200})


def bodiless(key: str) -> Kind:
    return Kind(f"{HALF_HEADERS} connections with a header and no body", (announced(key, 1000),), frozenset({400, 408, 429, 503}), hold=HALF_HEADERS)


# Loads with which one tenant disturbs other tenants (neighbours.py).
NEIGHBOURS = {"declared": declared_bodies, "unfinished": unfinished_bodies, "messages": empty_messages, "images": large_pictures, "bodiless": bodiless}


def connect(port: int) -> socket.socket:
    connection = socket.socket()
    # Closing resets the connection, so that the port is free immediately.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", port))
    return connection


def exchange(port: int, request: bytes):
    """Returns the status of the answer, or a text if there is no status."""
    try:
        with contextlib.closing(connect(port)) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused early: the answer may still arrive
                connection.sendall(request)
            line = connection.recv(4096).split(b"\r\n", 1)[0].split()
            return int(line[1]) if len(line) > 1 else "cut off"
    except TimeoutError:
        return LEFT_WAITING
    except ConnectionRefusedError:
        return "no connection"
    except OSError:
        return "cut off"


def send_in_turn(port: int, kind: Kind, stop, counts: collections.Counter) -> None:
    def work(first: int) -> None:
        at = first
        while not stop.is_set():
            counts[exchange(port, kind.requests[at % len(kind.requests)])] += 1
            at += 1

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(kind.threads)]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join(2)


def hold_connections(port: int, count: int, openings: tuple, stop, counts: collections.Counter) -> None:
    """Keeps `count` connections open that have each sent one of `openings` and nothing else. Reopens connections that the server closes."""
    watched = select.epoll()
    open_ones: dict = {}
    number = 0
    while not stop.is_set():
        while len(open_ones) < count and not stop.is_set():
            try:
                connection = connect(port)
                if openings:
                    connection.sendall(openings[number % len(openings)])
                number += 1
            except OSError:
                counts["no connection"] += 1
                time.sleep(0.01)
                break
            connection.setblocking(False)
            open_ones[connection.fileno()] = connection
            watched.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        for fileno, _ in watched.poll(0.1):
            with contextlib.closing(open_ones.pop(fileno)) as connection:
                try:
                    line = connection.recv(4096).split(b"\r\n", 1)[0].split()
                    counts[int(line[1]) if len(line) > 1 else "cut off"] += 1
                except OSError:
                    counts["cut off"] += 1
    counts["held at the end"] = len(open_ones)
    for connection in open_ones.values():
        connection.close()


class Attacker:
    """The process of one kind of hostile client. The process starts immediately, but sends nothing until the event `begin` is set."""

    def __init__(self, port: int, name: str, kind: Kind):
        self.name, self.kind = name, kind
        self.begin, self.stop = multiprocessing.Event(), multiprocessing.Event()
        self._ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self._run, args=(port, theirs), daemon=True)
        self.process.start()

    def _run(self, port: int, theirs) -> None:
        os.nice(19)
        counts: collections.Counter = collections.Counter()
        self.begin.wait()
        started = time.monotonic()
        if self.kind.hold > 0:
            hold_connections(port, self.kind.hold, self.kind.requests, self.stop, counts)
        else:
            send_in_turn(port, self.kind, self.stop, counts)
        times = os.times()
        theirs.send((dict(counts), time.monotonic() - started, times.user + times.system))
        os._exit(0)  # does not wait for threads with unanswered requests

    def result(self):
        """Returns (answers by status, seconds, CPU seconds). The process has ended afterwards."""
        self.stop.set()
        found = self._ours.recv() if self._ours.poll(60) else ({"no report": 1}, 0.0, 0.0)
        self.process.join(5)
        return found


def unexpected(kind: Kind, counts: dict) -> dict:
    """Returns the answers that a correct server does not give: it accepted the request, failed, or delayed a refusal although the header
    suffices."""
    return {what: n for what, n in counts.items() if what not in kind.expected | UNANSWERED}


def idle_connections(port: int) -> Attacker:
    return Attacker(port, "idle", Kind(f"{NUM_IDLE} idle connections", (), frozenset({408, 503}), hold=NUM_IDLE))
