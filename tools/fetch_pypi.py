#!/usr/bin/env python3
"""Downloads one file of a PyPI project and checks its SHA-256. Unlike pip, it does not build an sdist to read its metadata.

Usage: fetch_pypi.py PROJECT FILENAME SHA256 TARGET. Uses pip's package index: PIP_INDEX_URL, pip's configuration, or its default.
"""
import hashlib
import html
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request

from pip._internal.models.index import PyPI


def index_url():
    configured = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    return os.environ.get("PIP_INDEX_URL") or configured.stdout.strip() or PyPI.simple_url


def file_url(project, filename):
    page = f"{index_url().rstrip('/')}/{project}/"
    with urllib.request.urlopen(page, timeout=120) as response:
        html_text = response.read().decode()
    link = re.search(r'<a\s[^>]*href="([^"]+)"[^>]*>\s*' + re.escape(filename) + r"\s*</a>", html_text)
    if not link:
        sys.exit(f"fetch_pypi: {project} lists no file {filename}")
    return urllib.parse.urljoin(page, html.unescape(link.group(1)))


def download(url, target):
    digest = hashlib.sha256()
    done = 0
    with urllib.request.urlopen(url, timeout=120) as response, open(target, "wb") as out:
        total = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(1 << 20):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            if sys.stderr.isatty() and total:
                print(f"\r  {done >> 20} of {total >> 20} MB", end="", file=sys.stderr)
    return digest.hexdigest()


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    project, filename, expected, target = sys.argv[1:]
    actual = download(file_url(project, filename), target)
    if actual != expected:
        os.unlink(target)
        sys.exit(f"fetch_pypi: {filename} has SHA-256 {actual}, expected {expected}")


if __name__ == "__main__":
    main()
