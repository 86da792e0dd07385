#pragma once
// Answers of /v1/responses that clients may come back to: by `previous_response_id`, or to read them once more.
#include <cstdint>
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
  std::string body;             // the answer as it was told
  std::string input;            // JSON array: the items of its request
  std::string conversation;     // JSON array: the chat's messages, without instructions, up to and with the answer
  std::vector<TokenId> tokens;  // of prompt and answer

  [[nodiscard]] std::uint64_t num_bytes() const;
};

// Every member may be called from any thread. Each tenant finds its own only.
class ResponseStore {
 public:
  // 0: nothing is kept.
  explicit ResponseStore(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] bool is_on() const { return max_bytes_ > 0; }
  // Those that were not asked for the longest go when there is no room; one that is larger than the whole store is not kept.
  void put(std::string_view tenant, std::shared_ptr<const StoredResponse> response);
  // Null: never kept, or gone.
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(std::string_view tenant, std::string_view id);
  // False: there was none.
  bool erase(std::string_view tenant, std::string_view id);
  [[nodiscard]] std::uint64_t num_bytes() const;

 private:
  using Key = std::pair<std::string, std::string>;  // tenant, id
  struct Entry {
    Key key;
    std::shared_ptr<const StoredResponse> response;
  };
  // Into `dropped`, to be freed without the lock.
  void drop(std::list<Entry>::iterator entry, std::list<Entry>& dropped);

  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the latest asked for first
  std::map<Key, std::list<Entry>::iterator> by_key_;
  std::uint64_t num_bytes_ = 0;
};

}  // namespace quire
