// Calls of tools and thoughts in chats over real sockets, with an engine played by hand.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <set>
#include <string>
#include <utility>

#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kHermes =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | length }}<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>{% endif %}<assistant>";
constexpr const char* kThinking =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}<tool_call>{\"name\": n, \"arguments\": "
    "a}</tool_call>{% endif %}"
    "<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% elif opened %}<think>\n{% endif %}{{ "
    "reasoning_effort }}";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "clock"}},
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])";
constexpr const char* kCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Z\xC3\xBCrich\"}}\n</tool_call>";

class ToolCallsTest : public RunningServer {
 protected:
  void begin(const char* chat_template, const std::string& answer, ServerOptions options = {}) {
    engine.set_chat_template(chat_template);
    engine.answer_with(answer);
    engine.set_max_model_len(4096);
    start(std::move(options));
  }
  ClientResponse chat(const std::string& more, const std::string& messages = R"([{"role": "user", "content": "hi"}])") {
    return post("/v1/chat/completions", fmt::format(R"({{"messages": {}{}{}}})", messages, more.empty() ? "" : ", ", more));
  }
  ClientResponse with_tools(const std::string& more = "") {
    return chat(fmt::format(R"("tools": {}{}{})", kTools, more.empty() ? "" : ", ", more));
  }
  static const boost::json::value& first_choice(const boost::json::value& answer) { return answer.at("choices").as_array()[0]; }
  std::string error_field(const std::string& more, const std::string& messages = R"([{"role": "user", "content": "hi"}])") {
    const auto response = chat(more, messages);
    EXPECT_EQ(response.status, 400U) << more << messages << response.body;
    const auto answer = response.json();
    return answer.as_object().contains("error") ? std::string(answer.at("error").at("param").as_string()) : "none";
  }
};

// What a client puts together from a stream.
struct Assembled {
  std::string content, reasoning, finish;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  std::size_t num_logprobs = 0;
};

void take_delta(Assembled& all, const boost::json::object& delta) {
  if (const auto* text = delta.if_contains("content")) all.content += text->as_string();
  if (const auto* text = delta.if_contains("reasoning_content")) all.reasoning += text->as_string();
  const auto* calls = delta.if_contains("tool_calls");
  if (calls == nullptr) return;
  for (const auto& call : calls->as_array()) {
    const auto index = static_cast<std::size_t>(call.at("index").as_int64());
    if (call.as_object().contains("id")) {
      EXPECT_EQ(index, all.calls.size());
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_EQ(call.at("function").at("arguments"), "");
      all.calls.push_back({std::string(call.at("id").as_string()), std::string(call.at("function").at("name").as_string()), {}});
    } else {
      EXPECT_FALSE(call.at("function").as_object().contains("name"));
      all.calls.at(index).arguments += call.at("function").at("arguments").as_string();
    }
  }
}

Assembled assemble(const std::vector<boost::json::value>& events) {
  Assembled all;
  for (const auto& event : events) {
    for (const auto& choice : event.at("choices").as_array()) {
      EXPECT_EQ(all.finish, "");
      take_delta(all, choice.at("delta").as_object());
      if (choice.at("finish_reason").is_string()) all.finish = choice.at("finish_reason").as_string();
      if (choice.at("logprobs").is_object()) all.num_logprobs += choice.at("logprobs").at("content").as_array().size();
    }
  }
  return all;
}

TEST_F(ToolCallsTest, AWholeAnswerHasItsCalls) {
  begin(kHermes, kCall);
  const auto answer = with_tools().json();
  const auto& choice = first_choice(answer);
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const auto& call = choice.at("message").at("tool_calls").as_array()[0];
  EXPECT_TRUE(call.at("id").as_string().starts_with("call_"));
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "weather");
  EXPECT_EQ(call.at("function").at("arguments"), "{\"city\": \"Z\xC3\xBCrich\"}");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), std::string_view(kCall).size() + 1);
}

