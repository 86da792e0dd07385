// Tests the logger alone; tests/server/http/log_test.cpp tests what a server logs.
#include "quire/base/logger.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/pipe.h"

namespace quire {
namespace {

constexpr std::string_view kHostile = "a\"b\\c\n2026 error fake\r\x1b[2J\x7f\xC2\x9B\xFF\xE2\x80\xA8{}%v%n";

TEST(Logger, TextIsOneLineOfFields) {
  Pipe pipe;
  {
    Logger logger({.level = LogLevel::info, .descriptor = pipe.writer()});
    logger.write(LogLevel::debug, "unheard");
    logger.write(LogLevel::warn, "event",
                 {{"path", "/v1/models"}, {"count", std::uint64_t{3}}, {"ms", 1.5}, {"what", "two words"}, {"none", ""}});
  }
  const auto lines = pipe.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].substr(10, 1), "T");
  EXPECT_EQ(lines[0].substr(lines[0].find(' ')), R"( warning event path=/v1/models count=3 ms=1.500 what="two words" none="")");
}

TEST(Logger, JsonIsAnObjectPerLine) {
  Pipe pipe;
  {
    Logger logger({.format = LogFormat::json, .descriptor = pipe.writer()});
    logger.write(LogLevel::info, "event", {{"path", "/x"}, {"count", std::uint64_t{3}}, {"ms", 1.5}});
  }
  const auto lines = pipe.lines();
  ASSERT_EQ(lines.size(), 1U);
  const auto line = boost::json::parse(lines[0]);
  EXPECT_EQ(line.at("level"), "info");
  EXPECT_EQ(line.at("event"), "event");
  EXPECT_EQ(line.at("path"), "/x");
  EXPECT_EQ(line.at("count"), 3);
  EXPECT_TRUE(line.at("time").is_string());
}

TEST(Logger, EachLineEndsWithTheNameOfTheProcess) {
  Pipe pipe;
  {
    Logger logger({.descriptor = pipe.writer(), .process = "my model"});
    logger.write(LogLevel::info, "event", {{"count", std::uint64_t{3}}});
  }
  const auto lines = pipe.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].ends_with(R"( event count=3 process="my model")")) << lines[0];
}

TEST(Logger, ClientTextCannotAddALineOrAField) {
  for (const LogFormat format : {LogFormat::text, LogFormat::json}) {
    Pipe pipe;
    {
      Logger logger({.format = format, .descriptor = pipe.writer()});
      logger.write(LogLevel::info, "event", {{"path", kHostile}, {"long", std::string(100'000, '\x01')}});
    }
    const auto lines = pipe.lines();
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_LT(lines[0].size(), 4096U);
    for (const char c : lines[0]) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    EXPECT_EQ(lines[0].find("\xC2\x9B"), std::string::npos);
    if (format == LogFormat::json) EXPECT_EQ(boost::json::parse(lines[0]).as_object().size(), 5U);
  }
}

TEST(Logger, ALogWithoutAReaderDoesNotBlock) {
  Pipe pipe;
  Logger logger({.descriptor = pipe.writer(), .queue_lines = 64});
  const std::string text(200, 'x');
  // A pipe holds 64 KiB.
  for (int i = 0; i < 20'000; ++i) logger.write(LogLevel::info, "event", {{"text", text}});
  EXPECT_GT(logger.num_dropped(), 10'000U);
}

}  // namespace
}  // namespace quire
