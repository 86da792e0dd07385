// Tests the lines of the request log: level, values and counts.
#include "server/http/request_log.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "quire/base/logger.h"
#include "support/pipe.h"

namespace quire {
namespace {

namespace json = boost::json;

// Returns the lines that `write` makes a logger of all levels write.
template <class Write>
std::vector<json::value> logged_lines(std::uint32_t slow_ms, const Write& write) {
  Pipe pipe;
  {
    Logger logger({.level = LogLevel::debug, .format = LogFormat::json, .descriptor = pipe.writer()});
    RequestLog log(logger, slow_ms);
    write(log);
  }
  std::vector<json::value> lines;
  for (const std::string& line : pipe.lines()) lines.push_back(json::parse(line));
  return lines;
}

EndedRequest ended_request(std::string_view method, unsigned status, std::string_view path = {}) {
  EndedRequest request;
  request.method = method;
  request.path = path;
  request.status = status;
  return request;
}

std::string level_of(const json::value& line) {
  return std::string(line.at("level").as_string()) + " " + std::string(line.at("event").as_string());
}

TEST(RequestLogLines, HaveALevelForEachOutcome) {
  struct OutcomeCase {
    std::string method;
    unsigned status;
    int ms;
    std::string line;
  };
  const OutcomeCase cases[] = {
      {"POST", 200, 0, "info request"},         {"GET", 200, 0, "debug request"},  {"GET", 404, 0, "info request"},
      {"POST", 499, 0, "info request"},         {"POST", 500, 0, "info request"},  {"POST", 429, 0, "debug request"},
      {"GET", 503, 0, "debug request"},         {"POST", 200, 19, "info request"}, {"POST", 200, 20, "warning slow_request"},
      {"GET", 200, 21, "warning slow_request"},
  };
  for (const OutcomeCase& one : cases) {
    const auto lines = logged_lines(20, [&](RequestLog& log) {
      EndedRequest request = ended_request(one.method, one.status);
      request.duration = std::chrono::milliseconds(one.ms);
      log.ended(request);
    });
    ASSERT_GE(lines.size(), 1U);
    EXPECT_EQ(level_of(lines[0]), one.line) << one.method << one.status;
    EXPECT_EQ(lines[0].at("ms").to_number<double>(), one.ms);
    EXPECT_EQ(lines.size(), one.status == 429 || one.status == 503 ? 2U : 1U);
  }
  const auto never_slow = logged_lines(0, [](RequestLog& log) {
    EndedRequest request = ended_request("POST", 200);
    request.duration = std::chrono::hours(1);
    log.ended(request);
  });
  EXPECT_EQ(level_of(never_slow.at(0)), "info request");
}

TEST(RequestLogLines, HaveTheValuesOfTheRequest) {
  const auto lines = logged_lines(0, [](RequestLog& log) {
    log.ended({.id = "i",
               .answer_id = "a",
               .peer = "p",
               .method = "POST",
               .path = "/x",
               .status = 400,
               .prompt_tokens = 1,
               .cached_tokens = 2,
               .output_tokens = 3,
               .duration = std::chrono::microseconds(1500)});
    log.ignored("i", "user, store");
  });
  ASSERT_EQ(lines.size(), 2U);
  const json::object wanted = {{"id", "i"},          {"answer_id", "a"},   {"peer", "p"},        {"method", "POST"}, {"path", "/x"},
                               {"prompt_tokens", 1}, {"cached_tokens", 2}, {"output_tokens", 3}, {"status", 400}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(lines[0].at(name), value) << name;
  EXPECT_EQ(lines[0].at("ms").to_number<double>(), 1.5);
  EXPECT_EQ(level_of(lines[1]), "info ignored_fields");
  EXPECT_EQ(lines[1].at("id"), "i");
  EXPECT_EQ(lines[1].at("fields"), "user, store");
}

TEST(RequestLogLines, HaveTheReasonOfAnErrorInPlaceOfTokens) {
  const auto lines = logged_lines(0, [](RequestLog& log) {
    EndedRequest request = ended_request("POST", 404);
    request.error_code = "model_not_found";
    request.error_param = "model";
    log.ended(request);
    request.error_param = "tools[0].my secret";
    log.ended(request);
    request.error_param = {};
    log.ended(request);
    log.ended(ended_request("GET", 200));
  });
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].at("code"), "model_not_found");
  EXPECT_EQ(lines[0].at("param"), "model");
  EXPECT_EQ(lines[1].at("param"), "tools[0].my") << "a name that a client wrote ends at the first character that is in no name";
  EXPECT_FALSE(lines[2].as_object().contains("param"));
  for (const json::value& line : lines) EXPECT_FALSE(line.as_object().contains("prompt_tokens")) << line;
}

TEST(RequestLogLines, CountRefusalsUntilTheNextLineAboutThem) {
  const auto lines = logged_lines(0, [](RequestLog& log) {
    log.ended(ended_request("POST", 503, "/x"));
    for (int i = 0; i < 3; ++i) log.ended(ended_request("POST", 429, "/y"));
  });
  std::uint64_t num_lines = 0, num_counted = 0;
  for (const json::value& line : lines) {
    if (line.at("event") != "overload") continue;
    if (num_lines++ == 0) {
      EXPECT_EQ(line.at("level"), "warning");
      EXPECT_EQ(line.at("status"), 503);
      EXPECT_EQ(line.at("path"), "/x");
      EXPECT_EQ(line.at("requests"), 1);
    }
    num_counted += line.at("requests").to_number<std::uint64_t>();
  }
  EXPECT_GE(num_lines, 1U) << "the first refusal is reported at once";
  EXPECT_LE(num_counted, 4U);
}

TEST(RequestLogLines, CountEveryRefusalOnce) {
  const auto lines = logged_lines(0, [](RequestLog& log) {
    for (int i = 0; i < 4; ++i) log.ended(ended_request("POST", 429));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // longer than the pause between two lines
    log.ended(ended_request("POST", 429));
  });
  std::uint64_t num_counted = 0;
  for (const json::value& line : lines)
    if (line.at("event") == "overload") num_counted += line.at("requests").to_number<std::uint64_t>();
  EXPECT_EQ(num_counted, 5U);
}

TEST(RequestLogLines, NameEveryKindOfException) {
  const auto lines = logged_lines(0, [](RequestLog& log) {
    log.failed("i", std::make_exception_ptr(std::runtime_error("out of luck")));
    log.failed("j", std::make_exception_ptr(3));
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(level_of(lines[0]), "error exception");
  EXPECT_EQ(lines[0].at("id"), "i");
  EXPECT_EQ(lines[0].at("what"), "out of luck");
  EXPECT_EQ(lines[1].at("id"), "j");
  EXPECT_EQ(lines[1].at("what"), "an exception of a type other than std::exception");
}

}  // namespace
}  // namespace quire
