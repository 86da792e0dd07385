// Tests the limits of the engine's options: the last value that is accepted, and the error after it, which names the option and a remedy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "engine/resolve_options.h"
#include "engine/small_model.h"

namespace quire {
namespace {

constexpr std::uint64_t kBytesOfABlock = 2048;  // of small_model()

using ChangeOptions = std::function<void(EngineOptions&)>;

// Returns the whole error; empty: the options are accepted.
std::string error_of(const ChangeOptions& change, const ModelInfo& model = small_model(), const Machine& machine = {1, 0}) {
  EngineOptions options;
  options.cache.num_blocks = 100;
  change(options);
  const auto resolved = resolve_options(options, model, machine);
  return resolved ? "" : resolved.error().to_string();
}

struct OptionCase {
  const char* error;
  ChangeOptions wrong;
  ChangeOptions right;  // the nearest accepted options
};

void expect_errors(std::span<const OptionCase> cases, const ModelInfo& model = small_model()) {
  for (const OptionCase& c : cases) {
    EXPECT_EQ(error_of(c.wrong, model), c.error);
    EXPECT_EQ(error_of(c.right, model), "") << "next to: " << c.error;
  }
}

TEST(OptionErrors, SayHowToCorrectKvEvents) {
  const auto events = [](auto change) {
    return [change](EngineOptions& options) {
      options.kv_events.enable_kv_cache_events = true;
      change(options);
    };
  };
  const OptionCase cases[] = {
      {"publisher: is 'kafka'; use zmq or null", events([](EngineOptions& o) { o.kv_events.publisher = "kafka"; }),
       events([](EngineOptions& o) { o.kv_events.publisher = "null"; })},
      {"format: is '0.20.0'; use 0.19.0 or 0.32.0 (versions of vLLM)", events([](EngineOptions& o) { o.kv_events.format = "0.20.0"; }),
       events([](EngineOptions& o) { o.kv_events.format = "0.32.0"; })},
      {"enable_kv_cache_events: is set, but prefix caching is off; turn prefix caching on: only cached blocks have events",
       events([](EngineOptions& o) { o.cache.enable_prefix_caching = false; }), events([](EngineOptions& o) {
         o.cache.enable_prefix_caching = false;
         o.kv_events.publisher = "null";
       })},
  };
  expect_errors(cases);
  EXPECT_TRUE(error_of(events([](EngineOptions& o) { o.kv_events.max_queue_size = 0; })).starts_with("max_queue_size: "));
  EXPECT_EQ(error_of(events([](EngineOptions& o) { o.kv_events.max_queue_size = 1; })), "");
}

TEST(OptionErrors, SayHowToCorrectAdapters) {
  const auto adapters = [](AdapterOptions given) { return [given](EngineOptions& options) { options.adapters = given; }; };
  const OptionCase cases[] = {
      {"lora_modules: are set, but max_loras is 0; start the server with --enable-lora", adapters({.modules = {{"a", "/a"}}}),
       adapters({.max_loras = 1, .modules = {{"a", "/a"}}})},
      {"max_lora_rank: is 9; use one of 1, 8, 16, 32, 64, 128, 256, 320, 512",
       adapters({.max_loras = 1, .max_lora_rank = 9, .modules = {}}), adapters({.max_loras = 1, .max_lora_rank = 8, .modules = {}})},
      {"max_cpu_loras: is 2, but max_loras is 3; use at least max_loras: all adapters of one step must fit in memory",
       adapters({.max_loras = 3, .max_cpu_loras = 2, .modules = {}}), adapters({.max_loras = 3, .max_cpu_loras = 3, .modules = {}})},
      {"lora_modules: contain an entry without a name or a path; use NAME=FOLDER", adapters({.max_loras = 1, .modules = {{"a", ""}}}),
       adapters({.max_loras = 1, .modules = {{"a", "/a"}}})},
      {"lora_modules: contain 'a' twice; give each adapter a different name",
       adapters({.max_loras = 1, .modules = {{"a", "/a"}, {"a", "/a"}}}),
       adapters({.max_loras = 1, .modules = {{"a", "/a"}, {"b", "/a"}}})},
  };
  expect_errors(cases);
}

TEST(OptionErrors, SayHowToCorrectMemory) {
  const OptionCase cases[] = {
      {"expert_memory: is set, but there is no folder to read experts from; add --weights-cache DIR",
       [](EngineOptions& o) { o.weights.expert_bytes = 1; }, [](EngineOptions&) {}},
      {"expert_memory: is set, but small has no experts; leave it out",
       [](EngineOptions& o) { o.weights = {.cache_folder = "/weights", .expert_bytes = 1}; },
       [](EngineOptions& o) { o.weights = {.cache_folder = "/weights"}; }},
      {"weights_cache_budget: is 0; use at least 1 byte, or leave --weights-cache out",
       [](EngineOptions& o) { o.weights = {.cache_folder = "/weights", .cache_bytes = 0}; },
       [](EngineOptions& o) { o.weights = {.cache_folder = "/weights", .cache_bytes = 1}; }},
      {"kv_swap: 2047 bytes are too small for one block; use at least 2048 bytes",
       [](EngineOptions& o) { o.kv_swap.bytes = kBytesOfABlock - 1; }, [](EngineOptions& o) { o.kv_swap.bytes = kBytesOfABlock; }},
      {"kv_swap_disk_budget: 1 bytes are too small for one block; use more, such as 4GiB",
       [](EngineOptions& o) { o.kv_swap = {.folder = "/swap", .folder_bytes = 1}; },
       [](EngineOptions& o) { o.kv_swap = {.folder = "/swap", .folder_bytes = 1U << 30U}; }},
  };
  expect_errors(cases);
}

TEST(OptionErrors, SayHowToCorrectLengthsAndShares) {
  const auto share = [](double value) { return [value](EngineOptions& o) { o.cache.kv_cache_metrics_sample = value; }; };
  const OptionCase cases[] = {
      {"kv_cache_metrics_sample: is 0; use a fraction above 0 and at most 1", share(0.0), share(1e-9)},
      {"kv_cache_metrics_sample: is 1.001; use a fraction above 0 and at most 1", share(1.001), share(1.0)},
      {"kv_cache_metrics_sample: is nan; use a fraction above 0 and at most 1", share(std::numeric_limits<double>::quiet_NaN()),
       share(0.5)},
      {"max_model_len: is 513; the context length of small is 512 tokens: use at most that",
       [](EngineOptions& o) { o.scheduler.max_model_len = 513; }, [](EngineOptions& o) { o.scheduler.max_model_len = 512; }},
      {"max_model_len: is 1; use at least 2: one token of prompt and one of output",
       [](EngineOptions& o) { o.scheduler.max_model_len = 1; }, [](EngineOptions& o) { o.scheduler.max_model_len = 2; }},
  };
  expect_errors(cases);
  struct Field {
    const char* name;
    ChangeOptions wrong, right;
  };
  const auto lookup = [](std::uint32_t min, std::uint32_t max) {
    return [min, max](EngineOptions& o) { o.speculation = {.prompt_lookup_min = min, .prompt_lookup_max = max}; };
  };
  const auto waiting = [](std::uint32_t tenant) {
    return [tenant](EngineOptions& o) {
      o.scheduler.max_num_waiting = 40;
      o.max_tenant_waiting = tenant;
    };
  };
  for (const Field& field : {Field{"max_tenant_waiting", waiting(41), waiting(40)}, Field{"prompt_lookup_min", lookup(6, 5), lookup(5, 5)},
                             Field{"prompt_lookup_min", lookup(0, 5), lookup(1, 5)},
                             Field{"every", [](EngineOptions& o) { o.trace.every = 0; }, [](EngineOptions& o) { o.trace.every = 1; }}}) {
    EXPECT_NE(error_of(field.wrong).find(std::string(field.name)), std::string::npos) << field.name << ": " << error_of(field.wrong);
    EXPECT_EQ(error_of(field.right), "") << field.name;
  }
}

TEST(OptionErrors, NameTheFeaturesThatAnEncoderDecoderModelDoesNotSupport) {
  ModelInfo model = small_model();
  model.encoder.num_positions = 20;
  const OptionCase cases[] = {
      {"max_loras: is not supported for encoder-decoder models such as small; leave it out",
       [](EngineOptions& o) { o.adapters.max_loras = 1; }, [](EngineOptions&) {}},
      {"enable_kv_cache_events: is not supported for encoder-decoder models such as small; leave it out",
       [](EngineOptions& o) { o.kv_events.enable_kv_cache_events = true; }, [](EngineOptions& o) { o.kv_events.publisher = "null"; }},
  };
  expect_errors(cases, model);
  EXPECT_EQ(error_of(cases[0].wrong), "") << "a decoder supports it";
  EXPECT_EQ(error_of(cases[1].wrong), "") << "a decoder supports it";
}

TEST(OptionErrors, SayHowManyTokensAnUnsplitImageNeeds) {
  ModelInfo model = small_model();
  model.pictures.processor = "gemma3";
  model.pictures.max_tiles = 2;
  model.pictures.tile_tokens = 20;
  model.pictures.attends_bidirectionally = true;
  const auto step_of = [](std::uint32_t tokens, std::uint32_t threshold, std::uint32_t drafts) {
    return [=](EngineOptions& o) {
      o.scheduler.max_num_seqs = 5;
      o.scheduler.max_num_batched_tokens = tokens;
      o.scheduler.long_prefill_token_threshold = threshold;
      o.speculation.num_speculative_tokens = drafts;
    };
  };
  const OptionCase cases[] = {
      {"max_num_batched_tokens: is 43; small computes the 40 tokens of an image in one step, together with the tokens of the other "
       "requests: use at least 44, or lower max_num_seqs",
       step_of(43, 0, 0), step_of(44, 0, 0)},
      {"max_num_batched_tokens: is 51; small computes the 40 tokens of an image in one step, together with the tokens of the other "
       "requests: use at least 52, or lower max_num_seqs",
       step_of(51, 0, 2), step_of(52, 0, 2)},
      {"long_prefill_token_threshold: is 39; small computes the 40 tokens of an image in one step: use at least that many, or 0",
       step_of(44, 39, 0), step_of(44, 40, 0)},
  };
  expect_errors(cases, model);
}

TEST(OptionErrors, SayWhatNeedsTheMemoryWhenNoneIsLeftForTheCache) {
  ModelInfo model = small_model();
  model.weight_bytes = std::uint64_t{3} << 20U;
  const auto automatic = [](EngineOptions& options) {
    options.cache.num_blocks = 0;
    options.cache.kv_cache_bytes = 0;
    options.kv_swap.bytes = std::uint64_t{2} << 20U;
  };
  const Machine machine{.num_cores = 1,
                        .available_bytes = std::uint64_t{10} << 20U,
                        .draft_bytes = std::uint64_t{1} << 20U,
                        .tier_bytes = std::uint64_t{4} << 20U};
  const std::string problem =
      "kv_cache_bytes: auto finds no room for the KV cache: this machine has 10.00 MiB of available memory, but the weights need 4.00 MiB, "
      "swapped-out blocks 2.00 MiB and tiers in memory 4.00 MiB; ";
  EXPECT_EQ(error_of(automatic, model, machine), problem + "give the process more memory, or serve a smaller model");
  model.num_experts = 8;
  EXPECT_EQ(error_of(automatic, model, machine),
            problem + "give the process more memory, or set --weights-cache DIR to read experts from a folder");
  Machine larger = machine;
  larger.available_bytes += 5 * 2 * kBytesOfABlock;
  EXPECT_EQ(error_of(automatic, model, larger), "");
  const auto given = [&](EngineOptions& options) {
    automatic(options);
    options.cache.num_blocks = 2;
  };
  EXPECT_EQ(error_of(given, model, machine), "") << "the number of blocks is given";
}

}  // namespace
}  // namespace quire
