// Objects that the engine keeps for each open request, by its id: encoder inputs for the worker, and functions that name a tool.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/requests/live_encoder_inputs.h"
#include "engine/requests/tool_names.h"

namespace quire {
namespace {

TEST(LiveEncoderInputs, AreFoundWhileTheyAreHeld) {
  LiveEncoderInputs live;
  EXPECT_EQ(live.hold({1}, nullptr), nullptr);
  EXPECT_EQ(live.find({1}), nullptr);
  const auto inputs = std::make_shared<const RequestInputs>();
  auto first = live.hold({1}, inputs), second = live.hold({2}, inputs);
  EXPECT_EQ(first.get(), inputs.get());
  EXPECT_EQ(live.find({1}), inputs);
  EXPECT_EQ(live.find({2}), inputs);
  EXPECT_EQ(live.find({3}), nullptr);
  auto copy = first;
  first.reset();
  EXPECT_EQ(live.find({1}), inputs) << "a copy still holds them";
  copy.reset();
  EXPECT_EQ(live.find({1}), nullptr);
  EXPECT_EQ(live.find({2}), inputs) << "another request holds them";
  second.reset();
  EXPECT_EQ(live.find({2}), nullptr);
  EXPECT_EQ(inputs.use_count(), 1);
  EXPECT_NE(live.hold({1}, inputs), nullptr);
}

// The end of the inputs may take long, or look up other inputs, so the worker must not wait for it.
TEST(LiveEncoderInputs, AreFreedOutsideOfTheLock) {
  LiveEncoderInputs live;
  bool is_freed = false;
  auto held = live.hold({1}, {new RequestInputs, [&](const RequestInputs* inputs) {
                                delete inputs;
                                is_freed = live.find({1}) == nullptr;
                              }});
  held.reset();
  EXPECT_TRUE(is_freed);
}

TEST(ToolNames, NameTheToolInTheOutputsOfTheirRequest) {
  ToolNames tools;
  std::vector<TokenId> seen;
  tools.put({1}, [&seen](std::span<const TokenId> outputs) {
    seen.assign(outputs.begin(), outputs.end());
    return std::string("ls");
  });
  tools.put({2}, {});
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  const auto tool_of = [&](std::uint64_t id) {
    RequestView view;
    view.id = {id};
    view.tokens = tokens;
    view.num_prompt_tokens = 3;
    return tools.tool_of(view);
  };
  EXPECT_EQ(tool_of(1), "ls");
  EXPECT_EQ(seen, std::vector<TokenId>{4});
  EXPECT_EQ(tool_of(2), "") << "the request gave no function";
  EXPECT_EQ(tool_of(3), "");
  tools.put({1}, [](std::span<const TokenId>) { return std::string("cat"); });
  EXPECT_EQ(tool_of(1), "cat");
  tools.forget({1});
  EXPECT_EQ(tool_of(1), "");
}

}  // namespace
}  // namespace quire
