// Tests how an engine for a model on this machine is built from options: its tiers and connectors, its memory, and the errors, which name
// an option.
#include "engine/create.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/format_bytes.h"
#include "engine/feature_mix.h"
#include "engine/kv_plan.h"
#include "engine/recording_tier.h"
#include "runtime/model/tiny_model.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"

namespace quire {
namespace {

constexpr std::uint64_t kTooMuch = std::uint64_t{1} << 60U;

// The models are written once, because that takes longer than to build an engine.
struct WrittenModels {
  WrittenModels() { tiny::write_gguf(full, tiny::small_llama(), "Q4_1"); }
  tiny::TempFolder folder;
  std::string windowed = test::write_windowed_model(folder.file("windowed"));
  std::string full = folder.file("full.gguf");  // with full attention in all layers
};

class CreateEngine : public testing::Test {
 protected:
  static const WrittenModels& models() {
    static const WrittenModels written;
    return written;
  }
  CreateEngine() {
    options_.model = models().windowed;
    options_.num_threads = 1;
    options_.cache.num_blocks = 60;
    options_.cache.block_size = 4;
    options_.scheduler.max_model_len = 64;
  }

  // Returns the error; a default one if the engine is built.
  [[nodiscard]] Error error_of(const EngineSeams& seams) const {
    const auto engine = create_engine(options_, nullptr, nullptr, seams);
    return engine ? Error() : engine.error();
  }
  [[nodiscard]] std::unique_ptr<Engine> build(const EngineSeams& seams = {}) const {
    auto engine = create_engine(options_, nullptr, nullptr, seams);
    EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
    return engine ? *std::move(engine) : nullptr;
  }
  [[nodiscard]] KvDiskOptions disk(KvTierPolicy policy = KvTierPolicy::measured) const {
    return {.folder = folder_.file("disk"), .budget_bytes = std::uint64_t{64} << 20U, .policy = policy};
  }
  static std::vector<std::string> tiers_of(const Engine& engine) {
    std::vector<std::string> names;
    for (const KvTierStats& tier : engine.stats().kv_tiers) names.push_back(tier.name);
    return names;
  }
  static void ask(Engine& engine, TokenId first) {
    Collector sink;
    EngineRequest request;
    for (TokenId i = 0; i < 40; ++i) request.prompt.push_back((first * 7 + i) % 250);
    request.sampling.max_tokens = 2;
    request.sampling.ignore_eos = true;
    EXPECT_EQ(sink.wait(engine.submit(request, sink).value()).tokens.size(), 2U);
  }

