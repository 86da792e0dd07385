// Tests clients that disconnect from a server with a real engine: their blocks are freed in every state of the engine.
#include <chrono>
#include <memory>
#include <thread>

#include "engine/engine_parts.h"
#include "engine/resolve_options.h"
#include "runtime/worker/simulated_worker.h"
#include "server/running_server.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxTokens = 50'000;  // more than a minute of steps: no request ends by itself

std::unique_ptr<Engine> slow_engine() {
  ModelInfo model = byte_model();
  model.num_layers = model.num_kv_heads = model.head_dim = 1;
  model.context_length = 2 * kMaxTokens;
  EngineOptions options;
  options.cache.num_blocks = 2 * kMaxTokens / 16 + 10;
  const ResolvedEngine resolved = resolve_options(options, model, {1, 0}).value();
  SimulatedWorkerOptions worker{.limits = resolved.limits,
                                .block_size = resolved.options.cache.block_size,
                                .num_blocks = resolved.options.cache.num_blocks,
                                .vocab_size = kFakeVocab,
                                .before_step = [](const StepPlan&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }};
  return make_engine(resolved, {std::make_unique<SimulatedWorker>(std::move(worker))}).value();
}

class DisconnectTest : public RunningServer {
 protected:
  DisconnectTest() { start_with(*engine_); }
  ~DisconnectTest() override { stop(); }

  // The condition must become true within ten seconds.
  template <class Condition>
  bool becomes(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition(engine_->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  void expect_blocks_are_freed(const std::string& options, const std::string& more = {}) {
    HttpClient client(port);
    const std::string body =
        R"({"prompt": "a story", "max_tokens": )" + std::to_string(kMaxTokens) + R"(, "ignore_eos": true)" + options + "}";
    client.send(HttpClient::post_text("/v1/completions", body));
    ASSERT_TRUE(becomes([](const EngineStats& stats) { return stats.generation_tokens > 3; }));
    EXPECT_LT(engine_->stats().num_free_blocks, engine_->stats().num_blocks);
    client.send(more);
    client.close();
    EXPECT_TRUE(becomes([](const EngineStats& stats) { return stats.num_running == 0 && stats.num_free_blocks == stats.num_blocks; }));
    EXPECT_GE(engine_->stats().finished_abort, 1U);
    EXPECT_EQ(engine_->stats().finished_length, 0U);
  }

 private:
  std::unique_ptr<Engine> engine_ = slow_engine();
};

TEST_F(DisconnectTest, FreesBlocksOfAStream) {
  expect_blocks_are_freed(R"(, "stream": true)");
}

TEST_F(DisconnectTest, FreesBlocksOfAWholeAnswer) {
  expect_blocks_are_freed("");
}

TEST_F(DisconnectTest, FreesBlocksOfAllChoices) {
  expect_blocks_are_freed(R"(, "n": 3)");
}

TEST_F(DisconnectTest, FreesBlocksWhenTheNextRequestIsPipelined) {
  expect_blocks_are_freed("", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace
}  // namespace quire
