"""quire.Engine: the whole engine in a Python program, on the real model."""
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


def test_the_parts_of_a_stream_are_the_whole_answer(engine):
    whole = greedy(engine, STORY)
    assert len(whole.tokens) == 8 and whole.finish_reason == "length" and whole.text == engine.decode(whole.tokens)
    parts = list(engine.stream(engine.encode(STORY), quire.SamplingParams(temperature=0, max_tokens=8)))
    assert len(parts) > 1 and [part.finish_reason for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert [token for part in parts for token in part.tokens] == whole.tokens
    assert "".join(part.text for part in parts) == whole.text
    assert parts[0].num_cached_tokens == 16, "the second time the first block is found"


def test_answers_run_together_and_seeds_hold(engine):
    alone = [engine.generate(STORY, seed=seed, max_tokens=8).tokens for seed in range(4)]
    beside = [engine.stream(STORY, seed=seed, max_tokens=8) for seed in range(4)]
    assert [stream.rest().tokens for stream in beside] == alone
    assert len({tuple(tokens) for tokens in alone}) > 1


def test_a_chat_is_rendered_by_the_models_template(engine):
    tokens = engine.encode([{"role": "user", "content": "Name a river."}])
    assert engine.decode(tokens).rstrip().endswith("assistant") and len(tokens) > len(engine.encode("Name a river."))
    assert greedy(engine, [{"role": "user", "content": "Name a river."}]).tokens == greedy(engine, tokens).tokens


def test_log_probabilities_and_stop_ids(engine):
    answer = greedy(engine, STORY, logprobs=2, prompt_logprobs=0)
    assert len(answer.logprobs) == 8 and all(rows[0][0] == token for rows, token in zip(answer.logprobs, answer.tokens))
    assert len(answer.prompt_logprobs) == len(engine.encode(STORY)) - 1
    last = next(token for index, token in enumerate(answer.tokens) if index > 1 and token not in answer.tokens[:index])
    stopped = greedy(engine, STORY, stop_token_ids=[last])
    assert stopped.finish_reason == "stop" and stopped.tokens == answer.tokens[: answer.tokens.index(last) + 1]
    assert stopped.text == engine.decode(stopped.tokens[:-1]), "the stop id gives no text"


def test_an_answer_is_aborted_by_name_and_when_it_is_dropped(engine):
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


def test_a_signal_ends_the_wait_and_the_answer(engine):
    before = engine.stats()["finished_abort"]

    def ring(*_):
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError):
            while True:  # longer than that, on any machine
                engine.generate(STORY, max_tokens=400, ignore_eos=True)
    finally:
        signal.signal(signal.SIGALRM, previous)
    greedy(engine, "A step more, in which that is seen.")
    assert engine.stats()["finished_abort"] == before + 1


def test_what_cannot_be_served_is_an_exception_with_field_and_remedy(engine, tmp_path):
    for kind, text, fields in [
        (ValueError, "temperature: .*; ", {"temperature": 3}),
        (TypeError, "temperatur: is no option of SamplingParams; ", {"temperatur": 1}),
        (TypeError, "max_tokens: is 'many'; give a value of type int", {"max_tokens": "many"}),
        (ValueError, "priority: ", {"priority": 3}),
    ]:
        with pytest.raises(kind, match=text):
            engine.generate(STORY, **fields)
    with pytest.raises(ValueError, match="prompt"):
        engine.generate([])
    with pytest.raises(TypeError, match="top_k: stands beside params"):
        engine.generate(STORY, quire.SamplingParams(), top_k=2)
    for kind, text, options in [
        (TypeError, "max_seqs: is no option of EngineConfig; ", {"max_seqs": 3}),
        (TypeError, "max_num_seqs: is -1; give a value of type int", {"max_num_seqs": -1}),
        (ValueError, "scheduling_policy: is 'lottery'; give one of fcfs, priority, continuum", {"scheduling_policy": "lottery"}),
        (ValueError, "kv_cache_memory: is '64 cats'; write 512MiB", {"kv_cache_memory": "64 cats"}),
        (ValueError, "max_num_seqs: is 0; give a value from 1", {"max_num_seqs": 0}),
        (ValueError, "kv_pressure_high: is 2", {"kv_pressure_high": 2.0}),
    ]:
        with pytest.raises(kind, match=text):
            quire.Engine(MODEL, **options)
    with pytest.raises(FileNotFoundError):
        quire.Engine(tmp_path / "none.gguf")


def test_a_closed_engine_says_so_and_its_answers_end(tmp_path):
    engine = quire.Engine(MODEL, **TINY, trace=str(tmp_path / "run"))
    stream = engine.stream(STORY, max_tokens=400, ignore_eos=True)
    next(stream)
    assert engine.close() == 1 and stream.rest().finish_reason == "abort"
    with pytest.raises(RuntimeError, match="closed"):
        engine.generate(STORY)
    assert engine.close() == 1 and engine.stats()["num_running"] == 0
    assert (tmp_path / "run.steps.jsonl").stat().st_size > 0


@pytest.mark.parametrize("tokens", [True, False])
def test_the_last_minutes_are_saved_for_a_replay(tmp_path, tokens):
    with quire.Engine(MODEL, **TINY, journal_memory="1MiB", journal_save=str(tmp_path), journal_tokens=tokens) as engine:
        greedy(engine, STORY)
        saved = engine.save_journal()
    assert pathlib.Path(saved["path"]).parent == tmp_path and saved["steps"] >= 8 and saved["seconds"] > 0
    done = subprocess.run([os.environ["QUIRE_BINARY"], "replay", saved["path"]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "decisions identical" in done.stdout, done
    with quire.Engine(MODEL, **TINY) as engine, pytest.raises(NotImplementedError, match="journal_save"):
        engine.save_journal()


def test_what_a_prompt_would_find_is_what_it_finds():
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


def test_the_interpreter_ends_with_an_answer_under_way():
    program = f"import quire; e = quire.Engine({MODEL!r}, **{TINY!r}); s = e.stream('A', max_tokens=400, ignore_eos=True); next(s); print('end')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_options_are_the_flags_of_serve_and_run():
    def flags(command):
        told = subprocess.run([os.environ["QUIRE_BINARY"], command, "--help"], capture_output=True, text=True, check=True).stdout
        return {name.replace("-", "_") for name in re.findall(r"--([a-z][a-z-]+)", told)}

    options = {name for name in dir(quire.EngineConfig) if not name.startswith("_")}
    assert options <= flags("serve"), options - flags("serve")
    of_a_prompt = {"help", "system", "raw", "lora", "quiet", "max_tokens", "temperature", "top_p", "top_k", "served_model_name", "speculative_config"}
    missing = {name for name in flags("run") - options - of_a_prompt if not name.startswith("no_")}
    assert not missing, "an engine's flag that Python does not have"


def test_an_installation_without_it_says_where_it_is(tmp_path):
    package = pathlib.Path(quire.__file__).parent
    (tmp_path / "quire").mkdir()
    for file in package.iterdir():
        if not file.name.startswith("_engine."):
            (tmp_path / "quire" / file.name).symlink_to(file)
    done = subprocess.run([sys.executable, "-c", "import quire; quire.Core; quire.Engine"], env={"PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert "quire.Engine: this installation has the core alone; the wheel that ./dev package makes has the engine too" in done.stderr
