// Tests what kernel.h promises for every table: kernels do not allocate, disjoint calls may run concurrently, and inputs may have gaps.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/kernel/kernel_fixtures.h"
#include "support/count_allocations.h"

namespace quire {
namespace {

using namespace kernel_test;

// The cache of one request whose block table is the identity, with random contents.
struct SmallCache {
  static constexpr std::uint32_t kBlock = 16, kTokens = 200, kHeads = 2, kDim = 48, kGroup = 3;

  explicit SmallCache(Rng& rng) : k(random_floats(rng, std::size_t{kTokens} * kHeads * kDim)), v(random_floats(rng, k.size())) {
    layer = {.dtype = KvDtype::bf16, .block_size = kBlock, .num_kv_heads = kHeads, .head_dim = kDim};
    layer.token_stride = kDim;
    layer.head_stride = std::size_t{kBlock} * kDim;
    layer.block_stride = layer.head_stride * kHeads;
    for (auto* bytes : {&keys, &values}) bytes->resize(2 * layer.block_stride * (kTokens / kBlock + 1));
    layer.keys = keys.data();
    layer.values = values.data();
    for (std::uint32_t i = 0; i <= kTokens / kBlock; ++i) blocks.push_back(BlockId{i});
    for (std::uint32_t i = 0; i < kTokens; ++i) slots.push_back(i);
  }
  // Returns an item for query rows 0 .. rows - 1 at the end of the request.
  [[nodiscard]] AttentionItem item(const std::vector<float>& q, std::vector<float>& out, std::uint32_t rows, std::uint32_t head) const {
    AttentionItem item{.q = q.data(), .out = out.data(), .rows = rows, .first_position = kTokens - rows, .kv_head = head, .group = kGroup};
    item.q_stride = item.out_stride = kHeads * kGroup * kDim;
    item.blocks = blocks.data();
    return item;
  }

  PagedKvLayer layer;
  AlignedVector<std::byte> keys, values;
  std::vector<BlockId> blocks;
  std::vector<std::int64_t> slots;
  std::vector<float> k, v;
};

TEST(Tables, NoFunctionAllocates) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  Rng rng(51);
  SmallCache cache(rng);
  const MatrixCase matrix = random_matrix(rng, weight_cases()[2], 40, 96);
  std::vector<float> x = random_floats(rng, 96 * 5);
  std::vector<float> y(40 * 5);
  const std::vector<float> q = random_floats(rng, 40 * SmallCache::kHeads * SmallCache::kGroup * SmallCache::kDim);
  std::vector<float> out(q.size());
  const std::vector<float> angles(24, 0.5F);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(SmallCache::kDim, SmallCache::kGroup));
  AlignedVector<std::byte> codes(activation_scratch_bytes(ActivationMode::int16, 5, 96));
  for (const Kernels* kernels : available_kernels()) {
    const std::uint64_t before = test::num_allocations.load();
    const Activations prepared = make_activations(ActivationMode::int16, x.data(), 96, 5, 96, codes);
    kernels->prepare(prepared, 0, 5);
    kernels->matmul(matrix.packed, prepared, y.data(), 40, 0, matrix.packed.num_panels());
    kernels->write_kv(cache.layer, cache.k.data(), cache.v.data(), std::size_t{SmallCache::kHeads} * SmallCache::kDim, cache.slots);
    for (const std::uint32_t rows : {1U, 40U}) kernels->attend(cache.layer, cache.item(q, out, rows, 0), scratch);
    kernels->rms_norm(x.data(), x.data(), 1e-5F, y.data(), 96);
    kernels->rope(RopeStyle::half_split, x.data(), 2, 48, 48, angles.data(), angles.data());
    kernels->silu_mul(x.data(), x.data() + 96, y.data(), 96);
    kernels->add(x.data(), x.data() + 96, 96);
    EXPECT_EQ(test::num_allocations.load() - before, 0U) << kernels->name;
  }
}

