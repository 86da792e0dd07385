// Compares the bits of every kernel with a record, so that machines can be compared. tests/golden/kernel_digests.txt holds one digest per
// kernel, format and shape, equal for every instruction set. Inputs come from base/random.h, which gives the same numbers everywhere.
// QUIRE_RECORD_DIGESTS=1 kernel_test --gtest_filter='*Digests*' records the file again with the reference kernels.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "runtime/kernel/kernel_fixtures.h"
#include "runtime/kernel/numeric_family.h"

namespace quire {
namespace {

using namespace kernel_test;

constexpr const char* kRecord = "tests/golden/kernel_digests.txt";

using Digests = std::map<std::string, std::string>;

template <class T>
std::string digest_of(const std::vector<T>& values) {
  return to_hex(Sha256::of(std::as_bytes(std::span(values)))).substr(0, 16);
}

std::vector<float> uniform(Random& random, std::size_t n, float range) {
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(2.0 * random.unit() - 1.0) * range;
  return values;
}

PackedMatrix make_matrix(Random& random, const WeightCase& kind, std::uint32_t rows, std::uint32_t columns) {
  MatrixPacker packer(packer_format(kind.format), rows, columns, kTestTable);
  const bool q8 = kind.format == WeightFormat::q8;
  const auto scale = [&](float range) {
    const float value = uniform(random, 1, range)[0];
    return kind.exact_in_f16 ? f16_to_float(float_to_f16_truncated(value)) : value;
  };
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (kind.format == WeightFormat::f32 || kind.format == WeightFormat::bf16) {
      packer.put_f32(row, uniform(random, columns, 0.1F));
      continue;
    }
    std::vector<std::uint8_t> codes(columns);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random.below(q8 ? 256 : 16));
    std::vector<float> scales(columns / (q8 ? 16 : 32)), minimums(scales.size());
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const bool repeat = q8 && !kind.halves && i % 2 == 1;
      scales[i] = repeat ? scales[i - 1] : scale(0.02F);
      if (kind.format == WeightFormat::q4_signed) {
        minimums[i] = -8.0F * scales[i];
        continue;
      }
      minimums[i] = !kind.minimums ? 0.0F : repeat ? minimums[i - 1] : scale(0.1F);
    }
    q8 ? packer.put_q8(row, codes, scales, minimums) : packer.put_q4(row, codes, scales, minimums);
  }
  return packer.finish();
}

void add_elementwise(const Kernels& kernels, Digests& digests) {
  for (const std::uint32_t n : {1U, 17U, 64U, 576U, 1536U}) {
    Random random(n);
    const std::vector<float> a = uniform(random, n, 8.0F), b = uniform(random, n, 1.0F);
    std::vector<float> out(n);
    const std::string size = " n=" + std::to_string(n);
    kernels.rms_norm(a.data(), b.data(), 1e-5F, out.data(), n);
    digests["rms_norm" + size] = digest_of(out);
    kernels.silu_mul(uniform(random, n, 100.0F).data(), b.data(), out.data(), n);
    digests["silu_mul" + size] = digest_of(out);
    kernels.gelu_mul(a.data(), b.data(), out.data(), n);
    digests["gelu_mul" + size] = digest_of(out);
    kernels.swiglu_limited(a.data(), b.data(), 0.7F, out.data(), n);
    digests["swiglu_limited" + size] = digest_of(out);
    out = a;
    kernels.soft_cap(out.data(), 3.0F, n);
    digests["soft_cap" + size] = digest_of(out);
    out = a;
    kernels.add(out.data(), b.data(), n);
    digests["add" + size] = digest_of(out);
    kernels.scale(out.data(), 0.22F, n);
    digests["scale" + size] = digest_of(out);
  }
  for (const auto& [name, style] : {std::pair("half_split", RopeStyle::half_split), {"interleaved", RopeStyle::interleaved}}) {
    Random random(1);
    std::vector<float> x = uniform(random, std::size_t{3} * 64, 4.0F);
    const std::vector<float> cosines = uniform(random, 24, 1.0F);  // drawn in this order by every compiler
    const std::vector<float> sines = uniform(random, 24, 1.0F);
    kernels.rope(style, x.data(), 3, 64, 48, cosines.data(), sines.data());
    digests[std::string("rope ") + name] = digest_of(x);
  }
}

void add_products(const Kernels& kernels, Digests& digests) {
  for (const WeightCase& kind : weight_cases()) {
    if (kind.units || kind.format == WeightFormat::q6) continue;  // other encodings of the same numbers
    for (const auto& [m, rows, columns] : {std::tuple(1U, 40U, 576U), {5U, 17U, 96U}, {70U, 33U, 64U}}) {
      Random random(m + columns);
      const PackedMatrix w = make_matrix(random, kind, rows, columns);
      const std::vector<float> x = uniform(random, std::size_t{m} * columns, 3.0F);
      for (const auto& [name, mode] : {std::pair("f32", ActivationMode::f32),
                                       {"int16", ActivationMode::int16},
                                       {"int8", ActivationMode::int8},
                                       {"bf16", ActivationMode::bf16}}) {
        if (mode == ActivationMode::bf16 && kind.format != WeightFormat::bf16) continue;  // same as f32
        AlignedVector<std::byte> scratch(activation_scratch_bytes(mode, m, columns));
        const Activations prepared = make_activations(mode, x.data(), columns, m, columns, scratch);
        kernels.prepare(prepared, 0, m);
        std::vector<float> y(std::size_t{m} * rows);
        kernels.matmul(w, prepared, y.data(), rows, 0, w.num_panels());
        const std::string shape = " m=" + std::to_string(m) + " n=" + std::to_string(rows) + " k=" + std::to_string(columns);
        digests[std::string("matmul ") + kind.name + " " + name + shape] = digest_of(y);
      }
    }
  }
}

