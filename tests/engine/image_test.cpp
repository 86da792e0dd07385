// The answer of a request with images does not depend on concurrent requests, on chunking, on preemptions or on cache hits. Also tests
// which images are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/collector.h"
#include "engine/create.h"
#include "engine/paused_engine.h"
#include "engine/seeing_model.h"
#include "quire/engine.h"
#include "runtime/model/rig.h"
#include "runtime/model/vision_encoder.h"

namespace quire {
namespace {

struct ImageCase {
  const test::SeeingModel* model;
  std::uint32_t too_many;        // tiles
  std::uint32_t num_cached;      // of 11 words, an image of 17 tiles, and 9 words
  std::uint32_t num_tight = 26;  // blocks for one request of max_model_len
};

class ImageEngine : public testing::TestWithParam<ImageCase> {
 protected:
  ImageEngine() { GetParam().model->write(folder_.file("model")); }

  [[nodiscard]] EngineOptions options() const {
    EngineOptions options;
    options.model = folder_.file("model");
    options.scheduler.max_model_len = 400;
    options.cache.num_blocks = 200;
    options.num_threads = 2;
    return options;
  }
  [[nodiscard]] static EngineRequest shows(const std::vector<std::pair<std::string, std::uint32_t>>& pictures, TokenId words = 7) {
    EngineRequest request;
    const auto say = [&](std::uint32_t count) {
      for (std::uint32_t i = 0; i < count; ++i)
        request.prompt.push_back(static_cast<TokenId>((words * 31 + request.prompt.size() * 17) % 290));
    };
    say(11);
    for (const auto& [name, num_tiles] : pictures) {
      GetParam().model->show(request, name, num_tiles);
      say(9);
    }
    request.sampling.temperature = 0.0F;
    request.sampling.max_tokens = 12;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 20;
    return request;
  }
  static std::vector<EngineRequest> requests() {
    std::vector<EngineRequest> all = {shows({{"a", 3}}),
                                      shows({{"b", 3}}),
                                      shows({}),
                                      shows({{"a", 3}, {"b", 3}}),
                                      shows({{"a", 3}}, 8),
                                      shows({{"c", 17}}),
                                      shows({{"d", 1}, {"a", 3}, {"d", 1}}),
                                      shows({{"c", 17}, {"e", 9}}),
                                      shows({}, 9)};
    all[1].sampling.prompt_logprobs = 3;
    return all;
  }

  using Bits = std::vector<std::vector<std::uint32_t>>;
  static std::vector<std::uint32_t> bits_of(const Collector::Answer& answer) {
    std::vector<std::uint32_t> bits;
    for (const TokenId token : answer.tokens) bits.push_back(static_cast<std::uint32_t>(token));
    for (const PositionLogprobs& position : answer.logprobs)
      for (const TokenLogprob& entry : position.entries)
        bits.insert(bits.end(), {static_cast<std::uint32_t>(entry.token), std::bit_cast<std::uint32_t>(entry.logprob)});
    return bits;
  }
  // Runs all requests `rounds` times, together or one by one.
  static Bits answers_of(const EngineOptions& options, bool together, EngineStats& stats, std::uint32_t rounds = 1,
                         std::uint32_t max_tokens = 12) {
    auto engine = create_engine(options, nullptr, nullptr);
    EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
    Collector sink;
    std::vector<RequestId> ids;
    {
      std::optional<PausedEngine> paused;
      if (together) paused.emplace(**engine);
      for (std::uint32_t round = 0; round < rounds; ++round)
        for (EngineRequest request : requests()) {
          request.sampling.max_tokens = max_tokens;
          ids.push_back((*engine)->submit(request, sink).value());
          if (!together) sink.wait(ids.back());
        }
    }
    Bits bits;
    for (const RequestId id : ids) {
      const Collector::Answer answer = sink.wait(id);
      EXPECT_EQ(answer.tokens.size(), max_tokens) << answer.error;
      bits.push_back(bits_of(answer));
    }
    EXPECT_EQ((*engine)->stop(60.0), 0U);
    stats = (*engine)->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    return bits;
  }

  tiny::TempFolder folder_;
};

TEST_P(ImageEngine, ConcurrencyAndChunkingChangeNothing) {
  EngineOptions plain = options();
  plain.cache.enable_prefix_caching = false;
  EngineStats stats;
  const Bits alone = answers_of(plain, false, stats);
  EXPECT_NE(alone[0], alone[1]) << "two images after the same words";
  EXPECT_NE(alone[0], alone[2]) << "with and without an image";
  for (const std::uint32_t tokens : {7U, 19U, 64U, 2048U}) {
    EngineOptions squeezed = options();
    squeezed.scheduler.max_num_batched_tokens = tokens;
    // The batch keeps room for a tile next to the other requests' tokens, for the model whose images are not split.
    squeezed.scheduler.max_num_seqs = std::min(squeezed.scheduler.max_num_seqs, tokens - test::SeeingModel::kTileTokens + 1);
    const Bits together = answers_of(squeezed, true, stats, 2);
    for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i % alone.size()]) << "request " << i << ", " << tokens;
    EXPECT_GT(stats.prefix_cache_hits, 0U);
  }
}

