"""Tests GET /v1/cache/curve and `quire curve` on a real model: the row of the current size equals the measured hits, and a server of
another size has the predicted hits.
"""
import json
import os
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

from quire_server import running
from test_kv_disk import TOPICS, prompt
from test_plot_page import data_of

# Each prompt repeats after all others: the smaller cache fits a few of them, the larger one all. The curve is exact for LRU only.
FLAGS = ("--max-model-len", "512", "--max-num-seqs", "1", "--kv-slru", "0")
SMALL, LARGE = 64, 256


def ask_all(url):
    """Returns the number of prompt tokens and the number of hits."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
    usages = [client.completions.create(model="smol", prompt=prompt(topic), max_tokens=2, temperature=0).usage
              for _ in range(2) for topic in TOPICS]
    return sum(usage.prompt_tokens for usage in usages), sum(usage.prompt_tokens_details.cached_tokens for usage in usages)


def curve_of(url):
    return json.load(urllib.request.urlopen(url + "/v1/cache/curve", timeout=30))


def show(url, *flags, status=0):
    done = subprocess.run([os.environ["QUIRE_BINARY"], "curve", "--port", url.rsplit(":", 1)[1], *flags],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


def test_server_of_another_size_has_the_predicted_hits(tmp_path):
    with running(*FLAGS, "--num-blocks", str(LARGE + 1)) as url:
        num_tokens, num_found = ask_all(url)
        truth = num_found / num_tokens
    with running(*FLAGS, "--num-blocks", str(SMALL + 1)) as url:
        num_tokens, num_found = ask_all(url)
        told = curve_of(url)
        [all_of_them] = told["curves"]
        assert all_of_them["prompt_tokens"] == num_tokens and all_of_them["found_tokens"] == num_found
        rows = {row["blocks"]: row for row in all_of_them["rows"]}
        assert rows[SMALL]["label"] == "now" and rows[SMALL]["hit_rate"] == pytest.approx(num_found / num_tokens, abs=1e-5)
        assert rows[LARGE]["hit_rate"] == pytest.approx(truth, abs=1e-5)
        assert truth > num_found / num_tokens, "more memory must give more hits"
        assert rows[LARGE]["bytes"] == LARGE * told["block_bytes"] and told["memory_bytes"] < 32 << 20
        assert rows[LARGE]["saved_prefill_tokens_per_s"] > 0
        shown = show(url)
        assert "now" in shown.stdout and len(shown.stdout.splitlines()) >= len(rows) and "more:" not in shown.stdout
        more = (LARGE - SMALL) * told["block_bytes"]
        assert f"more: {100 * truth:.2f} % of prompt tokens are cached instead of {100 * num_found / num_tokens:.2f} %" in show(url, "--more", str(more)).stdout
        printed = show(url, "--json", "--html", str(tmp_path / "page.html")).stdout
        assert data_of(tmp_path / "page.html") + "\n" == printed
        refused = show(url, "--more", "1TiB", status=2)
        assert "more_bytes" in refused.stderr and "send at most" in refused.stderr


def test_segmented_lru_has_a_curve():
    with running(*FLAGS[:-2], "--num-blocks", str(SMALL + 1)) as url:
        num_tokens, num_found = ask_all(url)
        [all_of_them] = curve_of(url)["curves"]
        rates = [row["hit_rate"] for row in all_of_them["rows"]]
        [now] = [row["hit_rate"] for row in all_of_them["rows"] if row["label"] == "now"]
        assert now == pytest.approx(num_found / num_tokens, abs=1e-5) and rates == sorted(rates)


# --kv-lifo alone starts, although the default of --kv-slru excludes it.
@pytest.mark.parametrize("off", [("--curve-blocks", "0"), ("--kv-lifo",)])
def test_error_names_the_flag_when_curves_are_off(off):
    with running(*FLAGS[:-2], "--num-blocks", "129", *off) as url:
        with pytest.raises(urllib.error.HTTPError) as refused:
            curve_of(url)
        assert refused.value.code == 400 and off[0][2:].encode() in refused.value.read()
