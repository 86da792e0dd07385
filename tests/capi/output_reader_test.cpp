#include "capi/output_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace quire {
namespace {

constexpr const char* kEvents = "text/event-stream; charset=utf-8";

std::vector<ReplyOutput> all(OutputReader& reader) {
  std::vector<ReplyOutput> outputs;
  while (auto output = reader.next()) outputs.push_back(*std::move(output));
  return outputs;
}

std::vector<ReplyOutput> read_whole(std::string body, unsigned status = 200, std::string type = "application/json") {
  OutputReader reader;
  reader.feed({.bytes = std::move(body), .status = status, .content_type = std::move(type), .end = LocalCallEnd::complete});
  return all(reader);
}

TEST(OutputReader, ReadsTheChoicesOfAStreamWhereverItsBytesAreSplit) {
  const std::string stream = R"(data: {"choices":[{"index":0,"text":"a","token_ids":[7,8],"finish_reason":null}]})"
                             "\n\n"
                             R"(data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]})"
                             "\n\ndata: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n";
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    OutputReader reader;
    reader.feed({.bytes = stream.substr(0, cut), .status = 200, .content_type = kEvents});
    std::vector<ReplyOutput> outputs = all(reader);
    reader.feed({.bytes = stream.substr(cut), .status = 200, .content_type = kEvents, .end = LocalCallEnd::complete});
    for (ReplyOutput& output : all(reader)) outputs.push_back(std::move(output));
    ASSERT_EQ(outputs.size(), 3U) << "cut at " << cut;
    EXPECT_EQ(outputs[0].text, "a");
    EXPECT_EQ(outputs[0].tokens, (std::vector<TokenId>{7, 8}));
    EXPECT_EQ(outputs[0].finish_reason, "");
    EXPECT_EQ(outputs[1].choice, 1U);
    EXPECT_EQ(outputs[1].text, "b");
    EXPECT_EQ(outputs[1].finish_reason, "stop");
    EXPECT_EQ(outputs[2].json, R"({"choices":[],"usage":{}})");
    EXPECT_EQ(outputs[2].text, "");
  }
}

TEST(OutputReader, ReadsEachChoiceOfAWholeAnswer) {
  const std::string body =
      R"({"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"length"},{"index":1,"message":{"content":null},"finish_reason":"tool_calls"}]})";
  const auto outputs = read_whole(body);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].text, "a");
  EXPECT_EQ(outputs[0].finish_reason, "length");
  EXPECT_EQ(outputs[1].text, "");
  EXPECT_EQ(outputs[1].finish_reason, "tool_calls");
  EXPECT_EQ(outputs[1].json, body);
}

TEST(OutputReader, ReadsRepliesWithoutChoices) {
  EXPECT_EQ(read_whole(R"({"tokens":[1]})").at(0).json, R"({"tokens":[1]})");
  EXPECT_EQ(read_whole("[1]").at(0).json, "[1]");
  const auto text = read_whole("# HELP", 200, "text/plain; version=0.0.4");
  EXPECT_EQ(text.at(0).text, "# HELP");
  EXPECT_EQ(text.at(0).json, "");
}

TEST(OutputReader, ReadsLinesOfJson) {
  const auto outputs = read_whole("{\"response\":\"a\"}\n{\"done\":true}\n", 200, "application/x-ndjson");
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].json, R"({"done":true})");
}

TEST(OutputReader, ReportsErrorsOfAllApis) {
  const auto openai =
      read_whole(R"({"error":{"message":"too long","type":"invalid_request_error","param":"prompt","code":"too_large"}})", 413);
  ASSERT_TRUE(openai.at(0).error.has_value());
  EXPECT_EQ(openai[0].error->status, 413U);
  EXPECT_EQ(openai[0].error->message, "too long");
  EXPECT_EQ(openai[0].error->field, "prompt");
  EXPECT_EQ(openai[0].error->code, "too_large");
  EXPECT_EQ(read_whole(R"({"error":"no model"})", 404).at(0).error->message, "no model");
  EXPECT_FALSE(read_whole(R"({"error":null,"id":"resp_1"})").at(0).error.has_value()) << "a stored answer of /v1/responses";
}

TEST(OutputReader, SeparatesRefusalsFromErrorsWithinAStream) {
  OutputReader refused;
  refused.feed({.bytes = R"({"error":{"message":"m"}})", .status = 400, .content_type = "application/json", .end = LocalCallEnd::complete});
  EXPECT_EQ(refused.refusal()->message, "m");
  OutputReader failed;
  failed.feed({.bytes = "data: {\"error\":{\"message\":\"m\"}}\n\n", .status = 200, .content_type = kEvents});
  EXPECT_FALSE(failed.refusal().has_value());
  EXPECT_EQ(all(failed).at(0).error->message, "m");
}

// A reply that is cut off has no output for its last, incomplete part.
TEST(OutputReader, DropsTheIncompletePartOfACancelledReply) {
  OutputReader reader;
  reader.feed({.bytes = "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"cho",
               .status = 200,
               .content_type = kEvents,
               .end = LocalCallEnd::cancelled});
  EXPECT_EQ(all(reader).size(), 1U);
  OutputReader whole;
  whole.feed({.bytes = "", .end = LocalCallEnd::cancelled});
  EXPECT_TRUE(all(whole).empty());
}

}  // namespace
}  // namespace quire
