#pragma once
// What Whisper hears: the energies of a window of sound in bands of the mel scale, as logarithms. The numbers are those of transformers'
// WhisperFeatureExtractor (4.57.6).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire {

inline constexpr std::uint32_t kSoundRate = 16'000;  // samples per second
inline constexpr std::uint32_t kWindowSeconds = 30;  // that an encoder hears at once
inline constexpr std::uint32_t kFrameSamples = 160;  // from frame to frame
inline constexpr std::uint32_t kFrameWidth = 400;    // samples that a frame is made of
inline constexpr std::size_t kWindowSamples = std::size_t{kWindowSeconds} * kSoundRate;
inline constexpr std::uint32_t kWindowFrames = kWindowSamples / kFrameSamples;

// Made once per model; any thread may use it.
class LogMel {
 public:
  explicit LogMel(std::uint32_t num_bands);

  [[nodiscard]] std::uint32_t num_bands() const { return num_bands_; }
  // Of a window, frame after frame: [kWindowFrames][num_bands]. Behind the last of the samples, kWindowSamples at most, is silence.
  [[nodiscard]] std::vector<float> compute(std::span<const float> samples) const;

 private:
  // Bins of the spectrum that a band hears, and how much of each.
  struct Band {
    std::uint32_t first = 0;
    std::vector<double> weights;
  };
  struct Scratch;
  void spectrum(Scratch& scratch) const;

  std::uint32_t num_bands_;
  std::vector<Band> bands_;
  std::vector<double> window_;           // [kFrameWidth]
  std::vector<double> cosines_, sines_;  // [kFrameWidth]: of 2 pi i / kFrameWidth
};

}  // namespace quire
