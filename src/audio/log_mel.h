#pragma once
// Computes Whisper's input: the logarithmic energies of an audio window in bands of the mel scale. Results equal those computed by
// WhisperFeatureExtractor of transformers (4.57.6).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire {

inline constexpr std::uint32_t kAudioSampleRate = 16'000;  // samples per second
inline constexpr std::uint32_t kWindowSeconds = 30;        // audio that an encoder takes per call
inline constexpr std::uint32_t kFrameSamples = 160;        // samples from one frame to the next
inline constexpr std::uint32_t kFrameWidth = 400;          // samples that a frame covers
inline constexpr std::size_t kWindowSamples = std::size_t{kWindowSeconds} * kAudioSampleRate;
inline constexpr std::uint32_t kWindowFrames = kWindowSamples / kFrameSamples;

// Created once per model. Immutable, so any thread may use the object.
class LogMel {
 public:
  explicit LogMel(std::uint32_t num_bands);

  [[nodiscard]] std::uint32_t num_bands() const { return num_bands_; }
  // Returns the bands of a window, frame by frame: [kWindowFrames][num_bands]. `samples` has at most kWindowSamples; silence follows them.
  [[nodiscard]] std::vector<float> compute(std::span<const float> samples) const;

 private:
  // Spectrum bins that a band covers, with their weights.
  struct Band {
    std::uint32_t first = 0;
    std::vector<double> weights;
  };
  struct Scratch;
  void spectrum(Scratch& scratch) const;

  std::uint32_t num_bands_;
  std::vector<Band> bands_;
  std::vector<double> window_;           // [kFrameWidth]
  std::vector<double> cosines_, sines_;  // [kFrameWidth]; entry i is for the angle 2 pi i / kFrameWidth
};

}  // namespace quire