// A cache with one KV head; its tokens are in blocks 1, 2, ... of 16 tokens.
struct DigestCache {
  DigestCache(const Kernels& kernels, Random& random, KvDtype dtype, std::uint32_t head_dim, std::uint32_t tokens) {
    const std::uint32_t num_blocks = (tokens - 1) / 16 + 1;
    layer = {.dtype = dtype, .block_size = 16, .num_kv_heads = 1, .head_dim = head_dim};
    layer.token_stride = row_elements(dtype, head_dim);
    layer.head_stride = layer.block_stride = std::size_t{16} * layer.token_stride;
    for (auto* bytes : {&keys, &values}) bytes->resize((num_blocks + 1) * layer.block_stride * element_bytes(dtype));
    layer.keys = keys.data();
    layer.values = values.data();
    std::vector<std::int64_t> slots;
    for (std::uint32_t t = 0; t < tokens; ++t) slots.push_back(16 + t);
    for (std::uint32_t i = 0; i < num_blocks; ++i) blocks.push_back(BlockId{i + 1});
    const std::vector<float> k = uniform(random, std::size_t{tokens} * head_dim, 2.0F), v = uniform(random, k.size(), 2.0F);
    kernels.write_kv(layer, k.data(), v.data(), head_dim, slots);
  }

  PagedKvLayer layer;
  std::vector<std::byte> keys, values;
  std::vector<BlockId> blocks;
};

std::vector<float> attend(const Kernels& kernels, const DigestCache& cache, AttentionItem item, bool in_pieces) {
  const std::uint32_t dim = cache.layer.head_dim;
  AlignedVector<std::byte> scratch(attention_scratch_bytes(dim, item.group));
  std::vector<float> out(item.rows * item.q_stride);
  item.out = out.data();
  item.out_stride = item.q_stride;
  item.blocks = cache.blocks.data();
  item.scale = 0.25F;
  item.end_segment = item.first_position / kSegmentTokens + 1;
  std::vector<float> partials(item.end_segment * attention_partial_floats(dim, item.group));
  if (in_pieces) item.partials = partials.data();
  kernels.attend(cache.layer, item, scratch);
  if (in_pieces) kernels.join_segments(cache.layer, item);
  return out;
}

void add_attention(const Kernels& kernels, Digests& digests) {
  using Kind = std::tuple<const char*, KvDtype, bool>;
  for (const auto& [name, dtype, in_pairs] : {Kind("bf16", KvDtype::bf16, false), Kind("f32", KvDtype::f32, false),
                                              Kind("int8", KvDtype::int8, false), Kind("bf16 in pairs", KvDtype::bf16, true)}) {
    for (const auto& [dim, group] : {std::pair(16U, 1U), {48U, 2U}, {64U, 3U}, {80U, 5U}, {128U, 4U}, {256U, 1U}, {576U, 2U}}) {
      for (const auto& [rows, length] : {std::pair(1U, 1U), {1U, 700U}, {35U, 530U}}) {
        Random random(dim + length);
        const DigestCache cache(kernels, random, dtype, dim, length);
        const std::vector<float> q = uniform(random, std::size_t{rows} * group * dim, 2.0F);
        const std::vector<float> sinks = uniform(random, group, 4.0F);
        const AttentionItem item{.q = q.data(),
                                 .q_stride = std::size_t{group} * dim,
                                 .rows = rows,
                                 .first_position = length - rows,
                                 .group = group,
                                 .in_pairs = in_pairs};
        const std::string key = std::string(" ") + name + " dim=" + std::to_string(dim) + " group=" + std::to_string(group) +
                                " rows=" + std::to_string(rows) + " tokens=" + std::to_string(length);
        digests["attend" + key] = digest_of(attend(kernels, cache, item, false));
        if (rows == 1) digests["attend in pieces" + key] = digest_of(attend(kernels, cache, item, true));
        AttentionItem windowed = item;
        windowed.window = 150;
        windowed.soft_cap = 1.5F;
        digests["attend in a window" + key] = digest_of(attend(kernels, cache, windowed, false));
        windowed.sinks = sinks.data();
        digests["attend with sinks" + key] = digest_of(attend(kernels, cache, windowed, false));
      }
    }
    Random random(3);
    const DigestCache cache(kernels, random, dtype, 32, 40);
    digests[std::string("write_kv ") + name] = digest_of(cache.keys) + digest_of(cache.values);
  }
}

