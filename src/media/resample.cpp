// Scales pictures as Pillow does. The facts are those of Pillow's Resample.c: how wide a filter is, which pixels it covers, how weights are
// rounded and where bytes are. Any thread; what a call needs besides its result is one picture in between, and the weights of one side.
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

struct FilterShape {
  double (*weight)(double x);
  double support;
};

FilterShape shape_of(PictureFilter filter) {
  switch (filter) {
    case PictureFilter::lanczos:
      return {lanczos, 3.0};
    case PictureFilter::bilinear:
      return {bilinear, 1.0};
    case PictureFilter::bicubic:
      return {bicubic, 2.0};
    case PictureFilter::box:
      return {box, 0.5};
    case PictureFilter::hamming:
      break;
  }
  return {hamming, 1.0};
}

// Of one side: which pixels make each of the new ones, and by how much.
struct SideWeights {
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

// Of `to` new pixels those from `begin` on, as many as `num`.
SideWeights weigh(std::uint32_t from, std::uint32_t to, PictureFilter filter, std::uint32_t begin, std::uint32_t num) {
  const FilterShape shape = shape_of(filter);
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = shape.support * stretch;
  const double inverse = 1.0 / stretch;
  SideWeights side;
  side.most = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  side.parts.resize(num);
  side.weights.resize(num * side.most);
  std::vector<double> exact(side.most);
  for (std::size_t out = 0; out < num; ++out) {
    const double center = (static_cast<double>(begin + out) + 0.5) * scale;
    // NOLINTBEGIN(bugprone-incorrect-roundings): as Pillow rounds
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int end = std::min(static_cast<int>(from), static_cast<int>(center + support + 0.5));
    // NOLINTEND(bugprone-incorrect-roundings)
    const auto count = static_cast<std::size_t>(end - first);
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) sum += exact[i] = shape.weight((static_cast<double>(i) + first - center + 0.5) * inverse);
    for (std::size_t i = 0; i < count; ++i) side.weights[out * side.most + i] = in_fixed_point(sum != 0.0 ? exact[i] / sum : exact[i]);
    side.parts[out] = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
  }
  return side;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

Picture scale_across(const Picture& in, const SideWeights& side) {
  const auto width = static_cast<std::uint32_t>(side.parts.size());
  Picture out{width, in.height, std::vector<std::uint8_t>(std::size_t{3} * width * in.height)};
  for (std::size_t y = 0; y < in.height; ++y) {
    const std::uint8_t* const row = in.rgb.data() + y * in.width * 3;
    std::uint8_t* to = out.rgb.data() + y * width * 3;
    for (std::size_t x = 0; x < width; ++x, to += 3) {
      const std::int32_t* const weights = side.of(x);
      const std::uint8_t* pixel = row + std::size_t{3} * side.parts[x].first;
      std::int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (std::size_t i = 0; i < side.parts[x].count; ++i, pixel += 3) {
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

Picture scale_down(const Picture& in, const SideWeights& side) {
  const auto height = static_cast<std::uint32_t>(side.parts.size());
  const std::size_t row_bytes = std::size_t{3} * in.width;
  Picture out{in.width, height, std::vector<std::uint8_t>(row_bytes * height)};
  std::vector<std::int32_t> sums(row_bytes);
  for (std::size_t y = 0; y < height; ++y) {
    std::ranges::fill(sums, kHalf);
    const std::int32_t* const weights = side.of(y);
    for (std::size_t i = 0; i < side.parts[y].count; ++i) {
      const std::uint8_t* const row = in.rgb.data() + (side.parts[y].first + i) * row_bytes;
      for (std::size_t x = 0; x < row_bytes; ++x) sums[x] += row[x] * weights[i];
    }
    for (std::size_t x = 0; x < row_bytes; ++x) out.rgb[y * row_bytes + x] = to_byte(sums[x]);
  }
  return out;
}

// Columns and rows as they are.
Picture cut_out(const Picture& in, const PicturePart& part) {
  const std::size_t row = std::size_t{3} * part.width;
  Picture out{part.width, part.height, std::vector<std::uint8_t>(row * part.height)};
  for (std::size_t y = 0; y < part.height; ++y)
    std::copy_n(in.rgb.data() + 3 * ((part.top + y) * in.width + part.left), row, out.rgb.data() + y * row);
  return out;
}

}  // namespace

Picture resample(const Picture& picture, std::uint32_t width, std::uint32_t height, PictureFilter filter) {
  return resample(picture, width, height, filter, {0, 0, width, height});
}

// A side that keeps its size is not weighed, as in Pillow.
Picture resample(const Picture& picture, std::uint32_t width, std::uint32_t height, PictureFilter filter, const PicturePart& part) {
  QUIRE_CHECK(picture.width > 0 && picture.height > 0 && part.width > 0 && part.height > 0, "a picture has pixels");
  QUIRE_CHECK(part.left <= width && part.width <= width - part.left && part.top <= height && part.height <= height - part.top,
              "a part lies within the picture");
  const bool keeps_width = picture.width == width, keeps_height = picture.height == height;
  const auto down = [&](const Picture& across) { return scale_down(across, weigh(picture.height, height, filter, part.top, part.height)); };
  if (keeps_width && keeps_height) return cut_out(picture, part);
  if (keeps_height) {
    const Picture rows = cut_out(picture, {0, part.top, picture.width, part.height});
    return scale_across(rows, weigh(picture.width, width, filter, part.left, part.width));
  }
  if (keeps_width) return down(cut_out(picture, {part.left, 0, part.width, picture.height}));
  return down(scale_across(picture, weigh(picture.width, width, filter, part.left, part.width)));
}

}  // namespace quire
