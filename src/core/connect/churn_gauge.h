#pragma once
// Whether a tier only churns: nearly all that leaves it was never asked for, since it is far too small for what passes through. Then one
// new request in kEvery is stored, and each for which something was found: what is written is little (a disk wears), and what is kept stays
// kEvery times as long, so that some of it is found. Owned by a connector; called on the core's thread. Decided from counts alone.
#include <algorithm>
#include <cstdint>

namespace quire {

class ChurnGauge {
 public:
  static constexpr std::uint64_t kEvery = 16;
  static constexpr std::uint64_t kLeastWindow = 1024;  // blocks, so that a chance in a small tier is none

  explicit ChurnGauge(std::uint64_t num_slots) : window_(std::max(num_slots, kLeastWindow)) {}

  void loaded(std::uint64_t num_blocks) {
    num_loaded_ += num_blocks;
    judge();
  }
  void evicted(std::uint64_t num_blocks) {
    num_evicted_ += num_blocks;
    judge();
  }
  [[nodiscard]] bool churns() const { return churns_; }
  // Of a request of which nothing was found, said once: whether it is stored.
  bool takes_next() { return !churns_ || num_passed_++ % kEvery == 0; }

 private:
  // Once all that the tier held has left it: was one block in kSeldom found again? While one request in kEvery is stored the same blocks
  // stay longer, so more is asked of them before all are stored again; that is seen as soon as it is so.
  static constexpr std::uint64_t kSeldom = 16, kOften = 4;
  void judge() {
    if (churns_ && num_loaded_ >= window_ / kEvery && num_loaded_ >= kOften * num_evicted_)
      churns_ = false;
    else if (num_evicted_ < window_)
      return;
    else
      churns_ = churns_ || num_loaded_ * kSeldom < num_evicted_;
    num_loaded_ = num_evicted_ = 0;
  }

  std::uint64_t window_;
  std::uint64_t num_loaded_ = 0, num_evicted_ = 0;  // since the last judgement
  std::uint64_t num_passed_ = 0;
  bool churns_ = false;
};

}  // namespace quire
