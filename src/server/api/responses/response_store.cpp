#include "server/api/responses/response_store.h"

namespace quire {

std::uint64_t StoredResponse::num_bytes() const {
  constexpr std::uint64_t kOverhead = 512;  // keys, nodes and the allocator's own
  return kOverhead + body.size() + input.size() + conversation.size() + tokens.size() * sizeof(TokenId);
}

void ResponseStore::put(std::string_view tenant, std::shared_ptr<const StoredResponse> response) {
  const std::uint64_t num_bytes = response->num_bytes();
  if (num_bytes > max_bytes_) return;
  const std::scoped_lock lock(mutex_);
  Key key{tenant, response->id};
  if (const auto old = by_key_.find(key); old != by_key_.end()) drop(old->second);
  // Ends, since one that is larger than all was turned away above.
  while (num_bytes_ + num_bytes > max_bytes_) drop(std::prev(entries_.end()));
  entries_.push_front({key, std::move(response)});
  by_key_.emplace(std::move(key), entries_.begin());
  num_bytes_ += num_bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view tenant, std::string_view id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(Key{tenant, id});
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view tenant, std::string_view id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(Key{tenant, id});
  if (found == by_key_.end()) return false;
  drop(found->second);
  return true;
}

std::uint64_t ResponseStore::num_bytes() const {
  const std::scoped_lock lock(mutex_);
  return num_bytes_;
}

void ResponseStore::drop(std::list<Entry>::iterator entry) {
  num_bytes_ -= entry->response->num_bytes();
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace quire