// gpt-oss: heads go to nobody, thoughts and calls where they belong, whole and in a stream.
TEST_F(ToolCallsTest, HarmonysMessagesAreTakenApart) {
  constexpr const char* kHarmony =
      "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}{{ tools }}<|start|>assistant"
      "{# <|channel|> #}";
  begin(kHarmony,
        "<|channel|>analysis<|message|>A city.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Bern\"}");
  const auto answer = with_tools().json();
  const auto& message = first_choice(answer).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "A city.");
  EXPECT_EQ(message.at("content"), "I look.");
  EXPECT_EQ(message.at("tool_calls").as_array()[0].at("function").at("arguments"), R"({"city": "Bern"})");
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "tool_calls");
  const Assembled all = assemble(stream_events(with_tools(R"("stream": true, "logprobs": true)").body));
  EXPECT_EQ(all.content, "I look.");
  EXPECT_EQ(all.reasoning, "A city.");
  ASSERT_EQ(all.calls.size(), 1U);
  EXPECT_EQ(all.calls[0].name, "weather");
  EXPECT_EQ(all.finish, "tool_calls");
}

TEST_F(ToolCallsTest, TextBeforeACallStays) {
  begin(kHermes, std::string("I look.\n") + kCall + "\n" + kCall);
  const auto answer = with_tools().json();
  EXPECT_EQ(first_choice(answer).at("message").at("content"), "I look.");
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 2U);
}

TEST_F(ToolCallsTest, AStreamSaysTheSameInDeltas) {
  begin(kHermes, std::string("I look.\n") + kCall + "\n" + kCall);
  const auto events = stream_events(with_tools(R"("stream": true, "stream_options": {"include_usage": true})").body);
  const Assembled all = assemble(events);
  EXPECT_EQ(all.content, "I look.");
  EXPECT_EQ(all.finish, "tool_calls");
  ASSERT_EQ(all.calls.size(), 2U);
  EXPECT_NE(all.calls[0].id, all.calls[1].id);
  EXPECT_EQ(all.calls[1].name, "weather");
  EXPECT_EQ(all.calls[1].arguments, "{\"city\": \"Z\xC3\xBCrich\"}");
  EXPECT_EQ(events.back().at("usage").at("completion_tokens"), 8 + 2 * std::string_view(kCall).size() + 2);
}

TEST_F(ToolCallsTest, EveryChoiceHasIdsOfItsOwn) {
  begin(kHermes, kCall);
  const auto answer = with_tools(R"("n": 3)").json();
  std::set<std::string> ids;
  for (const auto& choice : answer.at("choices").as_array())
    ids.emplace(choice.at("message").at("tool_calls").as_array()[0].at("id").as_string());
  ids.emplace(first_choice(with_tools().json()).at("message").at("tool_calls").as_array()[0].at("id").as_string());
  EXPECT_EQ(ids.size(), 4U);
}

TEST_F(ToolCallsTest, LogProbabilitiesOfAllTokensAreTold) {
  engine.set_chat_template(kHermes);
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text(
      "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools": {}, "logprobs": true, "stream": true}})", kTools)));
  ASSERT_TRUE(engine.wait_submitted(1));
  const std::string text = std::string("Hm ") + kCall;
  for (const char byte : text) {
    RequestOutput output = output_of(RequestId{0}, bytes_to_tokens({&byte, 1}));
    output.logprobs.push_back({{{output.tokens[0], -0.5F, 1}}});
    engine.deliver(std::move(output));
  }
  engine.end(RequestId{0}, FinishReason::stop);
  const Assembled all = assemble(stream_events(client.receive().body));
  EXPECT_EQ(all.calls.size(), 1U);
  EXPECT_EQ(all.num_logprobs, text.size());
}

