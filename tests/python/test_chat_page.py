"""Tests the scripts of the chat page in node: Markdown, stored conversations and streams. Needs node."""
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS, TESTS = ROOT / "src/server/operate/chat", ROOT / "tests/server/operate"
sys.path.append(str(TESTS))

import markdown_cases  # noqa: E402

MARKDOWN = ("markdown", "markdown_inline", "markdown_view")
SHOWN = "(text, open) => { const box = make(null, 'div'), view = new MarkdownView(box); view.show(text, open); return box.inner; }"
# Shows each beginning of the text in one view, as a stream does, and then the whole text.
STREAM = """text => { const box = make(null, 'div'), view = new MarkdownView(box);
  for (let end = 1; end <= text.length; ++end) view.show(text.slice(0, end), true);
  view.show(text, false);
  return box.inner; }"""


def run(scripts, call, arguments):
    """Returns the results of the JavaScript function `call` for each list of arguments."""
    if not shutil.which("node"):
        pytest.skip("no node")
    given = {"scripts": [(SCRIPTS / f"{name}.js").read_text() for name in scripts], "call": call, "arguments": arguments}
    done = subprocess.run(["node", TESTS / "page_harness.js"], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("cases, is_open", [(markdown_cases.COMPLETE, False), (markdown_cases.HOSTILE, False), (markdown_cases.STREAMED, True)],
                         ids=["complete", "hostile", "streamed"])
def test_markdown_makes_these_elements(cases, is_open):
    results = run(MARKDOWN, SHOWN, [[text, is_open] for text, _ in cases.values()])
    for (name, (_, html)), result in zip(cases.items(), results):
        assert result == html, name


def test_a_streamed_text_ends_with_the_same_elements():
    """A view keeps the elements of earlier blocks, so a wrong key would leave an old element."""
    cases = {**markdown_cases.COMPLETE, **markdown_cases.HOSTILE}
    whole = "\n\n".join(text for text, _ in cases.values())
    results = run(MARKDOWN, STREAM, [[text] for text, _ in cases.values()])
    assert results == [html for _, html in cases.values()]
    assert run(MARKDOWN, STREAM, [[whole[:3000]]]) == run(MARKDOWN, SHOWN, [[whole[:3000], False]])


@pytest.mark.parametrize("unit", ["[", "](", "[](<", "*a ", "_a **b ", "a**b*c", "`", "` `` ", "> ", "- ", "  - a\n", "|\n", "||", "<", "&lt", "# ", "\\", "~",
                                  "https://a.example/", "(", "[a](b", "1. ", "***", "- - ", "|-|\n"])
def test_markdown_ends_for_hostile_texts(unit):
    """A parser with quadratic steps would run longer than the time limit of run()."""
    text = unit * (400_000 // len(unit))
    parse = """(text, open) => { for (const block of parseMarkdown(text, open))
      for (const part of block.header ?? [block.text ?? ""]) parseInline(part, open);
      return text.length; }"""
    assert run(MARKDOWN, parse, [[text, True], [text, False], [text + "x", False]]) == [len(text), len(text), len(text) + 1]


def test_markdown_limits_the_depth_of_elements():
    """Browsers fail on elements that are nested thousands of levels deep."""
    depth = """text => { const box = make(null, 'div'); new MarkdownView(box).show(text, false);
      const depth = node => 1 + Math.max(0, ...node.children.map(depth)); return depth(box); }"""
    texts = [">" * 5000 + "a", "- " * 5000 + "a", "**a " * 5000 + "b**" * 5000, "*" * 5000 + "a" + "*" * 5000, "[" * 5000 + "a" + "](https://x.example)" * 5000]
    for text, levels in zip(texts, run(MARKDOWN, depth, [[text] for text in texts])):
        assert levels < 200, text[:20]


STORE = """const made = (id, changed, text, images = []) => ({id, name: id, changed, messages: [{role: "user", text, images, audio: null},
  {role: "assistant", text: "yes", thoughts: "", calls: [], finish: "stop", model: "m", figures: null}]});"""


def store(call, limit=1_000_000):
    """Runs a function body with `all`, the stored conversations."""
    return run(("conversations",), f"() => {{ {STORE} const storage = new Storage({limit}), all = new Conversations(storage); {call} }}", [[]])[0]


def test_conversations_are_stored_and_removed():
    result = store("""all.save(made("a", 1, "first")); all.save(made("b", 2, "second")); all.save({...made("a", 3, "again"), name: "new name"});
      const before = all.list().map(entry => [entry.id, entry.name]), read = all.load("a"); all.remove("b");
      return [before, read.messages[0].text, all.list().map(entry => entry.id), all.load("b"), storage.items.size];""")
    assert result == [[["a", "new name"], ["b", "b"]], "again", ["a"], None, 2]


def test_oldest_conversations_are_dropped_when_the_storage_is_full():
    """The storage of this browser has room for three of the conversations."""
    saved, ids, size = store("""let saved = true; for (let i = 0; i < 9; ++i) saved &&= all.save(made("c" + i, i, "x".repeat(2500)));
      return [saved, all.list().map(entry => entry.id), storage.items.size];""", 9000)
    assert saved and ids == ["c8", "c7", "c6"] and size == 4


def test_oldest_conversations_are_dropped_at_the_limits_of_the_page():
    assert store('for (let i = 0; i < 203; ++i) all.save(made("c" + i, i, "x")); return [all.list().length, all.list()[199].id];') == [200, "c3"]
    assert store('for (let i = 0; i < 6; ++i) all.save(made("c" + i, i, "x".repeat(900_000))); return all.list().map(entry => entry.id);',
                 100_000_000) == ["c5", "c4", "c3", "c2"]


def test_conversation_that_is_too_large_is_not_stored_and_removes_no_other():
    assert store('all.save(made("a", 1, "x")); const saved = all.save(made("b", 2, "x".repeat(4_100_000))); return [saved, all.list().map(entry => entry.id)];',
                 100_000_000) == [False, ["a"]]


def test_large_images_are_not_stored():
    small, large = store("""all.save(made("a", 1, "x", [{name: "s", url: "data:image/png;base64,AAAA"}, {name: "l", url: "data:image/png;base64," + "A".repeat(400_000)}]));
      return all.load("a").messages[0].images;""")
    assert small == {"name": "s", "url": "data:image/png;base64,AAAA"} and large == {"name": "l", "url": None}


@pytest.mark.parametrize("stored", ["", "nonsense", "null", "[]", '{"messages": 3}', '{"messages": [{"role": "system", "text": "x"}]}',
                                    '{"messages": [{"role": "user", "text": 3}]}'])
def test_corrupted_storage_is_an_absent_conversation(stored):
    assert store(f"storage.items.set(ENTRY_KEY + 'a', {json.dumps(stored)}); storage.items.set(LIST_KEY, {json.dumps(stored)});"
                 "return [all.load('a'), all.list(), all.save(made('b', 1, 'x'))];") == [None, [], True]


def test_images_of_other_addresses_are_not_loaded_from_the_storage():
    assert store("""storage.items.set(ENTRY_KEY + "a", JSON.stringify(made("a", 1, "x", [{name: "n", url: "https://x.example/a.png"}, {name: "n", url: "data:image/svg+xml;base64,AAAA"}])));
      return all.load("a").messages[0].images;""") == []


def test_export_has_the_messages_of_a_request():
    exported = json.loads(store("""const one = made("a", 0, "look", [{name: "n", url: "data:image/png;base64,AAAA"}]); one.messages[1].thoughts = "hm";
      return exportedForm(one);"""))
    assert exported["changed"] == "1970-01-01T00:00:00.000Z"
    assert exported["messages"] == [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "text", "text": "look"}]},
        {"role": "assistant", "content": "yes", "reasoning_content": "hm", "finish_reason": "stop", "model": "m"}]


