#pragma once
// Stores answers of /v1/responses. Clients use them later by `previous_response_id`, or read them again.
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
  std::string input;            // JSON array: the items of its request
  std::string conversation;     // JSON array: the chat's messages without instructions, including the answer
  std::vector<TokenId> tokens;  // of prompt and answer

  [[nodiscard]] std::uint64_t num_bytes() const;
};

// Every function may be called on any thread. A tenant finds only its own responses.
class ResponseStore {
 public:
  // 0: nothing is stored.
  explicit ResponseStore(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] bool is_on() const { return max_bytes_ > 0; }
  // Stores a response. When the store is full, the tenant with the most bytes loses its least recently used response. A tenant therefore
  // never evicts responses that another tenant keeps within an even share. A response that exceeds its tenant's possible share is not
  // stored.
  void put(std::string_view tenant, std::shared_ptr<const StoredResponse> response);
  // Returns null if the response was never stored or has been removed.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(std::string_view tenant, std::string_view id);
  // Returns false if there is no such response.
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
  // Moves an entry to `dropped`, so that it is freed without the lock. mutex_ must be held.
  void drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped);

  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::map<Key, std::list<Entry>::iterator> by_key_;
  std::uint64_t num_bytes_ = 0;
};

}  // namespace quire