// An image with the identifier of another image is taken for that one as long as its encoder output is cached.
TEST_P(ImageEngine, AResetOfTheEncoderCacheEncodesImagesAgain) {
  EngineOptions plain = options();
  plain.cache.enable_prefix_caching = false;
  auto engine = create_engine(plain, nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const auto answer = [&](const EngineRequest& request) { return bits_of(sink.wait((*engine)->submit(request, sink).value())); };
  const EngineRequest first = shows({{"a", 3}});
  EngineRequest other = first;
  other.pictures[0].tiles = shows({{"b", 3}}).pictures[0].tiles;
  const auto of_first = answer(first);
  EXPECT_EQ(answer(other), of_first) << "the encoder output is cached";
  std::promise<bool> was_reset;
  (*engine)->reset_encoder_cache([&](const Result<bool>& done) { was_reset.set_value(done.value()); });
  EXPECT_TRUE(was_reset.get_future().get());
  const auto of_other = answer(other);
  EXPECT_NE(of_other, of_first);
  EXPECT_EQ(answer(other), of_other);
  // A reset may come while a request that shows the image runs: that request keeps its encoder output.
  EngineRequest longer = first;
  longer.sampling.max_tokens = 60;
  for (int i = 0; i < 3; ++i) {
    const RequestId running = (*engine)->submit(longer, sink).value();
    sink.wait_for_tokens(running, 2);
    std::promise<void> done;
    (*engine)->reset_encoder_cache([&](const Result<bool>&) { done.set_value(); });
    done.get_future().wait();
    EXPECT_EQ(sink.wait(running).tokens.size(), 60U);
    EXPECT_EQ(answer(first), of_first);
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

TEST_P(ImageEngine, PreemptionsChangeNothing) {
  // Answers are so long that requests with the same image fill the blocks, however far apart the images are encoded.
  constexpr std::uint32_t kMaxTokens = 64;
  EngineStats stats;
  const Bits alone = answers_of(options(), false, stats, 1, kMaxTokens);
  EngineOptions tight = options();
  tight.cache.num_blocks = GetParam().num_tight;
  const Bits together = answers_of(tight, true, stats, 3, kMaxTokens);
  EXPECT_GT(stats.num_preemptions, 0U);
  for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i % alone.size()]) << "request " << i;
}

TEST_P(ImageEngine, FindsEqualImagesInThePrefixCacheAndNoOthers) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const auto cached = [&](const EngineRequest& request) { return sink.wait((*engine)->submit(request, sink).value()).num_cached_tokens; };
  EXPECT_EQ(cached(shows({{"c", 17}})), 0U);
  // The prompt has 11 words, 17 tiles of 4 tokens (other models have a token between each two tiles), and 9 words.
  EXPECT_EQ(cached(shows({{"c", 17}})), GetParam().num_cached);
  EXPECT_EQ(cached(shows({{"f", 17}})), 0U) << "its first block has tokens of the image";
  EngineRequest salted = shows({{"c", 17}});
  salted.cache_salt = "other";
  EXPECT_EQ(cached(salted), 0U);
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

TEST_P(ImageEngine, DraftsChangeNothing) {
  EngineStats stats;
  const Bits alone = answers_of(options(), false, stats);
  EngineOptions drafting = options();
  drafting.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 1, .prompt_lookup_max = 2};
  drafting.scheduler.max_num_batched_tokens = 64;
  drafting.scheduler.max_num_seqs = 16;
  const Bits together = answers_of(drafting, true, stats, 2);
  ASSERT_TRUE(stats.speculation.has_value());
  EXPECT_GT(stats.speculation->num_drafts, 0U);
  for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(together[i], alone[i % alone.size()]) << "request " << i;
}

TEST_P(ImageEngine, SeveralAnswersToOnePromptShareTheImage) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  EngineRequest request = shows({{"a", 3}});
  request.n = 3;
  const RequestId first = (*engine)->submit(request, sink).value();
  request.n = 1;
  const auto alone = sink.wait((*engine)->submit(request, sink).value()).tokens;
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(RequestId{first.value + i}).tokens, alone);
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

// Returns the encoder's output for the tiles.
ImageEmbeds embeds_of(const std::string& model, const ImageTiles& tiles, std::uint32_t num_embeds) {
  tiny::Rig rig(model, {});
  VisionEncoder& encoder = *rig.model().vision();
  VisionRun run;
  encoder.begin(run, VisionTile{tiles.rgb, tiles.side, tiles.height()});
  while (!run.is_done()) encoder.advance(run);
  ImageEmbeds embeds{.values = {run.embeds().begin(), run.embeds().end()}};
  if (const std::uint32_t side = encoder.config().grid_side(); side > 0) {
    embeds.rows = tiles.height() / side;
    embeds.columns = tiles.side / side;
  }
  EXPECT_EQ(embeds.values.size(), std::size_t{num_embeds} * encoder.config().output_size);
  return embeds;
}