  tiny::TempFolder folder_;
  EngineOptions options_;
};

KvDramOptions some_dram() {
  return {.bytes = std::uint64_t{16} << 20U};
}
KvPeerCacheOptions one_peer() {
  return {.peers = {"127.0.0.1:9"}};
}

TEST_F(CreateEngine, NamesTheTierThatRequiresPrefixCaching) {
  options_.cache.enable_prefix_caching = false;
  struct Case {
    const char* field;
    EngineSeams seams;
  };
  const KvRemoteOptions remote{.address = "unix:///nonexistent"};
  const KvPeerOptions peer{.role = KvRole::producer, .port = 0};
  const Case cases[] = {{"kv_dram", {.kv_dram = some_dram(), .kv_disk = disk()}},
                        {"kv_disk", {.kv_disk = disk(), .kv_remote = remote}},
                        {"kv_remote", {.kv_remote = remote, .kv_peer_cache = one_peer()}},
                        {"kv_peers", {.kv_peer = peer, .kv_peer_cache = one_peer()}},
                        {"kv_share", {.kv_peer = peer, .kv_peer_cache = {.share = "127.0.0.1:0"}}},
                        {"kv_role", {.kv_peer = peer}}};
  for (const Case& c : cases) {
    const Error error = error_of(c.seams);
    EXPECT_EQ(error.field, c.field) << error.to_string();
    EXPECT_NE(error.message.find("prefix caching is off"), std::string::npos) << error.to_string();
  }
  EXPECT_NE(build(), nullptr) << "no tier is configured";
}

TEST_F(CreateEngine, NamesTheInvalidOptionOfATier) {
  struct Case {
    const char* field;
    EngineSeams seams;
  };
  const Case cases[] = {{"kv_remote", {.kv_remote = {.address = "nowhere"}}},
                        {"kv_lease", {.kv_peer = {.role = KvRole::producer, .port = 0, .lease_s = 0.0}}},
                        {"kv_peers", {.kv_peer_cache = {.peers = {"nowhere"}}}},
                        {"kv_share", {.kv_peer_cache = {.share = "127.0.0.1:0"}}},
                        {"kv_dram", {.kv_dram = {.bytes = 1}}},
                        {"kv_dram_policy", {.kv_dram = {.bytes = 1U << 24U, .eviction_policy = "mru"}}},
                        {"kv_disk_policy", {.kv_disk = {.folder = folder_.file("disk"), .eviction_policy = "mru"}}},
                        {"kv_connector", {.choice = {.connectors = {{.name = "Unknown"}}}}}};
  for (const Case& c : cases) {
    const Error error = error_of(c.seams);
    EXPECT_EQ(error.field, c.field) << error.to_string();
  }
  EXPECT_NE(build({.kv_dram = {.bytes = 0, .eviction_policy = "mru"}, .kv_disk = {.folder = {}, .eviction_policy = "mru"}}), nullptr)
      << "the policies of tiers that do not exist are not used";
}

TEST_F(CreateEngine, OrdersTheTiersFromTheNearestToTheFarthest) {
  options_.model = models().full;
  EngineSeams seams{
      .kv_dram = some_dram(), .kv_disk = disk(), .kv_peer = {.role = KvRole::producer, .port = 0}, .kv_peer_cache = one_peer()};
  seams.kv_peer_cache.share = "127.0.0.1:0";
  seams.kv_remote.address = "unix:///nonexistent";
  std::vector<std::string> names = {"dram", "disk", "peer_cache", "remote", "peer"};
  if (error_of(seams).code == ErrorCode::unsupported) {  // built without the client
    seams.kv_remote.address.clear();
    std::erase(names, "remote");
  }
  const auto engine = build(seams);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(tiers_of(*engine), names);
  ask(*engine, 1);
}

TEST_F(CreateEngine, StoresABlockOnDiskDirectlyUnlessItMovesDownFromMemory) {
  const auto through = [this] {
    KvDiskOptions options = disk();
    options.write_through = true;
    return options;
  };
  struct Case {
    const char* name;
    EngineSeams seams;
    bool moves_down;
  };
  const Case cases[] = {{"both tiers", {.kv_dram = some_dram(), .kv_disk = disk()}, true},
                        {"write through", {.kv_dram = some_dram(), .kv_disk = through()}, false},
                        {"exact", {.kv_dram = some_dram(), .kv_disk = disk(KvTierPolicy::exact)}, false},
                        {"disk alone", {.kv_disk = disk()}, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::filesystem::remove_all(folder_.file("disk"));
    const auto engine = build(c.seams);
    ASSERT_NE(engine, nullptr);
    ASSERT_TRUE(test::comes_true([&] { return engine->stats().kv_tiers.back().num_unread_slots == 0; }));
    const auto num_direct = [&] {
      const KvTierStats tier = engine->stats().kv_tiers.back();
      return tier.num_stored_blocks - tier.num_demoted_blocks;
    };
    for (TokenId first = 0; first < (c.moves_down ? 5 : 200) && num_direct() == 0; ++first) ask(*engine, first);
    engine->stop(10.0);
    EXPECT_EQ(num_direct() == 0, c.moves_down);
  }
}

TEST_F(CreateEngine, CreatesConnectorsForTheCacheOfTheModel) {
  for (const KvTierPolicy policy : {KvTierPolicy::exact, KvTierPolicy::measured}) {
    std::uint64_t block_bytes = 0;
    const ModelInfo info = inspect_model(options_.model).value();
    const KvLayout layout = plan_kv_layout(info, options_).value();
    for (std::size_t group = 0; group < layout.groups.size(); ++group) block_bytes = std::max(block_bytes, layout.group_block_bytes(group));
    std::uint32_t num_created = 0;
    EngineSeams seams{.choice = {.registry = std::make_shared<ConnectorRegistry>(), .connectors = {{.name = "Mine"}, {.name = "Mine"}}}};
    seams.choice.policy = policy;
    ASSERT_TRUE(seams.choice.registry->add("Mine", [&](const ConnectorParameters&, const ConnectorContext& context) {
      ++num_created;
      EXPECT_EQ(context.bytes_per_block, block_bytes);
      EXPECT_EQ(context.is_measured, policy == KvTierPolicy::measured);
      EXPECT_EQ(context.config->block_size, 4U);
      EXPECT_EQ(context.config->kv.num_blocks, 60U);
      const auto tier = std::make_shared<test::RecordingTier>();
      tier->has_groups = true;
      return Result<ConnectorAndTransport>({.connector = tier, .transport = tier});
    }));
    const auto engine = build(seams);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(num_created, 2U);
    EXPECT_EQ(tiers_of(*engine), (std::vector<std::string>{"Mine", "Mine_2"}));
    ask(*engine, 1);
    seams.kv_dram = some_dram();
    EXPECT_EQ(tiers_of(*build(seams)), (std::vector<std::string>{"dram", "Mine", "Mine_2"}));
  }
}

TEST_F(CreateEngine, RefusesATierNextToTheConnectorOfTheCaller) {
  const auto tier = std::make_shared<test::RecordingTier>();
  tier->has_groups = true;
  EngineSeams seams{.connector = tier, .transport = tier};
  EXPECT_EQ(error_of(seams).to_string(), "");
  seams.kv_dram = some_dram();
  EXPECT_EQ(error_of(seams).to_string(), "kv_dram: is set, but the engine already has a connector; use only one of the two");
}

TEST_F(CreateEngine, WarnsWhenAConsumerHasNoProducers) {
  options_.model = models().full;
  struct Case {
    KvRole role;
    std::vector<std::string> producers;
    bool warns;
  };
  for (const Case& c : {Case{KvRole::consumer, {}, true}, Case{KvRole::both, {}, true}, Case{KvRole::producer, {}, false},
                        Case{KvRole::consumer, {"127.0.0.1"}, false}, Case{KvRole::both, {"127.0.0.1"}, false}}) {
    Pipe pipe;
    EngineSeams seams{.kv_peer = {.role = c.role, .port = 0, .producers = c.producers}};
    EXPECT_NE(build(seams), nullptr) << "nothing is logged without a logger";
    seams.logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
    EXPECT_NE(build(seams), nullptr);
    seams.logger.reset();
    std::string log;
    for (const std::string& line : pipe.lines()) log += line + "\n";
    const bool has_line = log.find("warning kv_producers_missing why=") != std::string::npos;
    EXPECT_EQ(has_line, c.warns) << log;
    EXPECT_EQ(log.find("add --kv-producers HOST:PORT") != std::string::npos, c.warns) << log;
  }
}

TEST_F(CreateEngine, NamesTheOptionThatNeedsTooMuchMemory) {
  struct Case {
    const char* field;
    std::function<void(EngineOptions&, EngineSeams&)> change;
  };
  const Case cases[] = {
      {"kv_swap", [](EngineOptions& o, EngineSeams&) { o.kv_swap.bytes = kTooMuch; }},
      {"journal_memory", [](EngineOptions& o, EngineSeams&) { o.journal.memory_bytes = kTooMuch; }},
      {"num_blocks",
       [](EngineOptions& o, EngineSeams&) {
         o.cache.num_blocks = 1U << 24U;
         o.cache.block_size = 1024;
       }},
      {"kv_dram", [](EngineOptions&, EngineSeams& seams) { seams.kv_dram.bytes = kTooMuch; }},
      {"kv_connector",
       [](EngineOptions&, EngineSeams& seams) {
         seams.choice.connectors = {{.name = "OffloadingConnector", .parameters = {{"cpu_bytes_to_use", std::to_string(kTooMuch)}}}};
       }},
      {"kv_cache_bytes", [](EngineOptions& o, EngineSeams& seams) {  // no memory is left for an automatic size
         o.cache.num_blocks = 0;
         o.cache.kv_cache_bytes = 0;
         seams.kv_dram.bytes = kTooMuch;
       }}};
  const EngineOptions plain = options_;
  for (const Case& c : cases) {
    EngineSeams seams;
    options_ = plain;
    c.change(options_, seams);
    const Error error = error_of(seams);
    EXPECT_EQ(error.field, c.field) << error.to_string();
  }
}

TEST_F(CreateEngine, CountsTheMemoryOfTheDraftModel) {
  options_.draft_model = options_.model;
  options_.kv_swap.bytes = kTooMuch;
  const ModelInfo info = inspect_model(options_.model).value();
  const ResolvedEngine resolved = resolve_options(options_, info, {1, 0}).value();
  const std::uint64_t bytes = info.weight_bytes + plan_draft_kv(info, resolved.options, resolved.layout)->total_bytes();
  const Error given = error_of({});
  EXPECT_NE(given.message.find("draft model " + format_bytes(bytes)), std::string::npos) << given.message;
  options_.cache.num_blocks = 0;
  options_.cache.kv_cache_bytes = 0;
  const Error automatic = error_of({});
  EXPECT_NE(automatic.message.find("the weights need " + format_bytes(2 * info.weight_bytes)), std::string::npos) << automatic.message;
  options_.draft_model.clear();
  const Error alone = error_of({});
  EXPECT_NE(alone.message.find("the weights need " + format_bytes(info.weight_bytes) + ","), std::string::npos) << alone.message;
}

TEST_F(CreateEngine, LoadsTheAdaptersOfTheOptions) {
  options_.adapters = test::adapters_for(options_.model);
  options_.adapters.max_loras = options_.adapters.max_cpu_loras = 1;
  const auto engine = build();
  ASSERT_NE(engine, nullptr);
  const std::vector<AdapterInfo> adapters = engine->adapters();
  ASSERT_EQ(adapters.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(adapters[i].name, options_.adapters.modules[i].name);
    EXPECT_EQ(adapters[i].path, options_.adapters.modules[i].path);
    EXPECT_EQ(adapters[i].is_resident, i == 1) << "one adapter fits in memory";
  }
  options_.adapters.max_lora_rank = 1;
  const Error error = error_of({});
  EXPECT_TRUE(error.field.starts_with("lora_modules 'one': ")) << error.to_string();
}

TEST_F(CreateEngine, ReportsTheProgressOfTheLoad) {
  static std::atomic<double> last = 0.0;
  const auto engine = create_engine(options_, [](double part) { last = part; }, nullptr);
  ASSERT_TRUE(engine.has_value());
  EXPECT_EQ(last, 1.0);
}

}  // namespace
}  // namespace quire