TEST(Tables, DisjointCallsMayRunConcurrently) {
  Rng rng(52);
  SmallCache cache(rng);
  const MatrixCase matrix = random_matrix(rng, weight_cases()[2], 40, 96);
  const std::vector<float> x = random_floats(rng, 96 * 6);
  const std::vector<float> q = random_floats(rng, 40 * SmallCache::kHeads * SmallCache::kGroup * SmallCache::kDim);
  const auto panels = matrix.packed.num_panels();
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> one_y(40 * 6), two_y(40 * 6), one_out(q.size()), two_out(q.size());
    AlignedVector<std::byte> codes(activation_scratch_bytes(ActivationMode::int16, 6, 96));
    AlignedVector<std::byte> scratch[2];
    for (auto& bytes : scratch) bytes.resize(attention_scratch_bytes(SmallCache::kDim, SmallCache::kGroup));
    const Activations prepared = make_activations(ActivationMode::int16, x.data(), 96, 6, 96, codes);
    const auto half = [&](std::uint32_t i, std::vector<float>& y, std::vector<float>& out) {
      kernels->matmul(matrix.packed, prepared, y.data(), 40, i == 0 ? 0 : panels / 2, i == 0 ? panels / 2 : panels);
      kernels->attend(cache.layer, cache.item(q, out, 40, i), scratch[i]);
    };
    const auto fill = [&](std::uint32_t i) {  // rows of activations, slots of the cache
      kernels->prepare(prepared, 3 * i, 3 * i + 3);
      const std::size_t stride = std::size_t{SmallCache::kHeads} * SmallCache::kDim;
      const std::size_t first = std::size_t{100} * i;
      kernels->write_kv(cache.layer, cache.k.data() + first * stride, cache.v.data() + first * stride, stride,
                        std::span(cache.slots).subspan(first, 100));
    };
    const auto at_once = [](const auto& work) {
      std::thread other([&] { work(1); });
      work(0);
      other.join();
    };
    at_once(fill);
    at_once([&](std::uint32_t i) { half(i, two_y, two_out); });
    for (const std::uint32_t i : {0U, 1U}) half(i, one_y, one_out);
    EXPECT_TRUE(same_bits(one_y, two_y)) << kernels->name;
    EXPECT_TRUE(same_bits(one_out, two_out)) << kernels->name;
  }
}

TEST(Tables, InputRowsMayHaveGaps) {
  Rng rng(53);
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, 33, 64);
    std::vector<float> dense = random_floats(rng, std::size_t{64} * 5);
    std::vector<float> wide(100 * 5, NAN);
    for (std::size_t row = 0; row < 5; ++row) std::copy_n(&dense[row * 64], 64, &wide[row * 100]);
    for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::f32}) {
      AlignedVector<std::byte> codes(activation_scratch_bytes(mode, 5, 64));
      for (const Kernels* kernels : available_kernels()) {
        std::vector<float> expected(33 * 5), y(33 * 5);
        for (auto& [x, stride, out] : {std::tuple(&dense, 64U, &expected), std::tuple(&wide, 100U, &y)}) {
          const Activations prepared = make_activations(mode, x->data(), stride, 5, 64, codes);
          kernels->prepare(prepared, 0, 5);
          kernels->matmul(matrix.packed, prepared, out->data(), 33, 0, matrix.packed.num_panels());
        }
        EXPECT_TRUE(same_bits(y, expected)) << kind.name << " " << kernels->name;
      }
    }
  }
}

// Each product is the chain of operations that matmul.h defines. The integers here are so small that every step is exact.
TEST(Tables, IntegerProductsEqualExactFloatProducts) {
  Rng rng(54);
  for (const bool q8 : {false, true}) {
    MatrixPacker packer(q8 ? WeightFormat::q8 : WeightFormat::q4, 20, 64);
    std::vector<int> weights(std::size_t{20} * 64);
    for (std::uint32_t row = 0; row < 20; ++row) {
      std::vector<std::uint8_t> codes(64);
      for (std::size_t k = 0; k < 64; ++k) {
        codes[k] = static_cast<std::uint8_t>(rng() % 16);
        weights[row * 64 + k] = q8 ? codes[k] - 128 : codes[k] * 2 - 8;
      }
      if (q8)
        packer.put_q8(row, codes, std::vector<float>(4, 1.0F), std::vector<float>(4, 0.0F));
      else
        packer.put_q4(row, codes, std::vector<float>(2, 2.0F), std::vector<float>(2, -8.0F));
    }
    const PackedMatrix packed = packer.finish();
    std::vector<float> x(64);
    for (float& value : x) value = static_cast<float>(static_cast<int>(rng() % 200) - 100);
    x[5] = x[40] = 32639.0F;  // the scale of both groups is 1
    AlignedVector<std::byte> codes(activation_scratch_bytes(ActivationMode::int16, 1, 64));
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> y(20);
      const Activations prepared = make_activations(ActivationMode::int16, x.data(), 64, 1, 64, codes);
      kernels->prepare(prepared, 0, 1);
      kernels->matmul(packed, prepared, y.data(), 20, 0, packed.num_panels());
      for (std::size_t row = 0; row < 20; ++row) {
        std::int64_t exact = 0;
        for (std::size_t k = 0; k < 64; ++k) exact += weights[row * 64 + k] * static_cast<std::int64_t>(x[k]);
        EXPECT_EQ(y[row], static_cast<float>(exact)) << kernels->name << " q8 " << q8;
      }
    }
  }
}

}  // namespace
}  // namespace quire
