#include "cli/flags/engine_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/format_bytes.h"
#include "cli/flags/speculation_flags.h"

namespace quire {
namespace {

EngineOptions parsed(const std::string& flags) {
  CLI::App app;
  EngineOptions options;
  add_engine_flags(app, options);
  app.parse("model.gguf " + flags);
  return options;
}

TEST(EngineFlags, ParsesSizesWithUnits) {
  EXPECT_EQ(parse_bytes("123"), 123U);
  EXPECT_EQ(parse_bytes("512M"), 512U << 20);
  EXPECT_EQ(parse_bytes("2GiB"), 2ULL << 30);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000U);
  for (const char* bad : {"", "GiB", "-1", "1XB", "nan", "1e30T", "2 GiB x"}) EXPECT_FALSE(parse_bytes(bad).has_value()) << bad;
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10), "10 B");
}

TEST(EngineFlags, AutoSizesTheKvCacheByTheMachine) {
  EXPECT_EQ(parsed("--kv-cache-memory auto").cache.kv_cache_bytes, 0U);
}

TEST(EngineFlags, EveryFlagReachesItsOption) {
  const EngineOptions options = parsed(
      "--served-model-name m --kv-cache-memory 2GiB --num-blocks 7 --block-size 32 --kv-cache-dtype f32 --no-enable-prefix-caching "
      "--max-num-seqs 3 --max-num-batched-tokens 64 --max-model-len 99 --max-num-waiting 5 --long-prefill-token-threshold 16 "
      "--no-enable-chunked-prefill --scheduling-policy priority --no-async-scheduling --threads 2 --seed 9 --activations f32 --isa "
      "reference --prefix-caching-hash-algo sha256_cbor --prefix-caching-hash-seed 0 --kv-lifo --kv-slru 0.3 "
      "--no-scheduler-reserve-full-isl "
      "--continuum-pin 3.5 --continuum-longest-tool 4 --continuum-max-jobs 11 --continuum-max-tools 12 --kv-watermark 0.01 "
      "--count-common-prefix --kv-pressure-high 0.95 --kv-pressure-low 0.7 --kv-swap 1MiB "
      "--kv-swap-choice "
      "always --max-forks 8 "
      "--speculative-config '{\"method\":\"ngram\",\"num_speculative_tokens\":3,\"prompt_lookup_max\":4,\"prompt_lookup_min\":2}'");
  EXPECT_EQ(options.model, "model.gguf");
  EXPECT_EQ(options.served_model_name, "m");
  EXPECT_EQ(options.cache.kv_cache_bytes, 2ULL << 30);
  EXPECT_EQ(options.cache.num_blocks, 7U);
  EXPECT_EQ(options.cache.block_size, 32U);
  EXPECT_EQ(options.cache.dtype, KvDtype::f32);
  EXPECT_FALSE(options.cache.enable_prefix_caching);
  EXPECT_EQ(options.scheduler.max_num_seqs, 3U);
  EXPECT_EQ(options.scheduler.max_num_batched_tokens, 64U);
  EXPECT_EQ(options.scheduler.max_model_len, 99U);
  EXPECT_EQ(options.scheduler.max_num_waiting, 5U);
  EXPECT_EQ(options.scheduler.long_prefill_token_threshold, 16U);
  EXPECT_FALSE(options.scheduler.enable_chunked_prefill);
  EXPECT_EQ(options.scheduler.policy, SchedulingPolicy::priority);
  EXPECT_FALSE(options.scheduler.async_scheduling);
  EXPECT_EQ(options.num_threads, 2U);
  EXPECT_EQ(options.seed, 9U);
  EXPECT_EQ(options.activations, ActivationMode::f32);
  EXPECT_EQ(options.isa, KernelIsa::reference);
  EXPECT_EQ(options.cache.hash, HashAlgorithm::sha256_cbor);
  EXPECT_EQ(options.cache.hash_seed, "0");
  EXPECT_TRUE(options.cache.lifo_free_blocks);
  EXPECT_EQ(options.cache.slru_share, 0.3);
  EXPECT_TRUE(options.cache.count_common_prefix);
  EXPECT_FALSE(options.scheduler.reserve_full_isl);
  EXPECT_EQ(options.continuum.pin_s, 3.5);
  EXPECT_EQ(options.continuum.longest_tool_s, 4.0);
  EXPECT_EQ(options.continuum.max_jobs, 11U);
  EXPECT_EQ(options.continuum.max_tools, 12U);
  EXPECT_TRUE(options.continuum.pins_give_way);
  EXPECT_EQ(options.pressure.admission_watermark, 0.01);
  EXPECT_EQ(options.pressure.pressure_high, 0.95);
  EXPECT_EQ(options.pressure.pressure_low, 0.7);
  EXPECT_EQ(options.kv_swap.bytes, 1U << 20);
  EXPECT_EQ(options.kv_swap.choice, SwapChoice::always);
  EXPECT_EQ(options.max_fork_family, 8U);
  EXPECT_EQ(options.speculation, (NgramOptions{.num_speculative_tokens = 3, .prompt_lookup_min = 2, .prompt_lookup_max = 4}));
}

