#!/usr/bin/env python3
"""Tests the dashboard in headless Chromium. With a running server, the test opens the page, finds blocks, selects a request, reads why the
request waited, pauses and steps back. With a simulated server (dashboard_play.py) with 1,024 requests and 100,000 blocks, it measures the
frames per second.

Usage: dashboard_check.py --binary build/release/quire --model MODEL [--out build/screenshots] [--axe axe.min.js]. Needs only Debian's
chromium. With the file of axe-core (npm), the script also checks accessibility.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import dashboard_play
from browser_check import PHONE, WIDE, Browser, axe, expect, free_port, look, press, wait_until

KEY = "a-key-of-the-check"


def ask(url, prompt, max_tokens=200):
    """Requests a streaming answer. A separate thread reads the answer to its end."""
    body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}).encode()
    request = urllib.request.Request(url + "v1/completions", body, {"Content-Type": "application/json", "Authorization": "Bearer " + KEY})
    thread = threading.Thread(target=lambda: urllib.request.urlopen(request).read(), daemon=True)
    thread.start()
    return thread


def drive_server(browser, url, out, axe_source):
    look(browser, WIDE, "light")
    browser.call("Page.navigate", url=url + "dashboard")
    expect(browser, "document.getElementById('key-dialog')?.open", "the page must ask for the key of a server that requires one")
    axe(browser, axe_source, "the dialog for the key")
    browser.evaluate("document.getElementById('key').focus()")
    browser.call("Input.insertText", text=KEY)
    press(browser, "Enter", 13, "\r")
    expect(browser, "quire.history.frames.length > 2 && document.getElementById('said').textContent === 'live'", "no frames come with the key")
    shared = "In a harbour town there lived a watchmaker who repaired every clock but his own. " * 12
    threads = [ask(url, shared + f"Number {i}.") for i in range(6)]
    expect(browser, "[...quire.lanes.tracks.values()].some(t => !t.ends && t.parts.some(p => p.state === 'decode'))", "no lane of a request appears")
    expect(browser, "quire.history.shown.some((word, i) => i % 3 === 2 && (word >>> 8 & 255) > 0)", "no block is in use on the page")
    # Clicks the middle of the request's lane, as a user does.
    place = json.loads(browser.evaluate("""JSON.stringify((() => {
        const track = [...quire.lanes.tracks.values()].find(t => !t.ends), box = document.getElementById('lanes').getBoundingClientRect();
        return [box.right - 3, box.top + (track.lane + 0.5) * quire.lanes.row - document.getElementById('lanes').scrollTop]; })())"""))
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left" if kind != "mouseMoved" else "none", clickCount=1)
    expect(browser, "!document.getElementById('explained').hidden && document.getElementById('explained-body').innerText.includes('Waited')",
           "the chosen request has no explanation")
    expect(browser, "/cache|memory|computed/i.test(document.getElementById('explained-body').innerText)", "no origin of the prompt tokens")
    browser.screenshot(out / "dashboard-explained.png")
    axe(browser, axe_source, "with an explained request, light")
    browser.evaluate("document.activeElement.blur()")
    press(browser, " ", 32, " ")
    expect(browser, "document.getElementById('pause').getAttribute('aria-pressed') === 'true'", "the space bar does not pause")
    at = browser.evaluate("quire.history.at")
    for _ in range(3):
        press(browser, "ArrowLeft", 37)
    expect(browser, f"quire.history.at === {at} - 3", "the left arrow does not step back")
    expect(browser, "document.getElementById('moment').textContent.startsWith('−')", "the page does not show how far back the frame is")
    frames = browser.evaluate("quire.history.frames.length")
    expect(browser, f"quire.history.frames.length > {frames} + 2", "frames are not kept while paused")
    press(browser, " ", 32, " ")
    expect(browser, "quire.history.live", "the space bar does not resume")
    for thread in threads:
        thread.join(120)
    expect(browser, "!document.getElementById('curve').hidden && /hit rate is .* now; with .* more it would be/.test(document.getElementById('curve-note').textContent)",
           "the page does not show the hit rate with more memory")
    expect(browser, "quire.history.shown.every((word, i) => i % 3 !== 2 || (word >>> 8 & 255) === 0)", "blocks of ended requests are still in use")
    # The page has applied changes since its start. Its blocks must equal the complete frame that the server sends to a new page.
    expect(browser, """(window.again ??= (async () => { const h = new (quire.history.constructor)();
        h.take(await (await fetch('v1/watch', {headers: {Authorization: 'Bearer ' + sessionStorage.getItem('quire-key')}})).json(), true);
        window.isSame = quire.history.count === h.count && h.shown.every((word, i) => i % 3 === 1 || word === quire.history.newest[i]); })(), window.isSame)""",
           "the page's blocks differ from the server's")


def drive_play(browser, page, out, axe_source, seconds=8):
    """Measures the frames per second with the maximum numbers of blocks and requests."""
    play = dashboard_play.Play(num_blocks=100_000, running=1024 - 40, waiting=40, prompt_rate=400_000)
    for _ in range(60):
        play.step(0.5)
    url = dashboard_play.serve(play, page)
    dashboard_play.run(play)
    for size, scheme in ((WIDE, "dark"), (PHONE, "light")):
        look(browser, size, scheme)
        browser.call("Page.navigate", url=url + "dashboard")
        expect(browser, "quire?.history?.frames.length > 6", "the page does not receive frames of the simulated server")
        expect(browser, "!document.getElementById('curve').hidden", "the page does not draw the curve")
        began, painted = time.monotonic(), browser.evaluate("quire.painted")
        time.sleep(seconds)
        rate = (browser.evaluate("quire.painted") - painted) / (time.monotonic() - began)
        blocks, requests = browser.evaluate("quire.history.count - 1"), browser.evaluate("quire.history.frame.requests.length")
        print(f"{size[0]} px: {rate:.1f} frames per second with {blocks:,} blocks and {requests:,} requests; "
              f"{browser.evaluate('quire.history.bytes / quire.history.frames.length / 1024'):.0f} KiB kept per frame")
        if browser.evaluate("document.documentElement.scrollWidth > innerWidth"):
            sys.exit(f"the page is wider than {size[0]} px")
        browser.screenshot(out / f"dashboard-{size[0]}-{scheme}.png")
        axe(browser, axe_source, f"{size[0]} px, {scheme}")
        if rate < 20:
            sys.exit("fewer than 20 frames per second (target 30; the bound allows for a busy machine)")


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
    server = subprocess.Popen([arguments.binary, "serve", arguments.model, "--port", str(port), "--api-key", KEY, "--max-num-seqs", "2"])
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: urllib.request.urlopen(url + "health").status == 200, 60, "the server did not start")
        with tempfile.TemporaryDirectory() as profile:
            browser = Browser(profile, "1440,1000")
            drive_server(browser, url, arguments.out, axe_source)
            page = urllib.request.urlopen(url + "dashboard").read()
            server.terminate()
            drive_play(browser, page, arguments.out, axe_source)
            browser.close()
    finally:
        server.terminate()
        server.wait()
    print(f"screenshots in {arguments.out}: look at them")


if __name__ == "__main__":
    main()