// Adds the kernels of state layers, over rows that continue from a state.
void add_states(const Kernels& kernels, Digests& digests) {
  for (const std::uint32_t rows : {1U, 13U}) {
    Random random(rows);
    const std::string size = " rows=" + std::to_string(rows);
    const std::vector<float> x = uniform(random, std::size_t{rows} * 48, 2.0F), weights = uniform(random, std::size_t{4} * 48, 1.0F);
    std::vector<float> out(x.size()), state = uniform(random, std::size_t{3} * 48, 2.0F);
    kernels.causal_conv({.x = x.data(),
                         .x_stride = 48,
                         .out = out.data(),
                         .out_stride = 48,
                         .weights = weights.data(),
                         .bias = weights.data(),
                         .before = state.data(),
                         .after = state.data(),
                         .channels = 48,
                         .rows = rows,
                         .taps = 4,
                         .silu = true},
                        0, 48);
    digests["causal_conv" + size] = digest_of(out) + digest_of(state);
    const std::vector<float> lanes = uniform(random, std::size_t{rows} * kScanLanes, 2.0F),
                             b = uniform(random, std::size_t{rows} * 24, 1.0F), c = uniform(random, std::size_t{rows} * 24, 1.0F),
                             rates = uniform(random, rows, 0.9F);
    std::vector<float> decays = uniform(random, rows, 0.4F), y(lanes.size());
    for (float& decay : decays) decay += 0.5F;
    state = uniform(random, std::size_t{24} * kScanLanes, 1.0F);
    kernels.selective_scan({.x = lanes.data(),
                            .y = y.data(),
                            .stride = kScanLanes,
                            .b = b.data(),
                            .c = c.data(),
                            .group_stride = 24,
                            .steps = rates.data(),
                            .decays = decays.data(),
                            .step_stride = 1,
                            .decay_stride = 1,
                            .before = state.data(),
                            .after = state.data(),
                            .skip = 0.7F,
                            .size = 24,
                            .rows = rows});
    digests["selective_scan" + size] = digest_of(y) + digest_of(state);
    kernels.delta_rule({.v = lanes.data(),
                        .y = y.data(),
                        .stride = kScanLanes,
                        .queries = b.data(),
                        .keys = c.data(),
                        .group_stride = 24,
                        .decays = decays.data(),
                        .rates = rates.data(),
                        .rate_stride = 1,
                        .before = state.data(),
                        .after = state.data(),
                        .size = 24,
                        .rows = rows});
    digests["delta_rule" + size] = digest_of(y) + digest_of(state);
    kernels.sigmoid_mul(x.data(), x.data() + 1, out.data(), 40);
    digests["sigmoid_mul" + size] = digest_of(out);
  }
}

Digests digests_of(const Kernels& kernels) {
  Digests digests;
  add_elementwise(kernels, digests);
  add_products(kernels, digests);
  add_attention(kernels, digests);
  add_states(kernels, digests);
  return digests;
}

// Reads lines of a name, a tab and a digest.
Digests read_record() {
  Digests record;
  std::ifstream in(kRecord);
  for (std::string line; std::getline(in, line);) {
    const auto tab = line.find('\t');
    if (tab != std::string::npos) record[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return record;
}

void write_record() {
  std::ofstream out(kRecord);
  for (const auto& [name, digest] : digests_of(select_kernels(KernelIsa::reference))) out << name << '\t' << digest << '\n';
  ASSERT_TRUE(out.good()) << kRecord;
}

class KernelDigests : public testing::TestWithParam<KernelIsa> {};

TEST_P(KernelDigests, EqualTheRecord) {
  const auto kernels = find_kernels(GetParam());
  if (!kernels) GTEST_SKIP() << isa_name(GetParam()) << " did not run: " << kernels.error().message;
  if (std::getenv("QUIRE_RECORD_DIGESTS") != nullptr && GetParam() == KernelIsa::reference) write_record();
  const Digests record = read_record();
  const Digests digests = digests_of(**kernels);
  EXPECT_GT(record.size(), 100U) << kRecord;
  EXPECT_EQ(digests.size(), record.size());
  for (const auto& [name, digest] : digests) {
    const auto found = record.find(name);
    EXPECT_EQ(digest, found == record.end() ? "not in the record" : found->second) << name << " on " << (*kernels)->name;
  }
  std::printf("instruction set %s ran: %zu digests compared\n", (*kernels)->name, digests.size());
}

// Blocks on disk are bound to the numeric family: with other bits they must not be found.
TEST(NumericFamily, IsTheDigestOfTheRecord) {
  std::ifstream in(kRecord);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(kNumericFamily, to_hex(Sha256::of(std::as_bytes(std::span(text)))).substr(0, 16)) << "src/runtime/kernel/numeric_family.h";
}

INSTANTIATE_TEST_SUITE_P(InstructionSet, KernelDigests, testing::ValuesIn(kIsasOfBuild),
                         [](const auto& test) { return isa_name(test.param); });

}  // namespace
}  // namespace quire
