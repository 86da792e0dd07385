// A slot is in one of these states; only the calls named move it.
//   unread -> ready, free                   restore
//   fresh -> storing                        prepare_store, lowest slot first, before any free one
//   free -> storing                         prepare_store, the last freed first
//   storing -> ready                        complete_store
//   storing -> free                         complete_store without success
//   ready -> loading -> ready               prepare_load, complete_load, as often as there are loads
//   ready -> free                           prepare_store, for others (eviction); discard
//   storing -> lost                         prepare_store of a key given twice
// Storing, ready and loading slots are resident: they have a key and a place in the policy's order. Only ready ones are evictable.
// Called by the offloading connector, or by a host through OffloadManager, on one thread. Policies only order slots: that none in transfer
// is evicted is seen to here, by what is evictable, and checked on what a policy gives, since policies may come from elsewhere.
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

std::unique_ptr<EvictionPolicy> make_policy(const OffloadOptions& options, std::uint32_t num_slots, const KeyIndex& keys) {
  if (options.own_policy) return options.own_policy(num_slots, keys);
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
  QUIRE_CHECK(false, "a policy that is known");
}

std::unexpected<Error> bad_key(std::size_t position, const char* what) {
  return fail(ErrorCode::invalid_argument, fmt::format("keys[{}]", position), what, "give only keys that lookup counted");
}

}  // namespace

Result<OffloadPolicy> parse_offload_policy(std::string_view name) {
  if (name == "lru") return OffloadPolicy::lru;
  if (name == "arc") return OffloadPolicy::arc;
  if (name == "arc_paper") return OffloadPolicy::arc_paper;
  if (name == "s3fifo") return OffloadPolicy::s3fifo;
  return fail(ErrorCode::invalid_argument, "eviction_policy", fmt::format("there is no policy \"{}\"", name),
              "give lru, arc, arc_paper or s3fifo");
}

