#include "text/tool_calls/call_rounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <map>
#include <string>
#include <string_view>

#include "base/random.h"

namespace quire {
namespace {

namespace json = boost::json;

// Returns "f(result, result) g(result)" in the order in which a template shows them.
std::string shown(json::array messages) {
  split_calls(messages);
  std::string text;
  for (const json::value& message : messages) {
    if (const json::value* calls = message.as_object().if_contains("tool_calls")) {
      EXPECT_EQ(calls->as_array().size(), 1U);
      text += " " + std::string(calls->as_array()[0].at("function").at("name").as_string());
    } else if (message.at("role") == "tool") {
      text += "(" + std::string(message.at("content").as_string()) + ")";
    }
  }
  return text;
}

json::array round_of(std::string_view calls, std::string_view results) {
  return json::parse(fmt::format(R"([{{"role": "assistant", "tool_calls": [{}]}}, {}])", calls, results)).as_array();
}

constexpr std::string_view kTwo = R"({"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}})";

TEST(PartCalls, AssignsResultsToCallsById) {
  EXPECT_EQ(shown(round_of(
                kTwo, R"({"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "tool", "tool_call_id": "a", "content": "1"})")),
            " f(1) g(2)");
}

TEST(PartCalls, AssignsResultsWithoutIdsInOrderOrByName) {
  EXPECT_EQ(shown(round_of(R"({"function": {"name": "f"}}, {"function": {"name": "g"}})",
                           R"({"role": "tool", "content": "1"}, {"role": "tool", "content": "2"})")),
            " f(1) g(2)");
  EXPECT_EQ(shown(round_of(kTwo, R"({"role": "tool", "name": "g", "content": "2"}, {"role": "tool", "content": "1"})")), " f(1) g(2)");
  EXPECT_EQ(shown(round_of(kTwo, R"({"role": "tool", "content": "1"}, {"role": "tool", "tool_call_id": "a", "content": "2"})")),
            " f(2) g(1)");
}

TEST(PartCalls, ShowsResultsOfOneIdOnce) {
  EXPECT_EQ(
      shown(round_of(R"({"id": "a", "function": {"name": "f"}}, {"id": "a", "function": {"name": "g"}})",
                     R"({"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "tool_call_id": "a", "content": "2"})")),
      " f(1) g(2)");
  EXPECT_EQ(
      shown(round_of(R"({"id": "a", "function": {"name": "f"}})",
                     R"({"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "tool_call_id": "a", "content": "2"})")),
      " f(1)(2)");
}

TEST(PartCalls, AssignsAResultOfAnEarlierRoundToItsCall) {
  json::array messages = round_of(R"({"id": "a", "function": {"name": "f"}})", R"({"role": "tool", "tool_call_id": "a", "content": "1"})");
  for (json::value& message :
       round_of(R"({"id": "b", "function": {"name": "g"}})", R"({"role": "tool", "tool_call_id": "a", "content": "3"},
                                       {"role": "tool", "tool_call_id": "b", "content": "2"})"))
    messages.push_back(std::move(message));
  EXPECT_EQ(shown(messages), " f(1)(3) g(2)");
}

TEST(GatherResults, MovesLateResultsToTheirRound) {
  json::array messages = json::parse(R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "user", "content": "u"},
      {"role": "assistant", "tool_calls": [{"id": "b"}]}, {"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "user", "content": "v"},
      {"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "content": "3"}])")
                             .as_array();
  gather_results(messages);
  std::string order;
  for (const json::value& message : messages)
    order += message.at("role") == "assistant" ? "c" : std::string(message.at("content").as_string());
  EXPECT_EQ(order, "c1uc23v");
}

// The ids are correct, missing, duplicated, of another round, or unknown.
TEST(PartCalls, KeepsEachResultOnceWhateverItsId) {
  Random random(20261129);
  for (int run = 0; run < 300; ++run) {
    json::array messages;
    std::size_t num_results = 0, num_calls = 0;
    for (std::uint64_t round = 0; round < 1 + random.below(4); ++round) {
      json::array calls;
      for (std::uint64_t i = 0; i < 1 + random.below(3); ++i, ++num_calls) {
        json::object call{{"function", json::object{{"name", fmt::format("f{}", random.below(3))}}}};
        if (random.below(4) > 0) call["id"] = fmt::format("id{}", random.below(5));
        calls.push_back(std::move(call));
      }
      messages.push_back({{"role", "assistant"}, {"tool_calls", std::move(calls)}});
      for (std::uint64_t i = 0; i < random.below(5); ++i) {
        json::object result{{"role", "tool"}, {"content", fmt::format("r{}.", num_results++)}};
        if (random.below(4) > 0) result["tool_call_id"] = fmt::format("id{}", random.below(7));
        if (random.below(3) == 0) result["name"] = fmt::format("f{}", random.below(4));
        messages.push_back(std::move(result));
      }
      if (random.below(2) == 0) messages.push_back({{"role", "user"}, {"content", "go on"}});
    }
    json::array named = messages;
    fill_ids(named, run % 2 == 0);
    for (const json::value& message : named) {
      if (message.at("role") == "tool") EXPECT_TRUE(message.as_object().contains("tool_call_id"));
      if (const json::value* calls = message.as_object().if_contains("tool_calls"))
        for (const json::value& call : calls->as_array()) EXPECT_FALSE(call.at("id").as_string().empty());
    }
    EXPECT_EQ(named.size(), messages.size());
    const std::string text = shown(messages);
    for (std::size_t i = 0; i < num_results; ++i) {
      const std::size_t at = text.find(fmt::format("(r{}.)", i));
      EXPECT_NE(at, std::string::npos) << text;
      EXPECT_EQ(text.find(fmt::format("(r{}.)", i), at + 1), std::string::npos) << text;
    }
    EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')), num_calls) << text;
  }
}

}  // namespace
}  // namespace quire
