// Tests the values that the engine computes from its options, and the configuration that the core and the worker get.
#include <gtest/gtest.h>

#include <functional>

#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "engine/small_model.h"
#include "quire/engine_option_table.h"

namespace quire {
namespace {

ResolvedEngine resolve_with(const std::function<void(EngineOptions&)>& change, const ModelInfo& model = small_model(),
                            const Machine& machine = {1, 0}) {
  EngineOptions options;
  options.cache.num_blocks = 100;
  change(options);
  return resolve_options(options, model, machine).value();
}

TEST(CoreConfigOfAnEngine, HasTheOptionsOfTheScheduler) {
  const ResolvedEngine resolved = resolve_with([](EngineOptions& options) {
    options.scheduler = {.max_num_seqs = 7,
                         .max_num_batched_tokens = 70,
                         .max_model_len = 77,
                         .long_prefill_token_threshold = 17,
                         .max_num_waiting = 27,
                         .reserve_full_isl = false,
                         .policy = SchedulingPolicy::priority,
                         .tenant_turns = true,
                         .async_scheduling = false};
    options.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 2, .prompt_lookup_max = 4};
    options.kv_load_failure = KvLoadFailurePolicy::fail;
    options.adapters.max_loras = 5;
    options.cache.block_size = 8;
    options.cache.enable_prefix_caching = false;
  });
  const CoreConfig& config = resolved.core;
  SchedulerOptions scheduler = resolved.options.scheduler;
  EXPECT_EQ(scheduler.max_model_len, 77U);
  scheduler.max_num_waiting = 27 + 7 + 1;
  EXPECT_EQ(config.scheduler, scheduler) << "preempted requests wait, too, and one beam more";
  EXPECT_EQ(config.limits.max_outstanding_plans, 1U);
  EXPECT_EQ(config.limits.max_loras, 5U);
  EXPECT_EQ(config.speculation.num_spec_tokens, 3U);
  EXPECT_EQ(config.kv_load_failure, KvLoadFailurePolicy::fail);
  EXPECT_EQ(config.block_size, 8U);
  EXPECT_EQ(config.kv.num_blocks, 100U);
  EXPECT_EQ(config.kv.groups.size(), 1U);
  EXPECT_FALSE(config.mamba_align);
  EXPECT_EQ(config.cache_block_size, 0U);
  EXPECT_FALSE(config.prefix_cache.enable_prefix_caching);
  EXPECT_FALSE(config.report.enable_kv_events);
  EXPECT_EQ(config.fixes, engine_fixes(false));
  EXPECT_EQ(config.swap, SwapOptions());
  EXPECT_EQ(config.encoder, EncoderOptions());
  EXPECT_EQ(resolved.limits.max_num_seqs, 7U);
  EXPECT_EQ(resolved.limits.max_model_len, 77U);
  EXPECT_EQ(resolved.limits.max_num_batched_tokens, 70U);
  EXPECT_EQ(resolved.limits.speculation, resolved.options.speculation);
}

TEST(CoreConfigOfAnEngine, PlansAheadOnlyWithAsyncScheduling) {
  for (const bool async : {false, true})
    EXPECT_EQ(resolve_with([&](EngineOptions& o) { o.scheduler.async_scheduling = async; }).core.limits.max_outstanding_plans,
              async ? 2U : 1U);
}

TEST(CoreConfigOfAnEngine, ReportsEventsOnlyIfTheyArePublished) {
  for (const char* publisher : {"zmq", "null"}) {
    const ResolvedEngine resolved = resolve_with([&](EngineOptions& options) {
      options.kv_events.enable_kv_cache_events = true;
      options.kv_events.publisher = publisher;
    });
    EXPECT_EQ(resolved.core.report.enable_kv_events, publisher == std::string("zmq"));
  }
}

TEST(CoreConfigOfAnEngine, CountsSwapSlotsInFilesAsSlow) {
  const ResolvedEngine resolved = resolve_with([](EngineOptions& options) {
    options.kv_swap = {.bytes = 3 * 2048, .choice = SwapChoice::always, .folder = "/swap", .folder_bytes = 1U << 20U};
  });
  const SwapOptions& swap = resolved.core.swap;
  EXPECT_GT(swap.num_slow_slots, 0U);
  EXPECT_EQ(swap.num_swap_slots, 3 + swap.num_slow_slots);
  EXPECT_EQ(swap.swap_choice, SwapChoice::always);
}

TEST(CoreConfigOfAnEngine, AnImageEncoderHasTheBudgetOfAStepOrOfTheLargestImage) {
  ModelInfo model = small_model();
  model.pictures.processor = "llava";
  model.pictures.max_tiles = 3;
  model.pictures.tile_tokens = 40;
  for (const auto& [batched, budget] : {std::pair(119U, 120U), {121U, 121U}}) {
    const EncoderOptions encoder =
        resolve_with([&](EngineOptions& o) { o.scheduler.max_num_batched_tokens = batched; }, model).core.encoder;
    EXPECT_EQ(encoder, (EncoderOptions{.max_encoder_tokens = budget, .encoder_cache_size = budget}));
  }
}

TEST(CoreConfigOfAnEngine, AnEncoderDecoderModelRunsOneInputPerStep) {
  ModelInfo model = small_model();
  model.encoder.num_positions = 30;
  for (const auto& [num_seqs, num_cached] : {std::pair(7U, 7U), {1024U, 1024U}, {1025U, 1024U}}) {
    const ResolvedEngine resolved = resolve_with([&](EngineOptions& o) { o.scheduler.max_num_seqs = num_seqs; }, model);
    EXPECT_EQ(resolved.core.encoder,
              (EncoderOptions{.max_encoder_tokens = 30, .encoder_cache_size = 30 * num_cached, .is_encoder_decoder = true}));
    EXPECT_FALSE(resolved.options.cache.enable_prefix_caching) << "equal tokens after another input have other keys and values";
    EXPECT_FALSE(resolved.core.prefix_cache.enable_prefix_caching);
  }
}

TEST(CoreConfigOfAnEngine, AlignsChunksToTheBlocksOfLargeStates) {
  ModelInfo model = small_model();
  model.layer_memories = {LayerMemory::attention, LayerMemory::state};
  for (const auto& [floats, block_size] : {std::pair(100U, 16U), {600U, 48U}}) {
    model.state_shapes = {{floats}};
    const ResolvedEngine resolved = resolve_with([](EngineOptions&) {}, model);
    const bool is_large = block_size > 16;
    EXPECT_EQ(resolved.core.block_size, block_size);
    EXPECT_EQ(resolved.options.cache.block_size, block_size);
    EXPECT_EQ(resolved.core.mamba_align, is_large);
    EXPECT_EQ(resolved.core.cache_block_size, is_large ? block_size : 0U);
    EXPECT_EQ(resolved.options.cache.mamba_cache_mode, is_large ? MambaCacheMode::align : MambaCacheMode::all);
  }
  EXPECT_EQ(resolve_with([](EngineOptions&) {}).options.cache.mamba_cache_mode, std::nullopt) << "no layer has a state";
}

TEST(CoreConfigOfAnEngine, ReportsTheFieldThatTheCoreRefuses) {
  EngineOptions options;
  options.cache.num_blocks = 100;
  options.continuum.pin_s = 3600.0;
  EXPECT_TRUE(resolve_options(options, small_model(), {1, 0}));
  options.continuum.pin_s = 3601.0;
  const auto refused = resolve_options(options, small_model(), {1, 0});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().field.find("pin"), std::string::npos) << refused.error().to_string();
}

