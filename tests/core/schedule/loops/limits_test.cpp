// Tests every limit on input to the core: the last accepted value, the first refused value, and the field that the error names.
#include <cmath>
#include <functional>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/request_check.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

std::string refused(const std::function<void(CoreConfig&)>& change) {
  CoreConfig config = sync_config();
  change(config);
  const auto valid = config.validate();
  return valid ? "" : valid.error().field;
}

constexpr std::uint32_t kMaxCount = 1U << 29;

TEST(Limits, RefuseConfigurationValuesOutOfRange) {
  struct Case {
    const char* field;
    std::uint32_t low, high;
    std::uint32_t& (*of)(CoreConfig&);
  };
  const Case cases[] = {
      {"cache_block_size", 0, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.cache_block_size; }},
      {"num_blocks", 2, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.kv.num_blocks; }},
      {"max_num_seqs", 1, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.scheduler.max_num_seqs; }},
      {"max_num_batched_tokens", 1, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.scheduler.max_num_batched_tokens; }},
      {"max_model_len", 2, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.scheduler.max_model_len; }},
      {"long_prefill_token_threshold", 0, kMaxCount,
       [](CoreConfig& c) -> std::uint32_t& { return c.scheduler.long_prefill_token_threshold; }},
      {"speculation.num_spec_tokens", 0, 1024, [](CoreConfig& c) -> std::uint32_t& { return c.speculation.num_spec_tokens; }},
      {"speculation.num_lookahead_tokens", 0, 1024, [](CoreConfig& c) -> std::uint32_t& { return c.speculation.num_lookahead_tokens; }},
      {"limits.max_outstanding_plans", 1, 64, [](CoreConfig& c) -> std::uint32_t& { return c.limits.max_outstanding_plans; }},
      {"limits.max_open_transfers", 1, 1U << 16, [](CoreConfig& c) -> std::uint32_t& { return c.limits.max_open_transfers; }},
      {"limits.max_fork_family", 1, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.limits.max_fork_family; }},
      {"continuum.max_jobs", 1, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.continuum.max_jobs; }},
      {"continuum.max_tools", 1, kMaxCount, [](CoreConfig& c) -> std::uint32_t& { return c.continuum.max_tools; }},
  };
  for (const Case& limit : cases) {
    EXPECT_EQ(refused([&](CoreConfig& c) { limit.of(c) = limit.low; }), "") << limit.field;
    EXPECT_EQ(refused([&](CoreConfig& c) { limit.of(c) = limit.high; }), "") << limit.field;
    EXPECT_EQ(refused([&](CoreConfig& c) { limit.of(c) = limit.high + 1; }), limit.field);
    if (limit.low > 0) EXPECT_EQ(refused([&](CoreConfig& c) { limit.of(c) = limit.low - 1; }), limit.field);
  }
  EXPECT_EQ(refused([](CoreConfig& c) { c.block_size = 0; }), "block_size");
  EXPECT_EQ(refused([](CoreConfig& c) { c.parallel.dcp_world_size = 0; }), "parallel.dcp_world_size");
  EXPECT_EQ(refused([](CoreConfig& c) { c.parallel.pcp_world_size = 0; }), "parallel.pcp_world_size");
}

TEST(Limits, RefuseSharesTimesAndUnchunkedStepsOutOfRange) {
  for (const double share : {0.0, 0.5, 1.0}) EXPECT_EQ(refused([&](CoreConfig& c) { c.report.kv_metrics_sample = share; }), "") << share;
  for (const double share : {-0.1, 1.1, std::nan("")})
    EXPECT_EQ(refused([&](CoreConfig& c) { c.report.kv_metrics_sample = share; }), "report.kv_metrics_sample") << share;
  for (const double seconds : {0.0, 3600.0}) {
    EXPECT_EQ(refused([&](CoreConfig& c) { c.continuum.pin_s = seconds; }), "") << seconds;
    EXPECT_EQ(refused([&](CoreConfig& c) { c.continuum.longest_tool_s = seconds; }), "") << seconds;
  }
  for (const double seconds : {-0.1, 3600.1, std::nan("")}) {
    EXPECT_EQ(refused([&](CoreConfig& c) { c.continuum.pin_s = seconds; }), "continuum.pin_s") << seconds;
    EXPECT_EQ(refused([&](CoreConfig& c) { c.continuum.longest_tool_s = seconds; }), "continuum.longest_tool_s") << seconds;
  }
  const auto unchunked = [](std::uint32_t max_num_batched_tokens, bool admit_oversized) {
    return refused([&](CoreConfig& c) {
      c.scheduler.enable_chunked_prefill = false;
      c.scheduler.max_num_batched_tokens = max_num_batched_tokens;
      c.scheduler.admit_oversized = admit_oversized;
    });
  };
  EXPECT_EQ(unchunked(100, false), "") << "a step has room for a whole request";
  EXPECT_EQ(unchunked(99, false), "max_num_batched_tokens");
  EXPECT_EQ(unchunked(99, true), "");
}