TEST_F(ToolCallsTest, AStopStringEndsTheTextBeforeACall) {
  begin(kHermes, std::string("I look. END ") + kCall);
  const auto answer = with_tools(R"("stop": "END")").json();
  EXPECT_EQ(first_choice(answer).at("message").at("content"), "I look. ");
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "stop");
  EXPECT_EQ(first_choice(answer).at("stop_reason"), "END");
  EXPECT_FALSE(first_choice(answer).at("message").as_object().contains("tool_calls"));
}

TEST_F(ToolCallsTest, ACallThatTheLengthCutsOffIsText) {
  begin(kHermes, kCall);
  const auto answer = with_tools(R"("max_tokens": 60)").json();
  EXPECT_EQ(std::string(first_choice(answer).at("message").at("content").as_string()), std::string(kCall).substr(0, 60));
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "length");
  const Assembled all = assemble(stream_events(with_tools(R"("max_tokens": 60, "stream": true)").body));
  EXPECT_EQ(all.content, std::string(kCall).substr(0, 60));
  EXPECT_EQ(all.finish, "length");
}

TEST_F(ToolCallsTest, WithoutToolsNothingIsTakenOut) {
  begin(kHermes, kCall);
  for (const std::string& more : {std::string(), fmt::format(R"("tools": {}, "tool_choice": "none")", kTools)}) {
    const auto answer = chat(more).json();
    EXPECT_EQ(first_choice(answer).at("message").at("content"), kCall);
    EXPECT_EQ(first_choice(answer).at("finish_reason"), "stop");
    EXPECT_EQ(tokens_to_bytes(engine.at(engine.num_submitted() - 1).request.prompt), "<user>hi<assistant>");
  }
}

TEST_F(ToolCallsTest, OneCallWhereNoMoreAreWanted) {
  begin(kHermes, std::string(kCall) + "\n" + kCall);
  const auto answer = with_tools(R"("parallel_tool_calls": false)").json();
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 1U);
}

TEST_F(ToolCallsTest, CallsThatMustComeAreHeldToAGrammar) {
  begin(kHermes, kCall);
  EXPECT_EQ(with_tools(R"("tool_choice": "required")").status, 200U);
  const auto required = engine.at(0).request.structured_output;
  ASSERT_TRUE(required.has_value());
  EXPECT_EQ(required->kind, StructuredOutput::Kind::lark);
  EXPECT_NE(required->text.find("call: call_0 | call_1\n"), std::string::npos);
  EXPECT_TRUE(required->begin_after.empty());
  EXPECT_EQ(with_tools(R"("tool_choice": {"type": "function", "function": {"name": "clock"}})").status, 200U);
  EXPECT_NE(engine.at(1).request.structured_output->text.find("call: call_0\n"), std::string::npos);
  EXPECT_EQ(
      with_tools(
          R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "weather"}]}})")
          .status,
      200U);
  if (!has_structured_output()) return;
  EXPECT_NE(engine.at(2).request.structured_output->text.find("\\\"weather\\\""), std::string::npos);
}

TEST_F(ToolCallsTest, AServerMayLeaveOneSpellingOfACall) {
  begin(kHermes, kCall, {.one_call_spelling = true});
  EXPECT_EQ(with_tools(R"("tool_choice": "required")").status, 200U);
  EXPECT_NE(engine.at(0).request.structured_output->text.find("json_allowed_escapes"), std::string::npos);
}

TEST_F(ToolCallsTest, AGrammarThatIsRefusedNamesTheFieldThatAskedForIt) {
  engine.set_chat_template(kHermes);
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text(
      "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools": {}, "tool_choice": "required"}})", kTools)));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.refuse(RequestId{0}, Error{ErrorCode::invalid_argument, "structured_output", "holds 'not'", "leave it out"});
  const auto response = client.receive();
  EXPECT_EQ(response.status, 400U);
  EXPECT_EQ(response.json().at("error").at("param"), "tool_choice");
}

