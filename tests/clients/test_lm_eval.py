"""Tests that lm-eval scores a local task as with transformers."""
import json
import pathlib
import urllib.request

import pytest

lm_eval = pytest.importorskip("lm_eval")

ROOT = pathlib.Path(__file__).parents[2]
ITEMS = ROOT / "tests/clients/lm_eval/items.jsonl"
REFERENCE = json.loads((ROOT / "tests/golden/lm_eval.json").read_text())


@pytest.fixture
def evaluate(url, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))

    def evaluated(task, model_args="", **more):
        args = f"model=smol,base_url={url}/v1/completions,{model_args}num_concurrent=8,max_retries=1"
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": str(ITEMS)}, "test_split": "train"}
        result = lm_eval.simple_evaluate(model="local-completions", model_args=args, tasks=[{**data, **task}], bootstrap_iters=0, **more)
        (samples,) = result["samples"].values()
        (scores,) = result["results"].values()
        return scores, sorted(samples, key=lambda sample: sample["doc_id"])

    return evaluated


CHOICES = {"task": "quire_choices", "output_type": "multiple_choice", "doc_to_text": "{{context}}", "doc_to_choice": "{{choices}}",
           "doc_to_target": "{{gold}}", "metric_list": [{"metric": "acc"}]}
TEXT = {"task": "quire_text", "output_type": "generate_until", "doc_to_text": "{{context}}", "doc_to_target": "{{choices[gold]}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 12}, "metric_list": [{"metric": "bypass"}]}


def assert_scores_match_the_record(scores, samples):
    assert len(samples) == len(REFERENCE["items"]) == 200
    differences, num_greedy = [], 0
    for sample, wanted in zip(samples, REFERENCE["items"]):
        for (given, is_greedy), (likelihood, was_greedy) in zip([resp[0] for resp in sample["resps"]], wanted, strict=True):
            differences.append(abs(float(given) - likelihood))
            num_greedy += str(is_greedy) == str(was_greedy)
    mean, worst = sum(differences) / len(differences), max(differences)
    print(f"{len(differences)} log likelihoods: mean difference {mean:.4f}, largest {worst:.4f}, greedy alike {num_greedy}; "
          f"accuracy {scores['acc,none']} beside {REFERENCE['acc']}")
    assert mean <= 0.02
    assert scores["acc,none"] == REFERENCE["acc"]
    assert num_greedy >= 0.99 * len(differences)


@pytest.mark.row("lm_eval", "local-completions, 200 items: the log likelihoods of transformers")
def test_loglikelihoods_match_the_record(evaluate):
    assert_scores_match_the_record(*evaluate(CHOICES))


@pytest.mark.row("lm_eval", "local-completions, several prompts a request")
def test_batches_match_the_record(evaluate):
    assert_scores_match_the_record(*evaluate(CHOICES, "batch_size=16,"))


@pytest.mark.row("lm_eval", "local-completions, generate_until")
def test_generate_until_gives_the_servers_text(evaluate, url):
    _, samples = evaluate(TEXT, limit=20)
    assert len(samples) == 20
    for sample in samples:
        body = {"model": "smol", "prompt": sample["doc"]["context"], "max_tokens": 12, "temperature": 0, "stop": ["."]}
        asked = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            assert sample["resps"][0][0] == json.load(answer)["choices"][0]["text"]
