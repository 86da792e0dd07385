#include "engine/resolve_options.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/requests/validate_request.h"
#include "engine/small_model.h"
#include "engine/stats/histogram.h"
#include "quire/engine.h"

namespace quire {
namespace {

constexpr std::uint64_t kBlockBytes = 2 * 2 * 2 * 16 * 8 * 2;  // keys and values, layers, heads, tokens, dims, bf16

TEST(ResolveOptions, ReplacesZerosByValues) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 100 * kBlockBytes + 1;
  const Result<ResolvedEngine> resolved = resolve_options(options, small_model(), {6, 0});
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->options.cache.num_blocks, 100U);
  EXPECT_EQ(resolved->options.num_threads, 6U);
  EXPECT_EQ(resolved->options.scheduler.max_model_len, 512U);
  EXPECT_EQ(resolved->options.served_model_name, "small");
}

TEST(ResolveOptions, ADraftModelDefaultsToFourDraftTokensAndReducesTheCache) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 0;
  options.draft_model = "small.gguf";
  const std::uint64_t plain = resolve_options(options, small_model(), {1, 1'000'000})->options.cache.kv_cache_bytes;
  EXPECT_EQ(resolve_options(options, small_model(), {1, 1'000'000})->options.speculation.num_speculative_tokens, 4U);
  EXPECT_EQ(resolve_options(options, small_model(), {1, 2'000'000, 1'000'000})->options.cache.kv_cache_bytes, plain);
  EXPECT_EQ(plain, 640'000U);
  options.speculation.num_speculative_tokens = 7;
  EXPECT_EQ(resolve_options(options, small_model(), {1, 1'000'000})->options.speculation.num_speculative_tokens, 7U);
  options.draft_model.clear();
  EXPECT_EQ(resolve_options(options, small_model(), {1, 1'000'000})->options.cache.kv_cache_bytes, 800'000U);
}

TEST(ResolveOptions, NamesTheServedModelAfterTheFileOrFolder) {
  const auto served = [](const char* path) {
    EngineOptions options;
    options.model = path;
    return resolve_options(options, small_model(), {1, 0})->options.served_model_name;
  };
  EXPECT_EQ(served("models/Tiny-1B.Q4_1.gguf"), "Tiny-1B.Q4_1");
  EXPECT_EQ(served("models/Tiny-1.5B"), "Tiny-1.5B");
  EXPECT_EQ(served("models/Tiny-1.5B/"), "Tiny-1.5B");
  EXPECT_EQ(served(""), "small");
}

TEST(ResolveOptions, ChecksAdaptersAndPassesTheirLimitToTheCore) {
  const auto resolve = [](AdapterOptions adapters) {
    EngineOptions options;
    options.adapters = std::move(adapters);
    return resolve_options(options, small_model(), {1, 0});
  };
  const auto refused = [&](AdapterOptions adapters) { return resolve(std::move(adapters)).error().field; };
  EXPECT_EQ(resolve({}).value().core.limits.max_loras, 0U);
  const ResolvedEngine resolved = resolve({.max_loras = 3, .modules = {{"a", "/a"}, {"b", "/a"}}}).value();
  EXPECT_EQ(resolved.options.adapters.max_cpu_loras, 4U);
  EXPECT_EQ(resolve({.max_loras = 7, .modules = {}}).value().options.adapters.max_cpu_loras, 7U);
  std::vector<AdapterModule> many;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) many.push_back({name, "/a"});
  EXPECT_EQ(resolve({.max_loras = 2, .modules = many}).value().options.adapters.max_cpu_loras, 6U);
  EXPECT_EQ(resolved.core.limits.max_loras, 3U);
  for (const std::uint32_t rank : {1, 8, 16, 32, 64, 128, 256, 320, 512})
    EXPECT_TRUE(resolve({.max_loras = 1, .max_lora_rank = rank, .modules = {}})) << rank;
  for (const std::uint32_t rank : {0, 2, 24, 1024})
    EXPECT_EQ(refused({.max_loras = 1, .max_lora_rank = rank, .modules = {}}), "max_lora_rank");
  EXPECT_EQ(refused({.max_loras = 1U << 20U, .modules = {}}), "max_loras");
  EXPECT_EQ(refused({.max_loras = 3, .max_cpu_loras = 2, .modules = {}}), "max_cpu_loras");
  EXPECT_EQ(refused({.max_loras = 3, .max_cpu_loras = 1U << 30U, .modules = {}}), "max_cpu_loras");
  EXPECT_EQ(refused({.max_loras = 1, .modules = {{"a", "/a"}, {"a", "/b"}}}), "lora_modules");
  EXPECT_EQ(refused({.max_loras = 1, .modules = {{"", "/a"}}}), "lora_modules");
  EXPECT_EQ(refused({.max_loras = 1, .modules = {{"a", ""}}}), "lora_modules");
  EXPECT_EQ(refused({.modules = {{"a", "/a"}}}), "lora_modules");  // no request could name the adapter
}

