#pragma once
// Caches the results of schema checks, because agents send the same tools in each turn.
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "quire/base/error.h"

namespace quire {

// Thread-safe.
class SchemaMemory {
 public:
  // Returns the result of check_schema(), or the cached result for the same schema.
  [[nodiscard]] Result<void> check(const std::string& schema, bool is_loose);

 private:
  static constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // limit for all cached schemas

  using Known = std::pair<std::string, Result<void>>;
  std::mutex mutex_;
  // Most recently used first.
  std::list<Known> known_;
  std::unordered_map<std::string, std::list<Known>::iterator> by_schema_;
  std::size_t num_bytes_ = 0;
};

}  // namespace quire
