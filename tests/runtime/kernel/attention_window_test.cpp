#include <sys/mman.h>

#include "runtime/kernel/attention_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// Sets the keys and values of positions 0 .. end - 1 to NaN.
void fill_with_nan(Cache& cache, std::uint32_t end) {
  std::vector<std::int64_t> slots(end);
  const std::uint32_t size = cache.layer.block_size;
  for (std::uint32_t t = 0; t < end; ++t) slots[t] = std::int64_t{cache.blocks[t / size].value} * size + t % size;
  const std::vector<float> nans(end * cache.row, NAN);
  select_kernels(KernelIsa::reference).write_kv(cache.layer, nans.data(), nans.data(), cache.row, slots);
}

// Windows and soft caps with chunks of any size must have the bits of the reference table and be close to double precision. Tokens before
// the window of the first row may be anything, and their blocks may belong to other requests.
TEST(Attention, WindowsAndCapsKeepTheContract) {
  Rng rng(61);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t length = 1 + random_below(rng, round % 3 == 0 ? 1400 : 200);
    const std::uint32_t group = 1 + random_below(rng, 4);
    Cache cache(rng, any_kind(rng), 1 + random_below(rng, 20), 1 + random_below(rng, 2), 32, length);
    Queries queries = random_queries(rng, cache, group, 1 + random_below(rng, std::min(length, 50U)));
    queries.window = 1 + random_below(rng, round % 5 == 0 ? 2000 : 100);
    queries.soft_cap = round % 4 == 0 ? 0.0F : 2.0F;
    const std::uint32_t row = random_below(rng, queries.rows);
    const std::vector<double> exact = exact_row(cache, queries, row, 0);
    fill_with_nan(cache, window_begin(queries.window, queries.first_position));
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1000);
    for (std::uint32_t d = 0; d < 32; ++d) ASSERT_NEAR(expected[row * cache.row * group + d], exact[d], cache.tolerance());
    for (const Kernels* kernels : available_kernels())
      for (const std::uint32_t rows_per_item : {1U, 1 + random_below(rng, 60), 1000U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected))
            << kernels->name << " length " << length << " window " << queries.window << " rows " << rows_per_item;
  }
}

// A copy of a cache whose blocks fill whole pages. Blocks entirely before `begin` are protected: reading one crashes the program.
class GuardedCache {
 public:
  GuardedCache(const Cache& cache, std::uint32_t begin) : layer(cache.layer), bytes_(cache.blocks.size() * kPage) {
    const std::size_t size = element_bytes(cache.layer.dtype), block_bytes = cache.layer.head_stride * size;
    EXPECT_EQ(block_bytes, kPage);
    layer.block_stride = layer.head_stride;
    const std::byte* const from[] = {cache.layer.keys, cache.layer.values};
    std::byte** const to[] = {&layer.keys, &layer.values};
    for (std::size_t i = 0; i < 2; ++i) {
      void* const pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      EXPECT_NE(pages, MAP_FAILED);
      pages_[i] = static_cast<std::byte*>(pages);
      *to[i] = pages_[i];
      for (std::size_t block = 0; block < cache.blocks.size(); ++block)
        std::memcpy(pages_[i] + block * kPage, from[i] + cache.blocks[block].value * cache.layer.block_stride * size, block_bytes);
      const std::size_t num_gone = begin / cache.layer.block_size;
      if (num_gone > 0) EXPECT_EQ(mprotect(pages_[i], num_gone * kPage, PROT_NONE), 0);
    }
    for (std::uint32_t block = 0; block < cache.blocks.size(); ++block) blocks.push_back(BlockId{block});
  }
  ~GuardedCache() {
    for (std::byte* pages : pages_) munmap(pages, bytes_);
  }
  GuardedCache(const GuardedCache&) = delete;
  GuardedCache& operator=(const GuardedCache&) = delete;

  PagedKvLayer layer;
  std::vector<BlockId> blocks;

 private:
  static constexpr std::size_t kPage = 4096;
  const std::size_t bytes_;
  std::byte* pages_[2]{};
};

// Blocks before the window of a chunk's first row may belong to other requests, which may write them at the same time.
TEST(Attention, ReadsNoBlockBeforeTheWindow) {
  Rng rng(64);
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t length = 100 + random_below(rng, round % 3 == 0 ? 1400 : 200);
    Cache cache(rng, Kind{KvDtype::f32, false}, 16, 1, 64, length);
    Queries queries = random_queries(rng, cache, 1 + random_below(rng, 4), 1 + random_below(rng, 50));
    queries.window = 1 + random_below(rng, 90);
    const GuardedCache guarded(cache, window_begin(queries.window, queries.first_position));
    for (const Kernels* kernels : available_kernels()) {
      const std::vector<float> expected = attend(*kernels, cache, queries, 1000);
      Cache read = cache;
      read.layer = guarded.layer;
      read.blocks = guarded.blocks;
      ASSERT_TRUE(same_bits(attend(*kernels, read, queries, 1000), expected)) << kernels->name << " length " << length;
    }
  }
}

TEST(Attention, AWindowThatCoversEverythingEqualsNoWindow) {
  Rng rng(62);
  const Cache cache(rng, Kind{KvDtype::bf16}, 16, 1, 64, 600);
  Queries queries = random_queries(rng, cache, 3, 100);
  for (const Kernels* kernels : available_kernels()) {
    queries.window = 0;
    const std::vector<float> expected = attend(*kernels, cache, queries, 100);
    for (const std::uint32_t window : {600U, 601U, ~0U}) {
      queries.window = window;
      EXPECT_TRUE(same_bits(attend(*kernels, cache, queries, 100), expected)) << kernels->name;
    }
    queries.window = 599;
    EXPECT_FALSE(same_bits(attend(*kernels, cache, queries, 100), expected)) << kernels->name << ": the last row does not see position 0";
  }
}

// A sink far above all scores takes the whole weight; one far below takes nothing. Between them the result is close to double precision.
TEST(Attention, SinksTakeTheirShareOfTheWeight) {
  Rng rng(63);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t length = 1 + random_below(rng, round % 3 == 0 ? 1400 : 200);
    const std::uint32_t group = 1 + random_below(rng, 4);
    const std::uint32_t kv_heads = 1 + random_below(rng, 2);
    const Cache cache(rng, any_kind(rng), 1 + random_below(rng, 20), kv_heads, 32, length);
    Queries queries = random_queries(rng, cache, group, 1 + random_below(rng, std::min(length, 50U)));
    queries.window = round % 4 == 0 ? 0 : 1 + random_below(rng, 300);
    queries.sinks = random_floats(rng, std::size_t{group} * kv_heads, round % 5 == 0 ? 30.0F : 2.0F);
    const std::uint32_t row = random_below(rng, queries.rows);
    const std::uint32_t head = random_below(rng, group * kv_heads);
    const std::vector<double> exact = exact_row(cache, queries, row, head);
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1000);
    const std::size_t at = (row * group * kv_heads + head) * std::size_t{32};
    for (std::uint32_t d = 0; d < 32; ++d) ASSERT_NEAR(expected[at + d], exact[d], cache.tolerance()) << "sink " << queries.sinks[head];
    for (const Kernels* kernels : available_kernels())
      for (const std::uint32_t rows_per_item : {1U, 1 + random_below(rng, 60), 1000U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected))
            << kernels->name << " length " << length << " rows " << rows_per_item;
  }
}

}  // namespace
}  // namespace quire