TEST(ResolveOptions, RequiresRoomForAnUnsplitImageInAStep) {
  ModelInfo model = small_model();
  model.pictures.processor = "gemma3";
  model.pictures.max_tiles = 1;
  model.pictures.tile_tokens = 40;
  const auto resolve = [&](auto change) {
    EngineOptions options;
    options.scheduler.max_num_seqs = 5;
    options.scheduler.max_num_batched_tokens = 44;
    change(options);
    return resolve_options(options, model, {1, 0});
  };
  const auto refused = [&](auto change) {
    const auto resolved = resolve(change);
    return resolved ? std::string() : resolved.error().field;
  };
  const auto smaller = [](EngineOptions& options) { options.scheduler.max_num_batched_tokens = 43; };
  EXPECT_FALSE(resolve(smaller).value().core.encoder.uncut_items);
  model.pictures.attends_bidirectionally = true;
  EXPECT_TRUE(resolve([](EngineOptions&) {}).value().core.encoder.uncut_items);
  EXPECT_EQ(refused(smaller), "max_num_batched_tokens");
  EXPECT_EQ(refused([](EngineOptions& options) { options.speculation = {.num_speculative_tokens = 1}; }), "max_num_batched_tokens");
  EXPECT_EQ(refused([](EngineOptions& options) { options.scheduler.long_prefill_token_threshold = 39; }), "long_prefill_token_threshold");
}

TEST(ResolveOptions, PassesEngineOptionsToTheCore) {
  EngineOptions options;
  options.cache.num_blocks = 50;
  options.cache.hash = HashAlgorithm::sha256_cbor;
  options.cache.hash_seed = "7";
  options.cache.slru_share = 0.25;
  options.cache.retained_share = 0.375;
  options.cache.kv_cache_metrics = options.cache.count_common_prefix = true;
  options.cache.kv_cache_metrics_sample = 0.25;
  options.scheduler.reserve_full_isl = false;
  options.continuum.pin_s = 9.0;
  options.continuum.longest_tool_s = 8.0;
  options.max_fork_family = 5;
  options.kv_swap = {.bytes = 4 * kBlockBytes, .choice = SwapChoice::always};
  options.pressure = {.admission_watermark = 0.1, .pressure_high = 0.9, .pressure_low = 0.5};
  const ModelInfo model = small_model();
  const Result<ResolvedEngine> resolved = resolve_options(options, model, {1, 0});
  ASSERT_TRUE(resolved.has_value()) << resolved.error().to_string();
  const CoreConfig& config = resolved->core;
  EXPECT_EQ(config.prefix_cache.hash, HashAlgorithm::sha256_cbor);
  EXPECT_EQ(config.prefix_cache.hash_seed, "7");
  EXPECT_EQ(config.prefix_cache.slru_share, 0.25);
  EXPECT_EQ(config.prefix_cache.retained_share, 0.375);
  EXPECT_TRUE(config.report.log_stats) << "block lifetimes are reported with the stats";
  EXPECT_EQ(config.report.kv_metrics_sample, 0.25);
  EXPECT_TRUE(config.report.count_common_prefix);
  EXPECT_FALSE(config.scheduler.reserve_full_isl);
  EXPECT_EQ(config.continuum, options.continuum);
  EXPECT_TRUE(config.continuum.pins_give_way) << "the fixes stay enabled";
  EXPECT_EQ(config.limits.max_fork_family, 5U);
  EXPECT_EQ(config.swap, (SwapOptions{.num_swap_slots = 4, .swap_choice = SwapChoice::always}));
  EXPECT_EQ(config.pressure, options.pressure);
}

TEST(ResolveOptions, BlockMetricsAreOffByDefault) {
  const Result<ResolvedEngine> resolved = resolve_options({}, small_model(), {1, 0});
  ASSERT_TRUE(resolved.has_value());
  const CoreConfig& config = resolved->core;
  EXPECT_FALSE(config.report.log_stats);
  EXPECT_EQ(config.report.kv_metrics_sample, 0.0);
  EXPECT_FALSE(config.report.count_common_prefix);
}

TEST(ResolveOptions, ASmallCacheShortensTheContext) {
  EngineOptions options;
  options.cache.num_blocks = 5;
  const Result<ResolvedEngine> resolved = resolve_options(options, small_model(), {1, 0});
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->options.scheduler.max_model_len, 64U) << "the null block holds no tokens";
}

