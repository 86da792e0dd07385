#include "format/quantise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/half.h"

namespace quire {
namespace {

constexpr std::size_t kGroup = 32;
constexpr std::size_t kGroupsPerUnit = 256 / kGroup;

// The nearest value of f16, the even one of two.
float nearest_f16(float value) {
  const std::uint16_t below = float_to_f16_truncated(value);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const float low = f16_to_float(below), high = f16_to_float(above);
  const float to_low = std::abs(value - low), to_high = std::abs(high - value);
  if (!std::isfinite(high) || to_low < to_high) return low;
  return to_high < to_low || (below & 1U) != 0 ? high : low;
}

// w = scale * code + minimum.
struct Line {
  float scale = 0.0F, minimum = 0.0F;

  [[nodiscard]] float code_of(float value) const {
    return scale == 0.0F ? 0.0F : std::clamp(std::nearbyint((value - minimum) / scale), 0.0F, 15.0F);
  }
  [[nodiscard]] float error(std::span<const float> values) const {
    float sum = 0.0F;
    for (const float value : values) {
      const float off = value - (scale * code_of(value) + minimum);
      sum += off * off;
    }
    return sum;
  }
};

// The line of least squares through the values over the codes that `guess` gives them.
Line fit(std::span<const float> values, const Line& guess) {
  float codes = 0.0F, squares = 0.0F, sum = 0.0F, products = 0.0F;
  for (const float value : values) {
    const float code = guess.code_of(value);
    codes += code;
    squares += code * code;
    sum += value;
    products += code * value;
  }
  const auto count = static_cast<float>(values.size());
  const float spread = count * squares - codes * codes;
  if (spread <= 0.0F) return guess;
  const float scale = (count * products - codes * sum) / spread;
  return {scale, (sum - scale * codes) / count};
}

// From ranges a little narrower and wider than that of the values: the largest ones may be cut where the others gain by it.
Line best_line(std::span<const float> values) {
  const auto [least, most] = std::ranges::minmax(values);
  if (least == most) return {0.0F, least};
  constexpr int kFits = 4;
  Line best{(most - least) / 15.0F, least};
  float least_error = best.error(values);
  for (const float range : {13.5F, 14.0F, 14.5F, 15.0F, 15.5F, 16.0F}) {
    const float scale = (most - least) / range;
    Line line{scale, (most + least - 15.0F * scale) / 2.0F};
    for (int i = 0; i < kFits; ++i) {
      line = fit(values, line);
      const float error = line.error(values);
      if (error >= least_error) continue;
      best = line;
      least_error = error;
    }
  }
  return best;
}

// The unit of which `largest` is 127 times.
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
  QUIRE_CHECK(values.size() % kGroup == 0 && out.codes.size() == values.size(), "whole groups");
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
  QUIRE_CHECK(values.size() % kGroup == 0 && out.codes.size() == values.size(), "whole groups");
  QUIRE_CHECK(units.empty() || (groups % kGroupsPerUnit == 0 && units.size() == groups / kGroupsPerUnit * 2), "a unit for 256 columns");
  for (std::size_t group = 0; group < groups; ++group) {
    const Line line = best_line(values.subspan(group * kGroup, kGroup));
    out.scales[group] = units.empty() ? nearest_f16(line.scale) : line.scale;
    out.minimums[group] = units.empty() ? nearest_f16(line.minimum) : line.minimum;
  }
  for (std::size_t unit = 0; unit < units.size() / 2; ++unit) {
    round_to_units(out.scales.subspan(unit * kGroupsPerUnit, kGroupsPerUnit), units[2 * unit]);
    round_to_units(out.minimums.subspan(unit * kGroupsPerUnit, kGroupsPerUnit), units[2 * unit + 1]);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Line line{out.scales[i / kGroup], out.minimums[i / kGroup]};
    out.codes[i] = static_cast<std::uint8_t>(line.code_of(values[i]));
  }
}

}  // namespace quire
