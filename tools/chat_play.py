"""A simulated server for the chat page: it serves the page, and answers chats with events that the check defines. Used by browser_check.py."""
import http.server
import json
import threading

# Steps of an answer, in addition to dicts, which are deltas:
WAIT = "wait"  # sends nothing until release()
CUT = "cut"    # closes the connection


def finish(reason, answer=12, prompt=40, cached=32):
    """Returns the last steps of an answer: its finish_reason and its usage."""
    usage = {"prompt_tokens": prompt, "completion_tokens": answer, "prompt_tokens_details": {"cached_tokens": cached}}
    return [("finish", reason), ("usage", usage)]


class Play:
    """Answers each chat by the text of its last user message. `answers` maps this text to the steps of the answer. `prompt`, if it is set, is the
    progress of a prompt."""

    def __init__(self, page, policy, answers, models):
        self.page, self.policy, self.answers, self.models = page, policy, answers, models
        self.requests, self.gate, self.prompt = [], threading.Semaphore(0), None
        play = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self):
                if self.path == "/v1/models":
                    return self.reply(200, json.dumps({"data": play.models}).encode())
                if self.path == "/":
                    return self.reply(200, play.page, "text/html; charset=utf-8", {"Content-Security-Policy": play.policy})
                if self.path.startswith("/v1/watch") and play.prompt:
                    return self.reply(200, json.dumps(play.frame()).encode())
                play.requests.append((self.path, None, dict(self.headers)))
                return self.reply(404, b"{}")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_json = self.headers["Content-Type"] == "application/json"
                asked = json.loads(body) if is_json else body
                play.requests.append((self.path, asked, dict(self.headers)))
                play.answer(self, play.key_of(asked) if is_json else "audio")

            def reply(self, status, body, kind="application/json", more=None):
                self.send_response(status)
                for name, value in {"Content-Type": kind, **(more or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    @staticmethod
    def key_of(asked):
        content = asked["messages"][-1]["content"]
        return content if isinstance(content, str) else content[-1]["text"]

    def frame(self):
        """Returns a frame of /v1/watch with the newest request. `prompt` is its state, its computed tokens and its prompt tokens."""
        name = "chatcmpl-" + self.requests[-1][2]["X-Request-Id"] + "-1"
        return {"frame": 1, "since": None, "request_fields": ["name", "state", "computed_tokens", "prompt_tokens"], "requests": [[name, *self.prompt]]}

    def release(self):
        self.gate.release()

    def answer(self, handler, key):
        steps = self.answers[key]
        if isinstance(steps[0], tuple) and steps[0][0] == "status":
            _, status, message = steps[0]
            return handler.reply(status, json.dumps({"error": {"message": message, "code": status}}).encode())
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        try:
            for step in steps:
                if step == CUT:
                    return None
                if step == WAIT:
                    self.gate.acquire(timeout=60)
                else:
                    handler.wfile.write(f"data: {json.dumps(self.event(step))}\n\n".encode())
                    handler.wfile.flush()
            handler.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # the page has stopped the answer
        return None

    @staticmethod
    def event(step):
        if isinstance(step, dict):
            return step if "type" in step else {"choices": [{"index": 0, "delta": step, "finish_reason": None}]}
        name, value = step
        if name == "error":
            return {"error": {"message": value, "code": 500}}
        if name == "usage":
            return {"choices": [], "usage": value}
        return {"choices": [{"index": 0, "delta": {}, "finish_reason": value}]}