// All parts of an engine read the one configuration. It is also what the resolved options alone would give.
TEST(ResolveOptions, ResolvesResolvedOptionsToTheSameEngine) {
  ModelInfo model = small_model();
  for (const bool has_states : {false, true})
    for (const bool caches : {false, true}) {
      if (has_states) {
        model.layer_memories = {LayerMemory::attention, LayerMemory::state};
        model.state_shapes = {{100}};
      }
      EngineOptions options;
      options.cache.num_blocks = 12;
      options.cache.enable_prefix_caching = caches;
      options.scheduler.max_model_len = 0;
      const ResolvedEngine once = resolve_options(options, model, {1, 0}).value();
      const ResolvedEngine again = resolve_options(once.options, model, {1, 0}).value();
      EXPECT_LT(once.options.scheduler.max_model_len, model.context_length);
      EXPECT_EQ(again.core, once.core);
      ASSERT_EQ(again.layout.groups.size(), once.layout.groups.size());
      for (std::size_t i = 0; i < once.layout.groups.size(); ++i) EXPECT_EQ(again.layout.groups[i].spec, once.layout.groups[i].spec);
      EXPECT_EQ(again.layout.total_bytes(), once.layout.total_bytes());
      EXPECT_EQ(again.limits.max_model_len, once.limits.max_model_len);
    }
}

TEST(ResolveOptions, AutoUsesFourFifthsOfTheMemoryAfterTheWeights) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 0;
  ModelInfo model = small_model();
  model.weight_bytes = 1'000'000;
  const auto resolved = resolve_options(options, model, {1, 1'000'000 + 50 * kBlockBytes});
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->options.cache.kv_cache_bytes, 40 * kBlockBytes);
  EXPECT_EQ(resolved->options.cache.num_blocks, 40U);
  const auto none = resolve_options(options, model, {1, 1'000'000});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().field, "kv_cache_bytes");
  EXPECT_FALSE(none.error().remedy.empty());
}

TEST(ResolveOptions, AutoLeavesRoomForSwapAndTiersInMemory) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 0;
  options.kv_swap.bytes = 10 * kBlockBytes;
  const auto resolved = resolve_options(options, small_model(), {1, 45 * kBlockBytes, 0, 15 * kBlockBytes});
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->options.cache.num_blocks, 16U);
  const auto none = resolve_options(options, small_model(), {1, 45 * kBlockBytes, 0, UINT64_MAX});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().field, "kv_cache_bytes");
}

ModelInfo small_moe() {
  ModelInfo model = small_model();
  model.num_experts = 8;
  model.weight_bytes = 1'000'000;
  model.expert_bytes = 900'000;
  return model;
}

