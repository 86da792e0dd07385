// NaN or Inf must reach every output that depends on it, on every instruction set, and no other output. From there it propagates through
// the model to the logits, where the sampler ends the request.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

constexpr float kBad[] = {NAN, INFINITY, -INFINITY};

class NotANumber : public testing::TestWithParam<KernelIsa> {
 protected:
  void SetUp() override {
    const auto found = find_kernels(GetParam());
    if (!found) GTEST_SKIP() << isa_name(GetParam()) << " did not run: " << found.error().message;
    kernels_ = *found;
  }
  [[nodiscard]] const Kernels& kernels() const { return *kernels_; }

 private:
  const Kernels* kernels_ = nullptr;
};

bool none_finite(std::span<const float> values) {
  return std::ranges::none_of(values, [](float value) { return std::isfinite(value); });
}

bool all_nan(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isnan(value); });
}

TEST_P(NotANumber, ABadInputMakesTheWholeNormedRowNaN) {
  Rng rng(61);
  for (const std::uint32_t n : {1U, 17U, 64U, 100U}) {
    const std::vector<float> weight = random_floats(rng, n);
    for (const float bad : {NAN, INFINITY, -INFINITY, 1e30F}) {  // the square of 1e30 is infinite
      std::vector<float> x = random_floats(rng, n);
      x[random_below(rng, n)] = bad;
      kernels().rms_norm(x.data(), weight.data(), 1e-5F, x.data(), n);
      EXPECT_TRUE(all_nan(x)) << n << " " << bad;
    }
  }
}

TEST_P(NotANumber, ABadGateOrUpAffectsOnlyItsProduct) {
  Rng rng(62);
  const std::vector<float> gate = random_floats(rng, 50), up = random_floats(rng, 50);
  std::vector<float> clean(50), out(50);
  kernels().silu_mul(gate.data(), up.data(), clean.data(), 50);
  for (const float bad : kBad) {
    for (const bool in_gate : {true, false}) {
      std::vector<float> g = gate, u = up;
      (in_gate ? g : u)[37] = bad;
      kernels().silu_mul(g.data(), u.data(), out.data(), 50);
      EXPECT_FALSE(std::isfinite(out[37])) << bad;
      out[37] = clean[37];
      EXPECT_TRUE(same_bits(out, clean));
    }
  }
}

std::vector<float> multiply(const Kernels& kernels, const PackedMatrix& w, ActivationMode mode, const std::vector<float>& x) {
  const auto m = static_cast<std::uint32_t>(x.size() / w.columns);
  AlignedVector<std::byte> scratch(activation_scratch_bytes(mode, m, w.columns));
  const Activations prepared = make_activations(mode, x.data(), w.columns, m, w.columns, scratch);
  kernels.prepare(prepared, 0, m);
  std::vector<float> y(std::size_t{m} * w.rows);
  kernels.matmul(w, prepared, y.data(), w.rows, 0, w.num_panels());
  return y;
}

TEST_P(NotANumber, ABadActivationAffectsOnlyItsRowOfTheProduct) {
  Rng rng(63);
  constexpr std::uint32_t kRows = 33, kColumns = 96;
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, kRows, kColumns);
    const std::vector<float> x = random_floats(rng, std::size_t{5} * kColumns);
    for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::int16, ActivationMode::int8, ActivationMode::bf16}) {
      const std::vector<float> clean = multiply(kernels(), matrix.packed, mode, x);
      for (const float bad : kBad) {
        for (std::uint32_t column = 0; column < kColumns; column += 1 + random_below(rng, 20)) {
          std::vector<float> changed = x;
          changed[2 * kColumns + column] = bad;
          std::vector<float> y = multiply(kernels(), matrix.packed, mode, changed);
          const std::span row = std::span(y).subspan(2 * kRows, kRows);
          ASSERT_TRUE(none_finite(row)) << kind.name << " column " << column << " " << bad;
          std::copy_n(&clean[2 * kRows], kRows, row.begin());
          ASSERT_TRUE(same_bits(y, clean)) << kind.name << " column " << column << " " << bad;
        }
      }
    }
  }
}

