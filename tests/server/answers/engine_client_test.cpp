// Outputs of a step on their way to their receivers.
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

TEST(EngineClientTest, WhereOneReceiverFailsItHearsOfItAndTheOthersGetTheirs) {
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
  EXPECT_THROW(posted[0](), std::bad_alloc) << "whoever runs the task logs it";
  EXPECT_EQ(failing.num_failures, 1);
  EXPECT_EQ(failing.num_steps, 1) << "its client is woken";
  EXPECT_EQ(sound.num_outputs, 1);
  EXPECT_EQ(sound.num_steps, 1);
}

}  // namespace
}  // namespace quire