TEST(ResolveOptions, ReadsExpertsThatDoNotFitFromTheFolder) {
  EngineOptions options;
  options.cache.kv_cache_bytes = 0;
  const auto refused = resolve_options(options, small_moe(), {1, 500'000});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().remedy.find("--weights-cache"), std::string::npos) << refused.error().remedy;
  options.weights.cache_folder = "/weights";
  const auto some = resolve_options(options, small_moe(), {1, 500'000});
  ASSERT_TRUE(some.has_value()) << some.error().to_string();
  EXPECT_EQ(some->options.weights.expert_bytes, 200'000U) << "half of the memory after the other weights";
  EXPECT_EQ(some->options.cache.kv_cache_bytes, 160'000U);
  const auto all = resolve_options(options, small_moe(), {1, 10'000'000});
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->options.weights.expert_bytes, 0U) << "all are in memory";
  options.weights.expert_bytes = 300'000;
  const auto given = resolve_options(options, small_moe(), {1, 900'000});
  ASSERT_TRUE(given.has_value());
  EXPECT_EQ(given->options.weights.expert_bytes, 300'000U);
  EXPECT_EQ(given->options.cache.kv_cache_bytes, 400'000U);
}

TEST(ResolveOptions, ReportsTheFieldOfEachInvalidOption) {
  struct Case {
    const char* option;
    std::function<void(EngineOptions&)> invalidate;
  };
  const Case cases[] = {
      {"block_size", [](EngineOptions& o) { o.cache.block_size = 0; }},
      {"block_size", [](EngineOptions& o) { o.cache.block_size = 1U << 20; }},
      {"num_blocks", [](EngineOptions& o) { o.cache.num_blocks = 1; }},
      {"kv_cache_metrics_sample", [](EngineOptions& o) { o.cache.kv_cache_metrics_sample = 0.0; }},
      {"kv_cache_metrics_sample", [](EngineOptions& o) { o.cache.kv_cache_metrics_sample = 1.5; }},
      {"kv_cache_bytes", [](EngineOptions& o) { o.cache.kv_cache_bytes = 3; }},
      {"max_num_seqs", [](EngineOptions& o) { o.scheduler.max_num_seqs = 0; }},
      {"max_num_batched_tokens", [](EngineOptions& o) { o.scheduler.max_num_batched_tokens = 0; }},
      {"max_num_waiting", [](EngineOptions& o) { o.scheduler.max_num_waiting = 0; }},
      {"max_model_len", [](EngineOptions& o) { o.scheduler.max_model_len = 513; }},
      {"max_model_len", [](EngineOptions& o) { o.scheduler.max_model_len = 1; }},
      {"max_model_len",
       [](EngineOptions& o) {
         o.cache.num_blocks = 3;
         o.scheduler.max_model_len = 33;
       }},
      {"expert_memory", [](EngineOptions& o) { o.weights.expert_bytes = 1; }},
      {"expert_memory", [](EngineOptions& o) { o.weights = {.cache_folder = "/weights", .expert_bytes = 1}; }},
      {"weights_cache_budget", [](EngineOptions& o) { o.weights = {.cache_folder = "/weights", .cache_bytes = 0}; }},
      {"num_threads", [](EngineOptions& o) { o.num_threads = 100000; }},
      {"max_num_batched_tokens",
       [](EngineOptions& o) {
         o.scheduler.enable_chunked_prefill = false;
         o.scheduler.max_num_batched_tokens = 100;
       }},
  };
  for (const Case& c : cases) {
    EngineOptions options;
    c.invalidate(options);
    const Result<ResolvedEngine> resolved = resolve_options(options, small_model(), {1, 0});
    ASSERT_FALSE(resolved.has_value()) << c.option;
    EXPECT_EQ(resolved.error().field, c.option);
    EXPECT_FALSE(resolved.error().remedy.empty());
  }
}

EngineOptions border() {
  EngineOptions options;
  options.scheduler.max_model_len = 20;
  return options;
}

TEST(RequestCheck, ReportsTheFieldOfEachInvalidValue) {
  struct Case {
    const char* field;
    std::function<void(EngineRequest&)> invalidate;
  };
  const Case cases[] = {
      {"prompt", [](EngineRequest& r) { r.prompt.clear(); }},
      {"prompt", [](EngineRequest& r) { r.prompt.assign(20, 1); }},
      {"prompt", [](EngineRequest& r) { r.prompt = {1, 100}; }},
      {"prompt", [](EngineRequest& r) { r.prompt = {-1}; }},
      {"stop_token_ids", [](EngineRequest& r) { r.sampling.stop_token_ids = {100}; }},
      {"logit_bias", [](EngineRequest& r) { r.sampling.logit_bias = {{100, 1.0F}}; }},
      {"temperature", [](EngineRequest& r) { r.sampling.temperature = 3.0F; }},
      {"priority", [](EngineRequest& r) { r.priority = -1; }},
      {"hints", [](EngineRequest& r) { r.tags.hints.resize(17); }},
      {"hints", [](EngineRequest& r) { r.tags.hints = {{"name", std::string(257, 'x')}}; }},
      {"hints", [](EngineRequest& r) { r.tags.hints = {{std::string(257, 'x'), "text"}}; }},
  };
  for (const Case& c : cases) {
    EngineRequest request{.prompt = {1, 2, 3}, .sampling = {}};
    c.invalidate(request);
    const Result<void> result = validate_request(request, border(), 100);
    ASSERT_FALSE(result.has_value()) << c.field;
    EXPECT_EQ(result.error().field, c.field);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  }
}

TEST(RequestCheck, PrioritiesRequireThePriorityPolicyAndReportItsFlag) {
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.priority = 5;
  EXPECT_NE(validate_request(request, border(), 100).error().remedy.find("--scheduling-policy priority"), std::string::npos);
  EngineOptions options = border();
  options.scheduler.policy = SchedulingPolicy::priority;
  EXPECT_TRUE(validate_request(request, options, 100).has_value());
  EXPECT_EQ(request.priority, 5);
}

TEST(RequestCheck, OutputsAreClippedToTheRemainingContext) {
  EngineRequest request{.prompt = {1, 2, 3}, .sampling = {}};
  request.sampling.max_tokens = 1000;
  request.sampling.min_tokens = 500;
  ASSERT_TRUE(validate_request(request, border(), 100).has_value());
  EXPECT_EQ(request.sampling.max_tokens, 17U);
  EXPECT_EQ(request.sampling.min_tokens, 17U);
}

TEST(Histogram, BucketsAreCumulativeAndBoundsBelongToTheirBucket) {
  HistogramSnapshot histogram = make_histogram({1.0, 2.0, 5.0});
  observe(histogram, 0.5);
  observe(histogram, 2.0);
  observe(histogram, 9.0);
  EXPECT_EQ(histogram.counts, (std::vector<std::uint64_t>{1, 2, 2, 3}));
  EXPECT_DOUBLE_EQ(histogram.sum, 11.5);
}

}  // namespace
}  // namespace quire
