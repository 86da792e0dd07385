"""Compares tekken.json and tiktoken.model with Python's tiktoken, which the models' authors use for encoding."""
import base64
import collections
import itertools
import json
import os
import pathlib
import random
import subprocess

import pytest

tiktoken = pytest.importorskip("tiktoken")

CORPUS = ("the cat isn't here, it's the other cat's 1234 hats and 56 bats; THE Cat said: “don’t!” \n\n  def f(x):\n\treturn x/2\r\n"
          "猫は ここに いません。你好世界，你好猫。é è ê naïve Straße ΑΒΓ αβγ Привет мир 🙂🙂👩‍👩‍👧 々〆〇 ﷺ aaaa aaaaaaa ") * 3
PIECES = ["the", " cat", "'s", "’s", "DON'T", "猫", "你好", "世界a", "a世", "々", "〇1", "é", "e\u0301", "ß", "Α", "αβ", "1234567", "٣٤", " ", "  ", "\n",
          "\r\n", "\t", "\u00a0", "\u2028", "🙂", "👩‍👩‍👧", "/", "!?/", "x/2", "<", "[INST]", "<|im_end|>", "\x00", "ﷺ", "ǅ", "ʰ", "aaaaaaaaaaa", "ひらがな", "カ", "한"]
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(num_merges):
    """Returns ranks of all bytes and of the most frequent merges, pair by pair."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    words = [[bytes([byte]) for byte in word.encode()] for word in CORPUS.replace(" ", "| ").split("|")]
    while len(ranks) < 256 + num_merges:
        pairs = collections.Counter(pair for word in words for pair in itertools.pairwise(word))
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        ranks.setdefault(left + right, len(ranks))
        for word in words:
            i = 0
            while i + 1 < len(word):
                if word[i] == left and word[i + 1] == right:
                    word[i:i + 2] = [left + right]
                i += 1
    # No merge produces these tokens, but a whole piece may equal one.
    for whole in (" hats", "你好世", "12", "<|im"):
        ranks.setdefault(whole.encode(), len(ranks))
    return ranks


RANKS = train(150)


@pytest.fixture(scope="module")
def tool():
    path = os.environ.get("QUIRE_TOKENIZE_TOOL")
    if not path or not pathlib.Path(path).exists():
        pytest.skip("QUIRE_TOKENIZE_TOOL names no tool")
    return path


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(3)
    return [CORPUS] + ["".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in range(3000)]


def run(tool, folder, lines, *flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([tool, str(folder), *flags], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def write_tekken(folder, specials=None):
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in RANKS.items()]
    config = {"pattern": TEKKEN, "num_vocab_tokens": len(vocab) + 7, "default_vocab_size": 30 + len(vocab), "default_num_special_tokens": 30,
              "version": "v7" if specials else "v3"}
    made = {"config": config, "vocab": vocab + [{"rank": len(vocab), "token_bytes": "eHl6enk=", "token_str": "beyond"}]}
    if specials:
        made["special_tokens"] = [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(specials)]
    (folder / "tekken.json").write_text(json.dumps(made), encoding="utf-8")


def test_tekken_gives_the_ids_of_tiktoken(tool, texts, tmp_path):
    write_tekken(tmp_path)
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN, mergeable_ranks=RANKS, special_tokens={})
    expected = [[30 + token for token in encoding.encode(text, disallowed_special=())] for text in texts]
    found = run(tool, tmp_path, texts)
    assert found == expected, next((t, f, e) for t, f, e in zip(texts, found, expected) if f != e)
    assert run(tool, tmp_path, found, "--decode") == texts
    assert run(tool, tmp_path, ["a"], "--add-special") == [[1, 30 + 97]], "a text must begin with <s>"
    assert run(tool, tmp_path, ["[INST]a<SPECIAL_29>"], "--parse-special") == [[3, 30 + 97, 29]]


def test_special_tokens_of_tekken_come_from_the_file(tool, tmp_path):
    write_tekken(tmp_path, ["<unk>", "<s>", "</s>", "[THINK]"])
    assert run(tool, tmp_path, ["[THINK][INST]"], "--parse-special")[0][0] == 3
    assert len(run(tool, tmp_path, ["[INST]"], "--parse-special")[0]) > 1


def write_kimi(folder):
    (folder / "tiktoken.model").write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in RANKS.items()))
    first = len(RANKS)
    added = {str(first): {"content": "[BOS]", "special": True}, str(first + 1): {"content": "[EOS]", "special": True},
             str(first + 2): {"content": "<|im_end|>", "special": True}, str(first + 9): {"content": "<think>", "special": False}}
    config = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "[EOS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    names = {int(i): entry["content"] for i, entry in added.items()}
    return {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(first, first + 256)}


def test_tiktoken_model_gives_the_ids_of_tiktoken(tool, texts, tmp_path):
    special = write_kimi(tmp_path)
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=RANKS, special_tokens=special)
    texts = texts + ["a<|im_end|>b", "[BOS]<think>x</think>", f"<|reserved_token_{len(RANKS) + 255}|>"]
    expected = [encoding.encode(text, allowed_special="all") for text in texts]
    found = run(tool, tmp_path, texts, "--parse-special")
    assert found == expected, next((t, f, e) for t, f, e in zip(texts, found, expected) if f != e)
    assert run(tool, tmp_path, ["a"], "--add-special") == [[97]], "no token is added before a text"
    think, end = special["<think>"], special["<|im_end|>"]
    assert run(tool, tmp_path, [[97, think, end]], "--decode") == ["a<think>"], "tokens that belong to an answer are decoded"


@pytest.mark.parametrize("name, text, problem", [
    ("tekken.json", "{", "not valid JSON"),
    ("tekken.json", '{"config": {"default_vocab_size": 9, "default_num_special_tokens": 9, "pattern": "."}}', "9 tokens"),
    ("tekken.json", '{"config": {"default_vocab_size": 4000000000, "default_num_special_tokens": 3, "pattern": "."}, "vocab": []}', "config requires"),
    ("tekken.json", '{"config": {"default_vocab_size": 4, "default_num_special_tokens": 3, "pattern": "."}, "vocab": [{"rank": 1, "token_bytes": "YQ=="}]}',
     "rank 0"),
    ("tekken.json", '{"config": {"default_vocab_size": 4, "default_num_special_tokens": 3, "pattern": "."}, "vocab": [{"rank": 0, "token_bytes": "?"}]}',
     "rank 0"),
    ("tiktoken.model", "YQ== 0\nYg== 0\n", "'Yg== 0'"), ("tiktoken.model", "YQ== 5\n", "ranks up to"), ("tiktoken.model", "YQ==", "is not a token"),
    ("tiktoken.model", "YQ== 4000000000\n", "is not a token"), ("tiktoken.model", "", "0 tokens"),
])
def test_inconsistent_files_are_refused(tool, tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TikTokenTokenizer"}')
    done = subprocess.run([tool, str(tmp_path)], input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1 and name in done.stderr and problem in done.stderr, done.stderr


def test_tiktoken_model_of_another_class_is_refused(tool, tmp_path):
    (tmp_path / "tiktoken.model").write_text("YQ== 0\n")
    done = subprocess.run([tool, str(tmp_path)], input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "TikTokenTokenizer" in done.stderr


def test_tekken_gives_the_ids_of_mistral_common(tool, texts, tmp_path):
    """Uses the vocabulary of the package."""
    common = pytest.importorskip("mistral_common")
    path = pathlib.Path(common.__file__).parent / "data/tekken_240911.json"
    (tmp_path / "tekken.json").write_bytes(path.read_bytes())
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    reference = Tekkenizer.from_file(path)
    assert run(tool, tmp_path, texts, "--add-special") == [reference.encode(text, bos=True, eos=False) for text in texts]


MESSAGES = [
    {"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi  "}, {"role": "assistant", "content": "Hello! "},
    {"role": "user", "content": "What is it in Île-de-France?\n"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Île", "days": [1, 2.5, null]}'}},
        {"id": "123456789", "type": "function", "function": {"name": "time", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": '{"sky": "é"}'},
    {"role": "tool", "tool_call_id": "123456789", "name": "time", "content": "12:00"},
    {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "Thanks"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Of a city: <é>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object", "properties": {}}}}]


def render(template, messages, tools):
    """Renders like transformers, with the arguments of calls as objects."""
    jinja2 = pytest.importorskip("jinja2")
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    messages = json.loads(json.dumps(messages))
    for call in [call for message in messages for call in message.get("tool_calls", ())]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert jinja2.__version__
    return environment.from_string(template).render(messages=messages, tools=tools, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("version", ["v7", "v11", "v13"])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_prompt_without_a_template_matches_mistral_common(tool, tmp_path, version, tools):
    common = pytest.importorskip("mistral_common")
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    made = json.loads((pathlib.Path(common.__file__).parent / "data/tekken_240911.json").read_text(encoding="utf-8"))
    made["config"]["version"] = version
    names = [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS] + ["[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"]
    made["special_tokens"] = [{"rank": i, "token_str": str(getattr(name, "value", name)), "is_control": True} for i, name in enumerate(names)]
    made.pop("multimodal", None)
    (tmp_path / "tekken.json").write_text(json.dumps(made), encoding="utf-8")
    template = subprocess.run([tool, str(tmp_path), "--template"], capture_output=True, text=True, check=True).stdout
    reference = MistralTokenizer.from_file(str(tmp_path / "tekken.json"))
    for count in (2, 4, 7, 9):
        request = ChatCompletionRequest.from_openai(messages=MESSAGES[:count], tools=tools)
        expected = reference.encode_chat_completion(request).tokens
        prompt = render(template, MESSAGES[:count], tools)
        assert run(tool, tmp_path, [prompt], "--parse-special") == [expected], (count, prompt, reference.decode(expected))
    (tmp_path / "chat_template.jinja").write_text("own")
    assert subprocess.run([tool, str(tmp_path), "--template"], capture_output=True, text=True, check=True).stdout == "own"
