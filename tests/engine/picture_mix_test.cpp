// Pictures beside everything else: requests that show some, of every kind, in engines with tiers, swap, drafts, adapters and so few blocks
// that they are preempted. Each gets what it gets alone, bit for bit. And what a tier keeps of pictures.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/mixed_engine.h"

namespace quire::test {
namespace {

// Those of a request that go with pictures, by themselves and together.
std::vector<FeatureSet> kinds_with_pictures() {
  using enum Feature;
  std::vector<FeatureSet> kinds = {{pictures},
                                   {pictures, n},
                                   {pictures, beams},
                                   {pictures, session},
                                   {pictures, fork},
                                   {pictures, adapter},
                                   {pictures, prompt_logprobs},
                                   {pictures, tenant},
                                   {pictures, fork, n},
                                   {pictures, pooling},
                                   {pictures, hidden},
                                   {pictures, session, fork},
                                   {pictures, beams, adapter}};
  if (has_structured_output())
    for (const FeatureSet& with_grammar : {FeatureSet{pictures, grammar}, {pictures, tools, fork}, {pictures, grammar, beams}})
      kinds.push_back(with_grammar);
  return kinds;
}

std::string seeing_model() {
  static const TempFolder folder;
  static const std::string path = write_seeing_model(folder.file("seeing"));
  return path;
}

std::vector<FeatureSet> engines_beside_pictures() {
  using enum Feature;
  return {{},
          {async},
          {dram},
          {disk, async},
          {swap},
          {swap, async, chunks},
          {drafts},
          {drafts, async, dram},
          {int8, chunks},
          {priorities, dram, disk},
          {continuum, swap}};
}

class PicturesBeside : public testing::TestWithParam<FeatureSet> {};
INSTANTIATE_TEST_SUITE_P(Engines, PicturesBeside, testing::ValuesIn(engines_beside_pictures()));

TEST_P(PicturesBeside, EachGetsWhatItGetsAlone) {
  using enum Feature;
  Alone alone(seeing_model(), GetParam().has(int8));
  Mixed mixed(GetParam(), seeing_model(), alone, true);
  ASSERT_TRUE(mixed.is_made());
  EXPECT_NE(alone.answers({pictures}, 0).at(0).logprobs.at(0).entries.at(0).logprob,
            alone.answers({}, 0).at(0).logprobs.at(0).entries.at(0).logprob);
  Random random(7);
  MetTogether met;
  std::uint32_t text = 0;
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (const FeatureSet& kind : kinds_with_pictures()) {
      mixed.ask(kind, text++ % 6, random);
      if (text % 3 == 0) mixed.ask({}, text % 6, random);
    }
    mixed.expect_all(met);
    mixed.forget_cached();
  }
  mixed.stop(met);
  EXPECT_GT(met.num_forks, 0U);
  EXPECT_GT(met.num_preemptions, 0U);
  if (GetParam().has(dram) || GetParam().has(disk)) EXPECT_GT(met.num_loads, 0U);
  if (GetParam().has(swap)) EXPECT_GT(met.num_swapped, 0U);
  if (GetParam().has(drafts)) EXPECT_GT(met.num_accepted, 0U);
}

// Those that come last wait while the pictures of the first are encoded: for as long nothing of them is known but what is asked of them.
TEST(PicturesThatAreAwaited, ForksInputsAndEndsOfTheirRequestsWaitWithThem) {
  Alone alone(seeing_model(), false);
  auto engine = create_engine(plain_options(false, seeing_model()), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const auto fork = [&](RequestId parent) {
    Result<RequestId> child = (*engine)->fork(parent, {}, sink);
    while (!child && child.error().code == ErrorCode::overloaded) child = (*engine)->fork(parent, {}, sink);
    EXPECT_TRUE(child.has_value()) << child.error().to_string();
    return child.value();
  };
  constexpr std::uint32_t kRequests = 8;
  std::vector<EngineRequest> requests;
  std::vector<RequestId> ids, children, grandchildren;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    EngineRequest& request = requests.emplace_back(make_mixed({}, i, std::nullopt));
    show_picture(request, "awaited " + std::to_string(i), 9);
    request.prompt.push_back(static_cast<TokenId>(70 + i));
    request.session = i % 2 == 1;
    ids.push_back((*engine)->submit(request, sink).value());
  }
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    children.push_back(fork(ids[i]));
    grandchildren.push_back(fork(children[i]));
    if (requests[i].session)
      for (const RequestId id : {ids[i], children[i], grandchildren[i]}) {
        EXPECT_TRUE((*engine)->append(id, next_input(i)));
        EXPECT_TRUE((*engine)->append(id, {}));
      }
  }
  // A parent alone, and in the last two all that there are.
  for (std::uint32_t i = kRequests - 4; i < kRequests; ++i) (*engine)->finish(ids[i], FinishReason::abort);
  for (std::uint32_t i = kRequests - 2; i < kRequests; ++i)
    for (const RequestId id : {children[i], grandchildren[i]}) (*engine)->finish(id, FinishReason::abort);
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    const Collector::Answer wanted = alone.answer_to(requests[i], i);
    for (const RequestId id : {ids[i], children[i], grandchildren[i]}) {
      const Collector::Answer got = sink.wait(id);
      EXPECT_EQ(got.num_finals, 1U);
      const bool is_ended = i >= kRequests - 2 || (i >= kRequests - 4 && id == ids[i]);
      if (is_ended && got.reason == FinishReason::abort) continue;
      if (i < 2 && got.error.find("has ended") != std::string::npos) continue;  // it was forked too late
      EXPECT_EQ(got.error, "");
      const auto own = std::ranges::find_if(got.logprobs, [](const auto& one) { return !one.entries.empty(); });
      const auto first = static_cast<std::size_t>(own - got.logprobs.begin());
      EXPECT_EQ(bits_of(got, first), bits_of(wanted, first));
    }
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

// An engine with a disk tier in this folder, what earlier ones left there read.
std::unique_ptr<Engine> engine_over(const std::string& folder) {
  Made made = make_options({Feature::disk}, seeing_model(), folder);
  auto engine = create_engine(made.options, nullptr, nullptr, made.seams);
  EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
  while ((*engine)->stats().kv_tiers.at(0).num_unread_places > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *std::move(engine);
}

Collector::Answer answer_from(Engine& engine, const EngineRequest& request) {
  Collector sink;
  return sink.wait(engine.submit(request, sink).value());
}

// Stopped, or killed: what is on disk while it runs is what a kill leaves.
TEST(PicturesInATier, AreFoundByTheNextEngineAndOthersAreNot) {
  const EngineRequest shown = make_mixed({Feature::pictures}, 2, std::nullopt);
  EngineRequest flipped = shown;
  auto tiles = std::make_shared<PictureTiles>(*shown.pictures[0].tiles);
  tiles->rgb[0] ^= 255U;
  flipped.pictures[0].tiles = tiles;
  flipped.pictures[0].identifier = "the same but for a byte";
  const std::uint32_t num_words = shown.pictures[0].position.offset() / 4 * 4;  // whole blocks before it
  Alone alone(seeing_model(), false);
  const Bits wanted = bits_of(answer_from(alone.engine(), shown)), wanted_flipped = bits_of(answer_from(alone.engine(), flipped));
  ASSERT_NE(wanted, wanted_flipped);

  const TempFolder folder;
  {
    const auto engine = engine_over(folder.file("kv"));
    EXPECT_EQ(bits_of(answer_from(*engine, shown)), wanted);
    const auto num_blocks = static_cast<std::uint64_t>(shown.prompt.size() / 4);
    while (engine->stats().kv_tiers.at(0).num_stored_blocks < num_blocks)
      (void)answer_from(*engine, make_mixed({}, 1, std::nullopt));  // stores are planned by steps
    std::filesystem::copy(folder.file("kv"), folder.file("killed"), std::filesystem::copy_options::recursive);
    EXPECT_EQ(engine->stop(60.0), 0U);
  }
  for (const char* left : {"kv", "killed"}) {
    SCOPED_TRACE(left);
    const auto engine = engine_over(folder.file(left));
    const Collector::Answer other = answer_from(*engine, flipped);
    EXPECT_EQ(other.num_cached_tokens, num_words);
    EXPECT_EQ(bits_of(other), wanted_flipped);
    const Collector::Answer again = answer_from(*engine, shown);
    EXPECT_GE(again.num_cached_tokens, (shown.prompt.size() - 1) / 4 * 4);
    EXPECT_EQ(bits_of(again), wanted);
    EXPECT_GE(engine->stats().kv_tiers.at(0).tokens_loaded, (shown.prompt.size() - 1) / 4 * 4);
    EXPECT_EQ(engine->stop(60.0), 0U);
  }
}

}  // namespace
}  // namespace quire::test
