// Tests cached packed weights and experts that are read on demand: logits must have the same bits as without them.
#include "runtime/model/packed/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "runtime/kernel/kernel_fixtures.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "support/rounds.h"

namespace quire {
namespace {

constexpr std::uint32_t kLayers = 3, kExperts = 8;

// Experts of 1 to 3 matrices, and a copy of all in memory for comparison.
class StoredExperts : public testing::Test {
 protected:
  StoredExperts() {
    kernel_test::Rng rng(81);
    Random random(82);
    const auto kinds = kernel_test::weight_cases();
    for (std::uint32_t layer = 0; layer < kLayers; ++layer)
      for (std::uint32_t expert = 0; expert < kExperts; ++expert)
        for (std::size_t part = 0; part < StoredExpert::kParts; ++part)
          if (part == 0 || random.chance(0.7))
            all_.push_back(
                {layer, expert, part, kernel_test::random_matrix(rng, kinds[random.below(kinds.size())], 16 + 16 * layer, 64).packed});
  }

  ExpertStore store_of(std::uint64_t bytes, RepackFn repack = {}) {
    auto writer = *PackedFileWriter::create(folder_.file("x.packed"), {}, static_cast<std::uint32_t>(all_.size()), std::uint64_t{1} << 30U);
    std::vector<std::vector<StoredExpert>> experts(kLayers, std::vector<StoredExpert>(kExperts));
    shown_.assign(all_.size(), {});
    for (std::uint32_t i = 0; i < all_.size(); ++i) {
      EXPECT_TRUE(writer->write(i, all_[i].matrix));
      StoredExpert& stored = experts[all_[i].layer][all_[i].expert];
      stored.parts[all_[i].part] = &shown_[i];
      stored.numbers[all_[i].part] = i;
    }
    return {*writer->finish(), experts, bytes, std::move(repack)};
  }

  struct One {
    std::uint32_t layer, expert;
    std::size_t part;
    PackedMatrix matrix;
  };
  std::vector<One> all_;
  std::vector<PackedMatrix> shown_;
  tiny::TempFolder folder_;
  ThreadPool pool_{2};
};

TEST_F(StoredExperts, HeldExpertsAreResidentAndMemoryIsBounded) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{30'000}, std::uint64_t{60'000}, std::uint64_t{1} << 30U}) {
    ExpertStore store = store_of(bytes);
    Random random(83);
    std::uint64_t largest = 0;
    for (std::uint32_t round = 0; round < 400; ++round) {
      const auto layer = static_cast<std::uint32_t>(random.below(kLayers));
      std::set<std::uint32_t> chosen;
      while (chosen.size() < 1 + random.below(kExperts)) chosen.insert(static_cast<std::uint32_t>(random.below(kExperts)));
      const std::vector<std::uint32_t> wanted(chosen.begin(), chosen.end());
      for (std::size_t done = 0; done < wanted.size();) {
        const std::size_t count = store.hold(layer, std::span(wanted).subspan(done), pool_);
        ASSERT_GT(count, 0U);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < all_.size(); ++i) {
          sum += shown_[i].storage.size();
          const bool is_held = all_[i].layer == layer && std::ranges::find(std::span(wanted).subspan(done, count), all_[i].expert) !=
                                                             std::span(wanted).subspan(done, count).end();
          ASSERT_TRUE(!is_held || shown_[i].storage == all_[i].matrix.storage) << "round " << round;
        }
        ASSERT_EQ(sum, store.resident_bytes());
        largest = std::max(largest, sum);
        done += count;
      }
    }
    if (bytes > 1) EXPECT_LE(largest, bytes);
    const ExpertReads counts = store.counts();
    EXPECT_GT(counts.num_used, 400U);
    if (bytes == 1) EXPECT_GT(counts.num_read, counts.num_used / 2) << "the store holds one expert at a time";
    if (bytes > 1'000'000) EXPECT_LE(counts.num_read, std::uint64_t{kLayers} * kExperts) << "each expert is read once";
  }
}

