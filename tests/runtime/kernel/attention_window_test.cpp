#include "runtime/kernel/attention_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// Makes NaN of the keys and values of positions 0 .. end - 1.
void spoil(Cache& cache, std::uint32_t end) {
  std::vector<std::int64_t> slots(end);
  const std::uint32_t size = cache.layer.block_size;
  for (std::uint32_t t = 0; t < end; ++t) slots[t] = std::int64_t{cache.blocks[t / size].value} * size + t % size;
  const std::vector<float> nans(end * cache.row, NAN);
  select_kernels(KernelIsa::reference).write_kv(cache.layer, nans.data(), nans.data(), cache.row, slots);
}

// Windows and soft caps, chunks of any size: the bits of the plain table and the value of double precision; what lies before the window of
// the first row may be anything, and its blocks may be others' by now.
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
    spoil(cache, window_begin(queries.window, queries.first_position));
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1000);
    for (std::uint32_t d = 0; d < 32; ++d) ASSERT_NEAR(expected[row * cache.row * group + d], exact[d], cache.tolerance());
    for (const Kernels* kernels : available_kernels())
      for (const std::uint32_t rows_per_item : {1U, 1 + random_below(rng, 60), 1000U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected))
            << kernels->name << " length " << length << " window " << queries.window << " rows " << rows_per_item;
  }
}

TEST(Attention, AWindowThatHoldsEverythingIsNone) {
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
    EXPECT_FALSE(same_bits(attend(*kernels, cache, queries, 100), expected)) << kernels->name << ": the last row lacks position 0";
  }
}

// A sink that no score comes near takes everything, one far below all scores nothing; between them the value of double precision.
TEST(Attention, SinksTakeTheirShare) {
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
