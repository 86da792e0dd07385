// The drafts of a draft model must equal the drafts of a pass over the whole history, in any state of its cache.
#include "runtime/worker/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "engine/windowed_model.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumDrafting = 4, kDrafts = 3, kTokens = 120;

struct Sizes {
  std::uint32_t num_blocks = 200;
  std::uint32_t max_rows = 64;
  std::uint32_t vocab_size = 300;
};

// The draft model together with the naive computation.
class Guesses {
 public:
  explicit Guesses(const std::string& path, const Sizes& sizes = {}) : rig_(path, {.max_rows = 128, .num_slots = 1}), pool_(2) {
    auto model = load_model(path, {.activations = ActivationMode::f32,
                                   .max_num_batched_tokens = sizes.max_rows,
                                   .max_num_seqs = kNumDrafting,
                                   .max_model_len = kTokens,
                                   .num_cache_groups = 2,
                                   .pool = &pool_});
    EXPECT_TRUE(model) << (model ? "" : model.error().to_string());
    auto cache =
        KvCache::create(test::kv_layout_of((*model)->info(), {.block_size = 16, .num_blocks = sizes.num_blocks, .dtype = KvDtype::f32}));
    EXPECT_TRUE(cache);
    draft_ = std::make_unique<DraftModel>(DraftLimits{.max_num_seqs = kNumDrafting,
                                                      .max_model_len = kTokens,
                                                      .max_drafts = kDrafts,
                                                      .max_rows = sizes.max_rows,
                                                      .vocab_size = sizes.vocab_size},
                                          std::move(*model), std::move(*cache), pool_);
    rig_.give_blocks(Slot{0}, tiny::blocks_for(128, 16, 1, 1));
  }

  DraftModel& draft() { return *draft_; }

  std::vector<TokenId> naive(std::vector<TokenId> history, std::uint32_t count = kDrafts, std::uint32_t vocab_size = 300) {
    std::vector<TokenId> drafts;
    for (; drafts.size() < count; history.push_back(drafts.back())) {
      const std::vector<float> logits = rig_.run(history, {{Slot{0}, 0, static_cast<std::uint32_t>(history.size())}});
      const auto row = std::span(logits).last(rig_.vocab()).first(vocab_size);
      drafts.push_back(static_cast<TokenId>(std::ranges::max_element(row) - row.begin()));
    }
    return drafts;
  }

  std::vector<TokenId> propose(std::uint32_t slot, std::span<const TokenId> history, std::uint32_t count = kDrafts) {
    const DraftRequest request{Slot{slot}, history, count};
    times_ = draft_->propose({&request, 1});
    const std::span<const TokenId> drafts = draft_->drafts(0);
    return {drafts.begin(), drafts.end()};
  }
  [[nodiscard]] const DraftTimes& times() const { return times_; }

 private:
  tiny::Rig rig_;
  ThreadPool pool_;
  std::unique_ptr<DraftModel> draft_;
  DraftTimes times_;
};

std::vector<TokenId> random_tokens(Random& random, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::ranges::generate(tokens, [&] { return static_cast<TokenId>(random.below(300)); });
  return tokens;
}

class DraftModelOf : public testing::TestWithParam<const char*> {
 protected:
  std::string model() {
    const std::string path = folder_.file("model.gguf");
    if (std::string_view(GetParam()) == "windows") {
      tiny::write_windowed_weights(folder_.file("windows"));
      return folder_.file("windows");
    }
    tiny::write_gguf(path, tiny::small_llama(), GetParam());
    return path;
  }
  tiny::TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Models, DraftModelOf, testing::Values("F32", "Q4_1", "windows"));

// Histories grow by accepted drafts and by other tokens, or are replaced entirely.
TEST_P(DraftModelOf, ProposesTheTokensOfAPassOverTheWholeHistory) {
  Guesses guesses(model());
  Random random(11);
  std::array<std::vector<TokenId>, kNumDrafting> histories;
  for (int step = 0; step < 40; ++step) {
    std::vector<DraftRequest> requests;
    for (std::uint32_t slot = 0; slot < kNumDrafting; ++slot) {
      std::vector<TokenId>& history = histories[slot];
      if (history.empty() || history.size() > 90 || random.chance(0.05)) {
        if (random.chance(0.5)) guesses.draft().release(Slot{slot});
        history = random_tokens(random, 1 + random.below(50));
      }
      if (random.chance(0.8)) requests.push_back({Slot{slot}, history, 1 + static_cast<std::uint32_t>(random.below(kDrafts))});
    }
    guesses.draft().propose(requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      std::vector<TokenId>& history = histories[requests[i].slot.value];
      const std::span<const TokenId> drafts = guesses.draft().drafts(i);
      const std::vector<TokenId> got(drafts.begin(), drafts.end());
      if (!got.empty()) EXPECT_EQ(got, guesses.naive(history, requests[i].num_drafts)) << "step " << step;
      const std::size_t num_right = random.below(got.size() + 1);
      history.insert(history.end(), got.begin(), got.begin() + static_cast<std::ptrdiff_t>(num_right));
      history.push_back(static_cast<TokenId>(random.below(300)));
    }
  }
}