using Change = std::function<void(CoreConfig&)>;

struct NewerOption {
  const char* field;
  Change give, most, beyond;  // any value; the last accepted value and the first refused value, if they exist
};

const NewerOption kNewerOptions[] = {
    {"newer.max_num_active_seqs", [](CoreConfig& c) { c.newer.max_num_active_seqs = 1; },
     [](CoreConfig& c) { c.newer.max_num_active_seqs = c.scheduler.max_num_seqs; },
     [](CoreConfig& c) { c.newer.max_num_active_seqs = c.scheduler.max_num_seqs + 1; }},
    {"newer.num_watermark_blocks", [](CoreConfig& c) { c.newer.num_watermark_blocks = 1; },
     [](CoreConfig& c) { c.newer.num_watermark_blocks = c.kv.num_blocks - 1; },
     [](CoreConfig& c) { c.newer.num_watermark_blocks = c.kv.num_blocks; }},
    {"newer.shared_prefill_tokens", [](CoreConfig& c) { c.newer.shared_prefill_tokens = 1; },
     [](CoreConfig& c) { c.newer.shared_prefill_tokens = kMaxCount; },
     [](CoreConfig& c) { c.newer.shared_prefill_tokens = kMaxCount + 1; }},
    {"newer.defer_block_free", [](CoreConfig& c) { c.newer.defer_block_free = true; }, {}, {}},
    {"newer.drop_undelivered", [](CoreConfig& c) { c.newer.drop_undelivered = true; }, {}, {}},
    {"max_in_flight_tokens",
     [](CoreConfig& c) { c.scheduler.max_in_flight_tokens = 1; },
     [](CoreConfig& c) { c.scheduler.max_in_flight_tokens = UINT32_MAX; },
     {}},
    {"prefix_cache.retention_interval", [](CoreConfig& c) { c.prefix_cache.retention_interval = c.block_size; },
     [](CoreConfig& c) { c.prefix_cache.retention_interval = kMaxCount; },
     [](CoreConfig& c) { c.prefix_cache.retention_interval = std::int64_t{kMaxCount} + c.block_size; }},
};

TEST(Limits, RefuseNewerOptionsUnderVllm019Rules) {
  for (const NewerOption& option : kNewerOptions) {
    CoreConfig config = sync_config();
    option.give(config);
    const auto valid = config.validate();
    ASSERT_FALSE(valid) << option.field;
    EXPECT_EQ(valid.error().field, option.field);
    EXPECT_EQ(valid.error().remedy, "remove it, or use the decisions of vLLM 0.32.0");
  }
}

TEST(Limits, RefuseNewerOptionsOutOfRange) {
  const auto refused_newer = [](const Change& change) {
    return refused([&](CoreConfig& c) {
      c.decisions = DecisionProfile::vllm_0_32;
      change(c);
    });
  };
  for (const NewerOption& option : kNewerOptions) {
    EXPECT_EQ(refused_newer(option.give), "") << option.field;
    if (option.most) EXPECT_EQ(refused_newer(option.most), "") << option.field;
    if (option.beyond) EXPECT_EQ(refused_newer(option.beyond), option.field);
  }
  for (const std::int64_t interval : {-2, 1, 6})
    EXPECT_EQ(refused_newer([&](CoreConfig& c) { c.prefix_cache.retention_interval = interval; }), "prefix_cache.retention_interval");
  for (const std::int64_t interval : {-1, 0, 4, 8})
    EXPECT_EQ(refused_newer([&](CoreConfig& c) { c.prefix_cache.retention_interval = interval; }), "") << interval;
}

