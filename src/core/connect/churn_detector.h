#pragma once
// Detects that a tier churns: it is far too small for its traffic, so nearly all blocks are evicted without having been loaded. While a
// tier churns, the connector stores each request that has a hit or for which enough slots are free, and only one in kEvery of all other
// requests. Fewer writes wear out the disk less, and blocks stay about kEvery times as long, so that some of them are loaded again. Owned
// by a connector; called on the core's thread.
#include <algorithm>
#include <cstdint>

namespace quire {

class ChurnDetector {
 public:
  static constexpr std::uint64_t kEvery = 16;
  static constexpr std::uint64_t kLeastWindow = 1024;  // in blocks; large enough that a small tier is not judged by chance

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
  // Called once for each request that has no hit and would evict blocks. Returns whether the request is stored.
  bool should_store_next() { return !is_churning_ || num_passed_++ % kEvery == 0; }

 private:
  // Decides after `window_` evictions whether the tier churns: fewer than one block was loaded per kSeldom evicted blocks. While the tier
  // churns, few blocks are stored and they stay longer, so more hits are required to end this state: at least window_ / kEvery loaded
  // blocks, and kOften per evicted block. This condition is checked on every call.
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
  std::uint64_t num_loaded_ = 0, num_evicted_ = 0;  // since the last decision
  std::uint64_t num_passed_ = 0;
  bool is_churning_ = false;
};

}  // namespace quire
