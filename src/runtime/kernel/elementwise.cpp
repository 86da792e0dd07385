#include "runtime/kernel/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "runtime/kernel/portable.h"

namespace quire {
namespace {

void rotate(float& a, float& b, float cosine, float sine) {
  const float rotated = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = rotated;
}

template <class Store>
void scatter(const PagedKvLayer& layer, const float* rows, std::size_t stride, std::span<const std::int64_t> slots, Store store) {
  for (std::size_t r = 0; r < slots.size(); ++r) {
    if (slots[r] < 0) continue;
    const auto slot = static_cast<std::uint64_t>(slots[r]);
    const std::size_t token = slot / layer.block_size * layer.block_stride + slot % layer.block_size * layer.token_stride;
    for (std::uint32_t head = 0; head < layer.num_kv_heads; ++head) {
      const float* from = rows + r * stride + std::size_t{head} * layer.head_dim;
      const std::size_t to = token + head * layer.head_stride;
      for (std::uint32_t d = 0; d < layer.head_dim; ++d) store(to + d, from[d]);
    }
  }
}

// Writes the int8 codes of a row and then the row's scale, which is the largest magnitude / 127. If a value is NaN or infinite, the scale
// is NaN.
void write_codes(const float* from, std::uint32_t n, std::byte* to) {
  std::uint32_t largest_bits = 0;  // the bits of positive floats have the order of the floats
  for (std::uint32_t d = 0; d < n; ++d) largest_bits = std::max(largest_bits, std::bit_cast<std::uint32_t>(from[d]) & 0x7FFFFFFFU);
  const auto largest = std::bit_cast<float>(largest_bits);
  const bool counts = largest_bits < 0x7F800000U && largest > 1e-30F;  // tinier rows become zero, because 127 / largest could overflow
  const float scale = counts ? largest / 127.0F : largest_bits < 0x7F800000U ? 0.0F : NAN;
  const float inverse = counts ? 127.0F / largest : 0.0F;
  constexpr float to_integers = 12582912.0F;  // 1.5 * 2^23: adding it rounds to whole numbers, ties to even
  for (std::uint32_t d = 0; d < n; ++d) {
    const float code = counts ? (from[d] * inverse + to_integers) - to_integers : 0.0F;
    to[d] = static_cast<std::byte>(static_cast<std::int8_t>(code));
  }
  std::memcpy(to + n, &scale, sizeof scale);
}

void scatter_codes(const PagedKvLayer& layer, std::byte* cache, const float* rows, std::size_t stride,
                   std::span<const std::int64_t> slots) {
  for (std::size_t r = 0; r < slots.size(); ++r) {
    if (slots[r] < 0) continue;
    const auto slot = static_cast<std::uint64_t>(slots[r]);
    const std::size_t token = slot / layer.block_size * layer.block_stride + slot % layer.block_size * layer.token_stride;
    for (std::uint32_t head = 0; head < layer.num_kv_heads; ++head)
      write_codes(rows + r * stride + std::size_t{head} * layer.head_dim, layer.head_dim, cache + token + head * layer.head_stride);
  }
}

void scatter_to(const PagedKvLayer& layer, std::byte* cache, const float* rows, std::size_t stride, std::span<const std::int64_t> slots) {
  if (layer.dtype == KvDtype::int8) {
    scatter_codes(layer, cache, rows, stride, slots);
  } else if (layer.dtype == KvDtype::f32) {
    auto* to = reinterpret_cast<float*>(cache);
    scatter(layer, rows, stride, slots, [to](std::size_t at, float value) { to[at] = value; });
  } else {
    auto* to = reinterpret_cast<std::uint16_t*>(cache);
    scatter(layer, rows, stride, slots, [to](std::size_t at, float value) { to[at] = float_to_bf16(value); });
  }
}

}  // namespace

void rope_angles(std::uint32_t position, std::span<const float> frequencies, std::span<float> cosines, std::span<float> sines) {
  QUIRE_CHECK(cosines.size() == frequencies.size() && sines.size() == frequencies.size(), "there is one cosine and one sine per frequency");
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(frequencies[i]);
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
}

namespace portable {

void write_kv(const PagedKvLayer& layer, const float* k, const float* v, std::size_t stride, std::span<const std::int64_t> slots) {
  scatter_to(layer, layer.keys, k, stride, slots);
  scatter_to(layer, layer.values, v, stride, slots);
}

void rope(RopeStyle style, float* x, std::uint32_t num_heads, std::uint32_t head_dim, std::uint32_t rotary_dim, const float* cosines,
          const float* sines) {
  const std::uint32_t half = rotary_dim / 2;
  for (std::uint32_t head = 0; head < num_heads; ++head, x += head_dim) {
    if (style == RopeStyle::half_split)
      for (std::uint32_t i = 0; i < half; ++i) rotate(x[i], x[half + i], cosines[i], sines[i]);
    else
      for (std::uint32_t i = 0; i < half; ++i) rotate(x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
  }
}

void multiply(float* x, const float* y, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= y[i];
}

void add(float* x, const float* y, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] += y[i];
}

void scale(float* x, float factor, std::uint32_t n) {
  if (factor == 1.0F) return;
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace portable
}  // namespace quire
