#!/usr/bin/env python3
"""Tests the chat page in headless Chromium. With a running server, the test sends messages as a user does, reloads the page, and stops an answer.
With a simulated server (chat_play.py), it tests thoughts, ends of answers, errors, hostile Markdown, images and audio.

Usage: browser_check.py --binary build/release/quire --model MODEL [--out build/screenshots] [--axe axe.min.js]. Needs only Debian's
chromium: the script controls the browser through its debugging pipe. With the file of axe-core (npm), it also checks accessibility.
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

import chat_play
from chat_play import CUT, WAIT, finish

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests/server/operate"))

import markdown_cases  # noqa: E402

WIDE, PHONE = (1440, 1000), (360, 740)
NARROW = (390, 844)


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
        self.buffer, self.next_id, self.session, self.events = b"", 0, None, []
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
            if "method" in reply:
                self.events.append(reply)
            if reply.get("id") == self.next_id:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def complaints(self):
        """Returns the messages of the console, such as violations of the policy and uncaught errors, since Log.enable and Runtime.enable."""
        found = [event["params"]["entry"]["text"] for event in self.events if event["method"] == "Log.entryAdded"]
        return found + [json.dumps(event["params"])[:600] for event in self.events if event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")]

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


def look(browser, size, scheme):
    width, height = size
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1 if width > 600 else 2, mobile=width < 600)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def press(browser, key, code, text=""):
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key if text == "" else "Space", windowsVirtualKeyCode=code, text=text)
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key if text == "" else "Space", windowsVirtualKeyCode=code)


def expect(browser, expression, what):
    wait_until(lambda: browser.evaluate(expression), 15, f"{what} ({expression}; page: {browser.evaluate('document.body.innerText.slice(0, 2000)')!r})")


def axe(browser, source, what):
    """Prints the findings of axe-core; any finding fails the check."""
    if not source:
        return
    browser.evaluate(source)
    browser.evaluate("window.found = null; axe.run().then(r => { window.found = JSON.stringify(r.violations.map(v => [v.id, v.help, v.nodes.map(n => n.target.join(' ')).slice(0, 5)])); })")
    wait_until(lambda: browser.evaluate("window.found !== null"), 60, "axe-core does not end")
    found = json.loads(browser.evaluate("window.found"))
    if found:
        sys.exit(f"axe-core, {what}: {json.dumps(found, indent=1)}")
    print(f"axe-core has no findings: {what}")



QUESTION = "Write a long story about three rivers."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
SHOWCASE = """## Rivers of *Europe*