TEST(AutomaticOptions, UseTheCoresUpToALimit) {
  const auto threads = [](std::uint32_t given, std::uint32_t num_cores) {
    return resolve_with([&](EngineOptions& o) { o.num_threads = given; }, small_model(), {num_cores, 0}).options.num_threads;
  };
  EXPECT_EQ(threads(0, 0), 1U);
  EXPECT_EQ(threads(0, 1), 1U);
  EXPECT_EQ(threads(0, 9), 9U);
  EXPECT_EQ(threads(0, kMaxThreads), kMaxThreads);
  EXPECT_EQ(threads(0, kMaxThreads + 1), kMaxThreads);
  EXPECT_EQ(threads(3, 9), 3U);
}

TEST(AutomaticOptions, GiveATenantTheWholeQueue) {
  const auto limit = [](std::uint32_t given) {
    return resolve_with([&](EngineOptions& options) {
             options.scheduler.max_num_waiting = 40;
             options.max_tenant_waiting = given;
           })
        .options.max_tenant_waiting;
  };
  EXPECT_EQ(limit(0), 40U);
  EXPECT_EQ(limit(1), 1U);
}

TEST(AutomaticOptions, AddALowPressureToAHighOne) {
  const auto low = [](double high, double given) {
    return resolve_with([&](EngineOptions& options) {
             options.pressure.pressure_high = high;
             options.pressure.pressure_low = given;
           })
        .options.pressure.pressure_low;
  };
  EXPECT_EQ(low(0.0, 0.0), 0.0);
  EXPECT_EQ(low(0.9, 0.0), 0.8);
  EXPECT_EQ(low(0.8, 0.0), 0.8);
  EXPECT_EQ(low(0.5, 0.0), 0.5);
  EXPECT_EQ(low(0.9, 0.3), 0.3);
}

