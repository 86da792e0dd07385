"""`quire serve --kv-connector`: the same answers as without, whoever keeps the blocks, and refusals that say what to do."""
import os
import pathlib

import openai
import pytest

from quire_server import running
from test_kv_disk import TINY, TOPICS, ask, counter, of_tier, prompt, refusal, wanted  # noqa: F401

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
def test_answers_are_those_without_it(tmp_path, wanted, connectors):  # noqa: F811
    with running(*flags_of(connectors, tmp_path / "kv")) as url:
        for topic in TOPICS:
            assert ask(url, topic) == (wanted[topic], 0)
        total = 0
        for topic in TOPICS:
            text, cached = ask(url, topic)
            assert text == wanted[topic]
            total += cached
        assert total > 16 * 4 * len(TOPICS), "the memory of the cache holds two prompts"


# Those of quire's own library are there without being asked for; the longest match counts, and what each did is told.
def test_connectors_by_name_are_counted(tmp_path, wanted):  # noqa: F811
    library()
    both = f"MultiConnector,connectors=OffloadingConnector:{SIZE}:join_loads=1|ExampleConnector:shared_storage_path={tmp_path / 'kv'}"
    with running(*TINY, "--kv-connector", both, "--kv-connector-longest", "--kv-policy", "measured") as url:
        for _ in range(2):
            for topic in TOPICS:
                assert ask(url, topic)[0] == wanted[topic]
        offloading, example = of_tier(url, "OffloadingConnector"), of_tier(url, "ExampleConnector")
        assert offloading["stored_blocks_total"] > 0 and example["stored_blocks_total"] > 0
        assert offloading["places"] > 0 and example["failed_total"] == 0
        loaded = offloading["loaded_tokens_total"] + example["loaded_tokens_total"]
        assert counter(url, "vllm:external_prefix_cache_hits_total") == loaded > 0


def test_a_folder_stands_beside_connectors(tmp_path, wanted):  # noqa: F811
    disk = ["--kv-disk", str(tmp_path / "kv"), "--kv-disk-budget", "256MiB", "--kv-policy", "exact"]
    for is_empty in (True, False):
        with running(*TINY, *disk, "--kv-connector", f"OffloadingConnector,{SIZE}") as url:
            first, second = [[ask(url, topic) for topic in TOPICS] for _ in range(2)]
        assert [text for text, _ in first + second] == [wanted[topic] for topic in TOPICS] * 2
        assert (sum(cached for _, cached in first) == 0) == is_empty, "what the folder holds outlives the process"
        assert all(cached > 0 for _, cached in second)


def test_a_prompt_may_be_made_up(tmp_path):
    with running(*flags_of(["DecodeBenchConnector,fill_mean=0.01"], tmp_path)) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="-", max_retries=0, timeout=120)
        done = client.completions.create(model="smol", prompt=prompt("rivers"), max_tokens=8, temperature=0, extra_body={"ignore_eos": True})
        assert done.usage.completion_tokens == 8
        assert done.usage.prompt_tokens_details.cached_tokens == done.usage.prompt_tokens - 1


def test_refusals_name_the_flag_and_what_to_do(tmp_path):
    there_are = "DecodeBenchConnector, ExampleConnector, OffloadingConnector, SimpleCPUOffloadConnector"
    assert f"--kv-connector: there is no connector Mine; there are {there_are}; others come from a library" in refusal(
        tmp_path, "--kv-connector", "Mine"
    )
    assert "--kv-connector: it knows no parameter size; it knows cpu_bytes_to_use" in refusal(
        tmp_path, "--kv-connector", "OffloadingConnector,size=3"
    )
    assert "--kv-connector-library: ./none.so cannot be opened" in refusal(
        tmp_path, "--kv-connector", "Mine", "--kv-connector-library", "./none.so"
    )
    assert "--kv-connector: 'x' is no key=value" in refusal(tmp_path, "--kv-connector", "Mine,x")
    assert "--kv-connector-library: nothing of it is asked for" in refusal(tmp_path, "--kv-connector-library", "./none.so")
