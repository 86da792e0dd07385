#pragma once
// The KV tensors of every layer in one allocation.
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/error.h"
#include "quire/ids.h"
#include "quire/model_info.h"
#include "quire/options.h"

namespace quire {

// Elements lie as [layer][keys, values][block][kv_head][token][dim].
struct KvShape {
  std::uint32_t num_layers = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t num_blocks = 0;   // with the null block
  KvDtype dtype = KvDtype::bf16;

  // num_blocks is taken from `cache` as it is: resolve 0 before.
  static KvShape of(const ModelInfo& model, const CacheOptions& cache);

  [[nodiscard]] std::uint32_t element_bytes() const { return dtype == KvDtype::bf16 ? 2 : 4; }
  // Elements of the keys (or values) of one block in one layer.
  [[nodiscard]] std::uint64_t block_elements() const { return std::uint64_t{num_kv_heads} * block_size * head_dim; }
  // One block over all layers, keys and values.
  [[nodiscard]] std::uint64_t bytes_per_block() const { return 2 * std::uint64_t{num_layers} * block_elements() * element_bytes(); }
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_per_block() * num_blocks; }
};

// Owns the memory; zero-filled and taken from the system page by page as it is first written. The object is not synchronised: writers of
// different blocks may run at the same time.
class KvCache {
 public:
  // Errors: `invalid_argument` (a zero or overflowing dimension), `io` (the system has not that much memory).
  static Result<KvCache> create(const KvShape& shape);

  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] std::uint64_t bytes_per_block() const { return shape_.bytes_per_block(); }

  // Element (block, kv_head, token, d) of a layer is at base + (block * block_stride + kv_head * head_stride + token * token_stride + d) *
  // element_bytes. Bases are 64-byte aligned if a block of one layer is a multiple of 64 bytes (always so in the first layer).
  [[nodiscard]] std::byte* keys(std::uint32_t layer) const;
  [[nodiscard]] std::byte* values(std::uint32_t layer) const;
  [[nodiscard]] std::size_t block_stride() const { return shape_.block_elements(); }  // elements
  [[nodiscard]] std::size_t head_stride() const { return std::size_t{shape_.block_size} * shape_.head_dim; }
  [[nodiscard]] std::size_t token_stride() const { return shape_.head_dim; }

  // Keys (or values) of a block in one layer.
  [[nodiscard]] std::span<std::byte> block_keys(std::uint32_t layer, BlockId block) const;
  [[nodiscard]] std::span<std::byte> block_values(std::uint32_t layer, BlockId block) const;

 private:
  explicit KvCache(const KvShape& shape) : shape_(shape) {}
  [[nodiscard]] std::byte* base(std::uint32_t layer, std::uint32_t part) const;
  [[nodiscard]] std::span<std::byte> block_part(std::uint32_t layer, std::uint32_t part, BlockId block) const;
  void release() noexcept;

  KvShape shape_;
  std::byte* data_ = nullptr;
};

}  // namespace quire
