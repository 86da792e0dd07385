#!/usr/bin/env python3
"""Checks the built site: the targets of all links and images exist, including anchors, and the site loads nothing from other hosts:
scripts, styles, fonts and images are files of the site.

Usage: check_site.py SITE. Prints each error, and exits with 1 if it found any.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

# Attributes, by tag, from which a browser loads without a click. <a href> is not included, because it needs a click.
LOADED = {"script": ("src",), "img": ("src", "srcset"), "link": ("href",), "iframe": ("src",), "source": ("src", "srcset"), "video": ("src", "poster"),
          "audio": ("src",), "object": ("data",), "embed": ("src",), "use": ("href", "xlink:href"), "image": ("href", "xlink:href")}
FOREIGN = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?P<target>[^"')\s]+)""")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.places, self.links, self.assets = set(), [], []
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.places.update(value for value in (values.get("id"), values.get("name") if tag == "a" else None) if value)
        for name in LOADED.get(tag, ()):
            if values.get(name):
                self.assets.append(values[name].split()[0])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        self.assets += IN_STYLE.findall(values.get("style") or "")
        self.in_style = tag == "style"

    def handle_data(self, data):
        if self.in_style:
            self.assets += IN_STYLE.findall(data)
            self.in_style = False


def check(site):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages"
    for path, page in pages.items():
        where = path.relative_to(site)
        for target in page.assets:
            if FOREIGN.match(target):
                yield f"{where}: asks another host for {target}"
        for target in [*page.links, *page.assets]:
            if FOREIGN.match(target) or target.startswith(("mailto:", "data:", "javascript:")):
                continue
            name, _, place = target.partition("#")
            name = urllib.parse.unquote(name.partition("?")[0])
            there = (site / name.lstrip("/") if name.startswith("/") else path.parent / name).resolve() if name else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file():
                yield f"{where}: {target} leads nowhere"
            elif place and there in pages and urllib.parse.unquote(place) not in pages[there].places and not place.startswith("__"):
                yield f"{where}: {target} leads to no place in {there.relative_to(site)}"
    for path in sorted(site.rglob("*.css")):
        for target in IN_STYLE.findall(path.read_text(encoding="utf-8")):
            if FOREIGN.match(target):
                yield f"{path.relative_to(site)}: asks another host for {target}"


def main():
    complaints = list(dict.fromkeys(check(pathlib.Path(sys.argv[1]).resolve())))
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