TEST(EngineFlags, DraftModelIsSetByFlagOrVllmsJson) {
  EngineOptions options = parsed("--speculative-model small.gguf --num-speculative-tokens 5");
  EXPECT_EQ(options.draft_model, "small.gguf");
  EXPECT_EQ(options.speculation.num_speculative_tokens, 5U);
  EXPECT_EQ(parsed("--speculative-model small.gguf").speculation.num_speculative_tokens, 0U) << "0 becomes 4 when the options are resolved";
  for (const char* method : {R"(\"method\":\"draft_model\",)", ""}) {
    options = parsed(std::string("--speculative-config \"{") + method + R"(\"model\":\"small.gguf\",\"num_speculative_tokens\":3}")");
    EXPECT_EQ(options.draft_model, "small.gguf");
    EXPECT_EQ(options.speculation, NgramOptions{.num_speculative_tokens = 3});
  }
  for (const auto& [config, problem] :
       {std::pair(R"({"method":"draft_model","num_speculative_tokens":3})", "model is missing"),
        {R"({"method":"ngram","model":"m.gguf","num_speculative_tokens":3})", "the method ngram does not take a model"},
        {R"({"model":"m.gguf","num_speculative_tokens":3,"prompt_lookup_max":4})", "does not take prompt_lookup_min"},
        {R"({"model":7,"num_speculative_tokens":3})", "model must be a non-empty string"},
        {R"({"method":"eagle","model":"m.gguf","num_speculative_tokens":3})", "method must be"},
        {R"({"model":"m.gguf"})", "num_speculative_tokens is missing"}})
    EXPECT_NE(parse_speculative_config(config).error().message.find(problem), std::string::npos) << config;
}

TEST(EngineFlags, SchedulingIsAsyncAndFcfsByDefault) {
  EXPECT_TRUE(parsed("").scheduler.async_scheduling);
  EXPECT_TRUE(parsed("--async-scheduling").scheduler.async_scheduling);
  EXPECT_EQ(parsed("").scheduler.policy, SchedulingPolicy::fcfs);
  EXPECT_EQ(parsed("--scheduling-policy fcfs").scheduler.policy, SchedulingPolicy::fcfs);
}

TEST(EngineFlags, InvalidValueNamesTheFlagAndTheRemedy) {
  for (const auto& [flags, flag, remedy] : {std::tuple{"--isa mmx", "--isa", "avx2"},
                                            {"--kv-cache-dtype f64", "--kv-cache-dtype", "bf16"},
                                            {"--scheduling-policy lifo", "--scheduling-policy", "continuum|fcfs|priority"},
                                            {"--kv-cache-memory 2XB", "--kv-cache-memory", "2GiB"},
                                            {"--enable-prompt-embeds", "--enable-prompt-embeds", "send text or token ids"},
                                            {"--block-size x", "--block-size", ""}}) {
    try {
      parsed(flags);
      FAIL() << flags << " was accepted";
    } catch (const CLI::ParseError& error) {
      EXPECT_NE(std::string(error.what()).find(flag), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(remedy), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire
