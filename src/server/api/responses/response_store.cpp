// Holds the lock only to look up entries and to relink lists. A job pool thread may be preempted while it holds the lock, and the server's
// thread then waits. Large objects are therefore created before the lock is taken and freed after it is released: `dropped` is declared
// before the lock, so it is destroyed after the lock.
#include "server/api/responses/response_store.h"

#include <algorithm>
#include <iterator>

namespace quire {

std::uint64_t StoredResponse::num_bytes() const {
  constexpr std::uint64_t kOverhead = 512;  // keys, nodes and the allocator's overhead
  return kOverhead + body.size() + input.size() + conversation.size() + tokens.size() * sizeof(TokenId);
}

void ResponseStore::put(std::string_view tenant, std::shared_ptr<const StoredResponse> response) {
  const std::uint64_t num_bytes = response->num_bytes();
  if (num_bytes > max_bytes_) return;
  std::list<Entry> fresh, dropped;
  fresh.push_front({Key(tenant, response->id), std::move(response)});
  const std::scoped_lock lock(mutex_);
  if (const auto old = by_key_.find(fresh.front().key); old != by_key_.end()) drop(old->second, dropped);
  Tenant& own = tenants_[fresh.front().key.first];
  const auto size_with_it = [&](const Tenant& one) { return one.num_bytes + (&one == &own ? num_bytes : 0); };
  while (num_bytes_ + num_bytes > max_bytes_) {
    const auto largest = std::ranges::max_element(tenants_, {}, [&](const auto& named) { return size_with_it(named.second); });
    if (largest->second.entries.empty()) return;
    drop(std::prev(largest->second.entries.end()), dropped);
  }
  own.entries.splice(own.entries.begin(), fresh);
  by_key_.emplace(own.entries.front().key, own.entries.begin());
  own.num_bytes += num_bytes;
  num_bytes_ += num_bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view tenant, std::string_view id) {
  const Key key{tenant, id};
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  std::list<Entry>& entries = tenants_.find(tenant)->second.entries;
  entries.splice(entries.begin(), entries, found->second);
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
  const std::uint64_t num_bytes = entry->response->num_bytes();
  Tenant& tenant = tenants_.find(entry->key.first)->second;
  tenant.num_bytes -= num_bytes;
  num_bytes_ -= num_bytes;
  by_key_.erase(entry->key);
  dropped.splice(dropped.begin(), tenant.entries, entry);
}

}  // namespace quire