class DraftModelTest : public testing::Test {
 protected:
  void SetUp() override { tiny::write_gguf(path_, tiny::small_llama(), "Q4_1"); }
  tiny::TempFolder folder_;
  std::string path_ = folder_.file("model.gguf");
  Random random_{3};
};

TEST_F(DraftModelTest, ComputesOnlyMissingTokens) {
  Guesses guesses(path_);
  std::vector<TokenId> history = random_tokens(random_, 30);
  const std::vector<TokenId> drafts = guesses.propose(0, history);
  EXPECT_EQ(drafts, guesses.naive(history));
  EXPECT_EQ(guesses.times().num_catch_up_rows, 29U);
  EXPECT_EQ(guesses.times().num_passes, 3U);
  // All drafts are accepted: the last draft and the token after it are missing.
  history.insert(history.end(), drafts.begin(), drafts.end());
  history.push_back(5);
  EXPECT_EQ(guesses.draft().num_missing(Slot{0}, history), 2U);
  EXPECT_EQ(guesses.propose(0, history), guesses.naive(history));
  EXPECT_EQ(guesses.times().num_catch_up_rows, 0U);
  // All drafts are rejected.
  history.push_back(guesses.draft().drafts(0)[0] == 7 ? 8 : 7);
  EXPECT_EQ(guesses.draft().num_missing(Slot{0}, history), 1U);
  EXPECT_EQ(guesses.propose(0, history), guesses.naive(history));
  EXPECT_EQ(guesses.times().num_catch_up_rows, 0U);
  // The history has no new token.
  EXPECT_EQ(guesses.propose(0, history), guesses.naive(history));
}

TEST_F(DraftModelTest, CatchesUpWithALongPromptOverSeveralCalls) {
  Guesses guesses(path_, {.max_rows = 16});
  const std::vector<TokenId> history = random_tokens(random_, 40);
  EXPECT_TRUE(guesses.propose(0, history).empty());
  EXPECT_EQ(guesses.times().num_catch_up_rows, 16U);
  EXPECT_EQ(guesses.times().num_passes, 0U);
  EXPECT_TRUE(guesses.propose(0, history).empty());
  EXPECT_EQ(guesses.propose(0, history), guesses.naive(history));
}

TEST_F(DraftModelTest, AReleasedSlotStartsFromScratchAndFreesItsBlocks) {
  Guesses guesses(path_);
  const std::size_t num_free = guesses.draft().num_free_blocks();
  const std::vector<TokenId> history = random_tokens(random_, 30), other = random_tokens(random_, 20);
  guesses.propose(2, history);
  EXPECT_EQ(guesses.draft().num_free_blocks(), num_free - 2);
  guesses.draft().release(Slot{2});
  guesses.draft().release(Slot{2});
  EXPECT_EQ(guesses.draft().num_free_blocks(), num_free);
  EXPECT_EQ(guesses.draft().num_missing(Slot{2}, history), 30U);
  EXPECT_EQ(guesses.propose(2, other), guesses.naive(other));
}

TEST_F(DraftModelTest, ARequestWithoutEnoughBlocksGetsNoDraftsAndFreesItsBlocks) {
  Guesses guesses(path_, {.num_blocks = 6});  // five blocks of 16 tokens, and the null block
  std::vector<TokenId> first = random_tokens(random_, 45), second = random_tokens(random_, 25);
  EXPECT_EQ(guesses.propose(0, first), guesses.naive(first));
  EXPECT_EQ(guesses.propose(1, second), guesses.naive(second));
  EXPECT_EQ(guesses.draft().num_free_blocks(), 0U);
  first.push_back(1);
  first.push_back(2);
  EXPECT_TRUE(guesses.propose(0, first).empty()) << "the request needs a fourth block";
  EXPECT_EQ(guesses.draft().num_free_blocks(), 3U);
  EXPECT_EQ(guesses.propose(1, second), guesses.naive(second)) << "the other request continues";
  guesses.draft().release(Slot{1});
  EXPECT_EQ(guesses.propose(0, first), guesses.naive(first));
}

TEST_F(DraftModelTest, DraftsEndAtTheContextLimit) {
  Guesses guesses(path_, {.max_rows = 128});
  const std::vector<TokenId> history = random_tokens(random_, kTokens);
  const std::span<const TokenId> all(history);
  EXPECT_TRUE(guesses.propose(0, all).empty());
  EXPECT_EQ(guesses.propose(0, all.first(kTokens - 1)).size(), 1U);
  EXPECT_EQ(guesses.propose(0, all.first(kTokens - 2)).size(), 2U);
  EXPECT_TRUE(guesses.propose(0, all.first(10), 0).empty());
}

TEST_F(DraftModelTest, SupportsVocabulariesOfDifferentSizes) {
  Guesses guesses(path_, {.vocab_size = 40});
  std::vector<TokenId> history = random_tokens(random_, 10);
  EXPECT_EQ(guesses.propose(0, history), guesses.naive(history, kDrafts, 40)) << "drafts are limited to the target's vocabulary";
  history.push_back(300);
  EXPECT_TRUE(guesses.propose(0, history).empty()) << "the draft model does not know the token";
}

}  // namespace
}  // namespace quire
