"""Tests the list of states in which vLLM fails: how the oracle uses it, and the table of docs/oracle.md."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))

from oracle import ends  # noqa: E402


def test_documented_table_matches_the_list():
    with open(os.path.join(HERE, "..", "..", "docs", "oracle.md"), encoding="utf-8") as file:
        text = file.read()
    assert ends.table() in text, f"docs/oracle.md should have:\n{ends.table()}"
    assert ends.table("continuum") in text, f"docs/oracle.md should have:\n{ends.table('continuum')}"


def test_each_end_is_recognised_at_one_location_only():
    places = [place for end in ends.KNOWN for place in end["at"]]
    assert len(set(places)) == len(places)
    assert ends.kind_of("AssertionError in async_scheduler.py:53 (_update_request_with_output)") == "placeholders"
    assert ends.kind_of("KeyError in scheduler.py:1 (schedule)") is None


def test_shares_are_judged_by_their_distribution():
    listed = {end["kind"]: end["per_1000"] * 20 for end in ends.KNOWN}
    assert ends.judge({"victim in the plan": 1}, 1000, "default") != []
    assert ends.judge({"victim in the plan": 1}, 1000, "continuum") == []
    assert ends.judge(listed, 20_000, "default") == []
    assert ends.judge({}, 20_000, "default") == []
    # 7.8 of 1,000 are 156 of 20,000. Poisson's 0.0001 quantile is near 205.
    assert ends.judge({"negative count": 195}, 20_000, "default") == []
    assert "negative count: 220 of 20,000" in ends.judge({"negative count": 220}, 20_000, "default")[0]
    # A common kind of end, for which exp(-mean) underflows: 3,400 ends are expected in 20,000 scenarios, with a deviation of 58.
    assert ends.judge({"pinned and sent": 3_428}, 20_000, "continuum") == []
    assert ends.judge({"pinned and sent": 3_700}, 20_000, "continuum") != []
    # A rare kind of end: 0.6 ends are expected in 20,000 scenarios, so 5 are accepted and 7 are not.
    assert ends.judge({"missing name": 5}, 20_000, "default") == []
    assert ends.judge({"missing name": 7}, 20_000, "default") != []
    assert "no kind of" in ends.judge({"another": 1}, 20_000, "default")[0]
