// Tests the block hashes of a prompt: they are equal exactly for equal prefixes.
#include "lab/workload/block_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lab/lab_support.h"

namespace quire {
namespace {

// Returns the hashes of a prompt with these runs of ids.
std::vector<BlockHash> hashes_with(std::uint32_t id_tokens, std::uint32_t block_size, std::uint32_t prompt_tokens, std::vector<IdRun> runs,
                                   std::uint32_t name_space = 0, std::uint32_t shared_ids = 0) {
  Workload workload;
  workload.id_tokens = id_tokens;
  workload.runs = {{77, 9}};  // belongs to another request
  workload.runs.insert(workload.runs.end(), runs.begin(), runs.end());
  workload.runs.push_back({78, 9});
  WorkloadRequest request;
  request.prompt_tokens = prompt_tokens;
  request.first_run = 1;
  request.num_runs = static_cast<std::uint32_t>(runs.size());
  request.name_space = name_space;
  request.shared_ids = shared_ids;
  std::vector<BlockHash> names(3);  // is overwritten
  BlockHasher::create(workload, block_size).value().of(request, names);
  return names;
}

std::size_t num_equal(const std::vector<BlockHash>& a, const std::vector<BlockHash>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(BlockHasher, NamesTheFullBlocksThatHaveIds) {
  struct Case {
    std::uint32_t id_tokens, block_size, prompt_tokens, num_ids;
    std::size_t num_names;
  };
  for (const Case& one : {Case{32, 16, 70, 3, 4},
                          {32, 16, 96, 3, 6},
                          {32, 16, 95, 3, 5},
                          {32, 16, 200, 3, 6},
                          {32, 32, 96, 3, 3},
                          {32, 32, 95, 3, 2},
                          {32, 64, 128, 3, 1},
                          {32, 64, 128, 4, 2},
                          {32, 64, 127, 4, 1},
                          {32, 64, 63, 2, 0},
                          {1, 4, 9, 9, 2},
                          {16, 16, 32, 0, 0},
                          {512, 16, 600, 2, 37}})
    EXPECT_EQ(hashes_with(one.id_tokens, one.block_size, one.prompt_tokens, {{5, one.num_ids}}).size(), one.num_names)
        << one.id_tokens << " " << one.block_size << " " << one.prompt_tokens;
  EXPECT_TRUE(hashes_with(0, 16, 64, {{5, 4}}).empty());
  EXPECT_TRUE(hashes_with(16, 16, 64, {}).empty());
}

TEST(BlockHasher, HashesAreEqualExactlyForEqualPrefixes) {
  for (const std::uint32_t block_size : {8U, 16U, 32U}) {
    const std::size_t per_id = 16 / std::min(block_size, 16U), per_block = std::max(block_size, 16U) / 16;
    const auto base = hashes_with(16, block_size, 128, {{5, 8}});
    ASSERT_EQ(base.size(), 128 / block_size);
    EXPECT_EQ(num_equal(base, hashes_with(16, block_size, 128, {{5, 3}, {8, 5}})), base.size()) << "only the ids count";
    for (const std::uint32_t same : {0U, 1U, 2U, 5U, 7U})
      EXPECT_EQ(num_equal(base, hashes_with(16, block_size, 128, {{5, same}, {100, 8 - same}})), same / per_block * per_id) << same;
    std::set<std::uint64_t> different;
    for (const BlockHash& name : base) different.insert(name.prefix());
    EXPECT_EQ(different.size(), base.size());
  }
}

TEST(BlockHasher, NameSpacesShareOnlyTheSharedIds) {
  const std::vector<IdRun> ids = {{5, 8}};
  for (const std::uint32_t shared : {0U, 1U, 3U, 7U}) {
    const auto first = hashes_with(16, 16, 128, ids, 1, shared), second = hashes_with(16, 16, 128, ids, 2, shared);
    EXPECT_EQ(num_equal(first, second), shared);
    EXPECT_EQ(num_equal(first, hashes_with(16, 16, 128, ids)), shared) << "space 0 is a separate one";
    EXPECT_EQ(num_equal(first, hashes_with(16, 16, 128, ids, 1, shared)), 8U);
    EXPECT_EQ(num_equal(hashes_with(16, 16, 128, ids, 0, shared), hashes_with(16, 16, 128, ids)), 8U);
  }
  EXPECT_EQ(num_equal(hashes_with(16, 16, 128, ids, 1, 8), hashes_with(16, 16, 128, ids, 2, 8)), 8U);
}

TEST(BlockHasher, BlocksAndIdsMustDivideEachOther) {
  const auto error_of = [](std::uint32_t id_tokens, std::uint32_t block_size) {
    Workload workload;
    workload.id_tokens = id_tokens;
    const auto made = BlockHasher::create(workload, block_size);
    if (made) EXPECT_EQ(made->block_size(), block_size);
    return made ? std::string() : made.error().to_string();
  };
  for (const auto& [id_tokens, block_size] : {std::pair(0U, 24U), {16U, 16U}, {16U, 8U}, {16U, 48U}, {1U, 7U}})
    EXPECT_EQ(error_of(id_tokens, block_size), "");
  EXPECT_EQ(error_of(16, 24), "block_size: is 24, but the workload has one block id per 16 tokens; use a divisor or a multiple of 16");
  EXPECT_NE(error_of(24, 16), "");
}

TEST(MixedHashes, CoverParentAndTokens) {
  MixedHashes hash;
  const auto name = [&](const BlockHash* parent, const std::vector<TokenId>& tokens) {
    HashInput input;
    input.tokens = tokens;
    return hash.hash(parent, input);
  };
  const auto of = [&](const BlockHash* parent, const std::vector<TokenId>& tokens) { return name(parent, tokens).prefix(); };
  const BlockHash parent = name(nullptr, {1, 2}), other = name(nullptr, {2, 1});
  EXPECT_EQ(of(&parent, {3, 4}), of(&parent, {3, 4}));
  const std::set<std::uint64_t> different = {of(nullptr, {3, 4}), of(&parent, {3, 4}), of(&other, {3, 4}), of(&parent, {4, 3}),
                                             of(&parent, {3, 5}), of(&parent, {4, 4}), parent.prefix(),    other.prefix()};
  EXPECT_EQ(different.size(), 8U);
}

}  // namespace
}  // namespace quire
