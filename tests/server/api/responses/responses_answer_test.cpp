// Tests answers of /v1/responses and their events in OpenAI's format.
#include "server/api/responses/responses_answer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/fake_engine.h"
#include "server/request/prompt_fingerprint.h"

namespace quire {
namespace {

namespace json = boost::json;
using PartKind = AnswerPart::Kind;

const std::vector<AnswerPart> kAnswerParts{
    {PartKind::reasoning, 0, "hm"},  {PartKind::content, 0, "a\""},      {PartKind::content, 0, "b"}, {PartKind::call, 0, "f"},
    {PartKind::arguments, 0, "{\""}, {PartKind::arguments, 0, "x\":1}"}, {PartKind::call_end, 0, ""}};
constexpr const char* kOutput = R"([
  {"id":"rs_1_0","status":"completed","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
  {"id":"msg_1_1","status":"completed","type":"message","role":"assistant",
   "content":[{"type":"output_text","text":"a\"b","annotations":[],"logprobs":[]}]},
  {"id":"fc_1_2","status":"completed","type":"function_call","call_id":"call_1_0","name":"f","arguments":"{\"x\":1}"}])";

class ResponsesAnswer : public ::testing::Test {
 protected:
  ResponseWriter writer(bool is_stream, bool is_stored = true) {
    return {{.api = Api::chat, .id = "resp_1", .model = "m", .created_s = 5},
            is_stream,
            {.is_stored = is_stored, .settings = R"("store":true)", .input = "[1]", .conversation = R"([{"role":"user","content":"q"}])"},
            *tokenizer_,
            [this](StoredResponse response) { stored = std::move(response); }};
  }
  static std::vector<json::object> events_of(const std::string& text) {
    std::vector<json::object> events;
    for (std::size_t at = text.find("\ndata: "); at != std::string::npos; at = text.find("\ndata: ", at + 1))
      events.push_back(json::parse(text.substr(at + 7, text.find('\n', at + 7) - at - 7)).as_object());
    return events;
  }
  std::optional<StoredResponse> stored;

