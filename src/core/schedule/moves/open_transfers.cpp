// Records transfers that have begun and not ended. Changed while a plan is completed and when a result reports ended transfers, on the
// core's thread. Only close() removes a transfer. Until then its blocks count as in use, even if its request has ended.
#include "core/schedule/moves/open_transfers.h"

#include <algorithm>

#include "base/check.h"
#include "base/rules.h"

namespace quire {

std::optional<Transfer> OpenTransfers::open(const Transfer& transfer) {
  QUIRE_CHECK(transfer.blocks.size() == transfer.places.size(), "each block of a transfer has a slot outside");
  if (entries_.size() >= max_open_) return std::nullopt;
  Entry entry;
  if (!spare_.empty()) {
    entry = std::move(spare_.back());
    spare_.pop_back();
  }
  entry.id = next_id_;
  entry.request = transfer.request;
  entry.direction = transfer.direction;
  entry.need = transfer.need;
  entry.tier = transfer.tier;
  entry.blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  entry.places.assign(transfer.places.begin(), transfer.places.end());
  QUIRE_CHECK(entries_.empty() || entries_.back().id < entry.id, "transfer ids increase");
  ++next_id_.value;
  count(entry, 1);
  num_needed_ += is_needed(entry) ? 1 : 0;
  const Entry& kept = entries_.emplace_back(std::move(entry));
  Transfer opened = transfer;
  opened.id = kept.id;
  opened.blocks = kept.blocks;
  opened.places = kept.places;
  return opened;
}

const OpenTransfers::Entry* OpenTransfers::find(TransferId id) const {
  const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
  return found != entries_.end() && found->id == id ? &*found : nullptr;
}

void OpenTransfers::close(TransferId id) {
  const auto found = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
  QUIRE_CHECK(found != entries_.end() && found->id == id, "only an open transfer is closed");
  count(*found, -1);
  QUIRE_CHECK(!is_needed(*found) || num_needed_ > 0, "the number of loads that a step needs is correct");
  num_needed_ -= is_needed(*found) ? 1 : 0;
  spare_.push_back(std::move(*found));
  entries_.erase(found);
}

bool OpenTransfers::is_being_loaded(BlockId block) const {
  QUIRE_CHECK(block.value < num_touching_.size(), "the queried block is in the pool");
  return num_touching_[block.value] > 0 && std::ranges::any_of(entries_, [&](const Entry& entry) {
           return entry.direction == TransferDirection::load && std::ranges::find(entry.blocks, block) != entry.blocks.end();
         });
}

void OpenTransfers::add_fences(BlockId block, TransferId first_new, std::vector<TransferId>& fences) const {
  QUIRE_CHECK(block.value < num_touching_.size(), "a written block is in the pool");
  if (num_touching_[block.value] == 0) return;
  for (const Entry& entry : entries_) {
    const bool begins_behind = entry.id >= first_new && entry.direction == TransferDirection::load;
    if (!begins_behind && std::ranges::find(entry.blocks, block) != entry.blocks.end() &&
        std::ranges::find(fences, entry.id) == fences.end())
      fences.push_back(entry.id);
  }
}

void OpenTransfers::count(const Entry& entry, std::int32_t by) {
  for (const BlockId block : entry.blocks) {
    QUIRE_CHECK(block != kNullBlock && block.value < num_touching_.size(), "a transferred block is in the pool and is not the null block");
    QUIRE_CHECK(by > 0 || num_touching_[block.value] > 0, "a block is released as often as it was taken");
    num_touching_[block.value] += static_cast<std::uint32_t>(by);
  }
}

void OpenTransfers::check_invariants() const {
  check_rules(broken_rule());
}

const Rule* OpenTransfers::broken_rule() const {
  std::vector<std::uint32_t> touching(num_touching_.size(), 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    QUIRE_RULE(entries_[i].id < next_id_ && (i == 0 || entries_[i - 1].id < entries_[i].id),
               "open transfers are in the order of their ids");
    for (const BlockId block : entries_[i].blocks) ++touching[block.value];
  }
  QUIRE_RULE(touching == num_touching_ && entries_.size() <= max_open_, "the number of transfers of each block is correct");
  QUIRE_RULE(num_needed_ == static_cast<std::size_t>(std::ranges::count_if(entries_, is_needed)),
             "the number of loads that a step needs is correct");
  return nullptr;
}

bool OpenTransfers::count_all() {
  for (const Entry& entry : entries_) {
    const auto is_of_pool = [this](BlockId block) { return block != kNullBlock && block.value < num_touching_.size(); };
    if (entry.blocks.size() != entry.places.size() || !std::ranges::all_of(entry.blocks, is_of_pool)) return false;
    count(entry, 1);
    num_needed_ += is_needed(entry) ? 1 : 0;
  }
  return true;
}

}  // namespace quire
