"""Tests quire.Engine: the whole engine in a Python program, on the real model."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest

quire = pytest.importorskip("quire", reason="the Python package is not built: ./dev build")
MODEL = os.environ.get("QUIRE_TEST_MODEL", "")
TINY = {"kv_cache_memory": "64MiB", "max_model_len": 512, "max_num_seqs": 4, "threads": 1}
STORY = "Once upon a time there was a king who had three sons, and the youngest of them"

if not MODEL:
    pytest.skip("QUIRE_TEST_MODEL is not set: ./dev test sets it", allow_module_level=True)


@pytest.fixture(scope="module")
def engine():
    with quire.Engine(MODEL, **TINY) as made:
        yield made


def greedy(engine, prompt, **fields):
    return engine.generate(prompt, **{"temperature": 0, "max_tokens": 8, **fields})


def test_streamed_parts_form_the_whole_answer(engine):
    whole = greedy(engine, STORY)
    assert len(whole.tokens) == 8 and whole.finish_reason == "length" and whole.text == engine.decode(whole.tokens)
    parts = list(engine.stream(engine.encode(STORY), quire.SamplingParams(temperature=0, max_tokens=8)))
    assert len(parts) > 1 and [part.finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert [token for part in parts for token in part.tokens] == whole.tokens
    assert "".join(part.text for part in parts) == whole.text
    assert parts[0].num_cached_tokens == 16, "the second call must hit the first block"


def test_concurrent_answers_are_reproducible_by_seed(engine):
    alone = [engine.generate(STORY, seed=seed, max_tokens=8).tokens for seed in range(4)]
    beside = [engine.stream(STORY, seed=seed, max_tokens=8) for seed in range(4)]
    assert [stream.rest().tokens for stream in beside] == alone
    assert len({tuple(tokens) for tokens in alone}) > 1


def test_chat_is_rendered_by_the_models_template(engine):
    tokens = engine.encode([{"role": "user", "content": "Name a river."}])
    assert engine.decode(tokens).rstrip().endswith("assistant") and len(tokens) > len(engine.encode("Name a river."))
    assert greedy(engine, [{"role": "user", "content": "Name a river."}]).tokens == greedy(engine, tokens).tokens


def test_log_probabilities_and_stop_ids_are_returned(engine):
    answer = greedy(engine, STORY, logprobs=2, prompt_logprobs=0)
    assert len(answer.logprobs) == 8 and all(rows[0][0] == token for rows, token in zip(answer.logprobs, answer.tokens))
    assert len(answer.prompt_logprobs) == len(engine.encode(STORY)) - 1
    last = next(token for index, token in enumerate(answer.tokens) if index > 1 and token not in answer.tokens[:index])
    stopped = greedy(engine, STORY, stop_token_ids=[last])
    assert stopped.finish_reason == "stop" and stopped.tokens == answer.tokens[: answer.tokens.index(last) + 1]
    assert stopped.text == engine.decode(stopped.tokens[:-1]), "the stop token has no text"


def test_answer_is_aborted_explicitly_and_when_dropped(engine):
    before = engine.stats()["finished_abort"]
    stream = engine.stream(STORY, max_tokens=400, ignore_eos=True)
    next(stream)
    engine.abort(stream)
    assert stream.rest().finish_reason == "abort"
    with pytest.raises(StopIteration):
        next(stream)
    del stream
    dropped = engine.stream(STORY, max_tokens=400, ignore_eos=True)
    next(dropped)
    del dropped
    greedy(engine, "A step more, in which that is seen.")
    stats = engine.stats()
    assert stats["finished_abort"] == before + 2 and stats["num_free_blocks"] == stats["num_blocks"]


def test_stats_keep_their_keys(engine):
    stats = engine.stats()
    assert set(stats) == {"num_steps", "num_running", "num_waiting", "num_queued_tokens", "num_blocks", "num_free_blocks", "num_preemptions", "num_evicted_blocks", "num_retained_blocks",
                          "prompt_tokens", "prompt_tokens_cached", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits",
                          "finished_stop", "finished_length", "finished_abort", "finished_error", "trace_steps", "trace_steps_dropped"}
    assert all(type(value) is int for value in stats.values())


def test_other_threads_run_while_one_waits(engine):
    turns, over = 0, threading.Event()

    def wait():
        engine.generate(STORY, max_tokens=64, ignore_eos=True)
        over.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not over.wait(0.001):
        turns += 1
    waiting.join()
    assert turns > 2


def test_signal_ends_the_wait_and_aborts_the_answer(engine):
    before = engine.stats()["finished_abort"]

    def ring(*_):
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError):
            while True:  # this takes longer than the timer on any machine
                engine.generate(STORY, max_tokens=400, ignore_eos=True)
    finally:
        signal.signal(signal.SIGALRM, previous)
    greedy(engine, "A step more, in which that is seen.")
    assert engine.stats()["finished_abort"] == before + 1


def test_invalid_requests_raise_with_field_and_remedy(engine, tmp_path):
    for kind, text, fields in [
        (ValueError, "temperature: .*; ", {"temperature": 3}),
        (TypeError, "temperatur: is not an option of SamplingParams; did you mean 'temperature'?", {"temperatur": 1}),
        (TypeError, "max_tokens: is 'many'; use a value of type int", {"max_tokens": "many"}),
        (ValueError, "priority: ", {"priority": 3}),
    ]:
        with pytest.raises(kind, match=text):
            engine.generate(STORY, **fields)
    with pytest.raises(ValueError, match="prompt"):
        engine.generate([])
    with pytest.raises(TypeError, match="top_k: cannot be combined with params"):
        engine.generate(STORY, quire.SamplingParams(), top_k=2)
    for kind, text, options in [
        (TypeError, "max_seqs: is not an option of EngineConfig; did you mean 'max_num_seqs'?", {"max_seqs": 3}),
        (TypeError, "max_num_seqs: is -1; use a value of type int", {"max_num_seqs": -1}),
        (ValueError, "scheduling_policy: is 'lottery'; use one of fcfs, priority, continuum", {"scheduling_policy": "lottery"}),
        (ValueError, "kv_cache_memory: '64 cats' is not a size; use 512MiB", {"kv_cache_memory": "64 cats"}),
        (ValueError, "max_num_seqs: 0 is out of range; use a value from 1", {"max_num_seqs": 0}),
        (ValueError, "kv_pressure_high: is 2", {"kv_pressure_high": 2.0}),
    ]:
        with pytest.raises(kind, match=text):
            quire.Engine(MODEL, **options)
    with pytest.raises(FileNotFoundError):
        quire.Engine(tmp_path / "none.gguf")


def test_closed_engine_raises_and_ends_its_answers(tmp_path):
    engine = quire.Engine(MODEL, **TINY, trace=str(tmp_path / "run"))
    stream = engine.stream(STORY, max_tokens=400, ignore_eos=True)
    next(stream)
    assert engine.close() == 1 and stream.rest().finish_reason == "abort"
    with pytest.raises(RuntimeError, match="closed"):
        engine.generate(STORY)
    assert engine.close() == 1 and engine.stats()["num_running"] == 0
    assert (tmp_path / "run.steps.jsonl").stat().st_size > 0


@pytest.mark.parametrize("tokens", [True, False])
def test_saved_journal_replays_identically(tmp_path, tokens):
    with quire.Engine(MODEL, **TINY, journal_memory="1MiB", journal_save=str(tmp_path), journal_tokens=tokens) as engine:
        greedy(engine, STORY)
        saved = engine.save_journal()
    assert pathlib.Path(saved["path"]).parent == tmp_path and saved["steps"] >= 8 and saved["seconds"] > 0
    done = subprocess.run([os.environ["QUIRE_BINARY"], "replay", saved["path"]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "decisions identical" in done.stdout, done
    with quire.Engine(MODEL, **TINY) as engine, pytest.raises(NotImplementedError, match="journal_save"):
        engine.save_journal()


def test_request_finds_what_the_probe_reports():
    with quire.Engine(MODEL, **TINY) as engine:
        before = engine.probe(STORY)
        assert before["found"] == {"memory": 0} and before["missed_tokens"] == before["prompt_tokens"] == len(engine.encode(STORY))
        assert before["compute_s"] is None and engine.stats()["prefix_cache_queries"] == 0
        greedy(engine, STORY)
        after = engine.probe(STORY)
        assert after["found"]["memory"] > 0 and after["missed_tokens"] + after["found"]["memory"] == after["prompt_tokens"]
        assert engine.probe(STORY, cache_salt="other")["found"] == {"memory": 0}
        again = greedy(engine, STORY)
        assert again.num_cached_tokens == after["found"]["memory"]
        rows = engine.cache_curve()
    now = next(row for row in rows if row["label"] == "now")
    assert 0 < now["hit_rate"] < 1 and rows[-1]["blocks"] > now["blocks"] and rows[-1]["hit_rate"] >= now["hit_rate"]
    with pytest.raises(RuntimeError, match="closed"):
        engine.probe(STORY)
    with quire.Engine(MODEL, **TINY, enable_prefix_caching=False) as engine, pytest.raises(NotImplementedError, match="enable_prefix_caching"):
        engine.cache_curve()


def test_interpreter_exits_while_an_answer_is_in_progress():
    program = f"import quire; e = quire.Engine({MODEL!r}, **{TINY!r}); s = e.stream('A', max_tokens=400, ignore_eos=True); next(s); print('end')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_options_match_the_flags_of_serve_and_run():
    def flags(command):
        told = subprocess.run([os.environ["QUIRE_BINARY"], command, "--help"], capture_output=True, text=True, check=True).stdout
        return {name.replace("-", "_") for name in re.findall(r"--([a-z][a-z-]+)", told)}

    options = {name for name in dir(quire.EngineConfig) if not name.startswith("_")}
    assert options <= flags("serve"), options - flags("serve")
    of_a_prompt = {"help", "system", "raw", "lora", "quiet", "max_tokens", "temperature", "top_p", "top_k", "served_model_name", "speculative_config"}
    missing = {name for name in flags("run") - options - of_a_prompt if not name.startswith("no_")}
    assert not missing, "Python must have every flag of the engine"


def test_installation_without_the_engine_names_the_alternative(tmp_path):
    package = pathlib.Path(quire.__file__).parent
    (tmp_path / "quire").mkdir()
    for file in package.iterdir():
        if not file.name.startswith("_engine."):
            (tmp_path / "quire" / file.name).symlink_to(file)
    done = subprocess.run([sys.executable, "-c", "import quire; quire.Core; quire.Engine"], env={"PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert "quire.Engine: this installation contains only the core; the wheel of ./dev package also contains the engine" in done.stderr
