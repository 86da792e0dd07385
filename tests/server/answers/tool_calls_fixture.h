#pragma once
// Chats with tools over real sockets, with an engine that the test drives by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/running_server.h"

namespace quire {

inline constexpr const char* kHermes =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | length }}<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>{% endif %}<assistant>";
inline constexpr const char* kThinking =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}<tool_call>{\"name\": n, \"arguments\": "
    "a}</tool_call>{% endif %}"
    "<assistant>{% if enable_thinking is defined and not enable_thinking %}<think></think>{% elif opened %}<think>\n{% endif %}{{ "
    "reasoning_effort }}";
inline constexpr const char* kTools = R"([{"type": "function", "function": {"name": "clock"}},
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])";
inline constexpr const char* kCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Z\xC3\xBCrich\"}}\n</tool_call>";

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

// The answer that a client assembles from a stream.
struct Assembled {
  std::string content, reasoning, finish;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  std::size_t num_logprobs = 0;
};

inline void take_delta(Assembled& all, const boost::json::object& delta) {
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

inline Assembled assemble(const std::vector<boost::json::value>& events) {
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

}  // namespace quire
