#pragma once
// The KV tensors of every layer in one allocation.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/kv_layout.h"
#include "quire/transport.h"

namespace quire {

// Owns the memory; zero-filled and taken from the system page by page as it is first written. The object is not synchronised: writers of
// different blocks may run at the same time.
class KvCache {
 public:
  // Errors: `invalid_argument` (no bytes, or more than any memory has), `io` (the system has not that much memory).
  static Result<KvCache> create(KvLayout layout);

  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  // Of a layer of the model, to be read with the strides of its KvLayerLayout. 64-byte aligned if pages are a multiple of 64 bytes (always
  // so in the first tensor's keys).
  [[nodiscard]] std::byte* keys(std::uint32_t layer) const;
  [[nodiscard]] std::byte* values(std::uint32_t layer) const;
  // Of a layer with a state, that in block 0; those of other blocks are block_stride floats apart.
  [[nodiscard]] float* states(std::uint32_t layer) const;

  // What a block has in a tensor, opaque.
  [[nodiscard]] std::span<std::byte> page(std::uint32_t tensor, BlockId block) const;
  // Of all blocks; valid while this object lives and is not moved.
  [[nodiscard]] KvPages pages() const;
  // In every tensor.
  void zero(BlockId block);
  void copy(BlockId source, BlockId destination);
  // The state of one layer.
  void copy_state(std::uint32_t layer, BlockId source, BlockId destination);

 private:
  // Without memory; create() maps it.
  explicit KvCache(KvLayout layout);
  void release() noexcept;

  KvLayout layout_;
  std::vector<std::uint64_t> tensor_begin_;  // bytes
  std::byte* data_ = nullptr;
};

}  // namespace quire