 private:
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::create(*byte_model().tokenizer).value();
};

TEST_F(ResponsesAnswer, WritesItemsOfAWholeAnswerInOrder) {
  ResponseWriter response = writer(false);
  std::string none;
  for (const AnswerPart& part : kAnswerParts) response.add(none, part);
  response.end(none, {.calls_tools = true, .usage = {10, 4, 3, 2}, .tokens = {1, 2}});
  EXPECT_EQ(none, "");
  const json::value whole = json::parse(response.whole());
  EXPECT_EQ(whole.at("output"), json::parse(kOutput));
  EXPECT_EQ(whole.at("status"), "completed");
  EXPECT_EQ(whole.at("created_at"), 5);
  EXPECT_EQ(whole.at("usage"), json::parse(R"({"input_tokens":10,"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":0},
    "output_tokens":4,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":14})"));
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->body, response.whole());
  EXPECT_EQ(stored->tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(json::parse(stored->conversation), json::parse(R"([{"role":"user","content":"q"},
    {"role":"assistant","content":"a\"b","reasoning_content":"hm",
     "tool_calls":[{"id":"call_1_0","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}])"));
}

// The test acts as a client: it adds items and parts, appends deltas, and replaces them with the done events.
TEST_F(ResponsesAnswer, StreamedEventsAddUpToTheAnswer) {
  ResponseWriter response = writer(true);
  std::string text;
  response.begin(text, {});
  for (const AnswerPart& part : kAnswerParts) response.add(text, part);
  response.end(text, {.calls_tools = true, .usage = {10, 4, 3, 0}});
  std::int64_t number = 0;
  json::array output;
  std::map<std::int64_t, std::string> texts;
  std::map<std::string, int> num_done;  // by type and item
  const std::vector<json::object> events = events_of(text);
  for (const json::object& event : events) {
    ASSERT_EQ(event.at("sequence_number"), number++);
    const std::string type(event.at("type").as_string());
    if (type.ends_with(".done")) ++num_done[type + std::to_string(event.at("output_index").as_int64())];
    if (type == "response.output_item.added") {
      ASSERT_EQ(event.at("output_index"), output.size());
      EXPECT_EQ(event.at("item").at("status"), "in_progress");
      output.push_back(event.at("item"));
    } else if (type.ends_with(".delta")) {
      EXPECT_EQ(event.at("item_id"), output.at(event.at("output_index").as_int64()).at("id"));
      texts[event.at("output_index").as_int64()] += event.at("delta").as_string();
    } else if (type == "response.output_item.done") {
      output.at(event.at("output_index").as_int64()) = event.at("item");
    }
  }
  for (const auto& [type, count] : num_done) EXPECT_EQ(count, 1) << type;
  EXPECT_EQ(num_done.size(), 8U) << "three events of a reasoning or text item, and two of a call";
  EXPECT_EQ(texts, (std::map<std::int64_t, std::string>{{0, "hm"}, {1, "a\"b"}, {2, R"({"x":1})"}}));
  EXPECT_EQ(output, json::parse(kOutput));
  EXPECT_EQ(events.front().at("type"), "response.created");
  EXPECT_EQ(events.back().at("type"), "response.completed");
  EXPECT_EQ(events.back().at("response").at("output"), json::parse(kOutput));
}

TEST_F(ResponsesAnswer, TruncatedAnswerIsIncomplete) {
  ResponseWriter response = writer(true, false);
  std::string text;
  response.begin(text, {});
  response.add(text, {PartKind::content, 0, "so"});
  response.end(text, {.reason = FinishReason::length});
  const json::object end = events_of(text).back();
  EXPECT_EQ(end.at("type"), "response.incomplete");
  EXPECT_EQ(end.at("response").at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(end.at("response").at("output").as_array().front().at("status"), "incomplete");
  EXPECT_FALSE(stored.has_value());
}

TEST_F(ResponsesAnswer, OmitsABrokenCallFromAWholeAnswer) {
  for (const bool is_stream : {false, true}) {
    ResponseWriter response = writer(is_stream);
    std::string text;
    for (const AnswerPart& part :
         {AnswerPart{PartKind::call, 0, "f"}, AnswerPart{PartKind::call_broken, 0, ""}, AnswerPart{PartKind::content, 0, "x"}})
      response.add(text, part);
    response.end(text, {});
    const json::value output = json::parse(response.whole()).at("output");
    EXPECT_EQ(output.as_array().back().at("type"), "message");
    EXPECT_EQ(output.as_array().size(), is_stream ? 2U : 1U) << "a stream cannot retract what it has sent";
    ASSERT_TRUE(stored.has_value());
    EXPECT_EQ(json::parse(stored->conversation).as_array().back(), json::parse(R"({"role":"assistant","content":"x"})"));
  }
}

TEST_F(ResponsesAnswer, EmptyAnswerHasOneMessage) {
  ResponseWriter response = writer(false);
  std::string none;
  response.end(none, {});
  EXPECT_EQ(json::parse(response.whole()).at("output").as_array().size(), 1U);
}

TEST_F(ResponsesAnswer, FailureIsTheLastEvent) {
  ResponseWriter response = writer(true);
  std::string text;
  response.fail(text, {ErrorCode::io, "", "broke", "try again"});
  const std::vector<json::object> events = events_of(text);
  EXPECT_EQ(events.front().at("type"), "response.created");
  EXPECT_EQ(events.back().at("type"), "response.failed");
  EXPECT_EQ(events.back().at("response").at("error").at("code"), "server_error");
  EXPECT_FALSE(stored.has_value());
}

TEST(ResponsesDiagnostics, ReportWhatTheCacheFound) {
  const auto shown = [](PromptChange change, std::uint64_t num_cached) {
    PromptComparison compared;
    compared.change = change;
    compared.num_missed_tokens = 5;
    compared.num_reusable_tokens = 64;
    return cache_diagnostics(compared, num_cached);
  };
  const auto miss = [](const std::string& reason) {
    return R"({"type":"cache_miss","reason":")" + reason + R"(","cache_missed_tokens":5,"comparison_reusable_tokens":64})";
  };
  EXPECT_EQ(shown(PromptChange::not_found, 0), R"({"type":"comparison_response_not_found"})");
  EXPECT_EQ(shown(PromptChange::tools, 0), miss("tools_changed"));
  EXPECT_EQ(shown(PromptChange::settings, 0), miss("reasoning_effort_changed"));
  EXPECT_EQ(shown(PromptChange::system, 0), miss("input_changed"));
  EXPECT_EQ(shown(PromptChange::turns, 0), miss("input_changed"));
  EXPECT_EQ(shown(PromptChange::none, 64), R"({"type":"cache_hit"})");
  EXPECT_EQ(shown(PromptChange::none, 64 - PromptFingerprint::kBlock), R"({"type":"cache_hit"})") << "the last block may be partial";
  EXPECT_EQ(shown(PromptChange::none, 63 - PromptFingerprint::kBlock), R"({"type":"unavailable"})");
}

}  // namespace
}  // namespace quire
