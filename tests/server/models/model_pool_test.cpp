// Tests how the pool starts and stops processes. Shell scripts take the place of `quire serve`.
#include "server/models/model_pool.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace quire {
namespace {

using std::chrono::milliseconds;

// The first word after "serve" chooses what the process does.
constexpr const char* kScript = R"sh(#!/bin/sh
[ "$2" != stubborn ] || trap '' TERM
echo "quire serves x on http://127.0.0.1:9 (ready)"
[ "$2" != crash ] || exit 3
exec sleep 60
)sh";

class ModelPoolTest : public testing::Test {
 protected:
  ModelPoolTest() {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "model_pool_test.sh";
    std::ofstream(path) << kScript;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    options_.program = path.string();
    options_.unload_time = milliseconds(100);
  }

  void add(const std::string& name) {
    options_.entries.push_back({.name = name, .aliases = {}, .arguments = {name}, .adapters = {}, .memory_bytes = 0, .facts = {}});
  }

  ModelPool& pool() {
    if (!pool_) pool_ = std::make_unique<ModelPool>(io_, options_, std::vector<std::string>(), logger_);
    return *pool_;
  }

  std::shared_ptr<ModelPool::Hold> request(std::size_t model) {
    return pool().request(model, [](const Result<std::uint16_t>&) {});
  }

  // Runs the server's thread until the condition holds.
  template <class Condition>
  void run_until(Condition holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < end) io_.run_one_for(milliseconds(1000));
    EXPECT_TRUE(holds());
  }

  boost::asio::io_context io_{1};
  ModelsOptions options_;
  Logger logger_{LogOptions{.level = LogLevel::off}};
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(ModelPoolTest, KillsAProcessThatDoesNotEndAfterAnUnload) {
  add("stubborn");
  auto hold = request(0);
  run_until([&] { return pool().status(0).num_running == 1; });
  hold.reset();
  ASSERT_TRUE(pool().unload(0));
  run_until([&] { return pool().status(0).state == ModelState::stopped; });
  EXPECT_EQ(pool().status(0).unloads_total, 1U);
}

TEST_F(ModelPoolTest, LoadsAnotherModelWhileOneThatCrashesPauses) {
  options_.max_loaded = 1;
  add("crash");
  add("sound");
  for (std::uint64_t crashes = 1; crashes <= 2; ++crashes) {
    const auto hold = request(0);
    run_until([&] { return pool().status(0).crashes_total == crashes; });
  }
  const auto waits = request(0);
  ASSERT_EQ(pool().status(0).state, ModelState::stopped) << "the process starts again after a pause";
  const auto other = request(1);
  EXPECT_EQ(pool().status(1).state, ModelState::loading);
}

}  // namespace
}  // namespace quire
