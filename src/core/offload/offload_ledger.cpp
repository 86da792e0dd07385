// States of a slot, and the only calls that change them:
//   unread -> ready, free                   restore
//   fresh -> storing                        prepare_store, the lowest slot first, before any free slot
//   free -> storing                         prepare_store, the last freed slot first
//   storing -> ready                        complete_store
//   storing -> free                         complete_store without success
//   ready -> loading -> ready               prepare_load, complete_load, once per load
//   ready -> free                           prepare_store for other keys (eviction); discard
//   storing -> lost                         prepare_store of a key that is given twice
// Storing, ready and loading slots are resident: they have a key and a position in the policy's order. Only ready slots are evictable. The
// offloading connector, or a host through OffloadManager, calls the ledger on one thread. A policy only orders slots and may come from a
// user. The ledger therefore reports to the policy which slots are evictable, and checks that the policy does not evict a slot in transfer.
#include "core/offload/offload_ledger.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "core/offload/arc_paper_policy.h"
#include "core/offload/arc_policy.h"
#include "core/offload/lru_policy.h"
#include "core/offload/s3fifo_policy.h"

namespace quire {
namespace {

constexpr std::int32_t kStoring = -1;
constexpr std::int32_t kUnread = -2;
constexpr std::int64_t kMaxSlots = 1 << 28;
constexpr const char* kLookUp = "use only keys that lookup counted";

std::unique_ptr<EvictionPolicy> make_policy(const OffloadOptions& options, std::uint32_t num_slots, const KeyIndex& keys) {
  if (options.custom_policy) return options.custom_policy(num_slots, keys);
  switch (options.policy) {
    case OffloadPolicy::lru:
      return std::make_unique<LruPolicy>(num_slots, keys);
    case OffloadPolicy::arc:
      return std::make_unique<ArcPolicy>(num_slots, keys);
    case OffloadPolicy::arc_paper:
      return std::make_unique<ArcPaperPolicy>(num_slots, keys);
    case OffloadPolicy::s3fifo:
      return std::make_unique<S3FifoPolicy>(num_slots, keys);
  }
  QUIRE_CHECK(false, "the policy is known");
}

std::unexpected<Error> bad_key(std::size_t position, const char* what, const char* remedy) {
  return fail(ErrorCode::invalid_argument, fmt::format("keys[{}]", position), what, remedy);
}

}  // namespace

Result<OffloadPolicy> parse_offload_policy(std::string_view name) {
  if (name == "lru") return OffloadPolicy::lru;
  if (name == "arc") return OffloadPolicy::arc;
  if (name == "arc_paper") return OffloadPolicy::arc_paper;
  if (name == "s3fifo") return OffloadPolicy::s3fifo;
  return fail(ErrorCode::invalid_argument, "eviction_policy", fmt::format("unknown policy \"{}\"", name),
              "use lru, arc, arc_paper or s3fifo");
}

Result<std::unique_ptr<OffloadLedger>> OffloadLedger::create(const OffloadOptions& options) {
  if (options.num_slots < 0 || options.num_slots > kMaxSlots)
    return fail(ErrorCode::invalid_argument, "num_slots", fmt::format("{} is out of range", options.num_slots),
                "use a value from 0 to 268435456");
  if (options.max_pending_event_keys < 0) {
    return fail(ErrorCode::invalid_argument, "max_pending_event_keys",
                fmt::format("must be at least 0, got {}", options.max_pending_event_keys), "use 0 or more");
  }
  std::unique_ptr<ReuseFilter> filter;
  if (options.store_threshold >= 2) {
    auto created = ReuseFilter::create(options.store_threshold, options.max_tracked_keys);
    if (!created) return std::unexpected(std::move(created.error()));
    filter = std::move(*created);
  }
  return std::unique_ptr<OffloadLedger>(new OffloadLedger(options, std::move(filter)));
}

OffloadLedger::OffloadLedger(const OffloadOptions& options, std::unique_ptr<ReuseFilter> filter)
    : num_slots_(static_cast<std::uint32_t>(options.num_slots)),
      num_taken_(options.restores ? num_slots_ : 0),
      num_unread_(num_taken_),
      index_(num_slots_),
      ref_counts_(num_slots_, options.restores ? kUnread : 0),
      policy_(make_policy(options, num_slots_, index_)),
      filter_(std::move(filter)),
      enable_events_(options.enable_events),
      max_pending_event_keys_(static_cast<std::size_t>(options.max_pending_event_keys)) {
  QUIRE_CHECK(policy_ != nullptr, "the factory returns a policy");
  free_.reserve(num_slots_);
}

std::uint32_t OffloadLedger::lookup(std::span<const OffloadKey> keys) {
  if (filter_) filter_->count(keys);
  // The search ends at the first missing key: the blocks after it cannot be used without its block.
  std::uint32_t count = 0;
  for (const OffloadKey& key : keys) {
    const std::uint32_t slot = index_.find(key);
    if (slot == kNoIndex || ref_counts_[slot] == kStoring) break;
    ++count;
  }
  return count;
}

Result<std::span<const OffloadSlot>> OffloadLedger::prepare_load(std::span<const OffloadKey> keys) {
  slots_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint32_t slot = index_.find(keys[i]);
    if (slot == kNoIndex) return bad_key(i, "the key is not in the tier", kLookUp);
    if (ref_counts_[slot] == kStoring) return bad_key(i, "the key is still being stored", kLookUp);
    slots_.push_back(OffloadSlot{slot});
  }
  for (const OffloadSlot slot : slots_) {
    QUIRE_CHECK(ref_counts_[slot.value] >= 0, "a loaded slot was stored before");
    ++ref_counts_[slot.value];
    policy_->set_evictable(slot.value, false);
  }
  return slots_;
}

