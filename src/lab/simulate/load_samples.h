#pragma once
// Keeps a bounded number of samples over a period of unknown length. When there are too many samples, every second sample is dropped and
// the interval doubles.
#include <utility>
#include <vector>

#include "quire/simulation.h"

namespace quire {

class LoadSamples {
 public:
  [[nodiscard]] bool due(double now_s) const { return now_s >= next_s_; }
  void add(const LoadSample& sample) {
    samples_.push_back(sample);
    if (samples_.size() >= kMost) {
      for (std::size_t i = 0; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
      samples_.resize((samples_.size() + 1) / 2);
      every_s_ *= 2.0;
    }
    next_s_ = sample.time_s + every_s_;
  }
  std::vector<LoadSample> take() { return std::move(samples_); }

 private:
  static constexpr std::size_t kMost = 1000;
  std::vector<LoadSample> samples_;
  double every_s_ = 0.05;
  double next_s_ = 0.0;
};

}  // namespace quire
