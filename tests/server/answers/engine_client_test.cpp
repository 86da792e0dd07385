// Tests how EngineClient delivers the outputs of a step to their receivers.
#include "server/answers/engine_client.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "server/fake_engine.h"

namespace quire {
namespace {

struct Receiver final : OutputReceiver {
  bool fails = false;
  int num_outputs = 0, num_failures = 0, num_steps = 0;
  void on_output(std::uint32_t /*choice*/, RequestOutput& /*output*/) override {
    if (fails) throw std::bad_alloc();
    ++num_outputs;
  }
  void on_failure() noexcept override { ++num_failures; }
  void on_step_end() override { ++num_steps; }
};

TEST(EngineClientTest, NotifiesAFailingReceiverAndServesTheOthers) {
  FakeEngine engine;
  std::vector<EngineClient::Task> posted;
  EngineClient client(engine, [&](EngineClient::Task task) { posted.push_back(std::move(task)); });
  Receiver failing, sound;
  failing.fails = true;
  const auto first = client.submit({.prompt = {1}, .sampling = {}}, failing, 0);
  const auto second = client.submit({.prompt = {1}, .sampling = {}}, sound, 0);
  ASSERT_TRUE(first && second);
  std::vector<RequestOutput> outputs(2);
  outputs[0].id = *first;
  outputs[1].id = *second;
  client.deliver(std::move(outputs));
  ASSERT_EQ(posted.size(), 1U);
  EXPECT_THROW(posted[0](), std::bad_alloc) << "the caller of the task logs the exception";
  EXPECT_EQ(failing.num_failures, 1);
  EXPECT_EQ(failing.num_steps, 1) << "the failing receiver must be notified";
  EXPECT_EQ(sound.num_outputs, 1);
  EXPECT_EQ(sound.num_steps, 1);
}

// The server's thread lags by thousands of steps: one task is pending, with one output for each stream.
TEST(EngineClientTest, MergesOutputsOfLaterStepsIntoThePendingTask) {
  struct Gathering final : OutputReceiver {
    std::vector<TokenId> tokens;
    std::size_t num_outputs = 0, num_finals = 0, num_inputs_ended = 0;
    void on_output(std::uint32_t /*choice*/, RequestOutput& output) override {
      tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
      EXPECT_EQ(output.logprobs.size(), output.tokens.size());
      ++num_outputs;
      num_finals += output.finished ? 1 : 0;
      num_inputs_ended += output.input_ended ? 1 : 0;
    }
    void on_failure() noexcept override {}
    void on_step_end() override {}
  };
  FakeEngine engine;
  std::vector<EngineClient::Task> posted;
  EngineClient client(engine, [&](EngineClient::Task task) { posted.push_back(std::move(task)); });
  std::vector<Gathering> receivers(3);
  std::vector<RequestId> ids;
  for (Gathering& receiver : receivers) ids.push_back(client.submit({.prompt = {1}, .sampling = {}}, receiver, 0).value());
  std::vector<TokenId> wanted;
  const auto step = [&](TokenId token, bool ends, bool ends_input) {
    std::vector<RequestOutput> outputs(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      outputs[i].id = ids[i];
      outputs[i].tokens = {token};
      outputs[i].logprobs.resize(1);
      outputs[i].finished = ends;
      outputs[i].input_ended = ends_input;
    }
    client.deliver(std::move(outputs));
    wanted.push_back(token);
  };
  for (TokenId token = 0; token < 5000; ++token) step(token, false, token == 1000);
  ASSERT_EQ(posted.size(), 1U);
  posted[0]();
  for (TokenId token = 5000; token < 6000; ++token) step(token, token == 5999, false);
  ASSERT_EQ(posted.size(), 2U);
  posted[1]();
  for (const Gathering& receiver : receivers) {
    EXPECT_EQ(receiver.tokens, wanted);
    EXPECT_EQ(receiver.num_outputs, 3U) << "one up to the end of its input, one after it, one with the final output";
    EXPECT_EQ(receiver.num_inputs_ended, 1U);
    EXPECT_EQ(receiver.num_finals, 1U);
  }
}

}  // namespace
}  // namespace quire