Result<void> OffloadLedger::complete_load(std::span<const OffloadKey> keys) {
  slots_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint32_t slot = index_.find(keys[i]);
    if (slot == kNoIndex || ref_counts_[slot] <= 0) {
      // Restores the counts that were already changed, so that an error changes nothing.
      for (const OffloadSlot taken : slots_) ++ref_counts_[taken.value];
      return bad_key(i, "the key is not being loaded", "complete each load once");
    }
    --ref_counts_[slot];
    slots_.push_back(OffloadSlot{slot});
  }
  for (const OffloadSlot slot : slots_) policy_->set_evictable(slot.value, ref_counts_[slot.value] == 0);
  return {};
}

void OffloadLedger::touch(std::span<const OffloadKey> keys) {
  for (std::size_t i = keys.size(); i-- > 0;)
    if (const std::uint32_t slot = index_.find(keys[i]); slot != kNoIndex)
      policy_->touch(slot, ref_counts_[slot] != kStoring);
    else
      policy_->touch_missing(keys[i]);
}

void OffloadLedger::use(std::span<const OffloadKey> keys) {
  for (std::size_t i = keys.size(); i-- > 0;)
    if (const std::uint32_t slot = index_.find(keys[i]); slot != kNoIndex) policy_->use(slot);
}

std::optional<PreparedStore> OffloadLedger::prepare_store(std::span<const OffloadKey> keys) {
  if (filter_) keys = filter_->eligible(keys);
  begin_prepare();
  if (!collect_missing(keys)) return std::nullopt;
  const auto count = static_cast<std::uint32_t>(keys_.size());
  if (!make_room(keys, count - std::min(count, num_free()))) return std::nullopt;
  return take_slots(count);
}

PreparedStore OffloadLedger::prepare_store_of_leading(std::span<const OffloadKey> keys, std::span<const OffloadKey> kept) {
  if (filter_) keys = filter_->eligible(keys);
  begin_prepare();
  for (const OffloadKey& key : keys)
    if (index_.find(key) == kNoIndex) keys_.push_back(key);
  set_protected(kept, true);
  set_protected(keys, true);
  const std::uint32_t count = evict_as_many_as_possible();
  set_protected(keys, false);
  set_protected(kept, false);
  if (!evicted_keys_.empty()) add_event(evicted_keys_, true);
  return take_slots(count);
}

void OffloadLedger::begin_prepare() {
  keys_.clear();
  slots_.clear();
  evicted_.clear();
  evicted_keys_.clear();
}

// Assigns slots to the first `count` of `keys_`. Enough slots must be free.
PreparedStore OffloadLedger::take_slots(std::uint32_t count) {
  QUIRE_CHECK(count <= num_free() && count <= keys_.size(), "there are enough free slots and keys");
  const std::span<const OffloadKey> all = keys_;
  for (const OffloadKey& key : all.first(count)) {
    const std::uint32_t slot = take_slot();
    begin_store(key, slot);
    slots_.push_back(OffloadSlot{slot});
  }
  return {.keys = all.first(count), .slots = slots_, .evicted = evicted_keys_, .left = all.subspan(count)};
}

