// Scales images as Pillow's Resample.c does: the filter widths, the pixels within a filter, the rounding of weights and the byte layout are
// the same. May be called on any thread. In addition to its result, a call allocates one intermediate image and the weights of one axis.
#include "media/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"

namespace quire {
namespace {

constexpr int kWeightBits = 32 - 8 - 2;

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
}

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double box(double x) {
  return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

double hamming(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

struct FilterKernel {
  double (*weight)(double x);
  double support;
};

FilterKernel kernel_of(ResampleFilter filter) {
  switch (filter) {
    case ResampleFilter::lanczos:
      return {lanczos, 3.0};
    case ResampleFilter::bilinear:
      return {bilinear, 1.0};
    case ResampleFilter::bicubic:
      return {bicubic, 2.0};
    case ResampleFilter::box:
      return {box, 0.5};
    case ResampleFilter::hamming:
      break;
  }
  return {hamming, 1.0};
}

// The weights of one axis: for each output pixel, the input pixels that contribute to it, and their weights.
struct AxisWeights {
  struct Part {
    std::uint32_t first = 0, count = 0;
  };
  std::vector<Part> parts;            // [out]
  std::vector<std::int32_t> weights;  // [out][most]
  std::size_t most = 0;

  [[nodiscard]] const std::int32_t* of(std::size_t out) const { return weights.data() + out * most; }
};

std::int32_t in_fixed_point(double weight) {
  return static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kWeightBits));
}

// Returns the weights of `num` output pixels from `begin` on, for scaling `from` pixels to `to` pixels.
AxisWeights compute_axis_weights(std::uint32_t from, std::uint32_t to, ResampleFilter filter, std::uint32_t begin, std::uint32_t num) {
  const FilterKernel kernel = kernel_of(filter);
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  const double inverse = 1.0 / stretch;
  AxisWeights axis;
  axis.most = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  axis.parts.resize(num);
  axis.weights.resize(num * axis.most);
  std::vector<double> exact(axis.most);
  for (std::size_t out = 0; out < num; ++out) {
    const double center = (static_cast<double>(begin + out) + 0.5) * scale;
    // NOLINTBEGIN(bugprone-incorrect-roundings): as Pillow rounds
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(static_cast<int>(from), static_cast<int>(center + support + 0.5));
    // NOLINTEND(bugprone-incorrect-roundings)
    const auto count = static_cast<std::size_t>(end - first);
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += exact[i] = kernel.weight((static_cast<double>(i) + first - center + 0.5) * inverse);
    for (std::size_t i = 0; i < count; ++i) axis.weights[out * axis.most + i] = in_fixed_point(sum != 0.0 ? exact[i] / sum : exact[i]);
    axis.parts[out] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
  }
  return axis;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

constexpr std::int32_t kRoundingTerm = 1 << (kWeightBits - 1);

RgbImage resample_horizontally(const RgbImage& in, const AxisWeights& axis) {
  const auto width = static_cast<std::uint32_t>(axis.parts.size());
  RgbImage out{width, in.height, std::vector<std::uint8_t>(std::size_t{3} * width * in.height)};
  for (std::size_t y = 0; y < in.height; ++y) {
    const std::uint8_t* const row = in.rgb.data() + y * in.width * 3;
    std::uint8_t* to = out.rgb.data() + y * width * 3;
    for (std::size_t x = 0; x < width; ++x, to += 3) {
      const std::int32_t* const weights = axis.of(x);
      const std::uint8_t* pixel = row + std::size_t{3} * axis.parts[x].first;
      std::int32_t red = kRoundingTerm, green = kRoundingTerm, blue = kRoundingTerm;
      for (std::size_t i = 0; i < axis.parts[x].count; ++i, pixel += 3) {
        red += pixel[0] * weights[i];
        green += pixel[1] * weights[i];
        blue += pixel[2] * weights[i];
      }
      to[0] = to_byte(red);
      to[1] = to_byte(green);
      to[2] = to_byte(blue);
    }
  }
  return out;
}

RgbImage resample_vertically(const RgbImage& in, const AxisWeights& axis) {
  const auto height = static_cast<std::uint32_t>(axis.parts.size());
  const std::size_t row_bytes = std::size_t{3} * in.width;
  RgbImage out{in.width, height, std::vector<std::uint8_t>(row_bytes * height)};
  std::vector<std::int32_t> sums(row_bytes);
  for (std::size_t y = 0; y < height; ++y) {
    std::ranges::fill(sums, kRoundingTerm);
    const std::int32_t* const weights = axis.of(y);
    for (std::size_t i = 0; i < axis.parts[y].count; ++i) {
      const std::uint8_t* const row = in.rgb.data() + (axis.parts[y].first + i) * row_bytes;
      for (std::size_t x = 0; x < row_bytes; ++x) sums[x] += row[x] * weights[i];
    }
    for (std::size_t x = 0; x < row_bytes; ++x) out.rgb[y * row_bytes + x] = to_byte(sums[x]);
  }
  return out;
}

// Returns a copy of a part of the image.
RgbImage crop(const RgbImage& in, const CropRect& part) {
  const std::size_t row = std::size_t{3} * part.width;
  RgbImage out{part.width, part.height, std::vector<std::uint8_t>(row * part.height)};
  for (std::size_t y = 0; y < part.height; ++y)
    std::copy_n(in.rgb.data() + 3 * ((part.top + y) * in.width + part.left), row, out.rgb.data() + y * row);
  return out;
}

}  // namespace

RgbImage resample(const RgbImage& image, std::uint32_t width, std::uint32_t height, ResampleFilter filter) {
  return resample(image, width, height, filter, {0, 0, width, height});
}

// Skips an axis whose size does not change, as Pillow does.
RgbImage resample(const RgbImage& image, std::uint32_t width, std::uint32_t height, ResampleFilter filter, const CropRect& part) {
  QUIRE_CHECK(image.width > 0 && image.height > 0 && part.width > 0 && part.height > 0, "the image and the part have pixels");
  QUIRE_CHECK(part.left <= width && part.width <= width - part.left && part.top <= height && part.height <= height - part.top,
              "the part lies inside the image");
  const bool keeps_width = image.width == width, keeps_height = image.height == height;
  const auto down = [&](const RgbImage& across) {
    return resample_vertically(across, compute_axis_weights(image.height, height, filter, part.top, part.height));
  };
  if (keeps_width && keeps_height) return crop(image, part);
  if (keeps_height) {
    const RgbImage rows = crop(image, {0, part.top, image.width, part.height});
    return resample_horizontally(rows, compute_axis_weights(image.width, width, filter, part.left, part.width));
  }
  if (keeps_width) return down(crop(image, {part.left, 0, part.width, image.height}));
  return down(resample_horizontally(image, compute_axis_weights(image.width, width, filter, part.left, part.width)));
}

}  // namespace quire
