// Tests that a stream of events gives the same events wherever it is cut.
#include "traffic/event_splitter.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::vector<std::string> events_of(const std::vector<std::string_view>& parts) {
  std::vector<std::string> events;
  EventSplitter splitter;
  const auto take = [&](std::string_view data) { events.emplace_back(data); };
  for (const std::string_view part : parts) splitter.feed(part, take);
  splitter.finish(take);
  return events;
}

constexpr std::string_view kStream =
    ": a comment\r\n\r\ndata: {\"a\": 1}\r\n\r\nevent: x\nid: 7\ndata:first\ndata: second\n\ndata:  two spaces\n\n\n\ndata: [DONE]\n\n";
const std::vector<std::string> kEvents = {R"({"a": 1})", "first\nsecond", " two spaces", "[DONE]"};

TEST(EventSplitter, GivesTheSameEventsForEveryPairOfCuts) {
  for (std::size_t first = 0; first <= kStream.size(); ++first)
    for (std::size_t second = first; second <= kStream.size(); ++second)
      ASSERT_EQ(events_of({kStream.substr(0, first), kStream.substr(first, second - first), kStream.substr(second)}), kEvents)
          << first << " " << second;
}

TEST(EventSplitter, ReadsSingleBytes) {
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < kStream.size(); ++i) bytes.push_back(kStream.substr(i, 1));
  EXPECT_EQ(events_of(bytes), kEvents);
}

TEST(EventSplitter, EndsTheLastEventWithTheStream) {
  EXPECT_EQ(events_of({"data: a\n\ndata: b"}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(events_of({"data: a\n\nid: 3\n"}), (std::vector<std::string>{"a"}));
  EXPECT_TRUE(events_of({""}).empty());
}

TEST(EventSplitter, StopsAtAnEventThatIsTooLong) {
  EventSplitter splitter;
  std::size_t num_events = 0;
  const auto take = [&](std::string_view /*data*/) { ++num_events; };
  splitter.feed("data: a\n\ndata: ", take);
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 15; ++i) splitter.feed(part, take);
  EXPECT_FALSE(splitter.is_too_long());
  for (int i = 0; i < 2; ++i) splitter.feed(part, take);
  EXPECT_TRUE(splitter.is_too_long());
  splitter.feed("\n\ndata: b\n\n", take);
  EXPECT_EQ(num_events, 1U);
}

}  // namespace
}  // namespace quire
