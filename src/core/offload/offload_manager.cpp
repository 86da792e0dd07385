#include "quire/offload_manager.h"

#include "base/check.h"
#include "core/offload/offload_ledger.h"

namespace quire {

Result<std::unique_ptr<OffloadManager>> OffloadManager::create(const OffloadOptions& options) {
  if (options.restores)
    return fail(ErrorCode::unsupported, "restores", "OffloadManager does not support restored blocks", "set restores to false");
  auto ledger = OffloadLedger::create(options);
  if (!ledger) return std::unexpected(std::move(ledger.error()));
  return std::unique_ptr<OffloadManager>(new OffloadManager(*std::move(ledger)));
}

OffloadManager::OffloadManager(std::unique_ptr<OffloadLedger> ledger) : ledger_(std::move(ledger)) {
  QUIRE_CHECK(ledger_ != nullptr, "the manager has a ledger");
}
OffloadManager::~OffloadManager() = default;

std::uint32_t OffloadManager::lookup(std::span<const OffloadKey> keys) {
  return ledger_->lookup(keys);
}
std::vector<OffloadState> OffloadManager::find(std::span<const OffloadKey> keys) const {
  std::vector<OffloadState> states;
  states.reserve(keys.size());
  for (const OffloadKey& key : keys) {
    const std::optional<std::int32_t> count = ledger_->ref_count(key);
    states.push_back(!count ? OffloadState::absent : *count < 0 ? OffloadState::storing : OffloadState::stored);
  }
  return states;
}
Result<std::span<const OffloadSlot>> OffloadManager::prepare_load(std::span<const OffloadKey> keys) {
  return ledger_->prepare_load(keys);
}
Result<void> OffloadManager::complete_load(std::span<const OffloadKey> keys) {
  return ledger_->complete_load(keys);
}
void OffloadManager::touch(std::span<const OffloadKey> keys) {
  ledger_->touch(keys);
}
void OffloadManager::use(std::span<const OffloadKey> keys) {
  ledger_->use(keys);
}
std::optional<PreparedStore> OffloadManager::prepare_store(std::span<const OffloadKey> keys) {
  return ledger_->prepare_store(keys);
}
void OffloadManager::complete_store(std::span<const OffloadKey> keys, bool success) {
  ledger_->complete_store(keys, success);
}
bool OffloadManager::discard(const OffloadKey& key) {
  return ledger_->discard(key);
}

std::size_t OffloadManager::num_events() const {
  return ledger_->num_events();
}
OffloadEvent OffloadManager::event(std::size_t position) const {
  return ledger_->event(position);
}
void OffloadManager::clear_events() {
  ledger_->clear_events();
}

std::uint32_t OffloadManager::num_slots() const {
  return ledger_->num_slots();
}
std::uint32_t OffloadManager::num_free() const {
  return ledger_->num_free();
}

OffloadOrder OffloadManager::order() const {
  PolicySnapshot snapshot = ledger_->snapshot();
  return {.lists = std::move(snapshot.lists), .target_t1_size = snapshot.target_t1_size};
}

std::vector<CountedKey> OffloadManager::counted() const {
  std::vector<CountedKey> counted;
  if (ledger_->filter() != nullptr)
    for (const ReuseFilter::Counted& one : ledger_->filter()->snapshot()) counted.push_back({.key = one.key, .count = one.count});
  return counted;
}

void OffloadManager::check_invariants() const {
  ledger_->check_invariants();
}

}  // namespace quire
