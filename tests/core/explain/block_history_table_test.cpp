// Compares the block history table with a naive list of all hashes that is searched from the front.
#include "core/explain/block_history_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kBlock = 3;

struct NaiveStory {
  BlockHistory story;
  std::uint64_t number = 0;  // in order of creation
  std::vector<TokenId> tokens = std::vector<TokenId>(kBlock);
};

class NaiveMemory {
 public:
  explicit NaiveMemory(std::size_t most) : most_(most) {}

  NaiveStory* find(std::uint64_t key, std::uint64_t tenant) {
    const auto found =
        std::ranges::find_if(names_, [&](const NaiveStory& name) { return name.story.key == key && name.story.tenant == tenant; });
    return found == names_.end() ? nullptr : &*found;
  }

  void stored(std::uint64_t key, std::uint64_t parent, std::uint64_t tenant, const std::vector<TokenId>& tokens) {
    ++now_;
    NaiveStory* name = find(key, tenant);
    if (name == nullptr) name = make(key, tenant);
    if (name == nullptr) return;
    if (name->story.num_copies++ == 0) name->story.stored_at = now_;
    if (!tokens.empty()) name->tokens = tokens;
    if (NaiveStory* before = find(parent, tenant); before != nullptr && before->story.last_child != key) {
      before->story.child_before = before->story.last_child;
      before->story.last_child = key;
    }
  }

  void lost(std::uint64_t key, Loss loss, const Event& event) {
    ++now_;
    std::vector<NaiveStory*> of_all;
    for (NaiveStory& name : names_)
      if (name.story.key == key) of_all.push_back(&name);
    std::ranges::sort(of_all, std::greater<>(), &NaiveStory::number);
    for (NaiveStory* name : of_all)
      if (name->story.num_copies > 0 && --name->story.num_copies == 0) lose(name->story, loss, event);
  }

  void reset(const Event& event) {
    ++now_;
    for (NaiveStory& name : names_) {
      if (name.story.num_copies == 0) continue;
      name.story.num_copies = 0;
      lose(name.story, Loss::reset, event);
    }
  }

  std::uint64_t now_ = 0;
  StepId forgotten_until{};
  std::uint64_t num_forgotten = 0, num_full = 0;

 private:
  void lose(BlockHistory& story, Loss loss, const Event& event) {
    story.loss = loss;
    story.lost_step = event.step;
    story.lost_s = event.time_s;
    story.lost_for = event.beneficiary;
    story.lost_at = now_;
    order_[{story.key, story.tenant}] = ++num_losses_;
  }

  NaiveStory* make(std::uint64_t key, std::uint64_t tenant) {
    if (names_.size() == most_) {
      const auto age = [&](const NaiveStory& name) {
        return name.story.num_copies > 0 ? UINT64_MAX : order_.at({name.story.key, name.story.tenant});
      };
      const auto oldest = std::ranges::min_element(names_, {}, age);
      if (oldest->story.num_copies > 0) {
        ++num_full;
        return nullptr;
      }
      forgotten_until = std::max(forgotten_until, oldest->story.lost_step);
      ++num_forgotten;
      *oldest = {};  // the entry is reused: a reset loses hashes in the order of their entries
      oldest->story.key = key;
      oldest->story.tenant = tenant;
      oldest->number = ++num_made_;
      return &*oldest;
    }
    NaiveStory& made = names_.emplace_back();
    made.story.key = key;
    made.story.tenant = tenant;
    made.number = ++num_made_;
    return &made;
  }

  const std::size_t most_;
  std::vector<NaiveStory> names_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> order_;  // order of losses by hash and tenant
  std::uint64_t num_made_ = 0;
  std::uint64_t num_losses_ = 0;
};

void expect_equal(const BlockHistoryTable& memory, NaiveMemory& naive, std::uint64_t key, std::uint64_t tenant) {
  const BlockHistory* story = memory.find(key, tenant);
  const NaiveStory* other = naive.find(key, tenant);
  ASSERT_EQ(story != nullptr, other != nullptr) << key;
  if (story == nullptr) return;
  EXPECT_EQ(story->key, other->story.key);
  EXPECT_EQ(story->last_child, other->story.last_child);
  EXPECT_EQ(story->child_before, other->story.child_before);
  EXPECT_EQ(story->num_copies, other->story.num_copies);
  EXPECT_EQ(story->loss, other->story.loss);
  EXPECT_EQ(story->lost_step, other->story.lost_step);
  EXPECT_EQ(story->lost_s, other->story.lost_s);
  EXPECT_EQ(story->lost_for, other->story.lost_for);
  EXPECT_EQ(story->stored_at, other->story.stored_at);
  EXPECT_EQ(story->lost_at, other->story.lost_at);
  if (story->stored_at > 0) EXPECT_TRUE(std::ranges::equal(memory.tokens_of(*story), other->tokens)) << key;
}

TEST(BlockMemoryModel, MatchesANaiveListOfAllHashes) {
  std::uint64_t num_forgotten = 0, num_full = 0;
  for (std::uint32_t seed = 1; seed <= rounds_of(40) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto most = static_cast<std::uint32_t>(random.between(1, 9));
    const std::uint64_t num_tenants = random.between(1, 3);
    const std::uint64_t num_keys = random.between(most, 3 * most + 1);
    BlockHistoryTable memory(most, kBlock);
    NaiveMemory naive(most);
    for (std::uint32_t i = 1; i <= 400 && !testing::Test::HasFailure(); ++i) {
      const std::uint64_t key = 1 + random.below(num_keys), tenant = random.below(num_tenants);
      const Event event{.step = StepId{i / 3}, .time_s = 0.5 * i, .beneficiary = RequestId{random.below(5)}};
      if (random.chance(0.02)) {
        memory.reset(event);
        naive.reset(event);
      } else if (random.chance(0.5)) {
        std::vector<TokenId> tokens;
        // A new hash without tokens keeps the tokens of its entry's previous hash, so the test always gives tokens for new hashes.
        if (naive.find(key, tenant) == nullptr || random.chance(0.8))
          for (std::uint32_t token = 0; token < kBlock; ++token) tokens.push_back(static_cast<TokenId>(random.below(100)));
        const std::uint64_t parent = random.below(num_keys + 1);
        memory.stored(key, parent, tenant, tokens);
        naive.stored(key, parent, tenant, tokens);
      } else {
        const Loss loss = random.chance(0.5) ? Loss::evicted : Loss::forgotten;
        memory.lost(key, loss, event);
        naive.lost(key, loss, event);
      }
      memory.check_invariants();
      ASSERT_EQ(memory.now(), naive.now_);
      ASSERT_EQ(memory.forgotten_until(), naive.forgotten_until);
      for (std::uint64_t other = 0; other <= num_keys; ++other)
        for (std::uint64_t of = 0; of < num_tenants; ++of) expect_equal(memory, naive, other, of);
    }
    num_forgotten += naive.num_forgotten;
    num_full += naive.num_full;
  }
  if (testing::Test::HasFailure()) return;
  EXPECT_GT(num_forgotten, rounds_of(40) * 10U) << "the test covers too few cases";
  EXPECT_GT(num_full, rounds_of(40));
}

}  // namespace
}  // namespace quire::test
