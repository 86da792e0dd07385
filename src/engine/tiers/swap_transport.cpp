#include "engine/tiers/swap_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {

SwapTransport::SwapTransport(std::shared_ptr<MemoryTransport> memory, const std::shared_ptr<DiskStore>& store, double timeout_seconds)
    : memory_(std::move(memory)),
      files_(store, timeout_seconds),
      num_memory_slots_(memory_ == nullptr ? 0 : memory_->num_places()),
      numbers_(store->num_places()) {}

void SwapTransport::attach(const KvPages& pages, std::function<void()> notify) {
  if (memory_ != nullptr) memory_->attach(pages, notify);
  files_.attach(pages, std::move(notify));
}

void SwapTransport::start(const Transfer& transfer) {
  Part near, far;
  for (std::size_t i = 0; i < transfer.blocks.size(); ++i) {
    const auto place = static_cast<std::uint32_t>(transfer.places[i]);
    const bool is_near = place < num_memory_slots_;
    (is_near ? near : far).blocks.push_back(transfer.blocks[i]);
    (is_near ? near : far).places.push_back(is_near ? place : assign_number(transfer, place - num_memory_slots_));
  }
  OpenTransfer& open = open_[transfer.id];
  open.completion.transfer = transfer.id;
  open.num_left = (near.blocks.empty() ? 0U : 1U) + (far.blocks.empty() ? 0U : 1U);
  for (auto [part, transport] : {std::pair<Part*, Transport*>(&near, memory_.get()), {&far, &files_}}) {
    if (part->blocks.empty()) continue;
    Transfer begun = transfer;
    begun.blocks = part->blocks;
    begun.places = part->places;
    transport->start(begun);
  }
}

// Returns the number that Transfer::places has for a slot in files. A store assigns a new key to the slot, so that its previous block is
// not found any more.
std::uint64_t SwapTransport::assign_number(const Transfer& transfer, std::uint32_t place) {
  QUIRE_CHECK(place < numbers_.size(), "the slot exists");
  if (transfer.direction == TransferDirection::store) {
    OffloadKey name{.hash = {}, .group = transfer.group};
    ++last_number_;
    std::memcpy(name.hash.data(), &last_number_, sizeof last_number_);
    numbers_[place] = files_.assign(place, name);
  }
  return numbers_[place];
}

void SwapTransport::poll(std::vector<TransferCompletion>& over) {
  reported_.clear();
  if (memory_ != nullptr) {
    parts_.clear();
    memory_->poll(parts_);
    take(parts_);
  }
  parts_.clear();
  files_.poll(parts_);
  take(parts_);
  for (OpenTransfer& open : reported_) {
    over.push_back(open.completion);
    if (open.lists_failed_blocks) over.back().bad_blocks = open.bad;
  }
}

void SwapTransport::take(std::vector<TransferCompletion>& parts) {
  for (const TransferCompletion& part : parts) {
    const auto found = open_.find(part.transfer);
    QUIRE_CHECK(found != open_.end() && found->second.num_left > 0, "each part of a transfer ends once");
    OpenTransfer& open = found->second;
    open.completion.bytes += part.bytes;
    open.completion.seconds = std::max(open.completion.seconds, part.seconds);
    if (part.outcome == TransferOutcome::failed) {
      open.completion.outcome = TransferOutcome::failed;
      open.lists_failed_blocks &= !part.bad_blocks.empty();
      open.bad.insert(open.bad.end(), part.bad_blocks.begin(), part.bad_blocks.end());
    }
    if (--open.num_left > 0) continue;
    reported_.push_back(std::move(open));
    open_.erase(found);
  }
}

void SwapTransport::wait(TransferId transfer) {
  if (memory_ != nullptr) memory_->wait(transfer);
  files_.wait(transfer);
}

void SwapTransport::detach() {
  if (memory_ != nullptr) memory_->detach();
  files_.detach();
}

}  // namespace quire