The **Danube** crosses ten countries. See [its page](https://en.wikipedia.org/wiki/Danube), or count with `len(rivers)`:

| River | Length in km | Ends in |
|---|--:|---|
| Volga | 3,531 | Caspian Sea |
| Danube | 2,850 | Black Sea |
| Rhine | 1,233 | North Sea |

1. Sort them by length.
2. Keep the first one:
   - only its name
   - not its length

```python
def longest(rivers):
    # Compares lengths.
    return max(rivers, key=lambda river: river.length_km).name
```

> A river is more than its water.
"""
THOUGHTS = ["The user asks for rivers. ", "I know many of them.\n", "Longest first: ", "Volga, Danube, ", "and Rhine."]


def model(name, *inputs):
    return {"id": name, "input_modalities": list(inputs) or ["text"], "max_model_len": 4096}


ANSWERS = {
    "think": [*({"reasoning_content": part} for part in THOUGHTS), WAIT, {"content": "Volga, **Dan"}, WAIT, {"content": "ube**."}, *finish("stop")],
    "think only": [{"reasoning_content": "Hm, "}, {"reasoning_content": "this takes long"}, *finish("length", answer=64)],
    "length": [{"content": "One, two, three"}, *finish("length", answer=5)],
    "context": [{"content": "One, two"}, *finish("length", answer=4056)],
    "filter": [{"content": "I"}, *finish("content_filter")],
    "call": [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "weather", "arguments": ""}}]},
             {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "<b>Ulm</b>"}'}}]}, *finish("tool_calls")],
    "show": [*({"content": SHOWCASE[i:i + 7]} for i in range(0, len(SHOWCASE), 7)), *finish("stop", answer=210)],
    "slow": [WAIT, {"content": "late"}, *finish("stop")],
    "endless": [{"content": "word "}, WAIT, {"content": "more"}, *finish("stop")],
    "cut": [{"content": "half an ans"}, CUT],
    "broken": [{"content": "half"}, ("error", "the engine failed; try again")],
    "refused": [("status", 400, "messages: the prompt has <b>9,000</b> tokens; the context has 4,096. Shorten it.")],
    "locked": [("status", 401, "The API key is missing or wrong.")],
    "hostile": [{"content": "\n\n".join(text for text, _ in markdown_cases.HOSTILE.values())}, *finish("stop")],
    "edited": [{"content": "the edited answer"}, *finish("stop")],
    "look": [{"content": "A red dot."}, *finish("stop")],
    "audio": [{"type": "transcript.text.delta", "delta": "Hello "}, {"type": "transcript.text.delta", "delta": "there."}, {"type": "transcript.text.done", "text": "Hello there."}],
}


def opened(browser, url, size=WIDE, scheme="light", forget=True):
    look(browser, size, scheme)
    if forget:
        browser.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="local_storage")
        browser.evaluate("sessionStorage.clear()")
    browser.call("Page.navigate", url=url)
    expect(browser, "document.readyState === 'complete' && !!document.getElementById('send')", "the page does not open")
    expect(browser, "document.getElementById('model-name').textContent !== ''", "the page does not show the model")


def ask(browser, text, key=True):
    """Types a message and presses Enter."""
    browser.evaluate("document.getElementById('text').focus()")
    browser.call("Input.insertText", text=text)
    if key:
        press(browser, "Enter", 13, "\r")


def ended(browser, what="the answer does not end"):
    expect(browser, "document.getElementById('send').textContent === 'Send' && document.querySelectorAll('.answer').length > 0 && !document.querySelector('.running')", what)


def click(browser, selector, text=None):
    """Clicks the last element with the selector, and with the text if it is given."""
    found = f"[...document.querySelectorAll({selector!r})].filter(e => {json.dumps(text)} === null || e.textContent === {json.dumps(text)}).pop()"
    expect(browser, f"!!{found}", f"no {selector} {text or ''}")
    browser.evaluate(f"{found}.click()")


def last_answer(part):
    return f"([...document.querySelectorAll('.answer')].pop()?.querySelector({part!r}) ?? {{textContent: ''}})"


def says(browser, part, text, what):
    expect(browser, f"{last_answer(part)}.textContent.includes({json.dumps(text)})", what)


def fill_settings(browser, stored, **fields):
    """Fills fields of the settings and closes them. `stored`: an expression that is true when the page has stored them."""
    browser.evaluate("openSettings()")
    for name, value in fields.items():
        browser.evaluate(f"document.getElementById('set-{name.replace('_', '-')}').value = {json.dumps(value)}")
    browser.evaluate("document.getElementById('settings').close()")
    expect(browser, stored, "the settings are not stored")


def must(condition, what):
    if not condition:
        sys.exit(what)


def check_server(browser, url, out, scheme, axe_source):
    """A chat with the real server: answer, figures, reload, second turn with cached tokens, stop."""
    opened(browser, url, WIDE, scheme)
    browser.screenshot(out / f"chat-{scheme}-empty.png")
    ask(browser, QUESTION)
    expect(browser, f"{last_answer('.markdown')}.textContent.length > 100", "no answer appears on the page")
    browser.screenshot(out / f"chat-{scheme}-streaming.png")
    click(browser, "#send", "Stop")
    ended(browser, "the button does not stop the answer")
    says(browser, ".end", "Stopped.", "the page does not show that the answer was stopped")
    fill_settings(browser, "chat.settings.maxTokens === '8'", max_tokens="8")
    ask(browser, "Write another long story.")
    ended(browser)
    says(browser, ".figures", "tokens/s", "no speed after the answer")
    says(browser, ".end", "Cut at 8 tokens", "no reason for the end of a cut answer")
    cached = browser.evaluate(f"Number(/, ([\\d,]+) cached/.exec({last_answer('.figures')}.textContent)[1].replace(',', ''))")
    must(cached > 0, "the second turn hits no cached tokens")
    texts = browser.evaluate("[...document.querySelectorAll('.turn')].map(t => t.textContent).join('|')")
    opened(browser, url, WIDE, scheme, forget=False)
    expect(browser, f"[...document.querySelectorAll('.turn')].map(t => t.textContent).join('|') === {json.dumps(texts)}", "a reload changes the conversation")
    axe(browser, axe_source, f"a conversation, {scheme}")
    browser.screenshot(out / f"chat-{scheme}-answered.png")


def check_thoughts(browser, play):
    opened(browser, play.url)
    ask(browser, "think")
    says(browser, ".thoughts summary", "Thinking", "no state while the model thinks")
    says(browser, ".thoughts .line", "Longest first: Volga, Danube, and Rhine.", "the state does not show the last line of the thoughts")
    must(not browser.evaluate(f"{last_answer('.thoughts')}.open"), "thoughts must be folded")
    browser.evaluate(f"{last_answer('.thoughts')}.open = true")
    play.release()
    says(browser, ".markdown strong", "Dan", "emphasis that is not closed must show while it is streamed")
    must(not browser.evaluate(f"{last_answer('.thoughts')}.open"), "thoughts must close when the answer begins")
    says(browser, ".thoughts summary", "Thought", "no summary of the thoughts")
    play.release()
    ended(browser)
    says(browser, ".thought-text", "".join(THOUGHTS), "the thoughts are not complete")
    must(browser.evaluate(f"{last_answer('.markdown')}.textContent") == "Volga, Danube.", "wrong answer after thoughts")
    ask(browser, "think only")
    ended(browser)
    says(browser, ".end", "Cut at 64 tokens, before the answer began: raise the limit", "no reason for the end of an answer with thoughts only")
    must(play.requests[-1][1]["messages"][1] == {"role": "assistant", "content": "Volga, **Danube**."}, "the next request must have the answer without its thoughts")


def check_ends(browser, play, out):
    opened(browser, play.url)
    for key, reason in (("length", "Cut at 5 tokens: raise the limit"), ("context", "the context of 4,096 tokens is full"), ("filter", "content filter"),
                        ("call", "does not run tools")):
        ask(browser, key)
        ended(browser)
        says(browser, ".end", reason, f"wrong end of '{key}'")
        says(browser, ".figures", "prompt 40 tokens, 32 cached", "no figures")
    says(browser, ".calls", 'weather({"city": "<b>Ulm</b>"})', "the call of a tool is not shown")
    ask(browser, "slow")
    says(browser, ".waiting", "Waiting for the first token, ", "no time before the first token")
    for prompt, text in ((("queued", 0, 8000), "In the server's queue"), (("prefill", 3000, 8000), "Reading the prompt: 3,000 of 8,000 tokens")):
        play.prompt = prompt
        says(browser, ".waiting", text, f"the progress of a prompt is not shown: {text}")
    must(browser.evaluate(f"{last_answer('progress')}.value") == 3000, "no bar of the progress")
    browser.screenshot(out / "chat-play-prompt.png")
    play.release()
    ended(browser)
    says(browser, ".markdown", "late", "no late answer")
    ask(browser, "endless")
    says(browser, ".markdown", "word", "no first word")
    press(browser, "Escape", 27)
    ended(browser, "Escape does not stop the answer")
    says(browser, ".end", "Stopped.", "no reason of a stopped answer")
    play.release()


def check_errors(browser, play):
    opened(browser, play.url)
    for key, message in (("refused", "the prompt has <b>9,000</b> tokens"), ("cut", "The connection ended before the answer was complete."), ("broken", "the engine failed; try again"),
                         ("locked", "The API key is missing or wrong.")):
        ask(browser, key)
        expect(browser, f"document.getElementById('failure').textContent.includes({json.dumps(message)})", f"the error of '{key}' is not shown")
        must(browser.evaluate("document.querySelector('#failure b') === null"), "an error became HTML")
    click(browser, "#failure button", "Settings")
    must(browser.evaluate("document.activeElement.id") == "set-key", "the field for the key must have the focus")
    fill_settings(browser, "sessionStorage.getItem('quire-key') === 'secret'", key="secret")
    play.answers["locked"] = ANSWERS["edited"]
    click(browser, "#failure button", "Retry")
    ended(browser)
    says(browser, ".markdown", "the edited answer", "Retry does not request the answer again")
    must(play.requests[-1][2].get("Authorization") == "Bearer secret", "the key is not sent")
    must(not browser.evaluate("JSON.stringify(localStorage).includes('secret')"), "the key must not be kept after the tab is closed")


def check_changes(browser, play):
    """Checks regenerated and edited answers, conversations, export and settings."""
    opened(browser, play.url)
    ask(browser, "length")
    ended(browser)
    first = play.requests[-1][1]
    must(not {"temperature", "max_tokens", "max_completion_tokens", "model"} & set(first), f"settings that the user did not change are sent: {first}")
    count = len(play.requests)
    click(browser, ".regenerate")
    wait_until(lambda: len(play.requests) > count, 10, "no request to regenerate")
    ended(browser)
    must(play.requests[-1][1]["messages"] == first["messages"], "regenerate must send the same messages")
    ask(browser, "filter")
    ended(browser)
    browser.evaluate("document.querySelector('.user .actions').lastElementChild.click()")
    browser.evaluate("document.querySelector('.edit textarea').select()")
    browser.call("Input.insertText", text="edited")
    press(browser, "Enter", 13, "\r")
    says(browser, ".markdown", "the edited answer", "no answer to the edited message")
    ended(browser)
    must(browser.evaluate("document.querySelectorAll('.turn').length") == 2, "the turns after an edited message must be removed")
    must(play.requests[-1][1]["messages"] == [{"role": "user", "content": "edited"}], "the edited message is not sent alone")
    fill_settings(browser, "chat.settings.system === 'Be brief.'", system="Be brief.", temperature="0")
    click(browser, "#new")
    must(browser.evaluate("document.querySelectorAll('.turn').length") == 0, "a new chat must be empty")
    ask(browser, "look")
    ended(browser)
    asked = play.requests[-1][1]
    must(asked["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "look"}] and asked["temperature"] == 0, f"settings are not sent: {asked}")
    must(browser.evaluate("[...document.querySelectorAll('#conversations .name')].map(e => e.textContent).join()") == "look,edited", "wrong list of conversations")
    click(browser, "#conversations .name", "edited")
    says(browser, ".markdown", "the edited answer", "the other conversation does not open")
    browser.call("Page.setDownloadBehavior", behavior="deny")
    browser.evaluate("exported = ''; urlOf = URL.createObjectURL; URL.createObjectURL = blob => { blob.text().then(text => { exported = text; }); return urlOf.call(URL, blob); }; 0")
    click(browser, "#conversations .current [data-action=export]")
    expect(browser, "exported !== ''", "a conversation cannot be exported")
    must(json.loads(browser.evaluate("exported"))["messages"][1]["content"] == "the edited answer", "wrong export")
    for _ in range(2):
        browser.evaluate("document.querySelector('#conversations .current [data-action=delete]').click()")
    must(browser.evaluate("[...document.querySelectorAll('#conversations .name')].map(e => e.textContent).join()") == "look", "the conversation is not deleted")
    opened(browser, play.url, forget=False)
    must(browser.evaluate("chat.settings.system") == "Be brief.", "settings are not kept")


def check_markdown(browser, play):
    """The renderer makes the same elements as in node, and a hostile answer adds none."""
    opened(browser, play.url)
    shown = "(() => { const box = make(null, 'div'); new MarkdownView(box).show(%s, %s); return box.innerHTML; })()"
    for cases, is_open in ((markdown_cases.COMPLETE, "false"), (markdown_cases.HOSTILE, "false"), (markdown_cases.STREAMED, "true")):
        for name, (text, html) in cases.items():
            result = browser.evaluate(shown % (json.dumps(text), is_open))
            must(result == html, f"Markdown, {name}: {result!r} instead of {html!r}")
    ask(browser, "hostile")
    ended(browser)
    must(browser.evaluate(f"{last_answer('.markdown')}.querySelectorAll('img, script, iframe, style, link, svg, object, [onclick], [onerror], [style]').length") == 0, "a hostile answer inserted elements")
    must(browser.evaluate(f"[...{last_answer('.markdown')}.querySelectorAll('a')].every(a => /^(https?|mailto):/.test(a.href))"), "a hostile answer made an unsafe link")
    must(browser.evaluate("(() => { try { make(null, 'div').innerHTML = '<b>x</b>'; return false; } catch { return true; } })()"), "the policy must forbid HTML from text")


def check_inputs(browser, url_of):
    """Checks the inputs of the chat page: images, audio, the choice of a model, and a text-only model."""
    play = url_of([model("tiny"), model("tuned")])
    opened(browser, play.url)
    must(browser.evaluate("document.getElementById('attach').hidden"), "a text-only model must not offer attachments")
    browser.evaluate("document.getElementById('model').value = 'tuned'; document.getElementById('model').dispatchEvent(new Event('change'))")
    ask(browser, "look")
    ended(browser)
    must(play.requests[-1][1]["model"] == "tuned", "the chosen model is not sent")
    play = url_of([model("sees", "text", "image")])
    opened(browser, play.url)
    image = "(async () => attachFiles([new File([Uint8Array.from(atob(%r), c => c.charCodeAt(0))], 'dot.png', {type: 'image/png'})]))()" % PNG
    browser.evaluate(image)
    expect(browser, "document.querySelectorAll('#attachments img').length === 1", "an attached image is not shown")
    ask(browser, "look")
    ended(browser)
    must(play.requests[-1][1]["messages"] == [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}, {"type": "text", "text": "look"}]}],
         "the image is not sent")
    must(browser.evaluate("document.querySelector('.bubble img').naturalWidth") == 1, "the image does not load")
    opened(browser, play.url, forget=False)
    must(browser.evaluate("document.querySelectorAll('.bubble img').length") == 1, "the image is not kept")
    play = url_of([model("listens", "audio")])
    opened(browser, play.url)
    browser.evaluate("(async () => attachFiles([new File(['sound'], 'talk.wav', {type: 'audio/wav'})]))()")
    expect(browser, "document.querySelectorAll('#attachments li').length === 1", "an attached audio file is not shown")
    ask(browser, "Names: Ulm")
    ended(browser)
    says(browser, ".markdown", "Hello there.", "no transcript")
    path, body, _ = play.requests[-1]
    must(path == "/v1/audio/transcriptions" and b"talk.wav" in body and b"Names: Ulm" in body, "the audio file is not sent")


def check_looks(browser, play, out, axe_source):
    """Takes screenshots and checks accessibility: in light and dark mode, and with the width of a phone."""
    for size, scheme in ((WIDE, "light"), (WIDE, "dark"), (NARROW, "light"), (NARROW, "dark")):
        name = f"{size[0]}-{scheme}"
        opened(browser, play.url, size, scheme)
        axe(browser, axe_source, f"empty, {name}")
        for text in ("think only", "show"):
            ask(browser, text)
            ended(browser)
        if browser.evaluate("document.documentElement.scrollWidth > innerWidth"):
            sys.exit(f"the page is wider than {size[0]} px")
        axe(browser, axe_source, f"a long answer, {name}")
        browser.screenshot(out / f"chat-play-{name}.png")
        browser.evaluate("document.getElementById('log').scrollTop = 0")
        ask(browser, "refused")
        expect(browser, "document.getElementById('failure').textContent !== ''", "no error")
        browser.evaluate("document.querySelector('.user .actions').lastElementChild.click()")
        axe(browser, axe_source, f"an error and a form to edit, {name}")
        browser.screenshot(out / f"chat-play-{name}-edit.png")
        press(browser, "Escape", 27)
        browser.evaluate("openSettings()")
        axe(browser, axe_source, f"settings, {name}")
        browser.screenshot(out / f"chat-play-{name}-settings.png")
        press(browser, "Escape", 27)
        if size == NARROW:
            click(browser, "#side-open")
            axe(browser, axe_source, f"the list of conversations, {name}")
            browser.screenshot(out / f"chat-play-{name}-list.png")
            press(browser, "Escape", 27)
            must(not browser.evaluate("isSideOpen()"), "Escape does not close the list")


def check_play(browser, page, policy, out, axe_source):
    plays = []

    def play_of(models):
        plays.append(chat_play.Play(page, policy, dict(ANSWERS), models))
        return plays[-1]

    for check in (check_thoughts, check_errors, check_changes, check_markdown):
        check(browser, play_of([model("tiny")]))
    check_ends(browser, play_of([model("tiny")]), out)
    check_inputs(browser, play_of)
    check_looks(browser, play_of([model("SmolLM2-135M-Instruct.Q4_1")]), out, axe_source)
    foreign = [path for play in plays for path, _, _ in play.requests if path not in ("/v1/chat/completions", "/v1/audio/transcriptions", "/favicon.ico") and not path.startswith("/v1/watch")]
    must(not foreign, f"the page requested {foreign}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/screenshots"))
    parser.add_argument("--axe", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    axe_source = arguments.axe.read_text() if arguments.axe else ""
    port = free_port()
    server = subprocess.Popen([arguments.binary, "serve", arguments.model, "--port", str(port)])
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: urllib.request.urlopen(url + "health").status == 200, 30, "the server did not start")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(profile, "1440,1000")
            browser.call("Log.enable")
            browser.call("Runtime.enable")
            for scheme in ("light", "dark"):
                check_server(browser, url, arguments.out, scheme, axe_source)
            must(not browser.complaints(), f"the browser complains: {browser.complaints()}")
            answer = urllib.request.urlopen(url)
            check_play(browser, answer.read(), answer.headers["Content-Security-Policy"], arguments.out, axe_source)
            # The browser reports each response with an error status.
            others = [text for text in browser.complaints() if "Failed to load resource" not in text and "TrustedHTML" not in text]
            must(not others, f"the browser complains: {others}")
            browser.close()
    finally:
        server.terminate()
        server.wait()
    print(f"screenshots in {arguments.out}: look at them")


if __name__ == "__main__":
    main()
