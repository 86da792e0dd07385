"""Tests `quire serve --kv-connector`: answers equal those without a connector, and refusals name the remedy."""
import os
import pathlib

import openai
import pytest

from quire_server import running
from test_kv_disk import TINY, TOPICS, ask, counter, of_tier, prompt, refusal, expected  # noqa: F401

SIZE = "cpu_bytes_to_use=100000000"


def library():
    path = pathlib.Path(os.environ.get("QUIRE_BINARY", "")).parent / "libquire_example_connectors.so"
    if not path.exists():
        pytest.skip("the examples' library is not built: ./dev test builds it")
    return str(path)


def flags_of(connectors, folder):
    flags = [*TINY, "--kv-connector-library", library()]
    for connector in connectors:
        flags += ["--kv-connector", connector.replace("FOLDER", str(folder))]
    return flags


@pytest.mark.parametrize(
    "connectors",
    [
        [f"OffloadingConnector,{SIZE},eviction_policy=arc"],
        [f"SimpleCPUOffloadConnector,{SIZE}"],
        ["OffloadingConnector,spec_name=HeapTier,blocks=2000,eviction_policy=fifo"],
        ["OffloadingConnector,cpu_bytes_to_use=2000000", "ExampleConnector,shared_storage_path=FOLDER"],
    ],
    ids=["offloading", "simple_cpu", "tier_and_policy_of_a_library", "two_as_one"],
)
def test_answers_equal_those_without_a_connector(tmp_path, expected, connectors):  # noqa: F811
    with running(*flags_of(connectors, tmp_path / "kv")) as url:
        for topic in TOPICS:
            assert ask(url, topic) == (expected[topic], 0)
        total = 0
        for topic in TOPICS:
            text, cached = ask(url, topic)
            assert text == expected[topic]
            total += cached
        assert total > 16 * 4 * len(TOPICS), "the cache fits only two prompts, so the connector must load more"


# quire's connectors are registered by default; the longest match wins, and each connector has counters.
def test_connectors_have_counters_by_name(tmp_path, expected):  # noqa: F811
    library()
    both = f"MultiConnector,connectors=OffloadingConnector:{SIZE}:join_loads=1|ExampleConnector:shared_storage_path={tmp_path / 'kv'}"
    with running(*TINY, "--kv-connector", both, "--kv-connector-longest", "--kv-policy", "measured") as url:
        for _ in range(2):
            for topic in TOPICS:
                assert ask(url, topic)[0] == expected[topic]
        offloading, example = of_tier(url, "OffloadingConnector"), of_tier(url, "ExampleConnector")
        assert offloading["stored_blocks_total"] > 0 and example["stored_blocks_total"] > 0
        assert offloading["slots"] > 0 and example["failed_total"] == 0
        loaded = offloading["loaded_tokens_total"] + example["loaded_tokens_total"]
        assert counter(url, "vllm:external_prefix_cache_hits_total") == loaded > 0


def test_folder_works_next_to_connectors(tmp_path, expected):  # noqa: F811
    disk = ["--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-policy", "exact"]
    for is_empty in (True, False):
        with running(*TINY, *disk, "--kv-connector", f"OffloadingConnector,{SIZE}") as url:
            first, second = [[ask(url, topic) for topic in TOPICS] for _ in range(2)]
        assert [text for text, _ in first + second] == [expected[topic] for topic in TOPICS] * 2
        assert (sum(cached for _, cached in first) == 0) == is_empty, "blocks in the folder must survive the process"
        assert all(cached > 0 for _, cached in second)


def test_decode_bench_connector_fills_the_prompt(tmp_path):
    with running(*flags_of(["DecodeBenchConnector,fill_mean=0.01"], tmp_path)) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
        done = client.completions.create(model="smol", prompt=prompt("rivers"), max_tokens=8, temperature=0, extra_body={"ignore_eos": True})
        assert done.usage.completion_tokens == 8
        assert done.usage.prompt_tokens_details.cached_tokens == done.usage.prompt_tokens - 1


def test_refusals_name_the_flag_and_the_remedy(tmp_path):
    there_are = "DecodeBenchConnector, ExampleConnector, OffloadingConnector, SimpleCPUOffloadConnector"
    assert f"--kv-connector: no connector Mine is registered; registered are {there_are}; others must come from a connector library" in refusal(
        tmp_path, "--kv-connector", "Mine"
    )
    known = "block_size, cpu_bytes_to_use, eviction_policy, join_loads, max_tracker_size, spec_name, store_threshold"
    assert f"--kv-connector: unknown parameter size; use one of: {known}" in refusal(
        tmp_path, "--kv-connector", "OffloadingConnector,size=3"
    )
    assert "--kv-connector-library: ./none.so cannot be opened" in refusal(
        tmp_path, "--kv-connector", "Mine", "--kv-connector-library", "./none.so"
    )
    assert "--kv-connector: 'x' is not in the form key=value" in refusal(tmp_path, "--kv-connector", "Mine,x")
    assert "--kv-connector-library: the library is not used" in refusal(tmp_path, "--kv-connector-library", "./none.so")
