"""The description of the API: it is valid OpenAPI, and the server gives it out with its page. That it names every route and no other is held to
by tests/server/openapi_test.cpp."""
import json
import pathlib
import re
import urllib.request

import openapi_spec_validator

from quire_server import running

REPO = pathlib.Path(__file__).parents[2]
SPEC = json.loads((REPO / "docs/openapi.json").read_text(encoding="utf-8"))


def test_it_is_valid():
    openapi_spec_validator.validate(SPEC)


def test_the_server_gives_it_out():
    with running("--api-key", "secret") as url:
        assert json.load(urllib.request.urlopen(url + "/openapi.json")) == SPEC
        page = urllib.request.urlopen(url + "/docs")
        assert page.headers["Content-Type"].startswith("text/html") and "connect-src 'self'" in page.headers["Content-Security-Policy"]
        html = page.read().decode()
    assert html.rstrip().endswith("</html>")
    assert not re.search(r"https?://|src=|<link|@import", html), "nothing comes from elsewhere"
