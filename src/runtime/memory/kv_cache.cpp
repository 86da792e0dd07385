#include "runtime/memory/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

bool multiply(std::uint64_t& product, std::uint64_t factor) {
  return !__builtin_mul_overflow(product, factor, &product);
}

// total_bytes() must not have wrapped round.
bool fits(const KvShape& shape) {
  std::uint64_t bytes = 2 * std::uint64_t{shape.element_bytes()};
  return multiply(bytes, shape.num_layers) && multiply(bytes, shape.num_kv_heads) && multiply(bytes, shape.head_dim) &&
         multiply(bytes, shape.block_size) && multiply(bytes, shape.num_blocks) && bytes < (std::uint64_t{1} << 47);
}

}  // namespace

KvShape KvShape::of(const ModelInfo& model, const CacheOptions& cache) {
  return {.num_layers = model.num_layers,
          .num_kv_heads = model.num_kv_heads,
          .head_dim = model.head_dim,
          .block_size = cache.block_size,
          .num_blocks = cache.num_blocks,
          .dtype = cache.dtype};
}

Result<KvCache> KvCache::create(const KvShape& shape) {
  const std::pair<const char*, std::uint32_t> dimensions[] = {{"num_layers", shape.num_layers},
                                                              {"num_kv_heads", shape.num_kv_heads},
                                                              {"head_dim", shape.head_dim},
                                                              {"block_size", shape.block_size},
                                                              {"num_blocks", shape.num_blocks}};
  for (const auto& [name, value] : dimensions)
    if (value == 0) return fail(ErrorCode::invalid_argument, name, "is 0", "give the KV cache at least one");
  if (!fits(shape))
    return fail(ErrorCode::invalid_argument, "num_blocks", fmt::format("{} blocks are beyond any memory", shape.num_blocks));
  KvCache cache(shape);
  // A page is aligned to more than 64 bytes, and untouched pages cost nothing.
  void* data = mmap(nullptr, shape.total_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::io, "kv_cache_bytes", fmt::format("cannot reserve {} bytes: {}", shape.total_bytes(), std::strerror(errno)),
                "give the KV cache less memory");
  }
  madvise(data, shape.total_bytes(), MADV_HUGEPAGE);
  cache.data_ = static_cast<std::byte*>(data);
  return cache;
}

KvCache::~KvCache() {
  release();
}

KvCache::KvCache(KvCache&& other) noexcept : shape_(other.shape_), data_(std::exchange(other.data_, nullptr)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  if (this == &other) return *this;
  release();
  shape_ = other.shape_;
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

void KvCache::release() noexcept {
  if (data_ != nullptr) munmap(data_, shape_.total_bytes());
  data_ = nullptr;
}

std::byte* KvCache::base(std::uint32_t layer, std::uint32_t part) const {
  QUIRE_CHECK(layer < shape_.num_layers, "no such layer");
  const std::uint64_t parts_before = 2 * std::uint64_t{layer} + part;
  return data_ + parts_before * shape_.num_blocks * shape_.block_elements() * shape_.element_bytes();
}

std::byte* KvCache::keys(std::uint32_t layer) const {
  return base(layer, 0);
}

std::byte* KvCache::values(std::uint32_t layer) const {
  return base(layer, 1);
}

std::span<std::byte> KvCache::block_part(std::uint32_t layer, std::uint32_t part, BlockId block) const {
  QUIRE_CHECK(block.value < shape_.num_blocks, "no such block");
  std::byte* first = base(layer, part) + block.value * block_stride() * shape_.element_bytes();
  return {first, shape_.block_elements() * shape_.element_bytes()};
}

std::span<std::byte> KvCache::block_keys(std::uint32_t layer, BlockId block) const {
  return block_part(layer, 0, block);
}

std::span<std::byte> KvCache::block_values(std::uint32_t layer, BlockId block) const {
  return block_part(layer, 1, block);
}

}  // namespace quire