EVENTS = """async (chunks) => { const bytes = new TextEncoder(), found = [];
  const body = new ReadableStream({start(out) { for (const chunk of chunks) out.enqueue(bytes.encode(chunk)); out.close(); }});
  try { for await (const event of eventsOf({body})) found.push(event.x); return [found, ""]; } catch (error) { return [found, error.message]; } }"""


def test_events_of_a_stream_are_read():
    cases = [
        (['data: {"x": 1}\n\ndata: {"x": 2}\n\ndata: [DONE]\n\n'], [[1, 2], ""]),
        (['data: {"x', '": 1}\r', '\n\r\n: comment\n\ndata:{"x":2}\n', "\ndata: [DONE]", "\n\n"], [[1, 2], ""]),
        (['data: {"x": 1}\n\n'], [[1], "The connection ended before the answer was complete."]),
        (['data: {"x": 1}\n\ndata: {"error": {"message": "the engine failed", "code": 500}}\n\n'], [[1], "the engine failed"]),
    ]
    results = run(("server",), EVENTS.replace("new TextEncoder()", "{encode: text => Uint8Array.from(text, c => c.charCodeAt(0))}"), [[chunks] for chunks, _ in cases])
    assert results == [expected for _, expected in cases]


def test_progress_of_a_prompt_is_that_of_the_request():
    fields = ["id", "name", "state", "computed_tokens", "prompt_tokens"]
    rows = [[1, "chatcmpl-other-1", "decode", 9, 9], [2, "chatcmpl-chat-a1-2", "prefill", 3000, 8000], [3, "chatcmpl-chat-b1-3", "queued", 0, 50]]
    frame = {"request_fields": fields, "requests": rows}
    reading, queued, absent = run(("answer_view", "progress"), "promptState", [[frame, "chat-a1"], [frame, "chat-b1"], [frame, "chat-c1"]])
    assert reading == {"text": "Reading the prompt: 3,000 of 8,000 tokens", "done": 3000, "total": 8000}
    assert queued["text"] == "In the server's queue" and queued["total"] == 0 and absent is None


def test_end_of_an_answer_has_its_reason():
    def message(finish, text="a", answer=5):
        return {"finish": finish, "text": text, "thoughts": "hm", "figures": {"answer": answer, "prompt": 40, "cached": 0}}

    cases = [
        (message("stop"), ""), (message("length"), "Cut at 5 tokens: raise the limit to get a longer answer."),
        (message("length", answer=1), "Cut at 1 token: raise the limit to get a longer answer."),
        (message("length", text=""), "Cut at 5 tokens, before the answer began: raise the limit to get a longer answer."),
        (message("length", answer=60), "Cut at 60 tokens: the context of 100 tokens is full. Start a new chat."),
        (message("content_filter"), "A content filter ended this answer."), (message("stopped"), "Stopped."),
        (message("of_a_later_version"), "The answer ended: of_a_later_version."), ({**message("length"), "figures": None}, "Cut: raise the limit to get a longer answer."),
    ]
    assert run(("answer_view",), "endText", [[given, 100] for given, _ in cases]) == [text for _, text in cases]