Result<std::unique_ptr<OffloadLedger>> OffloadLedger::create(const OffloadOptions& options) {
  if (options.num_slots < 0 || options.num_slots > kMaxSlots)
    return fail(ErrorCode::invalid_argument, "num_slots", fmt::format("{} is out of range", options.num_slots), "give 0 to 268435456");
  if (options.max_pending_event_keys < 0) {
    return fail(ErrorCode::invalid_argument, "max_pending_event_keys", fmt::format("{} is negative", options.max_pending_event_keys),
                "give 0 or more");
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
  QUIRE_CHECK(policy_ != nullptr, "a factory makes a policy");
  free_.reserve(num_slots_);
}

std::uint32_t OffloadLedger::lookup(std::span<const OffloadKey> keys) {
  if (filter_) filter_->count(keys);
  // A gap ends it: blocks behind one cannot be used without the one before.
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
    if (slot == kNoIndex) return bad_key(i, "it is not in the tier");
    if (ref_counts_[slot] == kStoring) return bad_key(i, "it is still being stored");
    slots_.push_back(OffloadSlot{slot});
  }
  for (const OffloadSlot slot : slots_) {
    QUIRE_CHECK(ref_counts_[slot.value] >= 0, "what is loaded has been stored");
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
      // What was given back so far is taken again, so that an error changes nothing.
      for (const OffloadSlot taken : slots_) ++ref_counts_[taken.value];
      return bad_key(i, "it is not being loaded");
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
      policy_->touch_absent(keys[i]);
}

void OffloadLedger::use(std::span<const OffloadKey> keys) {
  for (std::size_t i = keys.size(); i-- > 0;)
    if (const std::uint32_t slot = index_.find(keys[i]); slot != kNoIndex) policy_->use(slot);
}

std::optional<PreparedStore> OffloadLedger::prepare_store(std::span<const OffloadKey> keys) {
  if (filter_) keys = filter_->eligible(keys);
  slots_.clear();
  evicted_.clear();
  evicted_keys_.clear();
  if (!collect_missing(keys)) return std::nullopt;
  const auto count = static_cast<std::uint32_t>(keys_.size());
  if (!make_room(keys, count - std::min(count, num_free()))) return std::nullopt;
  QUIRE_CHECK(count <= num_free(), "room was made");
  for (const OffloadKey& key : keys_) {
    const std::uint32_t slot = take_slot();
    begin_store(key, slot);
    slots_.push_back(OffloadSlot{slot});
  }
  return PreparedStore{.keys = keys_, .slots = slots_, .evicted = evicted_keys_};
}

// False: there are more than slots.
bool OffloadLedger::collect_missing(std::span<const OffloadKey> keys) {
  keys_.clear();
  for (const OffloadKey& key : keys) {
    if (index_.find(key) != kNoIndex) continue;
    if (keys_.size() == num_slots_) return false;
    keys_.push_back(key);
  }
  return true;
}

bool OffloadLedger::make_room(std::span<const OffloadKey> keys, std::uint32_t count) {
  if (count == 0) return policy_->evict(0, keys_, evicted_);
  if (num_unread_ > 0) return false;
  set_protected(keys, true);
  const bool found = policy_->evict(count, keys_, evicted_);
  set_protected(keys, false);
  QUIRE_CHECK(evicted_.size() == (found ? count : 0), "a policy gives as many as it was asked for, or none");
  for (const std::uint32_t slot : evicted_) {
    QUIRE_CHECK(slot < num_slots_ && ref_counts_[slot] == 0 && index_.find(index_.key_of(slot)) == slot, "only evictable slots are given");
    evicted_keys_.push_back(index_.key_of(slot));
    release(slot);
  }
  if (found) add_event(evicted_keys_, true);
  return found;
}

void OffloadLedger::set_protected(std::span<const OffloadKey> keys, bool is_protected) {
  for (const OffloadKey& key : keys)
    if (const std::uint32_t slot = index_.find(key); slot != kNoIndex && ref_counts_[slot] == 0)
      policy_->set_evictable(slot, !is_protected);
}

std::uint32_t OffloadLedger::take_slot() {
  QUIRE_CHECK(num_taken_ <= num_slots_, "slots were taken from the lowest on");
  if (num_taken_ < num_slots_) return num_taken_++;
  QUIRE_CHECK(!free_.empty(), "free slots are counted before they are taken");
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void OffloadLedger::begin_store(const OffloadKey& key, std::uint32_t slot) {
  QUIRE_CHECK(slot < num_slots_, "a slot of the tier");
  ref_counts_[slot] = kStoring;
  const std::uint32_t old = index_.find(key);
  if (old == kNoIndex) {
    index_.insert(key, slot);
    policy_->insert(slot);
    return;
  }
  QUIRE_CHECK(old != slot, "a slot that is taken was free");
  index_.remove(old);
  index_.insert(key, slot);
  policy_->replace(old, slot);
  ++num_lost_;
}

void OffloadLedger::release(std::uint32_t slot) {
  QUIRE_CHECK(ref_counts_[slot] <= 0, "nobody reads a slot that is given back");
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
  QUIRE_CHECK(slot.value < num_slots_ && ref_counts_[slot.value] == kUnread, "a slot is told of once");
  QUIRE_CHECK(num_unread_ > 0, "slots that nobody has told of are counted");
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
  const OffloadKey gone = key;  // which may be the index's own
  policy_->remove(slot);
  release(slot);
  add_event({&gone, 1}, true);
  return true;
}

void OffloadLedger::append_next(std::size_t most, std::vector<OffloadKey>& keys) const {
  std::vector<std::uint32_t> slots;
  policy_->append_next(most, slots);
  for (const std::uint32_t slot : slots) {
    QUIRE_CHECK(slot < num_slots_ && ref_counts_[slot] == 0, "only evictable slots are given");
    keys.push_back(index_.key_of(slot));
  }
}

void OffloadLedger::add_event(std::span<const OffloadKey> keys, bool removed) {
  if (!enable_events_ || keys.empty()) return;
  QUIRE_CHECK(event_keys_.size() <= max_pending_event_keys_, "pending events are bounded");
  if (keys.size() > max_pending_event_keys_ - event_keys_.size()) {
    num_lost_event_keys_ += keys.size();
    return;
  }
  event_keys_.insert(event_keys_.end(), keys.begin(), keys.end());
  events_.push_back({event_keys_.size(), removed});
}

OffloadEvent OffloadLedger::event(std::size_t position) const {
  QUIRE_CHECK(position < events_.size(), "an event that is there");
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
  // What a slot had before is not in the index any more, or elsewhere.
  for (std::uint32_t slot = 0; slot < num_taken_; ++slot)
    if (index_.find(index_.key_of(slot)) == slot) keys.push_back(index_.key_of(slot));
  return keys;
}

void OffloadLedger::check_invariants() const {
  policy_->check_invariants();
  QUIRE_CHECK(policy_->num_resident() == index_.size(), "a resident slot has no place in the order");
  QUIRE_CHECK(num_taken_ <= num_slots_ && index_.size() + free_.size() + num_lost_ + num_unread_ == num_taken_, "a slot leaked");
  std::vector<std::uint8_t> is_free(num_taken_);
  for (const std::uint32_t slot : free_) {
    QUIRE_CHECK(slot < num_taken_ && is_free[slot] == 0, "free twice");
    is_free[slot] = 1;
  }
  std::uint32_t num_resident = 0;
  for (std::uint32_t slot = 0; slot < num_taken_; ++slot) {
    if (is_free[slot] != 0 || index_.find(index_.key_of(slot)) != slot) continue;
    ++num_resident;
    QUIRE_CHECK(policy_->is_evictable(slot) == (ref_counts_[slot] == 0), "only ready slots are evictable");
  }
  QUIRE_CHECK(num_resident == index_.size());
  index_.check_invariants();
  if (filter_) filter_->check_invariants();
}

}  // namespace quire
