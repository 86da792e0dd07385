// A pass allocates nothing, whatever its mix of prefill and decode. The counter sees every operator new of this test program.
// (ThreadSanitizer has an operator new of its own, which cannot be replaced: there is no such test then.)
#if defined(__has_feature)
#define QUIRE_HAS_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define QUIRE_HAS_TSAN 1
#else
#define QUIRE_HAS_TSAN 0
#endif

#if !QUIRE_HAS_TSAN
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1);
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace quire {
namespace {

TEST(NoAllocation, APassOfManyRequestsAllocatesNothing) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "mixed");
  for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::f32}) {
    tiny::Rig rig(folder.file("model.gguf"), {.activations = mode, .kv = KvDtype::bf16});
    for (std::uint32_t slot = 0; slot < 4; ++slot) rig.give_blocks(Slot{slot}, tiny::blocks_for(64, 16, 1 + slot, 4));
    const std::vector<TokenId> tokens(50, 7);
    std::vector<float> logits(4 * rig.vocab());
    const std::vector<BatchSequence> prefill{{Slot{0}, 0, 25}, {Slot{1}, 0, 20}, {Slot{2}, 0, 5}};
    const std::vector<BatchSequence> mixed{{Slot{0}, 25, 1}, {Slot{1}, 20, 1}, {Slot{2}, 5, 40}, {Slot{3}, 0, 8}};
    const std::vector<std::uint32_t> none, last{0, 1, 41, 49};
    const std::uint64_t before = allocations.load();
    rig.model().forward({tokens, prefill, none}, rig.cache(), rig.tables(), {});
    rig.model().forward({tokens, mixed, last}, rig.cache(), rig.tables(), logits);
    EXPECT_EQ(allocations.load() - before, 0U);
  }
}

}  // namespace
}  // namespace quire
#endif
