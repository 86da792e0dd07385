#pragma once
// Maps the handles of the C API to objects. A handle is a number in the form of a pointer. It is never an address, and each number is
// used once, so a handle that was freed or belongs to another table is found as invalid. Thread-safe. An object lives until its handle is
// removed and the last call that uses the object has returned.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace quire {

// Returns a number that no other handle of this process has. Numbers begin above the first pages of memory, because Go stops a program that
// has a small number in a pointer.
inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 20};
  return next.fetch_add(16);
}

// `Handle` is the incomplete type of quire/quire.h.
template <class Handle, class Object>
class HandleTable {
 public:
  Handle* add(std::shared_ptr<Object> object) {
    const std::uintptr_t handle = next_handle();
    const std::scoped_lock lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return reinterpret_cast<Handle*>(handle);  // NOLINT(performance-no-int-to-ptr): a number, see above
  }
  // Returns null if the handle is not valid.
  [[nodiscard]] std::shared_ptr<Object> find(const Handle* handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  // Returns null if the handle is not valid.
  [[nodiscard]] std::shared_ptr<Object> remove(const Handle* handle) {
    const std::scoped_lock lock(mutex_);
    const auto node = objects_.extract(reinterpret_cast<std::uintptr_t>(handle));
    return node.empty() ? nullptr : std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;  // guarded by mutex_
};

}  // namespace quire
