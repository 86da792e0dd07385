// Tests engines with an encoder-decoder model: the KV plan, refusals, and that requests do not affect each other's bits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/collector.h"
#include "engine/create.h"
#include "engine/kv_plan.h"
#include "engine/resolve_options.h"
#include "quire/engine.h"
#include "runtime/model/tiny_whisper.h"

namespace quire {
namespace {

class WhisperEngine : public testing::Test {
 protected:
  WhisperEngine() {
    const boost::json::object json{{"model_type", "whisper"},      {"vocab_size", 300},          {"d_model", 64},
                                   {"encoder_layers", 1},          {"decoder_layers", 2},        {"encoder_attention_heads", 2},
                                   {"decoder_attention_heads", 4}, {"encoder_ffn_dim", 64},      {"decoder_ffn_dim", 64},
                                   {"num_mel_bins", 16},           {"max_source_positions", 50}, {"max_target_positions", 64}};
    const boost::json::value value = json;
    const auto config = config_from_hf(JsonRef(value, "config.json"));
    EXPECT_TRUE(config) << config.error().to_string();
    tiny::write_hf_folder(folder_.file("whisper"), json, tiny::whisper_tensors(*config, "F32"));
  }
  [[nodiscard]] EngineOptions options(std::uint32_t num_blocks) const {
    EngineOptions options;
    options.model = folder_.file("whisper");
    options.cache.num_blocks = num_blocks;
    options.num_threads = 2;
    return options;
  }
  static std::unique_ptr<Engine> make(const EngineOptions& options) {
    auto engine = create_engine(options, nullptr, nullptr);
    EXPECT_TRUE(engine) << engine.error().to_string();
    return engine ? *std::move(engine) : nullptr;
  }
  // Returns request i of a mix: each has different audio and a prompt of another length, greedy or sampled.
  static EngineRequest request(const Engine& engine, std::uint32_t i) {
    EngineRequest request;
    for (std::uint32_t t = 0; t < 1 + 5 * i % 17; ++t) request.prompt.push_back(static_cast<TokenId>((31 * t + 7 * i) % 300));
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 1.0F;
    request.sampling.seed = i;
    request.sampling.max_tokens = 20 + i % 4 * 8;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 2;
    request.sampling.timestamps = {
        .first_time = 200, .end = 2, .max_first = 20, .has_timestamps = i % 2 == 0, .not_first = {2, 5}, .begins = {}};
    if (i % 3 == 1) request.sampling.timestamps.begins = {{3, 4, 90}, {7}};
    request.encoder_input =
        std::make_shared<const EncoderInput>(EncoderInput{tiny::whisper_features(engine.model().encoder, "sound" + std::to_string(i))});
    return request;
  }