// Returns the field that the error names, or an empty string when the request is accepted.
std::string refused(const CoreConfig& config, const std::function<void(NewRequest&)>& change, std::size_t num_prompt_tokens = 8) {
  const Tokens prompt(num_prompt_tokens, 7);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  change(request);
  const auto valid = check_request(request, config, {});
  return valid ? "" : valid.error().field;
}

TEST(Limits, RefuseLengthsOfPromptAndOutputOutOfRange) {
  const CoreConfig config = sync_config();  // 100 tokens, 31 blocks of 4
  const auto unchanged = [](NewRequest&) {};
  EXPECT_EQ(refused(config, unchanged, 99), "");
  EXPECT_EQ(refused(config, unchanged, 100), "prompt");
  EXPECT_EQ(refused(config, unchanged, 0), "prompt");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.min_tokens = 4; }), "");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.min_tokens = 5; }), "min_tokens");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.max_tokens = 1000, r.min_tokens = 92; }), "")
      << "reduced to the room in the model's context";
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.max_tokens = 1000, r.min_tokens = 93; }), "min_tokens");
  CoreConfig oversized = config;
  oversized.scheduler.admit_oversized = true;
  EXPECT_EQ(refused(oversized, unchanged, 100), "");
  EXPECT_EQ(refused(oversized, unchanged, 101), "prompt");
  EXPECT_EQ(refused(oversized, [](NewRequest& r) { r.max_tokens = 0; }), "");
}

TEST(Limits, RefuseRequestsThatDoNotFitIntoTheCache) {
  CoreConfig config = sync_config(6);  // 5 blocks: 20 tokens, and one more that needs no slot
  const auto with = [](std::uint32_t max_tokens) { return [=](NewRequest& r) { r.max_tokens = max_tokens; }; };
  EXPECT_EQ(refused(config, with(13)), "");
  EXPECT_EQ(refused(config, with(14)), "max_tokens");
  EXPECT_EQ(refused(config, with(1), 20), "");
  EXPECT_EQ(refused(config, with(1), 21), "prompt");
  const Tokens prompt(21, 7);
  NewRequest request = CoreDriver::request(1, prompt, 1);
  EXPECT_NE(check_request(request, config, {}).error().to_string().find("shorten the prompt"), std::string::npos);
  request.prompt = std::span(prompt).first(8);
  request.max_tokens = 14;
  EXPECT_NE(check_request(request, config, {}).error().to_string().find("reduce max_tokens"), std::string::npos);
  config.speculation.num_spec_tokens = 2;
  EXPECT_EQ(refused(config, with(11)), "");
  EXPECT_EQ(refused(config, with(12)), "max_tokens") << "draft tokens need slots";
  config.speculation.num_lookahead_tokens = 1;
  EXPECT_EQ(refused(config, with(11)), "max_tokens");
  config = sync_config(6);
  config.kv.groups.push_back(config.kv.groups[0]);
  EXPECT_EQ(refused(config, with(1), 8), "") << "two blocks in each group";
  EXPECT_EQ(refused(config, with(2), 8), "max_tokens");
  config = sync_config(6);
  config.parallel.dcp_world_size = 2;
  EXPECT_EQ(refused(config, with(33)), "") << "each rank holds half of a block's tokens";
  EXPECT_EQ(refused(config, with(34)), "max_tokens");
  config.parallel.dcp_world_size = 1;
  config.parallel.pcp_world_size = 2;
  EXPECT_EQ(refused(config, with(33)), "");
  SlidingWindowSpec window;
  window.block_size = 1;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {}, .spec = window, .layer_specs = {}});
  EXPECT_EQ(refused(config, with(33)), "") << "other kinds keep fewer tokens and are not counted";
}