TEST_F(ToolCallsTest, AutomaticCallsAreHeldBehindTheirMarksToken) {
  const TokenId mark = engine.add_control_token("[TOOL_CALLS]");
  begin("{{ messages[0].content }}{{ tools }}[TOOL_CALLS][", "x");
  EXPECT_EQ(with_tools().status, 200U);
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  const auto held = engine.at(0).request.structured_output;
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->begin_after, std::vector<TokenId>{mark});
}

TEST_F(ToolCallsTest, AMarkThatIsAControlTokenBelongsToTheText) {
  const TokenId mark = engine.add_control_token("[TOOL_CALLS]");
  const TokenId other = engine.add_control_token("<|other|>");
  engine.set_chat_template("{{ messages[0].content }}{{ tools }}[TOOL_CALLS][");
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/chat/completions",
                                    fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools": {}}})", kTools)));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.deliver(output_of(RequestId{0}, {'O', 'k', other, mark}));
  engine.emit(RequestId{0}, R"([{"name": "clock", "arguments": {}, "id": "abcdefghi"}])");
  engine.end(RequestId{0}, FinishReason::stop);
  const auto answer = client.receive().json();
  EXPECT_EQ(first_choice(answer).at("message").at("content"), "Ok");
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array()[0].at("function").at("name"), "clock");
}

TEST_F(ToolCallsTest, ThoughtsAreToldApart) {
  begin(kThinking, "<think>\n2 and 2\n</think>\n\nFour.");
  const auto message = first_choice(chat("").json()).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "2 and 2");
  EXPECT_EQ(message.at("content"), "Four.");
  const Assembled all = assemble(stream_events(chat(R"("stream": true)").body));
  EXPECT_EQ(all.reasoning, "2 and 2");
  EXPECT_EQ(all.content, "Four.");
  EXPECT_EQ(all.finish, "stop");
  EXPECT_FALSE(first_choice(chat(R"("include_reasoning": false)").json()).at("message").as_object().contains("reasoning_content"));
}

TEST_F(ToolCallsTest, AThoughtThatThePromptBeginsGoesOnInTheAnswer) {
  begin(kThinking, std::string("2 and 2\n</think>\n\n") + kCall);
  const auto answer = with_tools(R"("chat_template_kwargs": {"opened": true}, "tool_choice": "required")").json();
  EXPECT_EQ(first_choice(answer).at("message").at("reasoning_content"), "2 and 2");
  EXPECT_TRUE(first_choice(answer).at("message").at("content").is_null());
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 1U);
  EXPECT_NE(engine.at(0).request.structured_output->text.find("thought[lazy]: TEXT \"</think>\""), std::string::npos);
}

// Which may not think, may think first, or are within a thought already.
TEST_F(ToolCallsTest, TheFormOfAnAnswerBeginsBehindThoughts) {
  const char* const kForm = R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "x-guidance": 1}}})";
  begin(kThinking, "<think>\nhm\n</think>\n\n{}");
  const auto message = first_choice(chat(kForm).json()).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "hm");
  EXPECT_EQ(message.at("content"), "{}");
  const auto first = engine.at(0).request.structured_output;
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->kind, StructuredOutput::Kind::lark);
  EXPECT_NE(first->text.find("start: (thought space)? form\n"), std::string::npos) << first->text;
  EXPECT_NE(first->text.find("form: %json {\"type\":\"object\"}\n"), std::string::npos) << first->text;
  EXPECT_EQ(chat(R"("structured_outputs": {"regex": "a/b\\/c"}, "chat_template_kwargs": {"opened": true})").status, 200U);
  const auto opened = engine.at(1).request.structured_output;
  ASSERT_TRUE(opened.has_value());
  EXPECT_NE(opened->text.find("start: thought space form\n"), std::string::npos) << opened->text;
  EXPECT_NE(opened->text.find("form: /a\\/b\\/c/\n"), std::string::npos) << opened->text;
}

