#!/usr/bin/env python3
"""Tests the chat page: opens the page in headless Chromium with a running server, sends a message as a user does, and saves screenshots.

Usage: browser_check.py --binary build/release/quire --model MODEL [--out build/screenshots]. Needs only Debian's chromium: the script
controls the browser through its debugging pipe.
"""
import argparse
import base64
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """Chromium with --remote-debugging-pipe: reads from file descriptor 3 and writes to 4; messages end with a zero byte."""

    def __init__(self, profile, size):
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()

        def place_pipes():
            first, second = os.dup(to_read), os.dup(from_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={size}",
                 "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(["chromium", *flags], preexec_fn=place_pipes, pass_fds=(3, 4), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.buffer, self.next_id, self.session = b"", 0, None
        target = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

    def call(self, method, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                self.buffer += os.read(self.from_read, 1 << 20)
            raw, self.buffer = self.buffer.split(b"\0", 1)
            reply = json.loads(raw)
            if reply.get("id") == self.next_id:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.call("Browser.close")
        self.process.wait(10)


def wait_until(predicate, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if predicate():
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"timed out: {what}")


def check(browser, url, out, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Page.navigate", url=url)
    wait_until(lambda: browser.evaluate("!!document.querySelector('textarea')"), 10, "the page shows no text box")
    browser.screenshot(out / f"chat-{scheme}-empty.png")
    browser.evaluate("document.querySelector('textarea').focus()")
    browser.call("Input.insertText", text="Name three rivers in Europe.")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    browser.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)
    before = len("Name three rivers in Europe.")
    wait_until(lambda: len(browser.evaluate("document.body.innerText")) > before + 200, 30, "no answer appeared on the page")
    browser.screenshot(out / f"chat-{scheme}-streaming.png")
    time.sleep(6)
    browser.screenshot(out / f"chat-{scheme}-answered.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/screenshots"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    port = free_port()
    server = subprocess.Popen([arguments.binary, "serve", arguments.model, "--port", str(port)])
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: urllib.request.urlopen(url + "health").status == 200, 30, "the server did not start")
        with tempfile.TemporaryDirectory() as profile:
            browser = Browser(profile, "1000,760")
            for scheme in ("light", "dark"):
                check(browser, url, arguments.out, scheme)
            browser.close()
    finally:
        server.terminate()
        server.wait()
    print(f"screenshots in {arguments.out}: look at them")


if __name__ == "__main__":
    main()
