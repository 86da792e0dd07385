// Computes Whisper's input from audio: the logarithms of mel bands. Frames are transformed in double precision, as in numpy. 400 = 16 * 25,
// so a transform is 25 transforms of 16 samples and then 16 of 25 values. Only the bins up to half the sample rate are computed.
#include "audio/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumSpectrumBins = kFrameWidth / 2 + 1;
constexpr std::uint32_t kFftShortFactor = 16, kFftLongFactor = 25;
constexpr double kMinEnergy = 1e-10;          // least energy
constexpr double kDynamicRangeDecades = 8.0;  // powers of ten below the loudest value that stay distinct
static_assert(kFftShortFactor * kFftLongFactor == kFrameWidth);

// Slaney's scale: linear up to 1000 Hz, logarithmic above.
constexpr double kLinearLimitHz = 1000.0, kLinearLimitMel = 15.0;

double mel_of(double hz) {
  return hz < kLinearLimitHz ? 3.0 * hz / 200.0 : kLinearLimitMel + std::log(hz / kLinearLimitHz) * (27.0 / std::log(6.4));
}

double hz_of(double mel) {
  return mel < kLinearLimitMel ? 200.0 * mel / 3.0 : kLinearLimitHz * std::exp(std::log(6.4) / 27.0 * (mel - kLinearLimitMel));
}

// Returns the position that reflecting padding (as in numpy and torch) reads for a position before the beginning or after the end.
std::ptrdiff_t reflect_index(std::ptrdiff_t at) {
  constexpr auto kLast = static_cast<std::ptrdiff_t>(kWindowSamples) - 1;
  if (at < 0) return -at;
  return at > kLast ? 2 * kLast - at : at;
}

}  // namespace

struct LogMel::Scratch {
  std::array<double, kFrameWidth> frame{};
  std::array<double, kFrameWidth> real{}, imaginary{};  // [kFftLongFactor][kFftShortFactor]
  std::array<double, kNumSpectrumBins> energy{};
};

LogMel::LogMel(std::uint32_t num_bands) : num_bands_(num_bands), bands_(num_bands) {
  QUIRE_CHECK(num_bands > 0 && num_bands <= kNumSpectrumBins, "the number of bands is 1 to the number of bins");
  for (std::uint32_t i = 0; i < kFrameWidth; ++i) {
    const double turn = 2.0 * std::numbers::pi * i / kFrameWidth;
    cosines_.push_back(std::cos(turn));
    sines_.push_back(std::sin(turn));
    window_.push_back(0.5 - 0.5 * cosines_.back());
  }
  std::vector<double> corners;
  corners.reserve(num_bands + 2);
  const double last = mel_of(kAudioSampleRate / 2.0);
  for (std::uint32_t i = 0; i < num_bands + 2; ++i) corners.push_back(hz_of(last * i / (num_bands + 1)));
  for (std::uint32_t b = 0; b < num_bands; ++b) {
    Band& band = bands_[b];
    for (std::uint32_t bin = 0; bin < kNumSpectrumBins; ++bin) {
      const double hz = kAudioSampleRate / 2.0 * bin / (kNumSpectrumBins - 1);
      const double rising = (hz - corners[b]) / (corners[b + 1] - corners[b]);
      const double falling = (corners[b + 2] - hz) / (corners[b + 2] - corners[b + 1]);
      const double weight = std::min(rising, falling);
      if (weight <= 0.0) continue;
      if (band.weights.empty()) band.first = bin;
      band.weights.push_back(weight * 2.0 / (corners[b + 2] - corners[b]));
    }
  }
}

// X[k] = sum over n2 of W400^(n2 k) * sum over n1 of x[25 n1 + n2] * W16^(n1 k). The inner sum depends only on k mod 16.
void LogMel::spectrum(Scratch& scratch) const {
  for (std::uint32_t n2 = 0; n2 < kFftLongFactor; ++n2) {
    for (std::uint32_t k = 0; k < kFftShortFactor; ++k) {
      double real = 0.0, imaginary = 0.0;
      for (std::uint32_t n1 = 0; n1 < kFftShortFactor; ++n1) {
        const std::uint32_t turn = n1 * k % kFftShortFactor * kFftLongFactor;
        real += scratch.frame[kFftLongFactor * n1 + n2] * cosines_[turn];
        imaginary -= scratch.frame[kFftLongFactor * n1 + n2] * sines_[turn];
      }
      scratch.real[n2 * kFftShortFactor + k] = real;
      scratch.imaginary[n2 * kFftShortFactor + k] = imaginary;
    }
  }
  for (std::uint32_t k = 0; k < kNumSpectrumBins; ++k) {
    double real = 0.0, imaginary = 0.0;
    for (std::uint32_t n2 = 0; n2 < kFftLongFactor; ++n2) {
      const std::uint32_t turn = n2 * k % kFrameWidth;
      const double a = scratch.real[n2 * kFftShortFactor + k % kFftShortFactor],
                   b = scratch.imaginary[n2 * kFftShortFactor + k % kFftShortFactor];
      real += a * cosines_[turn] + b * sines_[turn];
      imaginary += b * cosines_[turn] - a * sines_[turn];
    }
    scratch.energy[k] = real * real + imaginary * imaginary;
  }
}

std::vector<float> LogMel::compute(std::span<const float> samples) const {
  QUIRE_CHECK(samples.size() <= kWindowSamples, "the audio fits into one window");
  const auto sample_at = [&](std::ptrdiff_t at) {
    const auto place = static_cast<std::size_t>(reflect_index(at));
    return place < samples.size() ? static_cast<double>(samples[place]) : 0.0;
  };
  Scratch scratch;
  std::vector<float> rows(std::size_t{kWindowFrames} * num_bands_, static_cast<float>(std::log10(kMinEnergy)));
  for (std::uint32_t frame = 0; frame < kWindowFrames; ++frame) {
    const std::ptrdiff_t begin = std::ptrdiff_t{frame} * kFrameSamples - kFrameWidth / 2;
    // Frames that contain only the silence after a short recording are skipped.
    if (begin >= static_cast<std::ptrdiff_t>(samples.size()) && begin + kFrameWidth <= static_cast<std::ptrdiff_t>(kWindowSamples))
      continue;
    for (std::uint32_t i = 0; i < kFrameWidth; ++i) scratch.frame[i] = sample_at(begin + i) * window_[i];
    spectrum(scratch);
    for (std::uint32_t b = 0; b < num_bands_; ++b) {
      double sum = 0.0;
      for (std::size_t i = 0; i < bands_[b].weights.size(); ++i) sum += bands_[b].weights[i] * scratch.energy[bands_[b].first + i];
      rows[std::size_t{frame} * num_bands_ + b] = static_cast<float>(std::log10(std::max(sum, kMinEnergy)));
    }
  }
  const float least = std::ranges::max(rows) - static_cast<float>(kDynamicRangeDecades);
  for (float& value : rows) value = (std::max(value, least) + 4.0F) / 4.0F;
  return rows;
}

}  // namespace quire