TEST_F(ToolCallsTest, AFormMayBeginBehindTheTokenThatEndsAThought) {
  const TokenId end = engine.add_control_token("</think>");
  begin(kThinking, "x");
  EXPECT_EQ(chat(R"("guided_choice": ["a", "b"], "chat_template_kwargs": {"opened": true})").status, 200U);
  const auto form = engine.at(0).request.structured_output;
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->begin_after, std::vector<TokenId>{end});
  EXPECT_NE(form->text.find("form: %lark {\nstart: \"a\" | \"b\"\n}\n"), std::string::npos) << form->text;
}

TEST_F(ToolCallsTest, AForkTellsItsCalls) {
  engine.set_chat_template(kHermes);
  start();
  HttpClient parent(port), child(port);
  parent.send(HttpClient::post_text("/v1/chat/completions",
                                    fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools": {}}})", kTools),
                                    "X-Request-Id: mine\r\n"));
  ASSERT_TRUE(engine.wait_submitted(1));
  child.send(HttpClient::post_text("/v1/requests/chatcmpl-mine/fork", R"({"stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(RequestId{1}, kCall);
  engine.end(RequestId{1}, FinishReason::stop);
  EXPECT_EQ(assemble(stream_events(child.receive().body)).calls.size(), 1U);
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_EQ(first_choice(parent.receive().json()).at("message").at("content"), "");
}

TEST_F(ToolCallsTest, EffortReachesTheTemplate) {
  begin(kThinking, "x");
  EXPECT_EQ(chat(R"("reasoning_effort": "high")").status, 200U);
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "<user>hi<assistant>high");
  EXPECT_EQ(chat(R"("reasoning_effort": "none")").status, 200U);
  EXPECT_EQ(tokens_to_bytes(engine.at(1).request.prompt), "<user>hi<assistant><think></think>none");
  EXPECT_EQ(error_field(R"("reasoning_effort": "huge")"), "reasoning_effort");
}

TEST_F(ToolCallsTest, ATemplateWithoutToolsIsToldOfThem) {
  begin("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", R"({"name": "clock", "arguments": {}})");
  const auto answer = with_tools().json();
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "tool_calls");
  EXPECT_TRUE(tokens_to_bytes(engine.at(0).request.prompt).starts_with("<system>You may call these functions:\n"));
}

TEST_F(ToolCallsTest, ResultsAndCallsOfEarlierTurnsAreRead) {
  begin(kHermes, "noon");
  const std::string messages = R"([{"role": "user", "content": "time?"},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}])";
  EXPECT_EQ(chat(fmt::format(R"("tools": {})", kTools), messages).status, 200U);
  EXPECT_NE(tokens_to_bytes(engine.at(0).request.prompt).find(R"("name": "clock", "arguments": {}}}]<tool>12:00)"), std::string::npos);
}

