#include "server/request/schema_memory.h"

#include "quire/base/structured_output.h"

namespace quire {

Result<void> SchemaMemory::check(const std::string& schema, bool is_loose) {
  const std::string key = (is_loose ? "1" : "0") + schema;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_schema_.find(key); found != by_schema_.end()) {
      known_.splice(known_.begin(), known_, found->second);
      return found->second->second;
    }
  }
  Result<void> checked = check_schema(schema, is_loose);
  const std::lock_guard lock(mutex_);
  if (by_schema_.contains(key)) return checked;
  known_.emplace_front(key, checked);
  by_schema_.emplace(key, known_.begin());
  num_bytes_ += key.size();
  while (num_bytes_ > kMaxBytes && known_.size() > 1) {
    num_bytes_ -= known_.back().first.size();
    by_schema_.erase(known_.back().first);
    known_.pop_back();
  }
  return checked;
}

}  // namespace quire
