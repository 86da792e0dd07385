#pragma once
// Fake adapter folders: a test sets the content of each folder, and no file is read.
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/adapters/adapter_registry.h"

namespace quire::test {

class MadeAdapters {
 public:
  // Sets the content of the folder from now on.
  void put(const std::string& folder, std::string digest) {
    const std::lock_guard lock(mutex_);
    folders_[folder] = std::move(digest);
  }
  void remove(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    folders_.erase(folder);
  }
  // Called while a folder is read, without any lock.
  void before_read(std::function<void(const std::string& folder)> hook) { hook_ = std::move(hook); }
  [[nodiscard]] int num_reads() const { return num_reads_; }

  // This object must outlive the loader.
  AdapterLoader loader() {
    return [this](const std::string& folder) { return read(folder); };
  }

 private:
  Result<std::shared_ptr<const Adapter>> read(const std::string& folder) {
    ++num_reads_;
    if (hook_) hook_(folder);
    const std::lock_guard lock(mutex_);
    const auto found = folders_.find(folder);
    if (found == folders_.end()) return fail(ErrorCode::not_found, "lora_path", "there is no folder " + folder, "give one");
    auto adapter = std::make_shared<Adapter>();
    adapter->digest = found->second;
    adapter->rank = 8;
    return adapter;
  }

  std::mutex mutex_;
  std::map<std::string, std::string> folders_;
  std::function<void(const std::string& folder)> hook_;
  std::atomic<int> num_reads_ = 0;
};

}  // namespace quire::test