  tiny::TempFolder folder_;
};

using WhisperBits = std::vector<std::pair<TokenId, float>>;

WhisperBits whisper_bits(const Collector::Answer& answer) {
  EXPECT_EQ(answer.error, "");
  WhisperBits bits;
  for (std::size_t i = 0; i < answer.tokens.size(); ++i) bits.emplace_back(answer.tokens[i], answer.logprobs.at(i).entries.at(0).logprob);
  return bits;
}

TEST_F(WhisperEngine, CrossAttentionKeysHaveASeparateCacheGroup) {
  const auto engine = make(options(40));
  ASSERT_NE(engine, nullptr);
  const auto plan = plan_kv(engine->model(), engine->options());
  ASSERT_TRUE(plan) << plan.error().to_string();
  ASSERT_EQ(plan->config.groups.size(), 2U);
  EXPECT_EQ(plan->layout.layers.size(), 4U);
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(plan->layout.groups[plan->layout.layers[layer].group].keeps_encoder_output(), layer >= 2);
  EXPECT_FALSE(engine->options().cache.enable_prefix_caching) << "equal tokens have other keys when the audio differs";
  EXPECT_EQ(engine->options().scheduler.max_model_len, 64U);
}

TEST_F(WhisperEngine, ReportsTheFieldOfUnsupportedOptions) {
  const auto field_of = [&](auto change) {
    EngineOptions changed = options(40);
    change(changed);
    const auto engine = create_engine(changed, nullptr, nullptr);
    return engine ? std::string("it is made") : engine.error().field;
  };
  EXPECT_EQ(field_of([](EngineOptions& o) { o.adapters.max_loras = 1; }), "max_loras");
  EXPECT_EQ(field_of([](EngineOptions& o) { o.scheduler.max_model_len = 65; }), "max_model_len");

  const auto engine = make(options(40));
  ASSERT_NE(engine, nullptr);
  Collector sink;
  const auto refused = [&](auto change) {
    EngineRequest changed = request(*engine, 1);
    change(changed);
    const auto id = engine->submit(std::move(changed), sink);
    return id ? std::string("it is taken") : id.error().field;
  };
  EXPECT_EQ(refused([](EngineRequest& r) { r.encoder_input = nullptr; }), "model");
  EXPECT_EQ(refused([](EngineRequest& r) { r.encoder_input = std::make_shared<const EncoderInput>(EncoderInput{{1.0F}}); }),
            "encoder_input");
  EXPECT_EQ(refused([](EngineRequest& r) { r.n = 2; }), "n");
  EXPECT_EQ(refused([](EngineRequest& r) { r.session = true; }), "session");
  EXPECT_EQ(refused([](EngineRequest& r) { r.sampling.timestamps.first_time = 300; }), "timestamps.first_time");
  EXPECT_EQ(refused([](EngineRequest& r) { r.sampling.timestamps.end = 250; }), "timestamps.end");
  EXPECT_EQ(refused([](EngineRequest& r) { r.sampling.timestamps.begins = {{1}, {}}; }), "timestamps.begins");
  EXPECT_EQ(refused([](EngineRequest& r) { r.sampling.timestamps.begins = {{300}}; }), "timestamps.begins");
  EXPECT_EQ(refused([](EngineRequest& r) { r.sampling.timestamps.not_first = {-1}; }), "timestamps.not_first");
}

// Concurrent requests run in chunks, are preempted, encoded again or swapped, with drafts and async scheduling. They match the answers
// alone bit for bit.
TEST_F(WhisperEngine, TheSchedulerIsInvisible) {
  constexpr std::uint32_t kRequests = 12;
  std::vector<WhisperBits> alone;
  {
    const auto engine = make(options(60));
    ASSERT_NE(engine, nullptr);
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      Collector sink;
      alone.push_back(whisper_bits(sink.wait(engine->submit(request(*engine, i), sink).value())));
      EXPECT_EQ(alone.back().size(), request(*engine, i).sampling.max_tokens);
    }
  }
  const auto expect_alike = [&](const EngineOptions& together) {
    const auto engine = make(together);
    EXPECT_NE(engine, nullptr);
    Collector sink;
    std::vector<RequestId> ids;
    for (std::uint32_t i = 0; i < kRequests; ++i) ids.push_back(engine->submit(request(*engine, i), sink).value());
    for (std::uint32_t i = 0; i < kRequests; ++i) EXPECT_EQ(whisper_bits(sink.wait(ids[i])), alone[i]) << i;
    EXPECT_GT(engine->stats().num_preemptions, 0U);
    return engine->stats();
  };
  for (const bool ahead : {false, true}) {
    for (const std::uint32_t max_tokens : {5U, 64U}) {
      SCOPED_TRACE(std::to_string(max_tokens) + (ahead ? " ahead" : ""));
      EngineOptions together = options(24);  // hardly enough blocks for three requests with all their tokens
      together.scheduler.async_scheduling = ahead;
      together.scheduler.max_num_batched_tokens = max_tokens;
      together.scheduler.max_num_seqs = 5;
      expect_alike(together);
      EngineOptions swapping = together;
      swapping.kv_swap = {.bytes = std::uint64_t{16} << 20U, .choice = SwapChoice::always};
      EXPECT_GT(expect_alike(swapping).kv_swap->num_in, 0U);
      EngineOptions drafting = together;
      drafting.scheduler.max_num_batched_tokens = 64;
      drafting.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
      EXPECT_GT(expect_alike(drafting).speculation->num_accepted_tokens, 0U);
    }
  }
}

// A client that aborts its request leaves the other requests unchanged.
TEST_F(WhisperEngine, AnAbortDoesNotChangeOtherAnswers) {
  const auto engine = make(options(60));
  ASSERT_NE(engine, nullptr);
  Collector sink;
  const WhisperBits alone = whisper_bits(sink.wait(engine->submit(request(*engine, 3), sink).value()));
  const RequestId gone = engine->submit(request(*engine, 7), sink).value();
  const RequestId kept = engine->submit(request(*engine, 3), sink).value();
  sink.wait_for_tokens(gone, 2);
  engine->finish(gone, FinishReason::abort);
  EXPECT_EQ(whisper_bits(sink.wait(kept)), alone);
}

}  // namespace
}  // namespace quire
