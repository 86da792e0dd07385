// The lock is held for looking up and for turning lists round: a thread of the job pool that holds it may be stopped, and the server's then
// waits. What is large is made before, and freed behind: what was dropped is declared before the lock, so that it outlives it.
#include "server/api/responses/response_store.h"

#include <iterator>

namespace quire {

std::uint64_t StoredResponse::num_bytes() const {
  constexpr std::uint64_t kOverhead = 512;  // keys, nodes and the allocator's own
  return kOverhead + body.size() + input.size() + conversation.size() + tokens.size() * sizeof(TokenId);
}

void ResponseStore::put(std::string_view tenant, std::shared_ptr<const StoredResponse> response) {
  const std::uint64_t num_bytes = response->num_bytes();
  if (num_bytes > max_bytes_) return;
  std::list<Entry> fresh, dropped;
  fresh.push_front({Key(tenant, response->id), std::move(response)});
  const std::scoped_lock lock(mutex_);
  if (const auto old = by_key_.find(fresh.front().key); old != by_key_.end()) drop(old->second, dropped);
  // Ends, since one that is larger than all was turned away above.
  while (num_bytes_ + num_bytes > max_bytes_) drop(std::prev(entries_.end()), dropped);
  entries_.splice(entries_.begin(), fresh);
  by_key_.emplace(entries_.front().key, entries_.begin());
  num_bytes_ += num_bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view tenant, std::string_view id) {
  const Key key{tenant, id};
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view tenant, std::string_view id) {
  const Key key{tenant, id};
  std::list<Entry> dropped;
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  drop(found->second, dropped);
  return true;
}

std::uint64_t ResponseStore::num_bytes() const {
  const std::scoped_lock lock(mutex_);
  return num_bytes_;
}

void ResponseStore::drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped) {
  num_bytes_ -= entry->response->num_bytes();
  by_key_.erase(entry->key);
  dropped.splice(dropped.begin(), entries_, entry);
}

}  // namespace quire
