#!/usr/bin/env python3
"""Tests the built site in headless Chromium, opened from its folder without a network: search finds pages, the pages load nothing from
other hosts, and no page is wider than the screen of a phone. Saves screenshots, light and dark.

Usage: docs_check.py [--site build/site] [--out build/screenshots]. Needs only Debian's chromium.
"""
import argparse
import pathlib
import sys
import tempfile
import time

from browser_check import Browser, wait_until

PAGES = ("index", "start", "tasks/serve", "ideas/block", "ideas/plan", "reference/http/generation", "reference/commands", "explain")
WANTED = "eviction"


def opened(browser, site, page):
    browser.call("Page.navigate", url=(site / f"{page}.html").as_uri())
    wait_until(lambda: browser.evaluate("document.readyState") == "complete" and browser.evaluate("document.body.innerText.length > 200"), 10,
               f"{page} is empty")
    time.sleep(0.5)


def foreign(browser):
    """Returns the requests of the page for anything except files of the folder."""
    return browser.evaluate("JSON.stringify(performance.getEntriesByType('resource').map(e => e.name).filter(n => !/^(file|data|blob):/.test(n)))")


def search(browser, out):
    browser.evaluate("document.querySelector('.md-search__input').focus()")
    browser.call("Input.insertText", text=WANTED)
    browser.evaluate("document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))")
    wait_until(lambda: browser.evaluate("document.querySelectorAll('.md-search-result__item').length > 2"), 20, f"search finds no '{WANTED}'")
    time.sleep(0.5)
    browser.screenshot(out / "docs-search.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=pathlib.Path, default=pathlib.Path("build/site"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/screenshots"))
    parser.add_argument("--pages", nargs="*", default=PAGES)
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    complaints = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile, "1400,1000")
        browser.call("Page.enable")
        for width, height, scheme in ((1400, 1000, "light"), (1400, 1000, "dark"), (390, 844, "light")):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            for page in arguments.pages:
                opened(browser, site, page)
                if (asked := foreign(browser)) != "[]":
                    complaints.append(f"{page} loads from other hosts: {asked}")
                if browser.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
                    complaints.append(f"{page} is wider than {width} pixels")
                browser.screenshot(arguments.out / f"docs-{page.replace('/', '-')}-{width}-{scheme}.png")
        browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)
        opened(browser, site, arguments.pages[0])
        search(browser, arguments.out)
        browser.close()
    print("\n".join(complaints) or f"screenshots in {arguments.out}: look at them")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
