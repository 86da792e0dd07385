// Integer products for processors with AVX-VNNI and without AVX-512 (Intel's Alder Lake and later); matmul.h has the contract. Called
// through the table of kernels, on every thread of the pool, for disjoint panels. Activations are signed bytes, one per value or a high and
// a low half. Computes the same arithmetic as matmul_avx512.cpp, with eight outputs at a time. Float products use the AVX2 kernels.
#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/matmul_walk.h"
#include "runtime/kernel/cpu/x86/matmul_256.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// kParts: bytes per activation.
template <int kParts, WeightFormat kFormat, int kScales>
struct Vpdpbusd {
  static constexpr int kRows = 4;
  static constexpr int kSteps = 8 / kScales;  // lines of four columns per scale group
  static constexpr std::size_t kRowBytes = std::size_t{32} * kParts;
  static constexpr bool kCountsFromZero = false;

  template <int R>
  [[gnu::always_inline]] static void dots(const std::uint8_t* block, __m256i table, int i, const std::int8_t* x, __m256i* out) {
    constexpr int kChains = R * kParts < 4 ? 2 : 1;  // independent chains of one sum
    __m256i sums[R][kParts][kChains];
    unrolled<R * kParts * kChains>([&](auto n) __attribute__((always_inline)) {
      sums[n / (kParts * kChains)][n / kChains % kParts][n % kChains] = _mm256_setzero_si256();
    });
    unrolled<kSteps>([&](auto step) __attribute__((always_inline)) {
      const int s = i * kSteps + step;
      const __m256i line = load_line<kFormat>(block, table, s);
      unrolled<R * kParts>([&](auto n) __attribute__((always_inline)) {
        __m256i& sum = sums[n / kParts][n % kParts][step % kChains];
        sum = _mm256_dpbusd_avx_epi32(sum, line, broadcast(x + n / kParts * kRowBytes + n % kParts * 32 + 4 * s));
      });
    });
    unrolled<R>([&](auto r) __attribute__((always_inline)) {
      const auto whole = [&](int part) __attribute__((always_inline)) {
        return kChains == 1 ? sums[r][part][0] : _mm256_add_epi32(sums[r][part][0], sums[r][part][kChains - 1]);
      };
      out[r] = kParts == 1 ? whole(0) : _mm256_add_epi32(_mm256_slli_epi32(whole(0), 8), whole(kParts - 1));
    });
  }
};

template <WeightFormat kFormat, int kScales>
using OfHalves = HalfPanels<Vpdpbusd<2, kFormat, kScales>, kFormat, kScales>;
template <WeightFormat kFormat, int kScales>
using OfBytes = HalfPanels<Vpdpbusd<1, kFormat, kScales>, kFormat, kScales>;

}  // namespace

namespace avx_vnni {

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  if (!uses_integers(w, x)) return avx2::matmul(w, x, y, y_stride, begin, end);
  check_product(w, x, end);
  if (x.mode == ActivationMode::int16)
    multiply_integers<OfHalves>(w, x, y, y_stride, begin, end);
  else
    multiply_integers<OfBytes>(w, x, y, y_stride, begin, end);
}

}  // namespace avx_vnni
}  // namespace quire
