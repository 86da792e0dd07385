"""Skips tests with structured output when quire was built without llguidance (./dev test sets QUIRE_WITHOUT_LLGUIDANCE). It skips tests
that get the refusal, and tests marked needs_llguidance, which fail in other ways.
"""
import os

import pytest

WITHOUT = bool(os.environ.get("QUIRE_WITHOUT_LLGUIDANCE"))
REASON = "built without llguidance"


SLOWEST = "test_package.py"  # pip compiles everything again


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != SLOWEST)


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_llguidance: skipped in a build without llguidance")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if WITHOUT and item.get_closest_marker("needs_llguidance"):
        pytest.skip(REASON)
    try:
        return (yield)
    except Exception as error:
        if WITHOUT and "does not include llguidance" in str(error):
            pytest.skip(REASON)
        raise
