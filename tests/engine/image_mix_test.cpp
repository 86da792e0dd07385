// Requests with images of every kind run in engines with tiers, swapping, drafts, adapters and so few blocks that they are preempted. Each
// must get the answer it gets alone, bit for bit. Also tests which image blocks a tier keeps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/mixed_engine.h"

namespace quire::test {
namespace {

// Returns the request features that combine with images, one by one and together.
std::vector<FeatureSet> feature_sets_with_images() {
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

// Writes each model once.
std::string folder_of(const SeeingModel& model) {
  static const TempFolder folder;
  static std::map<std::string_view, std::string> known;
  const auto [at, is_new] = known.try_emplace(model.name);
  if (is_new) at->second = write_seeing_model(folder.path(), model);
  return at->second;
}

struct ImageEngineCase {
  const SeeingModel* model;
  FeatureSet features;
};

std::vector<ImageEngineCase> image_engine_cases() {
  using enum Feature;
  std::vector<ImageEngineCase> engines;
  for (const FeatureSet& features : {FeatureSet{},
                                     {async},
                                     {dram},
                                     {disk, async},
                                     {swap},
                                     {swap, async, chunks},
                                     {drafts},
                                     {drafts, async, dram},
                                     {int8, chunks},
                                     {priorities, dram, disk},
                                     {continuum, swap}})
    engines.push_back({&kSmolVlm, features});
  for (const FeatureSet& features : {FeatureSet{async, dram}, {drafts, swap, chunks}}) engines.push_back({&kLlavaModel, features});
  for (const FeatureSet& features : {FeatureSet{async, dram}, {drafts, swap, chunks}, {int8, disk}, {async, priorities, swap}})
    engines.push_back({&kGemmaModel, features});
  for (const FeatureSet& features :
       {FeatureSet{}, {async, disk}, {swap, async, chunks}, {drafts, async, dram}, {int8, drafts, swap}, {priorities, dram, disk}})
    engines.push_back({&kQwenModel, features});
  return engines;
}

class ImageMix : public testing::TestWithParam<ImageEngineCase> {};
INSTANTIATE_TEST_SUITE_P(Engines, ImageMix, testing::ValuesIn(image_engine_cases()), [](const auto& engine) {
  std::string name = fmt::format("{}_{}", engine.param.model->name, engine.param.features.name());
  std::erase(name, '+');
  std::ranges::replace(name, ' ', '_');
  return name;
});

// Runs a mix of requests in two rounds and adds the events it met to `met`.
void play_mix(const FeatureSet& features, const std::string& path, Alone& alone, std::uint64_t seed, MetTogether& met) {
  Mixed mixed(features, path, alone, true);
  ASSERT_TRUE(mixed.is_made());
  Random random(seed);
  std::uint32_t text = 0;
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (const FeatureSet& kind : feature_sets_with_images()) {
      mixed.ask(kind, text++ % 6, random);
      if (text % 3 == 0) mixed.ask({}, text % 6, random);
    }
    mixed.expect_all(met);
    mixed.forget_cached();
  }
  mixed.stop(met);
}

TEST_P(ImageMix, EachRequestMatchesItsAnswerAlone) {
  using enum Feature;
  const auto& [model, features] = GetParam();
  const std::string path = folder_of(*model);
  Alone alone(path, features);
  EXPECT_NE(alone.answers({pictures}, 0).at(0).logprobs.at(0).entries.at(0).logprob,
            alone.answers({}, 0).at(0).logprobs.at(0).entries.at(0).logprob);
  MetTogether met;
  const auto has_met_all = [&] {
    return met.num_forks > 0 && met.num_preemptions > 0 && (met.num_loads > 0 || !(features.has(dram) || features.has(disk))) &&
           (met.num_swapped > 0 || !features.has(swap)) && (met.num_accepted > 0 || !features.has(drafts));
  };
  // The events depend on how fast this thread submits compared with the engine's thread: on a busy machine one mix may be too little.
  for (std::uint64_t seed = 7; seed < 12 && !has_met_all() && !HasFailure(); ++seed) play_mix(features, path, alone, seed, met);
  EXPECT_TRUE(has_met_all()) << met.num_forks << " forks, " << met.num_preemptions << " preemptions, " << met.num_loads << " loads, "
                             << met.num_swapped << " swapped, " << met.num_accepted << " accepted";
}

std::string model_name(const testing::TestParamInfo<const SeeingModel*>& model) {
  return std::string(model.param->name);
}

class PendingImages : public testing::TestWithParam<const SeeingModel*> {};
INSTANTIATE_TEST_SUITE_P(Models, PendingImages, testing::Values(&kSmolVlm, &kQwenModel), model_name);

// The last requests wait while the images of the first ones are encoded; until then the core does not know them. A request that is not a
// session may end before it is forked if this thread is slow.
TEST_P(PendingImages, DelayTheForksInputsAndEndsOfTheirRequests) {
  const std::string path = folder_of(*GetParam());
  Alone alone(path, {});
  auto engine = create_engine(plain_options({}, path), nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  const auto fork = [&](std::optional<RequestId> parent, bool may_be_late) -> std::optional<RequestId> {
    if (!parent) return std::nullopt;
    Result<RequestId> child = (*engine)->fork(*parent, {}, sink);
    while (!child && child.error().code == ErrorCode::overloaded) child = (*engine)->fork(*parent, {}, sink);
    if (child) return *child;
    EXPECT_TRUE(may_be_late) << child.error().to_string();
    return std::nullopt;
  };
  constexpr std::uint32_t kRequests = 8;
  std::vector<EngineRequest> requests;
  std::vector<RequestId> ids;
  std::vector<std::optional<RequestId>> children, grandchildren;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    EngineRequest& request = requests.emplace_back(make_mixed({}, i, std::nullopt));
    GetParam()->show(request, "awaited " + std::to_string(i), 9);
    request.prompt.push_back(static_cast<TokenId>(70 + i));
    request.session = i % 2 == 1;
    ids.push_back((*engine)->submit(request, sink).value());
  }
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    children.push_back(fork(ids[i], !requests[i].session));
    grandchildren.push_back(fork(children[i], !requests[i].session));
    if (!requests[i].session) continue;
    for (const auto& id : {std::optional(ids[i]), children[i], grandchildren[i]}) {
      ASSERT_TRUE(id.has_value());
      EXPECT_TRUE((*engine)->append(*id, next_input(i)));
      EXPECT_TRUE((*engine)->append(*id, {}));
    }
  }
  // Aborts a parent alone, and in the last two families all requests.
  for (std::uint32_t i = kRequests - 4; i < kRequests; ++i) (*engine)->finish(ids[i], FinishReason::abort);
  for (std::uint32_t i = kRequests - 2; i < kRequests; ++i)
    for (const auto& id : {children[i], grandchildren[i]})
      if (id) (*engine)->finish(*id, FinishReason::abort);
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    const Collector::Answer wanted = alone.answer_to(requests[i], i);
    for (const auto& id : {std::optional(ids[i]), children[i], grandchildren[i]}) {
      if (!id) continue;
      const Collector::Answer got = sink.wait(*id);
      EXPECT_EQ(got.num_finals, 1U);
      const bool is_ended = i >= kRequests - 2 || (i >= kRequests - 4 && id == ids[i]);
      if (is_ended && got.reason == FinishReason::abort) continue;
      if (!requests[i].session && got.error.find("has ended") != std::string::npos) continue;
      EXPECT_EQ(got.error, "");
      const auto own = std::ranges::find_if(got.logprobs, [](const auto& one) { return !one.entries.empty(); });
      const auto first = static_cast<std::size_t>(own - got.logprobs.begin());
      EXPECT_EQ(bits_of(got, first), bits_of(wanted, first));
    }
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
}

// Makes an engine with a disk tier in this folder that has read the files of earlier engines.
std::unique_ptr<Engine> engine_over(const SeeingModel& model, const std::string& folder) {
  Made made = make_options({Feature::disk}, folder_of(model), folder);
  auto engine = create_engine(made.options, nullptr, nullptr, made.seams);
  EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
  while ((*engine)->stats().kv_tiers.at(0).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *std::move(engine);
}

Collector::Answer answer_from(Engine& engine, const EngineRequest& request) {
  Collector sink;
  return sink.wait(engine.submit(request, sink).value());
}

class ImagesInATier : public testing::TestWithParam<const SeeingModel*> {};
INSTANTIATE_TEST_SUITE_P(Models, ImagesInATier, testing::ValuesIn(kSeeingModels), model_name);

// Stopped or killed: a copy of the folder of a running engine equals what a kill leaves.
TEST_P(ImagesInATier, AreFoundByTheNextEngineAndOtherImagesAreNot) {
  Alone alone(folder_of(*GetParam()), {});
  const EngineRequest shown = alone.make({Feature::pictures}, 2, std::nullopt);
  EngineRequest flipped = shown;
  auto tiles = std::make_shared<ImageTiles>(*shown.pictures[0].tiles);
  tiles->rgb[0] ^= 255U;
  flipped.pictures[0].tiles = tiles;
  flipped.pictures[0].identifier = "the same but for a byte";
  const std::uint32_t num_words = shown.pictures[0].position.offset() / 4 * 4;  // whole blocks before the image
  const Bits wanted = bits_of(answer_from(alone.engine(), shown)), wanted_flipped = bits_of(answer_from(alone.engine(), flipped));
  ASSERT_NE(wanted, wanted_flipped);

  const TempFolder folder;
  {
    const auto engine = engine_over(*GetParam(), folder.file("kv"));
    // The disk holds every block once the answer comes from there.
    std::uint64_t before = 0;
    do {
      before = engine->stats().kv_tiers.at(0).tokens_loaded;
      (void)answer_from(*engine, make_mixed({}, 1, std::nullopt));  // stores are planned by steps
      engine->reset_prefix_cache({.preempt_running = false, .external = false}, [](const Result<bool>&) {});
      EXPECT_EQ(bits_of(answer_from(*engine, shown)), wanted);
    } while (engine->stats().kv_tiers.at(0).tokens_loaded < before + (shown.prompt.size() - 1) / 4 * 4);
    std::filesystem::copy(folder.file("kv"), folder.file("killed"), std::filesystem::copy_options::recursive);
    EXPECT_EQ(engine->stop(60.0), 0U);
  }
  for (const char* left : {"kv", "killed"}) {
    SCOPED_TRACE(left);
    const auto engine = engine_over(*GetParam(), folder.file(left));
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
