// Delivers outputs with one call per sink, separately for each request, and in order within a request.
#include "engine/requests/outbox.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

class CountingSink final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override { calls.push_back(std::move(outputs)); }
  std::vector<std::vector<RequestOutput>> calls;
};

RequestOutput output_of(std::uint64_t id, TokenId token) {
  RequestOutput output;
  output.id = RequestId{id};
  output.tokens = {token};
  return output;
}

TEST(Outbox, CallsEachSinkOnceWithItsOutputs) {
  CountingSink first, second, silent;
  Outbox outbox;
  outbox.send(&second, output_of(7, 1));
  outbox.send(&first, output_of(5, 2));
  outbox.send(&second, output_of(3, 3));
  outbox.send(&second, output_of(7, 4)).finished = true;
  outbox.deliver();
  ASSERT_EQ(first.calls.size(), 1U);
  ASSERT_EQ(second.calls.size(), 1U);
  EXPECT_TRUE(silent.calls.empty());
  ASSERT_EQ(second.calls[0].size(), 3U);
  EXPECT_EQ(second.calls[0][0].id, RequestId{3});
  EXPECT_EQ(second.calls[0][1].tokens, (std::vector<TokenId>{1}));
  EXPECT_EQ(second.calls[0][2].tokens, (std::vector<TokenId>{4}));
  EXPECT_TRUE(second.calls[0][2].finished) << "a later change to a sent output";
  outbox.deliver();
  EXPECT_EQ(second.calls.size(), 1U) << "no output is sent twice";
}

TEST(Outbox, OutputsOfARequestStayInOrder) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<CountingSink> sinks(3);
    std::vector<TokenId> next(6);
    Outbox outbox;
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t id = random.below(next.size());
      outbox.send(&sinks[id % sinks.size()], output_of(id, next[id]++));
    }
    outbox.deliver();
    std::vector<TokenId> seen(next.size());
    for (const CountingSink& sink : sinks)
      for (const auto& call : sink.calls)
        for (const RequestOutput& output : call) EXPECT_EQ(output.tokens.at(0), seen[output.id.value]++);
    EXPECT_EQ(seen, next);
  }
}

}  // namespace
}  // namespace quire