TEST_P(ImageEngine, EmbeddingsInsteadOfAnImageGiveTheSameAnswer) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const EngineRequest shown = shows({{"a", 1}});
  const auto embeds =
      std::make_shared<ImageEmbeds>(embeds_of(folder_.file("model"), *shown.pictures[0].tiles, shown.pictures[0].position.num_embeds()));
  const auto given = [&](const std::shared_ptr<const ImageEmbeds>& what) {
    EngineRequest request = shown;
    request.pictures[0].identifier = "made elsewhere";
    request.pictures[0].tiles = nullptr;
    request.pictures[0].embeds = what;
    return request;
  };
  const auto first = (*engine)->submit(given(embeds), sink), second = (*engine)->submit(shown, sink);
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  EXPECT_EQ(bits_of(sink.wait(*first)), bits_of(sink.wait(second.value())));
  EXPECT_GT(sink.wait((*engine)->submit(given(embeds), sink).value()).num_cached_tokens, 0U);

  const auto problem = [&](auto change) {
    auto other = std::make_shared<ImageEmbeds>(*embeds);
    EngineRequest request = given(other);
    change(*other, request.pictures[0]);
    const auto id = (*engine)->submit(std::move(request), sink);
    return id ? std::string() : id.error().to_string();
  };
  const auto expect_in = [](const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  expect_in(problem([](ImageEmbeds& e, auto&) { e.values.pop_back(); }), "pictures[0]: has ");
  expect_in(problem([](ImageEmbeds& e, auto&) { e.values[7] = std::nanf(""); }), "contains NaN or Inf");
  expect_in(problem([&](auto&, PromptImage& p) { p.tiles = shown.pictures[0].tiles; }), "tiles and embeddings");
  if (embeds->rows > 0) expect_in(problem([](ImageEmbeds& e, auto&) { ++e.rows; }), "rows of");
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

TEST_P(ImageEngine, ARequestAbortedWhileItsImageIsEncodedEndsOnce) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 20; ++i) {
    EngineRequest request = shows({{"gone" + std::to_string(i), 17}});
    if (i % 2 == 0) request.sampling.max_tokens = 200;
    ids.push_back((*engine)->submit(std::move(request), sink).value());
    if (i % 2 == 0) (*engine)->finish(ids.back(), FinishReason::abort);
  }
  // A request that ends before its client aborts it has its full answer.
  std::uint32_t num_aborted = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const Collector::Answer answer = sink.wait(ids[i]);
    EXPECT_EQ(answer.num_finals, 1U);
    EXPECT_EQ(answer.num_outputs_after_final, 0U);
    num_aborted += answer.reason == FinishReason::abort ? 1 : 0;
    if (i % 2 == 1 || answer.reason != FinishReason::abort) {
      EXPECT_EQ(answer.reason, FinishReason::length);
      EXPECT_EQ(answer.tokens.size(), i % 2 == 0 ? 200U : 12U);
    }
  }
  EXPECT_GT(num_aborted, 0U);
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

TEST_P(ImageEngine, RefusesInvalidImagesAndReportsTheField) {
  auto engine = create_engine(options(), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const auto field_of = [&](auto change) {
    EngineRequest request = shows({{"a", 3}, {"b", 3}});
    change(request);
    const auto id = (*engine)->submit(request, sink);
    if (id) sink.wait(*id);
    return id ? std::string() : id.error().field;
  };
  EXPECT_EQ(field_of([](EngineRequest&) {}), "");
  EXPECT_EQ(field_of([](EngineRequest& r) { r.pictures[1].identifier = ""; }), "pictures[1]");
  EXPECT_EQ(field_of([](EngineRequest& r) { r.pictures[0].tiles = nullptr; }), "pictures[0]");
  EXPECT_EQ(
      field_of([](EngineRequest& r) { r.pictures[0] = GetParam().model->picture_at(11, "a", std::min(2U, GetParam().model->most_tiles)); }),
      "");
  EXPECT_EQ(field_of([](EngineRequest& r) { r.pictures[0] = GetParam().model->picture_at(11, "big", GetParam().too_many); }),
            "pictures[0]");
  EXPECT_EQ(field_of([](EngineRequest& r) { std::swap(r.pictures[0], r.pictures[1]); }), "pictures[1]");
  EXPECT_EQ(field_of([](EngineRequest& r) { r.prompt.resize(14); }), "pictures[0]");
  EXPECT_EQ(field_of([](EngineRequest& r) { r.pictures[1].position = PlaceholderRange(40, 11); }), "pictures[1]");
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

INSTANTIATE_TEST_SUITE_P(Models, ImageEngine,
                         testing::Values(ImageCase{&test::kSmolVlm, 18, 96}, ImageCase{&test::kLlavaModel, 2, 16},
                                         ImageCase{&test::kGemmaModel, 2, 16, 52}, ImageCase{&test::kQwenModel, 70, 80}),
                         [](const auto& seen) { return std::string(seen.param.model->name); });

}  // namespace
}  // namespace quire
