#pragma once
// Stores answers of /v1/responses. Clients continue a stored answer with `previous_response_id`, or read it again.
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct StoredResponse {
  std::string id;
  std::string body;             // the answer as it was sent
  std::string input;            // JSON array: the input items of the request
  std::string conversation;     // JSON array: the chat's messages without instructions, including the answer
  std::vector<TokenId> tokens;  // tokens of the prompt and the answer

  [[nodiscard]] std::uint64_t num_bytes() const;
};

// Thread-safe. A tenant finds only its own responses.
class ResponseStore {
 public:
  // Stores nothing if `max_bytes` is 0.
  explicit ResponseStore(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] bool is_on() const { return max_bytes_ > 0; }
  // Stores a response. If the store is full, evicts the least recently used responses of the tenant with the most bytes. A tenant that uses
  // at most an even share of the store therefore loses no response to other tenants. Does not store a response that is still too large
  // after all other responses of its tenant are evicted.
  void put(std::string_view tenant, std::shared_ptr<const StoredResponse> response);
  // Returns null if the response was never stored or has been removed.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(std::string_view tenant, std::string_view id);
  // Returns false if the tenant has no such response.
  bool erase(std::string_view tenant, std::string_view id);
  [[nodiscard]] std::uint64_t num_bytes() const;

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id
  struct Entry {
    Key key;
    std::shared_ptr<const StoredResponse> response;
  };
  struct Tenant {
    std::list<Entry> entries;  // most recently used first
    std::uint64_t num_bytes = 0;
  };
  // Moves an entry to `dropped`, so that the caller can free it after it has released the lock. mutex_ must be held.
  void drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped);

  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::map<Key, std::list<Entry>::iterator> by_key_;
  std::uint64_t num_bytes_ = 0;
};

}  // namespace quire
