// Reloads an adapter name with other weights in turn, with every KV tier below the cache. Blocks of one content must never serve the other.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/collector.h"
#include "engine/create.h"
#include "engine/feature_mix.h"
#include "support/rounds.h"
#include "support/sanitized.h"

namespace quire::test {
namespace {

class SwappedWeights : public testing::Test {
 protected:
  SwappedWeights() : model_(write_windowed_model(folder_.file("model"))) {
    for (const AdapterModule& module : adapters_for(model_).modules) paths_.push_back(module.path);
  }

  // Makes an engine with one adapter name and a cache so small that prompts are evicted to the tiers.
  std::unique_ptr<Engine> make_engine_with_tiers() {
    Made made = make_options({Feature::windows, Feature::dram, Feature::disk}, model_, folder_.file("kv"));
    made.options.adapters.modules.clear();
    made.options.cache.num_blocks = 120;
    auto engine = create_engine(made.options, nullptr, nullptr, made.seams);
    EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
    return std::move(*engine);
  }
  // nullptr selects the base model.
  Bits answer(Engine& engine, const char* adapter, std::uint32_t text) {
    EngineRequest request = make_mixed({}, text, std::nullopt);
    for (TokenId i = 0; i < 60; ++i) request.prompt.push_back(60 + i % 7);
    if (adapter != nullptr) request.adapter = adapter;
    Collector sink;  // each engine counts its requests from 0, so it needs a separate sink
    const auto id = engine.submit(std::move(request), sink);
    EXPECT_TRUE(id.has_value()) << id.error().to_string();
    return bits_of(sink.wait(*id));
  }

  tiny::TempFolder folder_;
  std::string model_;
  std::vector<std::string> paths_;
};

TEST_F(SwappedWeights, NeverReadsBlocksOfTheOtherWeights) {
  constexpr std::uint32_t kTexts = 3;
  // Answers by text: with the first adapter, with the second, and without; each comes from a fresh engine.
  std::vector<std::vector<Bits>> alone;
  for (std::uint32_t text = 0; text < kTexts; ++text) {
    EngineOptions options = plain_options({}, model_);
    auto engine = create_engine(options, nullptr, nullptr);
    ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
    alone.push_back({answer(**engine, "one", text), answer(**engine, "two", text), answer(**engine, nullptr, text)});
    ASSERT_NE(alone[text][0], alone[text][1]);
    ASSERT_NE(alone[text][0], alone[text][2]);
  }
  const std::uint64_t num_rounds = kSanitized ? 20 : rounds_of(500);
  std::uint64_t num_loads = 0, num_hits = 0;
  std::unique_ptr<Engine> engine = make_engine_with_tiers();
  for (std::uint64_t round = 0; round < num_rounds; ++round) {
    if (round % 50 == 49) {  // a restart: equal weights find their blocks on the disk again
      EXPECT_EQ(engine->stop(60.0), 0U);
      num_loads += engine->stats().num_loads;
      num_hits += engine->stats().prefix_cache_hits;
      engine.reset();  // only one engine may use the folder at a time
      engine = make_engine_with_tiers();
    }
    const std::size_t which = round % 2;
    // Ended requests keep their weights until their blocks are stored, however slow the disk is. Until then other weights have no slot.
    auto loaded = engine->load_adapter("name", paths_[which], true);
    for (; !loaded && loaded.error().code == ErrorCode::overloaded; loaded = engine->load_adapter("name", paths_[which], true))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(loaded.has_value()) << loaded.error().to_string();
    const auto text = static_cast<std::uint32_t>(round / 2 % kTexts);
    ASSERT_EQ(answer(*engine, "name", text), alone[text][which]) << "round " << round;
    if (round % 3 == 0) ASSERT_EQ(answer(*engine, "name", text), alone[text][which]) << "round " << round << ", again";
    if (round % 5 == 0) ASSERT_EQ(answer(*engine, nullptr, text), alone[text][2]) << "round " << round;
    if (round % 7 == 0) engine->reset_prefix_cache({}, [](const Result<bool>&) {});
  }
  EXPECT_EQ(engine->stop(60.0), 0U);
  num_loads += engine->stats().num_loads;
  num_hits += engine->stats().prefix_cache_hits;
  RecordProperty("loads", static_cast<int>(num_loads));
  EXPECT_GT(num_loads, num_rounds / 20) << "too few tier loads";
  EXPECT_GT(num_hits, num_rounds) << "too few cache hits";
}

}  // namespace
}  // namespace quire::test
