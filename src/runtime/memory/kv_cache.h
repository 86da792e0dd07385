#pragma once
// The KV tensors of all layers in one allocation.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/kv_layout.h"
#include "quire/transport.h"

namespace quire {

// Owns the memory. The memory is zero-filled, and the system allocates its pages at the first write. The object is not synchronised:
// threads may write to different blocks at the same time.
class KvCache {
 public:
  // Maps the memory. Errors: `invalid_argument` (no bytes, or more than the address space), `io` (the system cannot reserve that much).
  static Result<KvCache> create(KvLayout layout);

  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  // Return the keys and values of a model layer, to be read with the strides of its KvLayerLayout. Keys and values are 64-byte aligned if
  // pages are a multiple of 64 bytes; the keys in the first tensor are always aligned.
  [[nodiscard]] std::byte* keys(std::uint32_t layer) const;
  [[nodiscard]] std::byte* values(std::uint32_t layer) const;
  // Returns the states of a layer, beginning with the state in block 0. The states of consecutive blocks are block_stride floats apart.
  [[nodiscard]] float* states(std::uint32_t layer) const;

  // Returns the bytes of a block in a tensor.
  [[nodiscard]] std::span<std::byte> page(std::uint32_t tensor, BlockId block) const;
  // Returns the pages of all blocks; valid while this object lives and is not moved.
  [[nodiscard]] KvPages pages() const;
  // zero() and copy() change a block in every tensor.
  void zero(BlockId block);
  void copy(BlockId source, BlockId destination);
  // Copies the state of one layer.
  void copy_state(std::uint32_t layer, BlockId source, BlockId destination);

 private:
  // Creates a cache without memory; create() maps the memory.
  explicit KvCache(KvLayout layout);
  void release() noexcept;

  KvLayout layout_;
  std::vector<std::uint64_t> tensor_begin_;  // bytes
  std::byte* data_ = nullptr;
};

}  // namespace quire