// Makes a matrix with one bad number in a row: in the weights, in a scale or in a minimum.
PackedMatrix matrix_with_bad_number(Rng& rng, WeightFormat format, std::uint32_t bad_row, float bad, bool in_minimum) {
  MatrixPacker packer(format, 20, 64, kTestTable);
  for (std::uint32_t row = 0; row < 20; ++row) {
    const bool is_bad = row == bad_row;
    if (format == WeightFormat::f32 || format == WeightFormat::bf16) {
      std::vector<float> values = random_floats(rng, 64);
      if (is_bad) values[41] = bad;
      packer.put_f32(row, values);
      continue;
    }
    const bool q8 = format == WeightFormat::q8;
    std::vector<std::uint8_t> codes(64);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(1 + rng() % 15);
    std::vector<float> scales(q8 ? 4 : 2, 0.5F), minimums(scales.size(), 0.25F);
    scales[0] = 0.75F;  // keeps the pairs of q8 scales different in any case
    if (is_bad) (in_minimum ? minimums : scales).back() = bad;
    q8 ? packer.put_q8(row, codes, scales, minimums) : packer.put_q4(row, codes, scales, minimums);
  }
  return packer.finish();
}

TEST_P(NotANumber, ABadWeightAffectsOnlyItsOutputInEveryRow) {
  constexpr std::uint32_t kNone = 100, kBadRow = 18;
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::q4, WeightFormat::q4_table, WeightFormat::q8}) {
    for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::int16, ActivationMode::int8, ActivationMode::bf16}) {
      for (const float bad : kBad) {
        for (const bool in_minimum : {false, true}) {
          Rng rng(64), same(64);
          const PackedMatrix clean_matrix = matrix_with_bad_number(rng, format, kNone, bad, in_minimum);
          const PackedMatrix matrix = matrix_with_bad_number(same, format, kBadRow, bad, in_minimum);
          const std::vector<float> x = random_floats(rng, 64 * 3);
          const std::vector<float> clean = multiply(kernels(), clean_matrix, mode, x);
          std::vector<float> y = multiply(kernels(), matrix, mode, x);
          for (std::size_t row = 0; row < 3; ++row) {
            EXPECT_FALSE(std::isfinite(y[row * 20 + kBadRow])) << static_cast<int>(format) << " " << bad;
            y[row * 20 + kBadRow] = clean[row * 20 + kBadRow];
          }
          EXPECT_TRUE(same_bits(y, clean)) << static_cast<int>(format) << " " << bad;
        }
      }
    }
  }
}

// Rows 600 .. 639 of one request with 3 query heads per KV head, in blocks of 16 tokens.
struct Request {
  static constexpr std::uint32_t kTokens = 640, kDim = 48, kGroup = 3, kRows = 40, kFirst = kTokens - kRows;

  Request(const Kernels& table, Rng& rng, KvDtype dtype)
      : kernels(table),
        q(random_floats(rng, kRows * kGroup * kDim)),
        k(random_floats(rng, kTokens * kDim)),
        v(random_floats(rng, kTokens * kDim)) {
    layer = {.dtype = dtype, .block_size = 16, .num_kv_heads = 1, .head_dim = kDim};
    layer.token_stride = kDim;
    layer.head_stride = layer.block_stride = std::size_t{16} * kDim;
    for (auto* bytes : {&keys, &values}) bytes->resize(kTokens * kDim * (dtype == KvDtype::f32 ? 4 : 2));
    layer.keys = keys.data();
    layer.values = values.data();
    for (std::uint32_t i = 0; i < kTokens / 16; ++i) blocks.push_back(BlockId{i});
    for (std::uint32_t t = 0; t < kTokens; ++t) slots.push_back(t);
  }

  // Returns [row][head][dim] of rows first .. first + rows - 1.
  std::vector<float> attend(std::uint32_t first = 0, std::uint32_t rows = kRows, bool in_pieces = false) {
    kernels.write_kv(layer, k.data(), v.data(), kDim, slots);
    std::vector<float> out(rows * kGroup * kDim);
    AttentionItem item{.q = q.data() + first * kGroup * kDim, .out = out.data(), .rows = rows, .first_position = first_position + first};
    item.q_stride = item.out_stride = kGroup * kDim;
    item.in_pairs = in_pairs;
    item.group = kGroup;
    item.blocks = blocks.data();
    item.scale = 0.125F;
    item.end_segment = item.first_position / kSegmentTokens + 1;
    std::vector<float> partials(item.end_segment * attention_partial_floats(kDim, kGroup));
    if (in_pieces) item.partials = partials.data();
    AlignedVector<std::byte> scratch(attention_scratch_bytes(kDim, kGroup));
    kernels.attend(layer, item, scratch);
    if (in_pieces) kernels.join_segments(layer, item);
    return out;
  }

  const Kernels& kernels;
  bool in_pairs = false;
  std::uint32_t first_position = kFirst;  // position of row 0
  std::vector<float> q, k, v;
  PagedKvLayer layer;
  std::vector<std::byte> keys, values;
  std::vector<BlockId> blocks;
  std::vector<std::int64_t> slots;
};

