#include "format/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace quire {
namespace {

constexpr std::size_t kGroup = 32;
constexpr std::size_t kGroupsPerUnit = 256 / kGroup;

// Returns the nearest f16 value; ties round to the even mantissa.
float nearest_f16(float value) {
  const std::uint16_t below = float_to_f16_truncated(value);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const float low = f16_to_float(below), high = f16_to_float(above);
  const float to_low = std::abs(value - low), to_high = std::abs(high - value);
  if (!std::isfinite(high) || to_low < to_high) return low;
  return to_high < to_low || (below & 1U) != 0 ? high : low;
}

// Maps codes to weights: w = scale * code + minimum.
struct Line {
  float scale = 0.0F, minimum = 0.0F;

  [[nodiscard]] float inverse() const { return scale == 0.0F ? 0.0F : 1.0F / scale; }
};

// A vector of four floats, which every 64-bit processor supports.
using Lanes [[gnu::vector_size(16)]] = float;
using IntLanes [[gnu::vector_size(16)]] = std::int32_t;
constexpr std::size_t kLanes = 4;

Lanes load(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof lanes);
  return lanes;
}

// Returns the codes (0 to 15) of `values`; halves round up.
IntLanes codes_of(Lanes values, const Line& line, float inverse) {
  const Lanes exact = (values - line.minimum) * inverse;
  const Lanes least = Lanes{} + 0.0F, most = Lanes{} + 15.0F;
  const Lanes above = exact > least ? exact : least;
  return __builtin_convertvector((above < most ? above : most) + 0.5F, IntLanes);
}

// Sums over a group's values and their codes.
struct Sums {
  float codes = 0.0F, squares = 0.0F, values = 0.0F, products = 0.0F, error = 0.0F;
};

float sum_of(Lanes lanes) {
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

Sums sums_of(const float* values, const Line& line) {
  Lanes codes{}, squares{}, sums{}, products{}, error{};
  const float inverse = line.inverse();
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    const Lanes value = load(values + i);
    const Lanes code = __builtin_convertvector(codes_of(value, line, inverse), Lanes);
    const Lanes off = value - (line.scale * code + line.minimum);
    codes += code;
    squares += code * code;
    sums += value;
    products += code * value;
    error += off * off;
  }
  return {sum_of(codes), sum_of(squares), sum_of(sums), sum_of(products), sum_of(error)};
}

// Returns the line with the least squared error. Tries three initial lines: one whose codes cover a little more than the range of the
// values, one that covers the range exactly, and one that clips the extremes. Refines each line `kFits` times: computes the codes of the
// values and fits the line to them by least squares.
Line best_line(std::span<const float> values) {
  const auto [least, most] = std::ranges::minmax_element(values);
  if (*least == *most) return {0.0F, *least};
  constexpr int kFits = 3;
  Line best;
  float least_error = INFINITY;
  for (const float range : {14.0F, 15.0F, 16.0F}) {
    const float scale = (*most - *least) / range;
    Line line{scale, (*most + *least - 15.0F * scale) / 2.0F};
    for (int i = 0; i <= kFits; ++i) {
      const Sums sums = sums_of(values.data(), line);
      if (sums.error < least_error) {
        best = line;
        least_error = sums.error;
      }
      constexpr auto kCount = static_cast<float>(kGroup);
      const float spread = kCount * sums.squares - sums.codes * sums.codes;
      if (spread <= 0.0F) break;
      line.scale = (kCount * sums.products - sums.codes * sums.values) / spread;
      line.minimum = (sums.values - line.scale * sums.codes) / kCount;
    }
  }
  return best;
}

// Returns the unit for which `largest` is the multiple 127.
float unit_of(float largest) {
  return nearest_f16(largest / 127.0F);
}

float multiple(float value, float unit) {
  return unit == 0.0F ? 0.0F : std::clamp(std::nearbyint(value / unit), -128.0F, 127.0F) * unit;
}

void round_to_units(std::span<float> values, float& unit) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  unit = unit_of(largest);
  for (float& value : values) value = multiple(value, unit);
}

}  // namespace

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void quantise_q8_row(std::span<const float> values, const Q8Row& out) {
  QUIRE_CHECK(values.size() % kGroup == 0 && out.codes.size() == values.size(), "the row has whole groups and one code per value");
  std::ranges::fill(out.minimums, 0.0F);
  for (std::size_t first = 0; first < values.size(); first += kGroup) {
    const std::span<const float> group = values.subspan(first, kGroup);
    float largest = 0.0F;
    for (const float value : group) largest = std::max(largest, std::abs(value));
    const float scale = largest / 127.0F;
    const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    for (std::size_t i = 0; i < kGroup; ++i)
      out.codes[first + i] = static_cast<std::uint8_t>(128 + static_cast<int>(std::round(group[i] * inverse)));
    out.scales[first / 16] = out.scales[first / 16 + 1] = nearest_f16(scale);
  }
}

void quantise_q4_row(std::span<const float> values, const Q4Row& out, std::span<float> units) {
  const std::size_t groups = values.size() / kGroup;
  QUIRE_CHECK(values.size() % kGroup == 0 && out.codes.size() == values.size(), "the row has whole groups and one code per value");
  QUIRE_CHECK(units.empty() || (groups % kGroupsPerUnit == 0 && units.size() == groups / kGroupsPerUnit * 2),
              "there are two units per 256 columns");
  for (std::size_t group = 0; group < groups; ++group) {
    const Line line = best_line(values.subspan(group * kGroup, kGroup));
    out.scales[group] = units.empty() ? nearest_f16(line.scale) : line.scale;
    out.minimums[group] = units.empty() ? nearest_f16(line.minimum) : line.minimum;
  }
  for (std::size_t unit = 0; unit < units.size() / 2; ++unit) {
    round_to_units(out.scales.subspan(unit * kGroupsPerUnit, kGroupsPerUnit), units[2 * unit]);
    round_to_units(out.minimums.subspan(unit * kGroupsPerUnit, kGroupsPerUnit), units[2 * unit + 1]);
  }
  for (std::size_t group = 0; group < groups; ++group) {
    const Line line{out.scales[group], out.minimums[group]};
    const float inverse = line.inverse();
    for (std::size_t i = group * kGroup; i < (group + 1) * kGroup; i += kLanes) {
      const IntLanes codes = codes_of(load(values.data() + i), line, inverse);
      for (std::size_t lane = 0; lane < kLanes; ++lane) out.codes[i + lane] = static_cast<std::uint8_t>(codes[lane]);
    }
  }
}

}  // namespace quire