TEST(Limits, RefuseInvalidInputsThatComeWithAPrompt) {
  const CoreConfig config = sync_config();
  const std::vector<std::byte> embeds(17);
  EXPECT_EQ(refused(config, [&](NewRequest& r) { r.prompt_embeds = std::span(embeds).first(16); }), "");
  EXPECT_EQ(refused(config, [&](NewRequest& r) { r.prompt_embeds = embeds; }), "prompt_embeds");
  const std::vector<std::uint8_t> hashes(96);
  EXPECT_EQ(refused(config, [&](NewRequest& r) { r.block_hashes = std::span(hashes).first(64); }), "") << "two full blocks";
  EXPECT_EQ(refused(config, [&](NewRequest& r) { r.block_hashes = hashes; }), "block_hashes");
  EXPECT_EQ(refused(config, [&](NewRequest& r) { r.block_hashes = std::span(hashes).first(31); }), "block_hashes");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.structured_output = true; }), "structured_output");
  EXPECT_EQ(refused(config, [](NewRequest& r) { r.structured_output = r.pooling = true; }), "") << "pooling has no output to structure";
  const auto with_items = [&](std::vector<MultimodalFeature> items, bool is_encoder_decoder = false) {
    CoreConfig changed = config;
    changed.encoder.is_encoder_decoder = is_encoder_decoder;
    return refused(changed, [&](NewRequest& r) { r.multimodal = items; });
  };
  EXPECT_EQ(with_items({{"a", PlaceholderRange(4, 4U)}}), "") << "up to the end of the prompt";
  EXPECT_EQ(with_items({{"a", PlaceholderRange(5, 4U)}}), "multimodal");
  EXPECT_EQ(with_items({{"a", PlaceholderRange(5, 4U)}}, true), "") << "an encoder's input lies before the prompt";
  EXPECT_EQ(with_items({{"a", PlaceholderRange(2, 2U)}, {"b", PlaceholderRange(2, 2U)}}), "");
  EXPECT_EQ(with_items({{"a", PlaceholderRange(2, 2U)}, {"b", PlaceholderRange(1, 2U)}}), "multimodal");
}

TEST(Limits, RefuseARequestWhenTheQueueIsFull) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_waiting = 2;
  CoreDriver d(config);
  d.core->set_pause_state(PauseState::paused_new);
  d.add(1, 4, 4);
  d.add(2, 4, 4);
  const Tokens prompt = CoreDriver::prompt(3, 4);
  const auto third = d.core->add(CoreDriver::request(3, prompt, 4));
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::overloaded);
  EXPECT_EQ(third.error().field, "max_num_waiting");
  const auto again = d.core->add(CoreDriver::request(1, prompt, 4));
  EXPECT_EQ(again.error().field, "id") << "the check for an id in use comes first";
}

TEST(Limits, RefuseInvalidInputsOfASession) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 8);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.resumable = true;
  d.add(request);
  d.add(2, 4, 8);
  d.step();
  const auto refused_input = [&](std::uint64_t id, std::size_t num_tokens, std::vector<MultimodalFeature> items = {}) {
    const Tokens tokens(num_tokens, 9);
    const SessionInput input{.tokens = tokens, .multimodal = items};
    const auto taken = d.core->continue_session(RequestId{id}, &input);
    return taken ? std::string() : taken.error().field;
  };
  EXPECT_EQ(refused_input(9, 1), "id") << "the id is unknown";
  EXPECT_EQ(refused_input(2, 1), "id") << "the request is not a session";
  EXPECT_EQ(refused_input(1, 0), "tokens");
  EXPECT_EQ(refused_input(1, 92), "tokens") << "8 tokens are computed: with 100 in all no output would fit";
  EXPECT_EQ(refused_input(1, 4, {{"a", PlaceholderRange(2, 3U)}}), "multimodal");
  EXPECT_EQ(refused_input(1, 4, {{"a", PlaceholderRange(2, 1U)}, {"b", PlaceholderRange(1, 1U)}}), "multimodal");
  EXPECT_EQ(refused_input(1, 4, {{"a", PlaceholderRange(1, 1U)}, {"b", PlaceholderRange(2, 2U)}}), "");
  EXPECT_EQ(refused_input(1, 91), "");
}

TEST(Limits, ReduceMaxTokensToTheRoomInTheModelsContext) {
  CoreConfig config = sync_config();
  const Tokens prompt(40, 7);
  NewRequest request = CoreDriver::request(1, prompt, 60);
  EXPECT_EQ(max_tokens(request, config), 60U);
  request.max_tokens = 61;
  EXPECT_EQ(max_tokens(request, config), 60U);
  config.scheduler.admit_oversized = true;
  EXPECT_EQ(max_tokens(request, config), 61U);
}

}  // namespace
}  // namespace quire::test
