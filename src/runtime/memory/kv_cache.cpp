// The memory of all KV pages: one mapping, created with an engine or worker. The system allocates memory pages when blocks are first
// written, so unused parts of a large cache cost only address space. The class has no locks: the plan decides when a block is written, and
// transports handle fences.
#include "runtime/memory/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Returns whether the cache fits into the address space, without an overflow in total_bytes().
bool fits(const KvLayout& layout) {
  // Size of the address space of a process.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 47U;
  std::uint64_t block = 0;
  for (const std::uint64_t page : layout.page_bytes)
    if (__builtin_add_overflow(block, page, &block)) return false;
  std::uint64_t bytes = 0;
  return !__builtin_mul_overflow(block, layout.num_blocks, &bytes) && bytes < kMost;
}

}  // namespace

Result<KvCache> KvCache::create(KvLayout layout) {
  if (!fits(layout))
    return fail(ErrorCode::invalid_argument, "num_blocks", fmt::format("{} blocks exceed the address space", layout.num_blocks),
                "use fewer blocks");
  const std::uint64_t bytes = layout.total_bytes();
  if (bytes == 0) return fail(ErrorCode::invalid_argument, "num_blocks", "the KV cache has a size of 0 bytes", "use at least one block");
  KvCache cache(std::move(layout));
  // A mapping begins at a memory page, so its alignment is more than 64 bytes.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::io, "kv_cache_bytes", fmt::format("cannot reserve {} bytes: {}", bytes, std::strerror(errno)),
                "use a smaller KV cache");
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  // MAP_NORESERVE: a machine without enough memory fails when a block is first written, not here.
  cache.data_ = static_cast<std::byte*>(data);
  return cache;
}

KvCache::KvCache(KvLayout layout) : layout_(std::move(layout)) {
  std::uint64_t begin = 0;
  for (const std::uint64_t page : layout_.page_bytes) {
    tensor_begin_.push_back(begin);
    begin += page * layout_.num_blocks;
  }
}

KvCache::~KvCache() {
  release();
}

KvCache::KvCache(KvCache&& other) noexcept
    : layout_(std::move(other.layout_)), tensor_begin_(std::move(other.tensor_begin_)), data_(std::exchange(other.data_, nullptr)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  if (this == &other) return *this;
  release();
  layout_ = std::move(other.layout_);
  tensor_begin_ = std::move(other.tensor_begin_);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

void KvCache::release() noexcept {
  if (data_ != nullptr) munmap(data_, layout_.total_bytes());
  data_ = nullptr;
}

std::byte* KvCache::keys(std::uint32_t layer) const {
  QUIRE_CHECK(layer < layout_.layers.size(), "the layer exists");
  return data_ + tensor_begin_[layout_.layers[layer].tensor];
}

std::byte* KvCache::values(std::uint32_t layer) const {
  return keys(layer) + layout_.layers[layer].values_offset * layout_.element_bytes();
}

float* KvCache::states(std::uint32_t layer) const {
  return reinterpret_cast<float*>(keys(layer));
}

std::span<std::byte> KvCache::page(std::uint32_t tensor, BlockId block) const {
  QUIRE_CHECK(tensor < tensor_begin_.size() && block.value < layout_.num_blocks, "the tensor and the block exist");
  const std::uint64_t bytes = layout_.page_bytes[tensor];
  return {data_ + tensor_begin_[tensor] + block.value * bytes, bytes};
}

KvPages KvCache::pages() const {
  KvPages pages{.layout = &layout_, .tensors = {}};
  for (const std::uint64_t begin : tensor_begin_) pages.tensors.push_back(data_ + begin);
  return pages;
}

void KvCache::zero(BlockId block) {
  for (std::uint32_t tensor = 0; tensor < tensor_begin_.size(); ++tensor) std::ranges::fill(page(tensor, block), std::byte{0});
}

void KvCache::copy(BlockId source, BlockId destination) {
  QUIRE_CHECK(source != destination && destination != kNullBlock, "the destination is a different block, and not the null block");
  for (std::uint32_t tensor = 0; tensor < tensor_begin_.size(); ++tensor)
    std::ranges::copy(page(tensor, source), page(tensor, destination).begin());
}

void KvCache::copy_state(std::uint32_t layer, BlockId source, BlockId destination) {
  QUIRE_CHECK(source != destination && destination != kNullBlock, "the destination is a different block, and not the null block");
  const KvLayerLayout& kept = layout_.layers[layer];
  QUIRE_CHECK(kept.state_bytes > 0, "the layer has a state");
  std::ranges::copy(page(kept.tensor, source).first(kept.state_bytes), page(kept.tensor, destination).begin());
}

}  // namespace quire
