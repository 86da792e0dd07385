// Tests the measurements of streamed answers, and that every defect of an answer is a failure with a reason.
#include "traffic/answer_reader.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using std::chrono::milliseconds;
using Clock = AnswerReader::Clock;
using End = RequestRecord::End;

constexpr unsigned kOk = 200;

struct Part {
  int time_ms;
  std::string_view text;
};

// Reads an answer that was sent at 0 ms, in parts that arrive at the given times.
RequestRecord read(const std::vector<Part>& parts, unsigned status = kOk) {
  const Clock::time_point sent = Clock::now();
  AnswerReader reader(sent);
  for (const Part& part : parts) reader.take(status, part.text, sent + milliseconds(part.time_ms));
  return reader.finish(status, sent + milliseconds(parts.empty() ? 0 : parts.back().time_ms));
}

std::string failure_of(std::string_view body, unsigned status = kOk) {
  const RequestRecord record = read({{5, body}}, status);
  EXPECT_EQ(record.end, End::failed);
  return record.failure;
}

constexpr std::string_view kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n"
    "data: [DONE]\n\n";

TEST(AnswerReader, MeasuresACompletion) {
  const RequestRecord record = read({{100, "data: {\"choices\":[{\"text\":\" a\",\"finish_reason\":null}]}\n\n"},
                                     {150, "data: {\"choices\":[{\"text\":\" b\"}]}\n\n"},
                                     {250, "data: {\"choices\":[{\"text\":\" c\"}]}\n\n"},
                                     {260, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"},
                                     {900, kUsage}});
  ASSERT_EQ(record.end, End::completed) << record.failure;
  EXPECT_NEAR(record.ttft_s, 0.100, 1e-9);
  EXPECT_NEAR(record.latency_s, 0.260, 1e-9);
  ASSERT_EQ(record.gaps_s.size(), 2U);
  EXPECT_NEAR(record.gaps_s[0], 0.050, 1e-6);
  EXPECT_NEAR(record.gaps_s[1], 0.100, 1e-6);
  EXPECT_NEAR(record.tpot_s(), 0.080, 1e-9);
  EXPECT_EQ(record.prompt_tokens, 12U);
  EXPECT_EQ(record.output_tokens, 3U);
  EXPECT_EQ(record.cached_tokens, 8U);
  EXPECT_TRUE(record.has_usage);
  EXPECT_TRUE(record.has_cached_tokens);
}

TEST(AnswerReader, DoesNotCountTheRoleOfAChatAsText) {
  const RequestRecord record =
      read({{10, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"},
            {40, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"So\"}}]}\n\n"},
            {60, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n"},
            {70, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]},\"finish_reason\":\"stop\"}]}\n\n"},
            {80, "data: [DONE]\n\n"}});
  ASSERT_EQ(record.end, End::completed) << record.failure;
  EXPECT_NEAR(record.ttft_s, 0.040, 1e-9);
  EXPECT_NEAR(record.latency_s, 0.070, 1e-9);
  EXPECT_EQ(record.gaps_s.size(), 2U);
  EXPECT_FALSE(record.has_usage);
  EXPECT_EQ(record.output_tokens, 3U) << "without usage, the chunks with text are counted";
}

TEST(AnswerReader, MeasuresAnAnswerWithoutText) {
  const RequestRecord record = read(
      {{10, "data: {\"choices\":[{\"text\":\"\"}]}\n\n"}, {30, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"}});
  ASSERT_EQ(record.end, End::completed) << record.failure;
  EXPECT_NEAR(record.ttft_s, 0.010, 1e-9);
  EXPECT_NEAR(record.latency_s, 0.030, 1e-9);
  EXPECT_TRUE(record.gaps_s.empty());
}

TEST(AnswerReader, GivesTheSameCountsWhereverTheStreamIsCut) {
  const std::string stream =
      "data: {\"choices\":[{\"text\":\"\\u00e9\"}]}\n\ndata: {\"choices\":[{\"text\":\" b\"}]}\n\n" + std::string(kUsage);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    const std::string_view text = stream;
    const RequestRecord record = read({{1, text.substr(0, cut)}, {2, text.substr(cut)}});
    ASSERT_EQ(record.end, End::completed) << cut << " " << record.failure;
    ASSERT_EQ(record.output_tokens, 3U) << cut;
    ASSERT_EQ(record.gaps_s.size(), 1U) << cut;
  }
}

TEST(AnswerReader, ReportsStatusAndMessageOfARefusal) {
  EXPECT_EQ(failure_of(R"({"error":{"message":"the queue is full","type":"x"}})", 429), "429: the queue is full");
  EXPECT_EQ(failure_of(R"({"error":"no such model"})", 404), "404: no such model");
  EXPECT_EQ(failure_of(R"({"detail":"Not Found"})", 404), "404: Not Found");
  EXPECT_EQ(failure_of("<html>\nbad gateway</html>", 502), "502: <html> bad gateway</html>");
  EXPECT_EQ(failure_of("", 500), "500: ");
  EXPECT_EQ(failure_of(std::string(5000, 'x'), 500).size(), 205U);
  EXPECT_EQ(failure_of("\xff\x01z", 500), "500: \xef\xbf\xbd z");
}

TEST(AnswerReader, ReportsDefectsOfAStream) {
  EXPECT_EQ(failure_of("data: {\"choices\":[{\"text\":\" a\"}]}\n\n"), "the stream ended before its last event");
  EXPECT_EQ(failure_of("data: {\"error\":{\"message\":\"out of blocks\"}}\n\ndata: [DONE]\n\n"), "error in the stream: out of blocks");
  EXPECT_EQ(failure_of("data: {\"choices\"\n\ndata: [DONE]\n\n"), "an event of the stream is not a JSON object: {\"choices\"");
  EXPECT_EQ(failure_of("data: [DONE]\n\n"), "the stream contains no choices");
  EXPECT_EQ(failure_of(R"({"choices":[{"text":"all of it"}]})"),
            R"(200: the answer is not a stream of events: {"choices":[{"text":"all of it"}]})");
  EXPECT_EQ(failure_of(""), "200: the answer is not a stream of events: ");
}

TEST(AnswerReader, PrefersTheServersErrorToTheBrokenConnection) {
  const Clock::time_point sent = Clock::now();
  AnswerReader reader(sent);
  reader.take(kOk, "data: {\"error\":{\"message\":\"worker died\"}}\n\n", sent + milliseconds(1));
  EXPECT_EQ(reader.fail("the connection was lost", sent + milliseconds(3)).failure, "error in the stream: worker died");
  AnswerReader other(sent);
  const RequestRecord record = other.fail("the connection was lost", sent + milliseconds(3));
  EXPECT_EQ(record.failure, "the connection was lost");
  EXPECT_NEAR(record.latency_s, 0.003, 1e-9);
}

TEST(AnswerReader, IgnoresFieldsOfOtherTypes) {
  for (const std::string_view event :
       {R"({"choices":{}})", R"({"choices":[3]})", R"({"choices":[{"text":7}]})", R"({"choices":[{"delta":[]}]})", R"({"usage":null})",
        R"({"usage":{"prompt_tokens":-1,"completion_tokens":2}})", R"({"usage":{"prompt_tokens":"3"}})", R"({"error":null})"}) {
    const RequestRecord record =
        read({{1, "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: " + std::string(event) + "\n\ndata: [DONE]\n\n"}});
    EXPECT_EQ(record.end, End::completed) << event << record.failure;
    EXPECT_FALSE(record.has_usage) << event;
    EXPECT_EQ(record.output_tokens, 1U) << event;
  }
}

}  // namespace
}  // namespace quire
