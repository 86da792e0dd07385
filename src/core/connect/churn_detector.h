#pragma once
// Detects that a tier only churns: it is far too small for its traffic, so nearly all blocks are evicted without having been requested.
// Then only one new request in kEvery is stored, and each request for which something was found. Little is written (disks wear
// out), and blocks stay kEvery times as long, so that some of them are found. Owned by a connector; called on the core's thread. It decides
// from counts alone.
#include <algorithm>
#include <cstdint>

namespace quire {

class ChurnDetector {
 public:
  static constexpr std::uint64_t kEvery = 16;
  static constexpr std::uint64_t kLeastWindow = 1024;  // in blocks; large enough that chance does not decide in a small tier

  explicit ChurnDetector(std::uint64_t num_slots) : window_(std::max(num_slots, kLeastWindow)) {}

  void loaded(std::uint64_t num_blocks) {
    num_loaded_ += num_blocks;
    update();
  }
  void evicted(std::uint64_t num_blocks) {
    num_evicted_ += num_blocks;
    update();
  }
  [[nodiscard]] bool is_churning() const { return is_churning_; }
  // Called once for each request for which nothing was found. Returns whether it is stored.
  bool should_store_next() { return !is_churning_ || num_passed_++ % kEvery == 0; }

 private:
  // Judges when as many blocks were evicted as the tier holds: was one block in kSeldom found again? While only one request in kEvery is
  // stored, its blocks stay longer. Storing all requests again therefore requires more hits, and begins as soon as they are reached.
  static constexpr std::uint64_t kSeldom = 16, kOften = 4;
  void update() {
    if (is_churning_ && num_loaded_ >= window_ / kEvery && num_loaded_ >= kOften * num_evicted_)
      is_churning_ = false;
    else if (num_evicted_ < window_)
      return;
    else
      is_churning_ = is_churning_ || num_loaded_ * kSeldom < num_evicted_;
    num_loaded_ = num_evicted_ = 0;
  }

  std::uint64_t window_;
  std::uint64_t num_loaded_ = 0, num_evicted_ = 0;  // since the last judgement
  std::uint64_t num_passed_ = 0;
  bool is_churning_ = false;
};

}  // namespace quire
