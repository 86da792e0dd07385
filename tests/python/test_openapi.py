"""Tests the API description: it is valid OpenAPI, and the server returns it with its page. tests/server/openapi_test.cpp tests that it
names every route and no other.
"""
import json
import pathlib
import re
import urllib.request

import openapi_spec_validator

from quire_server import running

REPO = pathlib.Path(__file__).parents[2]
SPEC = json.loads((REPO / "docs/openapi.json").read_text(encoding="utf-8"))


def test_description_is_valid_openapi():
    openapi_spec_validator.validate(SPEC)


def test_server_returns_description_and_page():
    with running("--api-key", "secret") as url:
        assert json.load(urllib.request.urlopen(url + "/openapi.json")) == SPEC
        page = urllib.request.urlopen(url + "/docs")
        assert page.headers["Content-Type"].startswith("text/html") and "connect-src 'self'" in page.headers["Content-Security-Policy"]
        html = page.read().decode()
    assert html.rstrip().endswith("</html>")
    assert not re.search(r"https?://|src=|<link|@import", html), "the page must load nothing from other hosts"
