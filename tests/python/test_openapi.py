"""The description of the API: it is valid OpenAPI, names every route of the router and no other, and the server gives it out with its page."""
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


def test_every_route_is_in_it():
    router = (REPO / "src/server/router.cpp").read_text(encoding="utf-8")
    routes = set(re.findall(r'\{"(/[^"]*)", "([A-Z]+)", Access::', router))
    told = {(re.sub(r"\{\w+\}", "*", path), method.upper()) for path, calls in SPEC["paths"].items() for method in calls}
    assert len(routes) > 20 and told == routes


def test_the_server_gives_it_out():
    with running("--api-key", "secret") as url:
        assert json.load(urllib.request.urlopen(url + "/openapi.json")) == SPEC
        page = urllib.request.urlopen(url + "/docs")
        assert page.headers["Content-Type"].startswith("text/html") and "connect-src 'self'" in page.headers["Content-Security-Policy"]
        html = page.read().decode()
    assert html.rstrip().endswith("</html>")
    assert not re.search(r"https?://|src=|<link|@import", html), "nothing comes from elsewhere"