// Half of the experts fit. As in a forward pass, layers follow each other, and each uses mostly the same few experts. These must stay
// resident, although under LRU they would always be evicted.
TEST_F(StoredExperts, KeepsTheMostFrequentlyUsedExperts) {
  std::uint64_t whole = 0;
  for (const One& one : all_) whole += one.matrix.storage.size();
  ExpertStore store = store_of(whole / 2);
  Random random(84);
  for (std::uint32_t pass = 0; pass < 600; ++pass) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto rare = static_cast<std::uint32_t>(2 + random.below(kExperts - 2));
      const std::vector<std::uint32_t> wanted{0, 1, rare};
      for (std::size_t done = 0; done < wanted.size();) done += store.hold(layer, std::span(wanted).subspan(done), pool_);
    }
  }
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) EXPECT_TRUE(store.is_resident(layer, 0) && store.is_resident(layer, 1)) << layer;
  // Only rare experts are read again now and then.
  const ExpertReads counts = store.counts();
  EXPECT_LT(counts.num_read, counts.num_used / 3);
  EXPECT_GT(counts.num_read, 100U);
}

TEST_F(StoredExperts, RepacksExpertsWhenTheFileIsTruncated) {
  ExpertStore store = store_of(1, [this](std::uint32_t number, PackedMatrix& matrix) -> Result<void> {
    matrix = all_[number].matrix;
    return {};
  });
  std::filesystem::resize_file(folder_.file("x.packed"), 8'192);
  const std::vector<std::uint32_t> wanted{3};
  ASSERT_EQ(store.hold(2, wanted, pool_), 1U);
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (all_[i].layer == 2 && all_[i].expert == 3) EXPECT_EQ(shown_[i].storage, all_[i].matrix.storage);
  EXPECT_GT(store.counts().num_damaged, 0U);
}

class CachedWeights : public testing::TestWithParam<const char*> {
 protected:
  CachedWeights() {
    write(name_ == "qwen3_moe" ? "BF16" : "Q4_1");
    for (std::uint32_t i = 0; i < 60; ++i) prompt_.push_back(static_cast<TokenId>(i * 37 % 250));
  }

  void write(std::string_view kind) const {
    tiny::write_gguf(path_, name_ == "gpt_oss" ? tiny::small_gpt_oss() : tiny::small_mixture(name_), kind);
  }

  // Runs the prompt in chunks, so that experts are needed again. `counts` is the total.
  std::vector<float> logits(const WeightsOptions& weights, ExpertReads* counts = nullptr, std::vector<std::string>* notes = nullptr) {
    tiny::Rig rig(path_, {.activations = ActivationMode::int16, .kv = KvDtype::bf16, .weights = weights});
    rig.give_blocks(Slot{0}, tiny::blocks_for(60, 16, 1));
    std::vector<float> all = rig.run(std::span(prompt_).first(25), {{Slot{0}, 0, 25}});
    for (std::uint32_t i = 25; i < 60; i += 7) {
      const auto more = rig.run(std::span(prompt_).subspan(i, std::min(7U, 60 - i)), {{Slot{0}, i, std::min(7U, 60 - i)}});
      all.insert(all.end(), more.begin(), more.end());
    }
    if (counts != nullptr) *counts = rig.model().expert_reads();
    if (notes != nullptr) *notes = rig.model().info().packing_notes;
    return all;
  }
  std::vector<std::string> notes_without_folder() {
    std::vector<std::string> notes;
    logits({}, nullptr, &notes);
    return notes;
  }
  // Damages every matrix but not the table.
  void damage() const {
    std::filesystem::permissions(cached_files()[0], std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::fstream file(cached_files()[0], std::ios::binary | std::ios::in | std::ios::out);
    for (std::uint64_t at = 4'096 + 8; at + 100'000 < std::filesystem::file_size(cached_files()[0]); at += 4'096) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write("damaged", 7);
    }
  }
  std::vector<std::filesystem::path> cached_files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(cache_)) files.push_back(file.path());
    return files;
  }

  std::string name_ = GetParam();
  tiny::TempFolder folder_;
  std::string path_ = folder_.file("model.gguf"), cache_ = folder_.file("weights");
  std::vector<TokenId> prompt_;
};

