#pragma once
// The bytes of a packed matrix: owned, or a part of a mapped file. The file stays mapped as long as a matrix refers to it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "runtime/kernel/aligned.h"

namespace quire {

class PackedStorage {
 public:
  PackedStorage() = default;
  // `bytes` must start on a cache line and must not change while `owner` lives.
  PackedStorage(std::shared_ptr<const void> owner, std::span<const std::uint8_t> bytes) : owner_(std::move(owner)), mapped_(bytes) {}

  [[nodiscard]] const std::uint8_t* data() const { return owner_ == nullptr ? own_.data() : mapped_.data(); }
  [[nodiscard]] std::size_t size() const { return owner_ == nullptr ? own_.size() : mapped_.size(); }
  [[nodiscard]] std::uint8_t operator[](std::size_t index) const { return data()[index]; }
  [[nodiscard]] bool is_mapped() const { return owner_ != nullptr; }

  // Returns the owned bytes, for writing. Drops the reference to mapped bytes.
  AlignedVector<std::uint8_t>& own() {
    owner_ = {};
    mapped_ = {};
    return own_;
  }

  friend bool operator==(const PackedStorage& a, const PackedStorage& b) {
    return std::ranges::equal(std::span(a.data(), a.size()), std::span(b.data(), b.size()));
  }

 private:
  AlignedVector<std::uint8_t> own_;
  std::shared_ptr<const void> owner_;
  std::span<const std::uint8_t> mapped_;
};

}  // namespace quire
