// Integer products for processors with AVX2; matmul.h has the contract. Called through the table of kernels, on every thread of the pool,
// for disjoint panels. Sums are exact: 16-bit sums are bounded so that they do not overflow.
//  - 16-bit activations: every second code of a register is widened to 16 bits, and vpmaddwd leaves one output per lane.
//  - 8-bit activations: vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits.
#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/matmul_impl.h"
#include "runtime/kernel/cpu/x86/matmul_256.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// For 16-bit activations, which prepare_avx2.cpp stores in the order of columns 0, 2, 1, 3 of each four.
template <WeightFormat kFormat, int kScales>
struct Words16 {
  static constexpr int kRows = 4;
  static constexpr int kSteps = 8 / kScales;  // lines of four columns per scale group
  static constexpr std::size_t kRowBytes = 64;
  static constexpr bool kCountsFromZero = false;

  template <int R>
  [[gnu::always_inline]] static void dots(const std::uint8_t* block, __m256i table, int i, const std::int8_t* x, __m256i* out) {
    unrolled<R>([&](auto r) __attribute__((always_inline)) { out[r] = _mm256_setzero_si256(); });
    unrolled<kSteps>([&](auto step) __attribute__((always_inline)) {
      const int s = i * kSteps + step;
      const __m256i line = load_line<kFormat>(block, table, s);
      const __m256i even = _mm256_and_si256(line, _mm256_set1_epi16(255));
      const __m256i odd = _mm256_srli_epi16(line, 8);
      unrolled<R>([&](auto r) __attribute__((always_inline)) {
        const std::int8_t* at = x + r * kRowBytes + 8 * s;
        out[r] = _mm256_add_epi32(out[r], _mm256_madd_epi16(even, broadcast(at)));
        out[r] = _mm256_add_epi32(out[r], _mm256_madd_epi16(odd, broadcast(at + 4)));
      });
    });
  }
};

// For 8-bit activations, -127 to 127. A sum of two products with 4-bit codes is at most 3,810, so eight of these sums fit into 16 bits.
// With 6-bit codes the sum is at most 16,002, and two of these sums fit. For 8-bit codes, |code - 128| is multiplied with the activation
// times the sign of (code - 128); a sum of two products is at most 32,512.
template <WeightFormat kFormat, int kScales>
struct Bytes8 {
  static constexpr int kRows = 4;
  static constexpr int kSteps = 8 / kScales;
  static constexpr std::size_t kRowBytes = 32;
  static constexpr bool kCountsFromZero = zero_code(kFormat) == 128;
  static constexpr int kStepsPerSum = kCountsFromZero               ? 1
                                      : kFormat == WeightFormat::q6 ? 2
                                                                    : kSteps;  // lines with products that fit into 16 bits

  template <int R>
  [[gnu::always_inline]] static void dots(const std::uint8_t* block, __m256i table, int i, const std::int8_t* x, __m256i* out) {
    const __m256i ones = _mm256_set1_epi16(1);
    unrolled<kSteps / kStepsPerSum>([&](auto part) __attribute__((always_inline)) {
      __m256i sums[R];
      unrolled<kStepsPerSum>([&](auto step) __attribute__((always_inline)) {
        const int s = i * kSteps + part * kStepsPerSum + step;
        __m256i line = load_line<kFormat>(block, table, s);
        const __m256i from_128 = _mm256_xor_si256(line, _mm256_set1_epi8(-128));
        if constexpr (kCountsFromZero) line = _mm256_abs_epi8(from_128);
        unrolled<R>([&](auto r) __attribute__((always_inline)) {
          __m256i inputs = broadcast(x + r * kRowBytes + 4 * s);
          if constexpr (kCountsFromZero) inputs = _mm256_sign_epi8(inputs, from_128);
          const __m256i products = _mm256_maddubs_epi16(line, inputs);
          sums[r] = step == 0 ? products : _mm256_add_epi16(sums[r], products);
        });
      });
      unrolled<R>([&](auto r) __attribute__((always_inline)) {
        const __m256i sum = _mm256_madd_epi16(sums[r], ones);
        out[r] = part == 0 ? sum : _mm256_add_epi32(out[r], sum);
      });
    });
  }
};

template <WeightFormat kFormat, int kScales>
using OfWords = HalfPanels<Words16<kFormat, kScales>, kFormat, kScales>;
template <WeightFormat kFormat, int kScales>
using OfBytes = HalfPanels<Bytes8<kFormat, kScales>, kFormat, kScales>;

}  // namespace

namespace avx2 {

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  if (!uses_integers(w, x))
    multiply_floats(w, x, y, y_stride, begin, end);
  else if (x.mode == ActivationMode::int16)
    multiply_integers<OfWords>(w, x, y, y_stride, begin, end);
  else
    multiply_integers<OfBytes>(w, x, y, y_stride, begin, end);
}

void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  check_row_product(w, end);
  multiply_rows_of(w, product, begin, end);
}

}  // namespace avx2
}  // namespace quire