TEST_P(NotANumber, ABadQueryAffectsOnlyItsRowAndHead) {
  Rng rng(65);
  Request request(kernels(), rng, KvDtype::bf16);
  const std::vector<float> q = request.q;
  constexpr std::size_t kHead = (std::size_t{17} * Request::kGroup + 1) * Request::kDim;
  for (request.first_position = 0; request.first_position <= 600; request.first_position += 200) {
    request.in_pairs = request.first_position % 400 == 0;
    request.q = q;
    const std::vector<float> clean = request.attend();
    for (const float bad : kBad) {
      request.q[kHead + 5] = bad;
      std::vector<float> out = request.attend();
      EXPECT_TRUE(all_nan(std::span(out).subspan(kHead, Request::kDim))) << request.first_position << " " << bad;
      const std::vector<float> alone = request.attend(17, 1);
      EXPECT_TRUE(all_nan(std::span(alone).subspan(Request::kDim, Request::kDim))) << request.first_position << " " << bad;
      std::copy_n(&clean[kHead], Request::kDim, &out[kHead]);
      EXPECT_TRUE(same_bits(out, clean)) << request.first_position << " " << bad;
    }
  }
}

// The key with NaN or Inf is in the first segment, in the second, or belongs to one of the rows themselves. Rows that do not attend to it
// keep their bits.
TEST_P(NotANumber, ABadKeyAffectsEveryRowThatAttendsToIt) {
  Rng rng(66);
  for (const auto& [dtype, in_pairs] : {std::pair(KvDtype::bf16, false), {KvDtype::f32, false}, {KvDtype::bf16, true}}) {
    Request request(kernels(), rng, dtype);
    request.in_pairs = in_pairs;
    const std::vector<float> clean = request.attend();
    for (const float bad : kBad) {
      for (const std::uint32_t token : {0U, 63U, 511U, 512U, 599U, 610U, 639U}) {
        const std::vector<float> k = request.k;
        request.k[token * Request::kDim + 7] = bad;
        const std::vector<float> out = request.attend();
        const std::uint32_t first_seeing = token < Request::kFirst ? 0 : token - Request::kFirst;
        const std::size_t unseen = std::size_t{first_seeing} * Request::kGroup * Request::kDim;
        EXPECT_TRUE(same_bits(std::span(out).first(unseen), std::span(clean).first(unseen))) << token << " " << bad;
        EXPECT_TRUE(all_nan(std::span(out).subspan(unseen))) << token << " " << bad;
        for (const bool in_pieces : {false, true}) EXPECT_TRUE(all_nan(request.attend(39, 1, in_pieces))) << token << " " << bad;
        request.k = k;
      }
    }
  }
}

TEST_P(NotANumber, ABadValueAffectsItsDimensionInEveryRowThatAttendsToIt) {
  Rng rng(67);
  for (const auto& [dtype, in_pairs] : {std::pair(KvDtype::bf16, false), {KvDtype::f32, false}, {KvDtype::bf16, true}}) {
    Request request(kernels(), rng, dtype);
    request.in_pairs = in_pairs;
    const std::vector<float> clean = request.attend();
    for (const float bad : kBad) {
      for (const std::uint32_t token : {0U, 511U, 599U}) {
        const std::vector<float> v = request.v;
        request.v[token * Request::kDim + 7] = bad;
        for (const bool in_pieces : {false, true}) {
          const std::vector<float> row = request.attend(39, 1, in_pieces);
          for (std::size_t head = 0; head < Request::kGroup; ++head) EXPECT_FALSE(std::isfinite(row[head * Request::kDim + 7])) << token;
        }
        std::vector<float> out = request.attend();
        for (std::size_t i = 7; i < out.size(); i += Request::kDim) {
          EXPECT_FALSE(std::isfinite(out[i])) << token << " " << bad;
          out[i] = clean[i];
        }
        EXPECT_TRUE(same_bits(out, clean)) << token << " " << bad;
        request.v = v;
      }
    }
  }
}

// Finite numbers so large that a score overflows have no valid answer either.
TEST_P(NotANumber, AScoreOverflowMakesItsRowNaN) {
  Rng rng(68);
  Request request(kernels(), rng, KvDtype::f32);
  std::fill_n(&request.q[0], Request::kDim, 1e25F);
  std::fill_n(&request.k[std::size_t{100} * Request::kDim], Request::kDim, -1e25F);
  const std::vector<float> out = request.attend();
  EXPECT_TRUE(all_nan(std::span(out).first(Request::kDim)));
  EXPECT_TRUE(std::isfinite(out.back()));
}

INSTANTIATE_TEST_SUITE_P(InstructionSet, NotANumber, testing::ValuesIn(kIsasOfBuild),
                         [](const auto& test) { return isa_name(test.param); });

}  // namespace
}  // namespace quire
