// Stores the history of block hashes in fixed arrays: a hash table with chains, and a list of lost hashes (no block has them any more), the
// oldest loss first. Called on the core's thread for each block that is cached or lost. It must not allocate memory or delay a step.
#include "core/explain/block_history_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {

BlockHistoryTable::BlockHistoryTable(std::uint32_t num_names, std::uint32_t block_size)
    : block_size_(block_size),
      histories_(num_names),
      links_(num_names),
      tokens_(std::size_t{num_names} * block_size),
      buckets_(std::bit_ceil(std::max(num_names, 2U)), kNone),
      shift_(64U - static_cast<unsigned>(std::countr_zero(buckets_.size()))) {
  QUIRE_CHECK(num_names > 0, "there is room for at least one record");
}

std::uint64_t BlockHistoryTable::key_of(const BlockHashBytes& name) {
  std::uint64_t key = 0;
  std::memcpy(&key, name.data(), sizeof(key));
  return key;
}

std::uint32_t BlockHistoryTable::entry_of(std::uint64_t key, std::uint64_t tenant) const {
  std::uint32_t place = buckets_[bucket(key)];
  while (place != kNone && (histories_[place].key != key || histories_[place].tenant != tenant)) place = links_[place].next_in_bucket;
  return place;
}

const BlockHistory* BlockHistoryTable::find(std::uint64_t key, std::uint64_t tenant) const {
  const std::uint32_t place = entry_of(key, tenant);
  return place == kNone ? nullptr : &histories_[place];
}

std::span<const TokenId> BlockHistoryTable::tokens_of(const BlockHistory& history) const {
  const auto place = static_cast<std::size_t>(&history - histories_.data());
  QUIRE_CHECK(place < histories_.size(), "the record belongs to this memory");
  return std::span(tokens_).subspan(place * block_size_, block_size_);
}

void BlockHistoryTable::stored(std::uint64_t key, std::uint64_t parent, std::uint64_t tenant, std::span<const TokenId> tokens) {
  QUIRE_CHECK(tokens.empty() || tokens.size() == block_size_, "the tokens of a block are complete or empty");
  ++now_;
  std::uint32_t place = entry_of(key, tenant);
  if (place == kNone) place = take_entry(key, tenant);
  if (place == kNone) return;
  BlockHistory& history = histories_[place];
  if (history.num_copies++ == 0) {
    unlink(place);
    history.stored_at = now_;
  }
  if (!tokens.empty()) std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(place) * block_size_);
  const std::uint32_t before = entry_of(parent, tenant);
  if (before != kNone && histories_[before].last_child != key)
    histories_[before].child_before = std::exchange(histories_[before].last_child, key);
}

void BlockHistoryTable::lost(std::uint64_t key, Loss loss, const Event& event) {
  ++now_;
  for (std::uint32_t place = buckets_[bucket(key)]; place != kNone; place = links_[place].next_in_bucket) {
    BlockHistory& history = histories_[place];
    if (history.key == key && history.num_copies > 0 && --history.num_copies == 0) note_loss(place, loss, event);
  }
}

void BlockHistoryTable::reset(const Event& event) {
  ++now_;
  std::uint32_t place = 0;
  for (BlockHistory& history : std::span(histories_).first(num_used_)) {
    if (std::exchange(history.num_copies, 0) > 0) note_loss(place, Loss::reset, event);
    ++place;
  }
}

void BlockHistoryTable::note_loss(std::uint32_t place, Loss loss, const Event& event) {
  BlockHistory& history = histories_[place];
  QUIRE_CHECK(history.num_copies == 0, "a hash is lost only with its last block");
  history.loss = loss;
  history.lost_step = event.step;
  history.lost_s = event.time_s;
  history.lost_for = event.beneficiary;
  history.lost_at = now_;
  push_newest(place);
}

// Returns an entry for a new record. If all are used, replaces the record of the oldest lost hash. Returns kNone if no hash is lost, which
// happens if more blocks than records exist.
std::uint32_t BlockHistoryTable::take_entry(std::uint64_t key, std::uint64_t tenant) {
  std::uint32_t place = num_used_;
  if (num_used_ < histories_.size()) {
    ++num_used_;
  } else {
    place = oldest_;
    if (place == kNone) return kNone;
    QUIRE_CHECK(histories_[place].num_copies == 0, "only the record of a lost hash is replaced");
    forgotten_until_ = std::max(forgotten_until_, histories_[place].lost_step);
    forget(place);
  }
  histories_[place] = {.key = key, .tenant = tenant};
  std::uint32_t& head = buckets_[bucket(key)];
  links_[place].next_in_bucket = std::exchange(head, place);
  return place;
}

void BlockHistoryTable::forget(std::uint32_t place) {
  unlink(place);
  std::uint32_t* from = &buckets_[bucket(histories_[place].key)];
  while (*from != place) {
    QUIRE_CHECK(*from != kNone, "a record is in the chain of its bucket");
    from = &links_[*from].next_in_bucket;
  }
  *from = links_[place].next_in_bucket;
}

void BlockHistoryTable::push_newest(std::uint32_t place) {
  QUIRE_CHECK(place != newest_ && links_[place].older == kNone && links_[place].newer == kNone, "a lost hash is not in the list yet");
  links_[place].older = newest_;
  links_[place].newer = kNone;
  (newest_ == kNone ? oldest_ : links_[newest_].newer) = place;
  newest_ = place;
}

void BlockHistoryTable::check_invariants() const {
  std::uint32_t num_chained = 0, num_lost = 0;
  for (std::uint32_t head = 0; head < buckets_.size(); ++head) {
    for (std::uint32_t place = buckets_[head]; place != kNone; place = links_[place].next_in_bucket) {
      QUIRE_CHECK(place < num_used_ && ++num_chained <= num_used_, "a record in use is in one chain");
      QUIRE_CHECK(bucket(histories_[place].key) == head, "a record is in the chain of its own bucket");
      num_lost += histories_[place].num_copies == 0 ? 1 : 0;
    }
  }
  QUIRE_CHECK(num_chained == num_used_ && num_used_ <= histories_.size(), "each entry in use has a record");
  std::uint32_t before = kNone;
  for (std::uint32_t place = oldest_; place != kNone; place = links_[place].newer) {
    QUIRE_CHECK(histories_[place].num_copies == 0 && links_[place].older == before,
                "the list of lost hashes is linked both ways and contains no stored hash");
    QUIRE_CHECK(before == kNone || histories_[before].lost_at <= histories_[place].lost_at,
                "the list of lost hashes begins with the oldest loss");
    before = place;
    QUIRE_CHECK(num_lost > 0, "a lost hash is in the list once");
    --num_lost;
  }
  QUIRE_CHECK(before == newest_ && num_lost == 0, "the list contains all lost hashes and ends with the newest");
}

// Removes the entry from the list of lost hashes. Does nothing if the entry is not in the list.
void BlockHistoryTable::unlink(std::uint32_t place) {
  Link& link = links_[place];
  if (place != oldest_ && link.older == kNone) return;
  QUIRE_CHECK((place == oldest_ ? oldest_ : links_[link.older].newer) == place,
              "neighbours in the list of lost hashes are linked both ways");
  (place == oldest_ ? oldest_ : links_[link.older].newer) = link.newer;
  (place == newest_ ? newest_ : links_[link.newer].older) = link.older;
  link.older = link.newer = kNone;
}

}  // namespace quire
