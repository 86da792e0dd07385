// A memory of blocks against a naive one: a list of all names with what is known of each, searched from the front.
#include "core/explain/block_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"
#include "support/rounds.h"

namespace quire {
namespace {

constexpr std::uint32_t kBlock = 3;

struct NaiveStory {
  BlockStory story;
  std::vector<TokenId> tokens = std::vector<TokenId>(kBlock);
};

class NaiveMemory {
 public:
  explicit NaiveMemory(std::size_t most) : most_(most) {}

  NaiveStory* find(std::uint64_t key) {
    const auto found = std::ranges::find(names_, key, [](const NaiveStory& name) { return name.story.key; });
    return found == names_.end() ? nullptr : &*found;
  }

  void stored(std::uint64_t key, std::uint64_t parent, const std::vector<TokenId>& tokens) {
    ++now_;
    NaiveStory* name = find(key);
    if (name == nullptr) name = make(key);
    if (name == nullptr) return;
    if (name->story.num_copies++ == 0) name->story.stored_at = now_;
    if (!tokens.empty()) name->tokens = tokens;
    if (NaiveStory* before = find(parent); before != nullptr && before->story.last_child != key) {
      before->story.child_before = before->story.last_child;
      before->story.last_child = key;
    }
  }

  void lost(std::uint64_t key, Loss loss, const Event& event) {
    ++now_;
    NaiveStory* name = find(key);
    if (name == nullptr || name->story.num_copies == 0 || --name->story.num_copies > 0) return;
    lose(name->story, loss, event);
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
  void lose(BlockStory& story, Loss loss, const Event& event) {
    story.loss = loss;
    story.lost_step = event.step;
    story.lost_s = event.time_s;
    story.lost_for = event.beneficiary;
    story.lost_at = now_;
    order_[story.key] = ++num_losses_;
  }

  NaiveStory* make(std::uint64_t key) {
    if (names_.size() == most_) {
      const auto age = [&](const NaiveStory& name) { return name.story.num_copies > 0 ? UINT64_MAX : order_.at(name.story.key); };
      const auto oldest = std::ranges::min_element(names_, {}, age);
      if (oldest->story.num_copies > 0) {
        ++num_full;
        return nullptr;
      }
      forgotten_until = std::max(forgotten_until, oldest->story.lost_step);
      ++num_forgotten;
      *oldest = {};  // where it was: a reset loses names in the order of their places
      oldest->story.key = key;
      return &*oldest;
    }
    NaiveStory& made = names_.emplace_back();
    made.story.key = key;
    return &made;
  }

  const std::size_t most_;
  std::vector<NaiveStory> names_;
  std::map<std::uint64_t, std::uint64_t> order_;  // of losses, by name
  std::uint64_t num_losses_ = 0;
};

void expect_equal(const BlockMemory& memory, NaiveMemory& naive, std::uint64_t key) {
  const BlockStory* story = memory.find(key);
  const NaiveStory* other = naive.find(key);
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

TEST(BlockMemoryModel, RemembersWhatOneDoesWhoLooksThroughAll) {
  std::uint64_t num_forgotten = 0, num_full = 0;
  for (std::uint32_t seed = 1; seed <= rounds_of(40) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto most = static_cast<std::uint32_t>(random.between(1, 9));
    const std::uint64_t num_keys = random.between(most, 3 * most + 1);
    BlockMemory memory(most, kBlock);
    NaiveMemory naive(most);
    for (std::uint32_t i = 1; i <= 400 && !testing::Test::HasFailure(); ++i) {
      const std::uint64_t key = 1 + random.below(num_keys);
      const Event event{.step = StepId{i / 3}, .time_s = 0.5 * i, .beneficiary = RequestId{random.below(5)}};
      if (random.chance(0.02)) {
        memory.reset(event);
        naive.reset(event);
      } else if (random.chance(0.5)) {
        std::vector<TokenId> tokens;
        // A name of which no tokens were told keeps those of who was there before: nothing may be said of them.
        if (naive.find(key) == nullptr || random.chance(0.8))
          for (std::uint32_t token = 0; token < kBlock; ++token) tokens.push_back(static_cast<TokenId>(random.below(100)));
        const std::uint64_t parent = random.below(num_keys + 1);
        memory.stored(key, parent, tokens);
        naive.stored(key, parent, tokens);
      } else {
        const Loss loss = random.chance(0.5) ? Loss::evicted : Loss::forgotten;
        memory.lost(key, loss, event);
        naive.lost(key, loss, event);
      }
      memory.check_invariants();
      ASSERT_EQ(memory.now(), naive.now_);
      ASSERT_EQ(memory.forgotten_until(), naive.forgotten_until);
      for (std::uint64_t other = 0; other <= num_keys; ++other) expect_equal(memory, naive, other);
    }
    num_forgotten += naive.num_forgotten;
    num_full += naive.num_full;
  }
  if (testing::Test::HasFailure()) return;
  EXPECT_GT(num_forgotten, rounds_of(40) * 10U) << "else it has met too little";
  EXPECT_GT(num_full, rounds_of(40));
}

}  // namespace
}  // namespace quire