TEST_P(CachedWeights, LogitsHaveTheSameBits) {
  const auto expected = logits({});
  EXPECT_EQ(logits({.cache_folder = cache_}), expected) << "weights packed and written";
  ASSERT_EQ(cached_files().size(), 1U);
  const auto written = std::filesystem::last_write_time(cached_files()[0]);
  EXPECT_EQ(logits({.cache_folder = cache_}), expected) << "weights read from the cache";
  EXPECT_GE(std::filesystem::last_write_time(cached_files()[0]), written) << "the file is marked as used";
  for (const std::uint64_t bytes : {1U, 100'000U, 200'000U}) {
    ExpertReads counts;
    EXPECT_EQ(logits({.cache_folder = cache_, .expert_bytes = bytes}, &counts), expected) << bytes;
    EXPECT_GT(counts.num_read, 14U) << "experts are read more than once";
    EXPECT_EQ(counts.num_damaged, 0U);
  }
  // Weights are packed and streamed in one start.
  std::filesystem::remove_all(cache_);
  EXPECT_EQ(logits({.cache_folder = cache_, .expert_bytes = 1}), expected);
  EXPECT_EQ(cached_files().size(), 1U);
}

TEST_P(CachedWeights, DetectsAndRepairsDamage) {
  const auto expected = logits({.cache_folder = cache_});
  damage();
  ExpertReads counts;
  std::vector<std::string> notes;
  EXPECT_EQ(logits({.cache_folder = cache_, .expert_bytes = 1}, &counts, &notes), expected);
  EXPECT_GT(counts.num_damaged, 0U);
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) { return note.find("is corrupted") != std::string::npos; }));
  EXPECT_TRUE(cached_files().empty()) << "the corrupted file is removed so that it is packed again";
  EXPECT_EQ(logits({.cache_folder = cache_}), expected);
  EXPECT_EQ(cached_files().size(), 1U);
  // Weights that are not streamed are repaired immediately.
  damage();
  EXPECT_EQ(logits({.cache_folder = cache_}, nullptr, &notes), expected);
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) { return note.find("is corrupted") != std::string::npos; }));
  EXPECT_EQ(cached_files().size(), 1U);
  EXPECT_EQ(logits({.cache_folder = cache_}, nullptr, &notes), expected);
  EXPECT_EQ(notes, notes_without_folder());
  // A truncated file is ignored.
  std::filesystem::permissions(cached_files()[0], std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::filesystem::resize_file(cached_files()[0], std::filesystem::file_size(cached_files()[0]) / 2);
  EXPECT_EQ(logits({.cache_folder = cache_}), expected);
  EXPECT_EQ(cached_files().size(), 1U);
}

TEST_P(CachedWeights, TwoEnginesThatStartTogetherShareAFile) {
  const auto expected = logits({});
  std::vector<float> other;
  std::vector<std::string> notes, others;
  std::thread beside([&] { other = logits({.cache_folder = cache_}, nullptr, &others); });
  EXPECT_EQ(logits({.cache_folder = cache_}, nullptr, &notes), expected);
  beside.join();
  EXPECT_EQ(other, expected);
  EXPECT_EQ(cached_files().size(), 1U);
  EXPECT_EQ(notes, notes_without_folder());
  EXPECT_EQ(others, notes);
}

// The path is the same, but the weights differ.
TEST_P(CachedWeights, PacksAnotherModelFileAgain) {
  const auto expected = logits({.cache_folder = cache_});
  write(name_ == "qwen3_moe" ? "F32" : "Q8_0");
  const auto other = logits({});
  EXPECT_NE(other, expected);
  EXPECT_EQ(logits({.cache_folder = cache_}), other);
  EXPECT_EQ(cached_files().size(), 2U);
}

TEST_P(CachedWeights, ServesWithoutCacheSpaceUnlessExpertsAreStreamed) {
  const auto expected = logits({});
  std::vector<std::string> notes;
  EXPECT_EQ(logits({.cache_folder = cache_, .cache_bytes = 1'000}, nullptr, &notes), expected);
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes.back().find("weights_cache_budget"), std::string::npos) << notes.back();
  ThreadPool pool(1);
  const auto refused = load_model(path_, {.pool = &pool, .weights = {.cache_folder = cache_, .cache_bytes = 1'000, .expert_bytes = 1}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "weights_cache_budget");
}

INSTANTIATE_TEST_SUITE_P(Mixtures, CachedWeights, testing::Values("olmoe", "qwen2_moe", "qwen3_moe", "gpt_oss"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace quire