TEST_F(ToolCallsTest, WhatIsWrongWithToolsIsNamed) {
  begin(kHermes, "x");
  const auto tools = [&](const char* list) { return error_field(fmt::format(R"("tools": {})", list)); };
  EXPECT_EQ(tools("3"), "tools");
  EXPECT_EQ(tools("[3]"), "tools[0]");
  EXPECT_EQ(tools(R"([{"type": "functoin"}])"), "tools[0].type");
  EXPECT_EQ(tools(R"([{"type": 3}])"), "tools[0].type");
  EXPECT_EQ(tools(R"([{"type": "function", "function": {}}])"), "tools[0].function.name");
  EXPECT_EQ(tools(R"([{"type": "function", "function": {"name": "a b"}}])"), "tools[0].function.name");
  EXPECT_EQ(tools(R"([{"function": {"name": "a"}}, {"function": {"name": "a"}}])"), "tools[1].function.name");
  EXPECT_EQ(tools(R"([{"function": {"name": "a", "parameters": [1]}}])"), "tools[0].function.parameters");
  EXPECT_EQ(tools(R"([{"function": {"name": "a", "parameters": {"type": "string"}}}])"), "tools[0].function.parameters.type");
  const auto choice = [&](const char* wanted) { return error_field(fmt::format(R"("tools": {}, "tool_choice": {})", kTools, wanted)); };
  EXPECT_EQ(choice(R"("always")"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "function", "function": {"name": "cook"}})"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "function"})"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "cook"}]}})"), "tool_choice");
  EXPECT_EQ(error_field(R"("tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(error_field(fmt::format(R"("tools": {}, "guided_regex": "a")", kTools)), "guided_regex");
  EXPECT_EQ(error_field(fmt::format(R"("tools": {}, "tool_choice": "required", "guided_regex": "a")", kTools)), "guided_regex");
}

TEST_F(ToolCallsTest, ToolsThatTheServerWouldHaveToRunAreLeftOutAndNamed) {
  begin(kHermes, "x");
  const std::string tools = R"("tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "clock"}}, {"type": "mcp"}])";
  const auto answer = chat(tools);
  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.header("X-Quire-Ignored-Fields"), "tools[0]:web_search, tools[2]:mcp");
  EXPECT_NE(tokens_to_bytes(engine.at(0).request.prompt).find("hi1<tool_call>"), std::string::npos) << "one tool is left";
  EXPECT_EQ(chat(R"("tools": [{"type": "web_search"}], "tool_choice": "auto")").status, 200U);
  EXPECT_EQ(tokens_to_bytes(engine.at(1).request.prompt), tokens_to_bytes([&] {
              EXPECT_EQ(chat("").status, 200U);
              return engine.at(2).request.prompt;
            }()))
      << "no tools are left";
  const std::string only_search = R"("tools": [{"type": "web_search"}], "tool_choice": )";
  EXPECT_EQ(error_field(only_search + R"("required")"), "tool_choice");
  EXPECT_EQ(error_field(only_search + R"({"type": "web_search"})"), "tool_choice");
  const std::string allowed = R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "web_search"}], "mode": )";
  EXPECT_EQ(chat(tools + allowed + R"("auto"}})").status, 200U);
  EXPECT_EQ(error_field(tools + allowed + R"("required"}})"), "tool_choice");
}

TEST_F(ToolCallsTest, WhatIsWrongWithEarlierCallsIsNamed) {
  begin(kHermes, "x");
  const char* const kUser = R"([{"role": "user", "content": "x"})";
  const auto messages = [&](const char* rest) { return error_field("", fmt::format("{}, {}]", kUser, rest)); };
  EXPECT_EQ(messages(R"({"role": "tool", "content": "12:00"})"), "messages[1].role");
  EXPECT_EQ(messages(R"({"role": "tool", "tool_call_id": "c", "content": "12:00"})"), "messages[1].tool_call_id");
  EXPECT_EQ(messages(R"({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
                        {"role": "tool", "tool_call_id": "b", "content": ""})"),
            "messages[2].tool_call_id");
  EXPECT_EQ(messages(R"({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1]"}}]})"),
            "messages[1].tool_calls");
  EXPECT_EQ(messages(R"({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 3}}]})"),
            "messages[1].tool_calls");
}

TEST_F(ToolCallsTest, AThousandToolsAreTaken) {
  begin("{{ messages[0].content }}{{ tools | length }}<tool_call>{\"name\": n, \"arguments\": a}</tool_call>",
        "<tool_call>{\"name\": \"tool_999\"}</tool_call>");
  std::string tools;
  for (int i = 0; i < 1000; ++i)
    tools += fmt::format(R"({}{{"type": "function", "function": {{"name": "tool_{}"}}}})", i == 0 ? "[" : ", ", i);
  const auto answer = chat(fmt::format(R"("tools": {}], "tool_choice": "required")", tools)).json();
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array()[0].at("function").at("name"), "tool_999");
}

}  // namespace
}  // namespace quire
