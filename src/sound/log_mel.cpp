// What Whisper hears of a sound: the logarithms of its mel bands. Frames are transformed in double precision, as numpy does. 400 = 16 * 25,
// so a transform is 25 of 16 samples and then 16 of 25 values; only the bins up to half the rate are made.
#include "sound/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kBins = kFrameWidth / 2 + 1;
constexpr std::uint32_t kShort = 16, kLong = 25;
constexpr double kFloor = 1e-10;  // of an energy
constexpr double kRange = 8.0;    // powers of ten below the loudest that are told apart
static_assert(kShort * kLong == kFrameWidth);

// Slaney's scale: linear up to 1000 Hz, logarithmic above.
constexpr double kBorderHz = 1000.0, kBorderMel = 15.0;

double mel_of(double hz) {
  return hz < kBorderHz ? 3.0 * hz / 200.0 : kBorderMel + std::log(hz / kBorderHz) * (27.0 / std::log(6.4));
}

double hz_of(double mel) {
  return mel < kBorderMel ? 200.0 * mel / 3.0 : kBorderHz * std::exp(std::log(6.4) / 27.0 * (mel - kBorderMel));
}

// What numpy's and torch's reflecting padding find at a place before the begin or behind the end.
std::ptrdiff_t reflected(std::ptrdiff_t at) {
  constexpr auto kLast = static_cast<std::ptrdiff_t>(kWindowSamples) - 1;
  if (at < 0) return -at;
  return at > kLast ? 2 * kLast - at : at;
}

}  // namespace

struct LogMel::Scratch {
  std::array<double, kFrameWidth> frame{};
  std::array<double, kFrameWidth> real{}, imaginary{};  // [kLong][kShort]
  std::array<double, kBins> energy{};
};

LogMel::LogMel(std::uint32_t num_bands) : num_bands_(num_bands), bands_(num_bands) {
  QUIRE_CHECK(num_bands > 0 && num_bands <= kBins, "as many bands as there are bins, at most");
  for (std::uint32_t i = 0; i < kFrameWidth; ++i) {
    const double turn = 2.0 * std::numbers::pi * i / kFrameWidth;
    cosines_.push_back(std::cos(turn));
    sines_.push_back(std::sin(turn));
    window_.push_back(0.5 - 0.5 * cosines_.back());
  }
  std::vector<double> corners;
  corners.reserve(num_bands + 2);
  const double last = mel_of(kSoundRate / 2.0);
  for (std::uint32_t i = 0; i < num_bands + 2; ++i) corners.push_back(hz_of(last * i / (num_bands + 1)));
  for (std::uint32_t b = 0; b < num_bands; ++b) {
    Band& band = bands_[b];
    for (std::uint32_t bin = 0; bin < kBins; ++bin) {
      const double hz = kSoundRate / 2.0 * bin / (kBins - 1);
      const double rising = (hz - corners[b]) / (corners[b + 1] - corners[b]);
      const double falling = (corners[b + 2] - hz) / (corners[b + 2] - corners[b + 1]);
      const double weight = std::min(rising, falling);
      if (weight <= 0.0) continue;
      if (band.weights.empty()) band.first = bin;
      band.weights.push_back(weight * 2.0 / (corners[b + 2] - corners[b]));
    }
  }
}

// X[k] = sum over n2 of W400^(n2 k) * sum over n1 of x[25 n1 + n2] * W16^(n1 k): the inner sum depends on k mod 16 alone.
void LogMel::spectrum(Scratch& scratch) const {
  for (std::uint32_t n2 = 0; n2 < kLong; ++n2) {
    for (std::uint32_t k = 0; k < kShort; ++k) {
      double real = 0.0, imaginary = 0.0;
      for (std::uint32_t n1 = 0; n1 < kShort; ++n1) {
        const std::uint32_t turn = n1 * k % kShort * kLong;
        real += scratch.frame[kLong * n1 + n2] * cosines_[turn];
        imaginary -= scratch.frame[kLong * n1 + n2] * sines_[turn];
      }
      scratch.real[n2 * kShort + k] = real;
      scratch.imaginary[n2 * kShort + k] = imaginary;
    }
  }
  for (std::uint32_t k = 0; k < kBins; ++k) {
    double real = 0.0, imaginary = 0.0;
    for (std::uint32_t n2 = 0; n2 < kLong; ++n2) {
      const std::uint32_t turn = n2 * k % kFrameWidth;
      const double a = scratch.real[n2 * kShort + k % kShort], b = scratch.imaginary[n2 * kShort + k % kShort];
      real += a * cosines_[turn] + b * sines_[turn];
      imaginary += b * cosines_[turn] - a * sines_[turn];
    }
    scratch.energy[k] = real * real + imaginary * imaginary;
  }
}

std::vector<float> LogMel::compute(std::span<const float> samples) const {
  QUIRE_CHECK(samples.size() <= kWindowSamples, "a window at most");
  const auto sample_at = [&](std::ptrdiff_t at) {
    const auto place = static_cast<std::size_t>(reflected(at));
    return place < samples.size() ? static_cast<double>(samples[place]) : 0.0;
  };
  Scratch scratch;
  std::vector<float> rows(std::size_t{kWindowFrames} * num_bands_, static_cast<float>(std::log10(kFloor)));
  for (std::uint32_t frame = 0; frame < kWindowFrames; ++frame) {
    const std::ptrdiff_t begin = std::ptrdiff_t{frame} * kFrameSamples - kFrameWidth / 2;
    // The silence behind a short recording costs nothing.
    if (begin >= static_cast<std::ptrdiff_t>(samples.size()) && begin + kFrameWidth <= static_cast<std::ptrdiff_t>(kWindowSamples))
      continue;
    for (std::uint32_t i = 0; i < kFrameWidth; ++i) scratch.frame[i] = sample_at(begin + i) * window_[i];
    spectrum(scratch);
    for (std::uint32_t b = 0; b < num_bands_; ++b) {
      double sum = 0.0;
      for (std::size_t i = 0; i < bands_[b].weights.size(); ++i) sum += bands_[b].weights[i] * scratch.energy[bands_[b].first + i];
      rows[std::size_t{frame} * num_bands_ + b] = static_cast<float>(std::log10(std::max(sum, kFloor)));
    }
  }
  const float least = std::ranges::max(rows) - static_cast<float>(kRange);
  for (float& value : rows) value = (std::max(value, least) + 4.0F) / 4.0F;
  return rows;
}

}  // namespace quire
