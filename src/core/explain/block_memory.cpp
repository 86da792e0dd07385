// Stories of names in fixed arrays: a hash table of chains, and a list of those that no block holds any more, the oldest loss first. Called
// for each block that is cached or lost, on the core's thread: it must never allocate, and never be what a step waits for.
#include "core/explain/block_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {

BlockMemory::BlockMemory(std::uint32_t num_names, std::uint32_t block_size)
    : block_size_(block_size),
      stories_(num_names),
      links_(num_names),
      tokens_(std::size_t{num_names} * block_size),
      buckets_(std::bit_ceil(std::max(num_names, 2U)), kNone),
      shift_(64U - static_cast<unsigned>(std::countr_zero(buckets_.size()))) {
  QUIRE_CHECK(num_names > 0, "there is room for a name");
}

std::uint64_t BlockMemory::key_of(const NameBytes& name) {
  std::uint64_t key = 0;
  std::memcpy(&key, name.data(), sizeof(key));
  return key;
}

std::uint32_t BlockMemory::place_of(std::uint64_t key) const {
  std::uint32_t place = buckets_[bucket(key)];
  while (place != kNone && stories_[place].key != key) place = links_[place].next_in_bucket;
  return place;
}

const BlockStory* BlockMemory::find(std::uint64_t key) const {
  const std::uint32_t place = place_of(key);
  return place == kNone ? nullptr : &stories_[place];
}

std::span<const TokenId> BlockMemory::tokens_of(const BlockStory& story) const {
  const auto place = static_cast<std::size_t>(&story - stories_.data());
  QUIRE_CHECK(place < stories_.size(), "a story of this memory");
  return std::span(tokens_).subspan(place * block_size_, block_size_);
}

void BlockMemory::stored(std::uint64_t key, std::uint64_t parent, std::span<const TokenId> tokens) {
  QUIRE_CHECK(tokens.empty() || tokens.size() == block_size_, "the tokens of a block, or none");
  ++now_;
  std::uint32_t place = place_of(key);
  if (place == kNone) place = take_place(key);
  if (place == kNone) return;
  BlockStory& story = stories_[place];
  if (story.num_copies++ == 0) {
    unlink(place);
    story.stored_at = now_;
  }
  if (!tokens.empty()) std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(place) * block_size_);
  const std::uint32_t before = place_of(parent);
  if (before != kNone && stories_[before].last_child != key)
    stories_[before].child_before = std::exchange(stories_[before].last_child, key);
}

void BlockMemory::lost(std::uint64_t key, Loss loss, const Event& event) {
  ++now_;
  const std::uint32_t place = place_of(key);
  if (place == kNone || stories_[place].num_copies == 0) return;
  if (--stories_[place].num_copies == 0) note_loss(place, loss, event);
}

void BlockMemory::reset(const Event& event) {
  ++now_;
  std::uint32_t place = 0;
  for (BlockStory& story : std::span(stories_).first(num_used_)) {
    if (std::exchange(story.num_copies, 0) > 0) note_loss(place, Loss::reset, event);
    ++place;
  }
}

void BlockMemory::note_loss(std::uint32_t place, Loss loss, const Event& event) {
  BlockStory& story = stories_[place];
  QUIRE_CHECK(story.num_copies == 0, "a name is lost with the last block that has it");
  story.loss = loss;
  story.lost_step = event.step;
  story.lost_s = event.time_s;
  story.lost_for = event.beneficiary;
  story.lost_at = now_;
  push_newest(place);
}

// kNone: all are held, as more blocks than names can be.
std::uint32_t BlockMemory::take_place(std::uint64_t key) {
  std::uint32_t place = num_used_;
  if (num_used_ < stories_.size()) {
    ++num_used_;
  } else {
    place = oldest_;
    if (place == kNone) return kNone;
    QUIRE_CHECK(stories_[place].num_copies == 0, "only what no block holds makes room");
    forgotten_until_ = std::max(forgotten_until_, stories_[place].lost_step);
    forget(place);
  }
  stories_[place] = {.key = key};
  std::uint32_t& head = buckets_[bucket(key)];
  links_[place].next_in_bucket = std::exchange(head, place);
  return place;
}

void BlockMemory::forget(std::uint32_t place) {
  unlink(place);
  std::uint32_t* from = &buckets_[bucket(stories_[place].key)];
  while (*from != place) {
    QUIRE_CHECK(*from != kNone, "a name is in the chain of its bucket");
    from = &links_[*from].next_in_bucket;
  }
  *from = links_[place].next_in_bucket;
}

void BlockMemory::push_newest(std::uint32_t place) {
  QUIRE_CHECK(place != newest_ && links_[place].older == kNone && links_[place].newer == kNone, "what is lost was not lost already");
  links_[place].older = newest_;
  links_[place].newer = kNone;
  (newest_ == kNone ? oldest_ : links_[newest_].newer) = place;
  newest_ = place;
}

void BlockMemory::check_invariants() const {
  std::uint32_t num_chained = 0, num_lost = 0;
  for (std::uint32_t head = 0; head < buckets_.size(); ++head) {
    for (std::uint32_t place = buckets_[head]; place != kNone; place = links_[place].next_in_bucket) {
      QUIRE_CHECK(place < num_used_ && ++num_chained <= num_used_, "a name that is remembered is in one chain");
      QUIRE_CHECK(bucket(stories_[place].key) == head, "a name is in the chain where it is looked for");
      num_lost += stories_[place].num_copies == 0 ? 1 : 0;
    }
  }
  QUIRE_CHECK(num_chained == num_used_ && num_used_ <= stories_.size(), "each place in use has a name");
  std::uint32_t before = kNone;
  for (std::uint32_t place = oldest_; place != kNone; place = links_[place].newer) {
    QUIRE_CHECK(stories_[place].num_copies == 0 && links_[place].older == before, "the lost are a list of names that no block holds");
    QUIRE_CHECK(before == kNone || stories_[before].lost_at <= stories_[place].lost_at, "the oldest loss comes first");
    before = place;
    QUIRE_CHECK(num_lost > 0, "who is lost is in the list once");
    --num_lost;
  }
  QUIRE_CHECK(before == newest_ && num_lost == 0, "all that are lost are in the list, and the newest ends it");
}

// Nothing happens to one that is not among the lost ones.
void BlockMemory::unlink(std::uint32_t place) {
  Link& link = links_[place];
  if (place != oldest_ && link.older == kNone) return;
  QUIRE_CHECK((place == oldest_ ? oldest_ : links_[link.older].newer) == place, "neighbours among the lost know each other");
  (place == oldest_ ? oldest_ : links_[link.older].newer) = link.newer;
  (place == newest_ ? newest_ : links_[link.newer].older) = link.older;
  link.older = link.newer = kNone;
}

}  // namespace quire
