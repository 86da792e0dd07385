"""Tests langchain-openai: chats, streams, bind_tools and with_structured_output."""
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from shapes import QUESTION, WEATHER, City, GetWeather


@pytest.fixture
def model(url):
    return ChatOpenAI(base_url=url + "/v1", api_key="none", model="smol", max_tokens=100, temperature=0, max_retries=0)


@pytest.mark.row("langchain-openai", "invoke, batch")
def test_invoke_and_batch_give_the_same_answer(model):
    answer = model.invoke(QUESTION)
    assert "Paris" in answer.content and answer.usage_metadata["output_tokens"] > 0
    assert [one.content for one in model.batch([QUESTION, QUESTION])] == [answer.content] * 2


@pytest.mark.row("langchain-openai", "stream")
def test_stream_gives_the_answer_of_invoke(model):
    chunks = list(model.stream(QUESTION))
    assert len(chunks) > 5 and "".join(chunk.content for chunk in chunks) == model.invoke(QUESTION).content


@pytest.mark.row("langchain-openai", "bind_tools: required, named, auto")
def test_bind_tools_supports_required_named_and_auto(model):
    for choice in ("any", "GetWeather"):
        (call,) = model.bind_tools([GetWeather], tool_choice=choice, parallel_tool_calls=False).invoke(WEATHER).tool_calls
        assert call["name"] == "GetWeather"
        GetWeather.model_validate(call["args"])
    assert model.bind_tools([GetWeather]).invoke(WEATHER).response_metadata["finish_reason"] in ("stop", "length", "tool_calls")


@pytest.mark.row("langchain-openai", "bind_tools, stream")
def test_streamed_chunks_form_one_tool_call(model):
    whole = None
    for chunk in model.bind_tools([GetWeather], tool_choice="any", parallel_tool_calls=False).stream(WEATHER):
        whole = chunk if whole is None else whole + chunk
    (call,) = whole.tool_calls
    GetWeather.model_validate(call["args"])


@pytest.mark.row("langchain-openai", "ToolMessage")
def test_tool_results_are_accepted(model):
    asked = HumanMessage(WEATHER[0]["content"])
    called = model.bind_tools([GetWeather], tool_choice="any", parallel_tool_calls=False).invoke([asked])
    result = ToolMessage("12 degrees", tool_call_id=called.tool_calls[0]["id"])
    assert model.bind_tools([GetWeather], tool_choice="none").invoke([asked, called, result]).content


@pytest.mark.parametrize("row, method", [(("langchain-openai", f"with_structured_output, {method}"), method)
                                         for method in ("json_schema", "function_calling", "json_mode")])
def test_with_structured_output_returns_the_model(row, method, model):
    question = QUESTION
    if method == "json_mode":  # JSON mode enforces JSON but no field names: the model must repeat them
        question = 'Repeat exactly this JSON: {"name": "Paris", "country": "France"}'
    answer = model.with_structured_output(City, method=method).invoke(question)
    assert isinstance(answer, City)


@pytest.mark.row("langchain-openai", "with_structured_output, strict, include_raw, stream")
def test_strict_schema_parses_and_streams(model):
    raw = model.with_structured_output(City, method="json_schema", strict=True, include_raw=True).invoke(QUESTION)
    assert isinstance(raw["parsed"], City) and not raw["parsing_error"]
    assert isinstance(list(model.with_structured_output(City).stream(QUESTION))[-1], City)


@pytest.mark.row("langchain-openai", "OpenAI (completions)")
def test_completions_answer_a_prompt(url):
    model = OpenAI(base_url=url + "/v1", api_key="none", model="smol", max_tokens=4, temperature=0)
    assert "Paris" in model.invoke("The capital of France is")


@pytest.mark.row("langchain-openai", "OpenAIEmbeddings")
def test_embeddings_have_the_model_width(url):
    model = OpenAIEmbeddings(base_url=url + "/v1", api_key="none", model="smol", check_embedding_ctx_length=False)
    assert len(model.embed_query("one")) == 576


@pytest.mark.row("langchain-openai", "use_responses_api: invoke, stream, with_structured_output")
def test_responses_api_invokes_streams_and_parses(url):
    model = ChatOpenAI(base_url=url + "/v1", api_key="none", model="smol", max_tokens=100, temperature=0, max_retries=0, use_responses_api=True)
    answer = model.invoke(QUESTION)
    assert "Paris" in answer.text and answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.text for chunk in model.stream(QUESTION)) == answer.text
    assert isinstance(model.with_structured_output(City).invoke(QUESTION), City)