TEST(AutomaticOptions, KeepSomeAdaptersInMemory) {
  const auto limit = [](AdapterOptions given) {
    return resolve_with([&](EngineOptions& o) { o.adapters = given; }).options.adapters.max_cpu_loras;
  };
  EXPECT_EQ(limit({}), 0U) << "no adapter is served";
  EXPECT_EQ(limit({.max_loras = 1, .modules = {}}), 4U);
  EXPECT_EQ(limit({.max_loras = 5, .modules = {}}), 5U);
  EXPECT_EQ(limit({.max_loras = 2, .max_cpu_loras = 2, .modules = {}}), 2U) << "the given number";
}

TEST(AutomaticOptions, ReadExpertsFromTheFolderOnlyIfTheyDoNotFit) {
  ModelInfo model = small_model();
  model.num_experts = 8;
  model.weight_bytes = 1'000'000;
  model.expert_bytes = 900'000;
  const auto expert_bytes = [&](std::uint64_t available, const char* folder) {
    return resolve_with([&](EngineOptions& o) { o.weights.cache_folder = folder; }, model, {1, available}).options.weights.expert_bytes;
  };
  EXPECT_EQ(expert_bytes(1'250'000, "/weights"), 0U) << "the weights take four fifths of the memory";
  EXPECT_EQ(expert_bytes(1'249'990, "/weights"), (1'249'990U - 100'000) / 2);
  EXPECT_EQ(expert_bytes(1'249'990, ""), 0U) << "there is no folder";
  EXPECT_EQ(expert_bytes(100'001, "/weights"), 1U);
  const WeightsOptions given{.cache_folder = "/weights", .expert_bytes = 1};
  EXPECT_EQ(resolve_with([&](EngineOptions& o) { o.weights = given; }, model, {1, 1'249'990}).options.weights.expert_bytes, 1U);
  EXPECT_EQ(expert_bytes(100'000, "/weights"), 0U) << "the other weights alone take all of the memory";
  model.expert_bytes = 0;
  EXPECT_EQ(expert_bytes(1'249'990, "/weights"), 0U) << "no weights are experts";
}

TEST(AutomaticOptions, CountOnlyTheExpertsThatTheModelHas) {
  ModelInfo model = small_model();
  model.num_experts = 8;
  model.weight_bytes = 1'000'000;
  model.expert_bytes = 900'000;
  const auto cache_bytes = [&](std::uint64_t expert_bytes, std::uint64_t available = 1'500'000) {
    return resolve_with(
               [&](EngineOptions& options) {
                 options.cache.num_blocks = 0;
                 options.cache.kv_cache_bytes = 0;
                 options.weights = {.cache_folder = "/weights", .expert_bytes = expert_bytes};
               },
               model, {.num_cores = 1, .available_bytes = available, .draft_bytes = 100'000})
        .options.cache.kv_cache_bytes;
  };
  EXPECT_EQ(cache_bytes(400'000), (1'500'000U - 100'000 - 400'000 - 100'000) / 5 * 4);
  for (const std::uint64_t spare : {0U, 4U}) EXPECT_EQ(cache_bytes(900'000, 1'500'000 + spare), 400'000U / 5 * 4);
  EXPECT_EQ(cache_bytes(5'000'000), 400'000U / 5 * 4);
}

}  // namespace
}  // namespace quire
