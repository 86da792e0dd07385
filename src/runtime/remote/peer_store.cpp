#include "runtime/remote/peer_store.h"

#include <utility>

#include "base/check.h"

namespace quire {

void PeerStore::use(std::uint32_t place, const Use& use) {
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(place < uses_.size(), "a slot number is below the number of slots");
  uses_[place] = use;
}

void PeerStore::submit(TierJob job) {
  Use use;
  {
    const std::lock_guard lock(mutex_);
    QUIRE_CHECK(job.place < uses_.size(), "a slot number is below the number of slots");
    use = uses_[job.place];
  }
  const bool is_store = job.verb == TierJob::Verb::store;
  QUIRE_CHECK(is_store ? server_ != nullptr : fetcher_ != nullptr, "a producer stores blocks, and a consumer loads blocks");
  if (is_store)
    server_->keep(use.ticket, use.index, std::move(job));
  else
    fetcher_->add(use.ticket, use.index, std::move(job));
}

}  // namespace quire
