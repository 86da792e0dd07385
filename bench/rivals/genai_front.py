"""A minimal HTTP server around OpenVINO GenAI's ContinuousBatchingPipeline, for the benchmark's client:  genai_front.py MODEL.gguf PORT

The server has one thread: it reads requests between two steps, and writes each step's tokens immediately. No other Python code runs next to
the engine.
"""

import json
import selectors
import socket
import sys

import numpy
import openvino
import openvino_genai


class Connection:
    """One request: its bytes until the request is complete, then its handle in the pipeline."""

    def __init__(self, peer):
        self.peer, self.received, self.handle, self.num_left, self.max_tokens = peer, b"", None, 0, 0

    def request(self):
        """Returns (path, body) if the request is complete, else None."""
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        whole = b"\r\n\r\n" in self.received and len(body) >= length
        return (head.split(b" ")[1].decode(), body) if whole else None


class Front:
    def __init__(self, model: str, port: int):
        settings = openvino_genai.SchedulerConfig()
        settings.cache_size = 4  # GiB
        settings.max_num_seqs = 64
        settings.max_num_batched_tokens = 2048
        settings.enable_prefix_caching = True
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(model, settings, "CPU")
        self.running, self.num_requests = [], 0
        self.listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            timeout = 0 if self.running else None
            while events := self.selector.select(timeout):
                for key, _ in events:
                    self.read(key.data)
                timeout = 0
            self.pipeline.step()
            self.running = [one for one in self.running if not self.write(one)]

    def read(self, connection) -> None:
        if connection is None:
            peer, _ = self.listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(peer, selectors.EVENT_READ, Connection(peer))
            return
        chunk = connection.peer.recv(1 << 20)
        connection.received += chunk
        request = connection.request()
        if not chunk or request:
            self.selector.unregister(connection.peer)
        if request:
            self.take(connection, *request)
        elif not chunk:
            connection.peer.close()

    def take(self, connection, path: str, body: bytes) -> None:
        connection.peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        if path != "/v1/completions":  # /health
            connection.peer.close()
            return
        asked = json.loads(body)
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = connection.num_left = connection.max_tokens = asked["max_tokens"]
        config.ignore_eos = True
        config.do_sample = False
        prompt = openvino.Tensor(numpy.array([asked["prompt"]], dtype=numpy.int64))
        self.num_requests += 1
        connection.handle = self.pipeline.add_request(self.num_requests, prompt, config)
        self.running.append(connection)

    def write(self, connection) -> bool:
        """Writes the next part of the answer. Returns True if this was the last part."""
        if not connection.handle.can_read():
            return False
        (output,) = connection.handle.read().values()
        connection.num_left -= len(output.generated_ids)
        connection.peer.sendall(b"data: %s\n\n" % json.dumps({"choices": [{"token_ids": list(output.generated_ids)}]}).encode())
        if connection.num_left > 0:
            return False
        usage = {"completion_tokens": connection.max_tokens - connection.num_left}
        connection.peer.sendall(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps({"choices": [], "usage": usage}).encode())
        connection.peer.close()
        return True


if __name__ == "__main__":
    Front(sys.argv[1], int(sys.argv[2])).run()
