// Unpacks IQ1, IQ2 and IQ3. A code is an index into a table of points with eight (or four) coordinates; signs or an offset are stored
// separately. Every coordinate is a small integer, so 8-bit codes hold it exactly. Layouts follow ggml-common.h. Called while weights are
// packed, on any thread.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "format/dequant_blocks.h"
#include "format/iq_grids.h"

namespace quire {
namespace {

constexpr std::array<std::uint8_t, 4> kIq2Values{8, 25, 43, 0};
constexpr std::array<std::uint8_t, 8> kIq3XxsValues{4, 12, 20, 28, 36, 44, 52, 62};

template <class T>
T load(const std::uint8_t* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

// Returns the low seven sign bits and an eighth bit that makes the number of set bits even.
std::uint32_t with_sign_parity(std::uint32_t signs) {
  signs &= 127U;
  return signs | (static_cast<std::uint32_t>(std::popcount(signs)) & 1U) << 7;
}

std::uint8_t signed_code(std::uint8_t value, std::uint32_t signs, int i) {
  return static_cast<std::uint8_t>(((signs >> i) & 1U) != 0 ? 128 - value : 128 + value);
}

void put_iq2_point(std::uint32_t point, std::uint32_t signs, std::uint8_t* codes) {
  for (int i = 0; i < 8; ++i) codes[i] = signed_code(kIq2Values[(point >> (2 * i)) & 3U], signs, i);
}

// Writes two points that share a byte of signs.
template <class Value>
void put_iq3_points(std::uint32_t first, std::uint32_t second, std::uint32_t signs, Value value, std::uint8_t* codes) {
  const std::uint32_t points = first | second << 12;
  for (int i = 0; i < 8; ++i) codes[i] = signed_code(value((points >> (3 * i)) & 7U), signs, i);
}

// Writes coordinates in units of 1/8. A coordinate is -1, 0 or 1, minus 1/8 if `less` and else plus 1/8.
void put_iq1_point(std::uint32_t point, bool less, std::uint8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    const int value = static_cast<int>((point >> (2 * i)) & 3U) - 1;
    codes[i] = static_cast<std::uint8_t>(128 + 8 * value + (less ? -1 : 1));
  }
}

float half_step(float scale, std::uint32_t steps, float unit) {
  return scale * (0.5F + static_cast<float>(steps)) * unit;
}

void clear_minimums(const QuantBlock& out) {
  for (int i = 0; i < 16; ++i) out.minimums[i] = 0.0F;
}

}  // namespace

void unpack_iq2_xxs(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  for (int group = 0; group < 8; ++group) {
    const std::uint8_t* points = in + 2 + 8 * group;
    const auto signs = load<std::uint32_t>(points + 4);
    set_group_of_32(out, group, half_step(scale, signs >> 28, 0.25F), 0.0F);
    for (int i = 0; i < 4; ++i) put_iq2_point(kIq2XxsGrid[points[i]], with_sign_parity(signs >> (7 * i)), out.codes + 32 * group + 8 * i);
  }
}

void unpack_iq2_xs(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  for (int half = 0; half < 16; ++half) {
    out.scales[half] = half_step(scale, (in[66 + half / 2] >> (half % 2 * 4)) & 15U, 0.25F);
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t code = load<std::uint16_t>(in + 2 + 4 * half + 2 * i);
      put_iq2_point(kIq2XsGrid[code & 511U], with_sign_parity(code >> 9), out.codes + 16 * half + 8 * i);
    }
  }
  clear_minimums(out);
}

void unpack_iq2_s(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  const std::uint8_t *low = in + 2, *signs = in + 34, *high = in + 66, *scales = in + 74;
  for (int half = 0; half < 16; ++half) out.scales[half] = half_step(scale, (scales[half / 2] >> (half % 2 * 4)) & 15U, 0.25F);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t code = low[i] | ((high[i / 4] >> (i % 4 * 2)) & 3U) << 8;
    put_iq2_point(kIq2SGrid[code], signs[i], out.codes + 8 * i);
  }
  clear_minimums(out);
}

void unpack_iq3_xxs(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  for (int group = 0; group < 8; ++group) {
    const std::uint8_t* points = in + 2 + 8 * group;
    const auto signs = load<std::uint32_t>(in + 66 + 4 * group);
    set_group_of_32(out, group, half_step(scale, signs >> 28, 0.5F), 0.0F);
    for (int i = 0; i < 4; ++i)
      put_iq3_points(
          kIq3XxsGrid[points[2 * i]], kIq3XxsGrid[points[2 * i + 1]], with_sign_parity(signs >> (7 * i)),
          [](std::uint32_t index) { return kIq3XxsValues[index]; }, out.codes + 32 * group + 8 * i);
  }
}

void unpack_iq3_s(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  const std::uint8_t *low = in + 2, *high = in + 66, *signs = in + 74, *scales = in + 106;
  const auto point = [&](int i) { return kIq3SGrid[low[i] | ((high[i / 8] >> (i % 8)) & 1U) << 8]; };
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t steps = (scales[group / 2] >> (group % 2 * 4)) & 15U;
    set_group_of_32(out, group, scale * static_cast<float>(1 + 2 * steps), 0.0F);
    for (int i = 4 * group; i < 4 * group + 4; ++i)
      put_iq3_points(
          point(2 * i), point(2 * i + 1), signs[i], [](std::uint32_t index) { return static_cast<std::uint8_t>(2 * index + 1); },
          out.codes + 8 * i);
  }
}

void unpack_iq1_s(const std::uint8_t* in, const QuantBlock& out) {
  const float scale = half_at(in);
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t high = load<std::uint16_t>(in + 34 + 2 * group);
    set_group_of_32(out, group, scale * static_cast<float>(2 * ((high >> 12) & 7U) + 1) * 0.125F, 0.0F);
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t code = in[2 + 4 * group + i] | ((high >> (3 * i)) & 7U) << 8;
      put_iq1_point(kIq1Grid[code], (high & 0x8000U) != 0, out.codes + 32 * group + 8 * i);
    }
  }
}

// The top four bits of four 16-bit words together form the f16 scale.
void unpack_iq1_m(const std::uint8_t* in, const QuantBlock& out) {
  const std::uint8_t *low = in, *high = in + 32, *scales = in + 48;
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (std::uint32_t{load<std::uint16_t>(scales + 2 * i)} >> 12) << (4 * i);
  const float scale = f16_to_float(static_cast<std::uint16_t>(bits));
  for (int half = 0; half < 16; ++half) {
    const std::uint32_t steps = (load<std::uint16_t>(scales + half / 4 * 2) >> (half % 4 * 3)) & 7U;
    out.scales[half] = scale * static_cast<float>(2 * steps + 1) * 0.125F;
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const std::uint32_t own = high[i / 2] >> (i % 2 * 4);
      put_iq1_point(kIq1Grid[low[i] | (own & 7U) << 8], (own & 8U) != 0, out.codes + 8 * i);
    }
  }
  clear_minimums(out);
}

}  // namespace quire