// Makes room for as many leading keys of `keys_` as possible and returns their number. A policy only answers whether it can evict a given
// number of slots, so the largest number is found by bisection. Each key is passed to only one successful evict().
std::uint32_t OffloadLedger::evict_as_many_as_possible() {
  const std::span<const OffloadKey> all = keys_;
  auto most = static_cast<std::uint32_t>(std::min<std::size_t>(all.size(), num_slots_));
  std::uint32_t least = std::min(most, num_free()), num_asked = 0;
  if (num_unread_ > 0) most = least;
  for (std::uint32_t tried = most; least < most; tried = least + (most - least + 1) / 2)
    if (evict(tried - num_free(), all.subspan(num_asked, tried - num_asked)))
      least = num_asked = tried;
    else
      most = tried - 1;
  if (num_asked < least && !evict(0, all.subspan(num_asked, least - num_asked))) return num_asked;
  return least;
}

// Collects the keys without a slot in `keys_`. Returns false if more keys are missing than slots exist.
bool OffloadLedger::collect_missing(std::span<const OffloadKey> keys) {
  for (const OffloadKey& key : keys) {
    if (index_.find(key) != kNoIndex) continue;
    if (keys_.size() == num_slots_) return false;
    keys_.push_back(key);
  }
  return true;
}

bool OffloadLedger::make_room(std::span<const OffloadKey> keys, std::uint32_t count) {
  if (count == 0) return evict(0, keys_);
  if (num_unread_ > 0) return false;
  set_protected(keys, true);
  const bool found = evict(count, keys_);
  set_protected(keys, false);
  if (found) add_event(evicted_keys_, true);
  return found;
}

// Evicts `count` slots and appends their keys to `evicted_keys_`. Returns false and changes nothing if too few slots are evictable.
bool OffloadLedger::evict(std::uint32_t count, std::span<const OffloadKey> incoming) {
  evicted_.clear();
  const bool found = policy_->evict(count, incoming, evicted_);
  QUIRE_CHECK(evicted_.size() == (found ? count : 0), "the policy evicts all requested slots or none");
  for (const std::uint32_t slot : evicted_) {
    QUIRE_CHECK(slot < num_slots_ && ref_counts_[slot] == 0 && index_.find(index_.key_of(slot)) == slot,
                "the policy evicts only evictable slots");
    evicted_keys_.push_back(index_.key_of(slot));
    release(slot);
  }
  return found;
}

void OffloadLedger::set_protected(std::span<const OffloadKey> keys, bool is_protected) {
  for (const OffloadKey& key : keys)
    if (const std::uint32_t slot = index_.find(key); slot != kNoIndex && ref_counts_[slot] == 0)
      policy_->set_evictable(slot, !is_protected);
}

