// Tests tool calls and reasoning in chats over real sockets, with an engine that the test drives by hand.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <set>
#include <string>
#include <utility>

#include "server/answers/tool_calls_fixture.h"

namespace quire {
namespace {

TEST_F(ToolCallsTest, ReturnsCallsInAWholeAnswer) {
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

// In gpt-oss answers, headers are dropped, and reasoning and calls go to their fields, whole and streamed.

TEST_F(ToolCallsTest, ParsesHarmonyMessages) {
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

TEST_F(ToolCallsTest, KeepsTextBeforeACall) {
  begin(kHermes, std::string("I look.\n") + kCall + "\n" + kCall);
  const auto answer = with_tools().json();
  EXPECT_EQ(first_choice(answer).at("message").at("content"), "I look.");
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 2U);
}

TEST_F(ToolCallsTest, StreamsTheSameAnswerInDeltas) {
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

TEST_F(ToolCallsTest, GivesEveryCallAUniqueId) {
  begin(kHermes, kCall);
  const auto answer = with_tools(R"("n": 3)").json();
  std::set<std::string> ids;
  for (const auto& choice : answer.at("choices").as_array())
    ids.emplace(choice.at("message").at("tool_calls").as_array()[0].at("id").as_string());
  ids.emplace(first_choice(with_tools().json()).at("message").at("tool_calls").as_array()[0].at("id").as_string());
  EXPECT_EQ(ids.size(), 4U);
}

TEST_F(ToolCallsTest, ReportsLogProbabilitiesOfAllTokens) {
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

TEST_F(ToolCallsTest, StopStringEndsTheTextBeforeACall) {
  begin(kHermes, std::string("I look. END ") + kCall);
  const auto answer = with_tools(R"("stop": "END")").json();
  EXPECT_EQ(first_choice(answer).at("message").at("content"), "I look. ");
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "stop");
  EXPECT_EQ(first_choice(answer).at("stop_reason"), "END");
  EXPECT_FALSE(first_choice(answer).at("message").as_object().contains("tool_calls"));
}

// OpenAI's answer contains the call as far as it was generated. If the call's name is incomplete, the answer contains no call.

TEST_F(ToolCallsTest, KeepsACallThatTheLengthCutsOff) {
  begin(kHermes, std::string("I look.\n") + kCall + "\n" + kCall);
  const std::size_t one = std::string_view("I look.\n").size() + std::string_view(kCall).size();
  for (std::size_t size = 9; size < one + std::string_view(kCall).size(); ++size) {
    const auto answer = with_tools(fmt::format(R"("max_tokens": {})", size)).json();
    const auto& message = first_choice(answer).at("message").as_object();
    EXPECT_EQ(first_choice(answer).at("finish_reason"), "length");
    EXPECT_TRUE(std::string_view("I look.\n<").starts_with(std::string_view(message.at("content").as_string())))
        << size << message.at("content");
    const Assembled all = assemble(stream_events(with_tools(fmt::format(R"("max_tokens": {}, "stream": true)", size)).body));
    EXPECT_EQ(all.finish, "length");
    EXPECT_EQ(boost::json::value(all.content), message.at("content"));
    ASSERT_EQ(all.calls.size(), message.contains("tool_calls") ? message.at("tool_calls").as_array().size() : 0U) << size;
    for (std::size_t i = 0; i < all.calls.size(); ++i)
      EXPECT_EQ(boost::json::value(all.calls[i].arguments), message.at("tool_calls").as_array()[i].at("function").at("arguments"));
  }
  const auto cut = with_tools(fmt::format(R"("max_tokens": {})", one - 18)).json();
  const auto& call = first_choice(cut).at("message").at("tool_calls").as_array()[0].at("function");
  EXPECT_EQ(call.at("name"), "weather");
  EXPECT_EQ(call.at("arguments"), "{\"city\": \"Z\xC3\xBCri");
}

TEST_F(ToolCallsTest, DropsFurtherCallsWhenParallelCallsAreOff) {
  begin(kThinking, std::string("<think>Two.</think>\n") + kCall + "\n" + kCall + kCall);
  const auto message = first_choice(with_tools(R"("parallel_tool_calls": false)").json()).at("message");
  EXPECT_TRUE(message.at("content").is_null());
  EXPECT_EQ(message.at("tool_calls").as_array().size(), 1U);
  const Assembled all = assemble(stream_events(with_tools(R"("parallel_tool_calls": false, "stream": true)").body));
  EXPECT_EQ(all.content, "");
  EXPECT_EQ(all.calls.size(), 1U);
  EXPECT_EQ(all.finish, "tool_calls");
}

TEST_F(ToolCallsTest, CallEndsUnclosedReasoning) {
  begin(kThinking, std::string("<think>\nI need the weather, so <tool_call>.\n") + kCall);
  const auto answer = with_tools().json();
  EXPECT_EQ(first_choice(answer).at("message").at("reasoning_content"), "I need the weather, so <tool_call>.");
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "tool_calls");
  const Assembled all = assemble(stream_events(with_tools(R"("stream": true)").body));
  EXPECT_EQ(all.reasoning, "I need the weather, so <tool_call>.");
  EXPECT_EQ(all.calls.size(), 1U);
}

TEST_F(ToolCallsTest, AcceptsATruncatedCallInTheNextTurn) {
  begin(kHermes, "So.");
  const auto shown = [&](const std::string& arguments) {
    const std::string messages = fmt::format(
        R"([{{"role": "user", "content": "?"}}, {{"role": "assistant", "content": null, "tool_calls": [{{"id": "c", "type": "function",
            "function": {{"name": "weather", "arguments": {}}}}}]}}, {{"role": "tool", "tool_call_id": "c", "content": "cut off"}}])",
        boost::json::serialize(boost::json::value(arguments)));
    const std::size_t index = engine.num_submitted();
    EXPECT_EQ(chat(fmt::format(R"("tools": {})", kTools), messages).status, 200U) << arguments;
    const std::string prompt = tokens_to_bytes(engine.at(index).request.prompt);
    const std::size_t at = prompt.find("\"arguments\": ") + std::string_view("\"arguments\": ").size();
    return prompt.substr(at, prompt.find("}}]<tool>") - at);
  };
  EXPECT_EQ(shown(R"({"city": "Ber)"), R"({"city": "Ber"})");
  EXPECT_EQ(shown(R"({"city": "Bern\u00)"), R"({"city": "Bern"})");
  EXPECT_EQ(shown(R"({"days": [1, 2, {"a": tr)"), R"({"days": [1, 2, {}]})");
  EXPECT_EQ(shown(R"({"a": 12, "ci)"), R"({"a": 12})");
  EXPECT_EQ(shown("{"), "{}");
  EXPECT_EQ(shown(R"({"city": "He said "hi""})"), R"({"raw_arguments": "{\"city\": \"He said \"hi\"\"}"})");
  EXPECT_EQ(shown("weather!"), R"({"raw_arguments": "weather!"})");
}

TEST_F(ToolCallsTest, DoesNotParseCallsWithoutTools) {
  begin(kHermes, kCall);
  for (const std::string& more : {std::string(), fmt::format(R"("tools": {}, "tool_choice": "none")", kTools)}) {
    const auto answer = chat(more).json();
    EXPECT_EQ(first_choice(answer).at("message").at("content"), kCall);
    EXPECT_EQ(first_choice(answer).at("finish_reason"), "stop");
    EXPECT_EQ(tokens_to_bytes(engine.at(engine.num_submitted() - 1).request.prompt), "<user>hi<assistant>");
  }
}

TEST_F(ToolCallsTest, ReturnsOneCallWhenParallelCallsAreOff) {
  begin(kHermes, std::string(kCall) + "\n" + kCall);
  const auto answer = with_tools(R"("parallel_tool_calls": false)").json();
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 1U);
}

TEST_F(ToolCallsTest, RequiredCallsFollowAGrammar) {
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

TEST_F(ToolCallsTest, OneCallSpellingRestrictsTheGrammar) {
  begin(kHermes, kCall, {.one_call_spelling = true});
  EXPECT_EQ(with_tools(R"("tool_choice": "required")").status, 200U);
  EXPECT_NE(engine.at(0).request.structured_output->text.find("json_allowed_escapes"), std::string::npos);
}

TEST_F(ToolCallsTest, NamesTheFieldWhoseGrammarIsRefused) {
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

TEST_F(ToolCallsTest, AppliesTheGrammarAfterTheDelimiterTokenOfAutomaticCalls) {
  const TokenId mark = engine.add_control_token("[TOOL_CALLS]");
  begin("{{ messages[0].content }}{{ tools }}[TOOL_CALLS][", "x");
  EXPECT_EQ(with_tools().status, 200U);
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  const auto held = engine.at(0).request.structured_output;
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->begin_after, std::vector<TokenId>{mark});
  EXPECT_NE(held->text.find("start: after"), std::string::npos) << "the delimiter is already written: " << held->text;
}

TEST_F(ToolCallsTest, ParsesADelimiterThatIsAControlToken) {
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

// The cases are answers that may not reason, answers that may reason first, and answers that begin within reasoning.

// The last token of a call makes no event.
TEST_F(ToolCallsTest, StreamHasTheLogprobsOfTokensWithoutAnEvent) {
  engine.set_chat_template(kHermes);
  engine.set_max_model_len(4096);
  start();
  HttpClient client(port);
  client.send_post("/v1/chat/completions",
                   fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"tools":{},"stream":true,"logprobs":true}})", kTools));
  ASSERT_TRUE(engine.wait_submitted(1));
  const std::string call = kCall;
  for (const TokenId token : bytes_to_tokens(call + "ok")) {
    RequestOutput output = output_of(RequestId{0}, {token});
    output.logprobs = {{.entries = {{token, -1.0F, 1}}}};
    engine.deliver(std::move(output));
    EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << "the server has taken the step";
  }
  engine.end(RequestId{0}, FinishReason::length);
  const Assembled all = assemble(stream_events(client.receive().body));
  EXPECT_EQ(all.calls.size(), 1U);
  EXPECT_EQ(all.content, "ok");
  EXPECT_EQ(all.num_logprobs, call.size() + 2);
}

TEST_F(ToolCallsTest, ReturnsCallsOfAForkedRequest) {
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

TEST_F(ToolCallsTest, DescribesToolsInASystemMessageWhenTheTemplateDoesNotRenderThem) {
  begin("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", R"({"name": "clock", "arguments": {}})");
  const auto answer = with_tools().json();
  EXPECT_EQ(first_choice(answer).at("finish_reason"), "tool_calls");
  EXPECT_TRUE(tokens_to_bytes(engine.at(0).request.prompt).starts_with("<system>You may call these functions:\n"));
}

TEST_F(ToolCallsTest, ReadsCallsAndResultsOfEarlierTurns) {
  begin(kHermes, "noon");
  const std::string messages = R"([{"role": "user", "content": "time?"},
      {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}])";
  EXPECT_EQ(chat(fmt::format(R"("tools": {})", kTools), messages).status, 200U);
  EXPECT_NE(tokens_to_bytes(engine.at(0).request.prompt).find(R"("name": "clock", "arguments": {}}}]<tool>12:00)"), std::string::npos);
}

TEST_F(ToolCallsTest, NamesTheInvalidFieldOfTools) {
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
  EXPECT_EQ(tools(R"([{"function": {"name": "a", "strict": true, "parameters": {"type": "string"}}}])"),
            "tools[0].function.parameters.type");
  const auto choice = [&](const char* wanted) { return error_field(fmt::format(R"("tools": {}, "tool_choice": {})", kTools, wanted)); };
  EXPECT_EQ(choice(R"("always")"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "function", "function": {"name": "cook"}})"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "function"})"), "tool_choice");
  EXPECT_EQ(choice(R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "cook"}]}})"), "tool_choice");
  EXPECT_EQ(error_field(R"("tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(error_field(fmt::format(R"("tools": {}, "guided_regex": "a")", kTools)), "guided_regex");
  EXPECT_EQ(error_field(fmt::format(R"("tools": {}, "tool_choice": "required", "guided_regex": "a")", kTools)), "guided_regex");
}

TEST_F(ToolCallsTest, OmitsAndReportsServerSideTools) {
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

TEST_F(ToolCallsTest, NamesTheInvalidFieldOfEarlierCalls) {
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

TEST_F(ToolCallsTest, AcceptsAThousandTools) {
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