std::uint32_t OffloadLedger::take_slot() {
  QUIRE_CHECK(num_taken_ <= num_slots_, "at most num_slots_ slots are taken");
  if (num_taken_ < num_slots_) return num_taken_++;
  QUIRE_CHECK(!free_.empty(), "there is a free slot");
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void OffloadLedger::begin_store(const OffloadKey& key, std::uint32_t slot) {
  QUIRE_CHECK(slot < num_slots_, "the slot is in the tier");
  ref_counts_[slot] = kStoring;
  const std::uint32_t old = index_.find(key);
  if (old == kNoIndex) {
    index_.insert(key, slot);
    policy_->insert(slot);
    return;
  }
  QUIRE_CHECK(old != slot, "a new slot differs from the old slot of its key");
  index_.remove(old);
  index_.insert(key, slot);
  policy_->replace(old, slot);
  ++num_lost_;
}

void OffloadLedger::release(std::uint32_t slot) {
  QUIRE_CHECK(ref_counts_[slot] <= 0, "a released slot is not being read");
  index_.remove(slot);
  free_.push_back(slot);
}

void OffloadLedger::complete_store(std::span<const OffloadKey> keys, bool success) {
  stored_keys_.clear();
  for (const OffloadKey& key : keys) {
    const std::uint32_t slot = index_.find(key);
    if (slot == kNoIndex || ref_counts_[slot] != kStoring) continue;
    if (success) {
      ref_counts_[slot] = 0;
      policy_->set_evictable(slot, true);
      stored_keys_.push_back(key);
    } else {
      policy_->remove(slot);
      release(slot);
    }
  }
  add_event(stored_keys_, false);
}

bool OffloadLedger::restore(OffloadSlot slot, const OffloadKey* key) {
  QUIRE_CHECK(slot.value < num_slots_ && ref_counts_[slot.value] == kUnread, "a slot is restored once");
  QUIRE_CHECK(num_unread_ > 0, "num_unread_ includes each slot that is not restored yet");
  --num_unread_;
  ref_counts_[slot.value] = 0;
  if (key == nullptr || index_.find(*key) != kNoIndex) {
    free_.push_back(slot.value);
    return false;
  }
  index_.insert(*key, slot.value);
  policy_->insert_oldest(slot.value);
  policy_->set_evictable(slot.value, true);
  add_event({key, 1}, false);
  return true;
}

bool OffloadLedger::discard(const OffloadKey& key) {
  const std::uint32_t slot = index_.find(key);
  if (slot == kNoIndex || ref_counts_[slot] != 0) return false;
  const OffloadKey gone = key;  // `key` may refer to memory of the index
  policy_->remove(slot);
  release(slot);
  add_event({&gone, 1}, true);
  return true;
}

void OffloadLedger::append_next_victims(std::size_t most, std::vector<OffloadKey>& keys) const {
  std::vector<std::uint32_t> slots;
  policy_->append_next_victims(most, slots);
  for (const std::uint32_t slot : slots) {
    QUIRE_CHECK(slot < num_slots_ && ref_counts_[slot] == 0, "the policy returns only evictable slots");
    keys.push_back(index_.key_of(slot));
  }
}

void OffloadLedger::add_event(std::span<const OffloadKey> keys, bool removed) {
  if (!enable_events_ || keys.empty()) return;
  QUIRE_CHECK(event_keys_.size() <= max_pending_event_keys_, "the number of pending event keys is bounded");
  if (keys.size() > max_pending_event_keys_ - event_keys_.size()) {
    num_lost_event_keys_ += keys.size();
    return;
  }
  event_keys_.insert(event_keys_.end(), keys.begin(), keys.end());
  events_.push_back({event_keys_.size(), removed});
}

OffloadEvent OffloadLedger::event(std::size_t position) const {
  QUIRE_CHECK(position < events_.size(), "the event exists");
  const std::size_t begin = position == 0 ? 0 : events_[position - 1].end;
  return {std::span(event_keys_).subspan(begin, events_[position].end - begin), events_[position].removed};
}

void OffloadLedger::clear_events() {
  event_keys_.clear();
  events_.clear();
}

std::optional<std::int32_t> OffloadLedger::ref_count(const OffloadKey& key) const {
  const std::uint32_t slot = index_.find(key);
  return slot == kNoIndex ? std::nullopt : std::optional(ref_counts_[slot]);
}

std::vector<OffloadKey> OffloadLedger::resident_keys() const {
  std::vector<OffloadKey> keys;
  // If a slot was freed, its former key is no longer in the index, or is there with another slot.
  for (std::uint32_t slot = 0; slot < num_taken_; ++slot)
    if (index_.find(index_.key_of(slot)) == slot) keys.push_back(index_.key_of(slot));
  return keys;
}

void OffloadLedger::check_invariants() const {
  policy_->check_invariants();
  QUIRE_CHECK(policy_->num_resident() == index_.size(), "the policy contains each resident slot");
  QUIRE_CHECK(num_taken_ <= num_slots_ && index_.size() + free_.size() + num_lost_ + num_unread_ == num_taken_,
              "each taken slot is resident, free, lost or not restored yet");
  std::vector<std::uint8_t> is_free(num_taken_);
  for (const std::uint32_t slot : free_) {
    QUIRE_CHECK(slot < num_taken_ && is_free[slot] == 0, "a slot is in the free list once");
    is_free[slot] = 1;
  }
  std::uint32_t num_resident = 0;
  for (std::uint32_t slot = 0; slot < num_taken_; ++slot) {
    if (is_free[slot] != 0 || index_.find(index_.key_of(slot)) != slot) continue;
    ++num_resident;
    QUIRE_CHECK(policy_->is_evictable(slot) == (ref_counts_[slot] == 0),
                "a slot is evictable if and only if it is stored and has no references");
  }
  QUIRE_CHECK(num_resident == index_.size());
  index_.check_invariants();
  if (filter_) filter_->check_invariants();
}

}  // namespace quire
