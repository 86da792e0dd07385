#pragma once
// The pseudo-code of two papers, on lists of numbers from the oldest on: ARC (Megiddo and Modha 2003, figure 4) and S3-FIFO (Yang et al.
// 2023, algorithm 1). Keys that cannot be evicted are skipped. If one list has no victim, the other one is used.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "quire/offload.h"

namespace quire::test {

class NaivePolicy {
 public:
  using Keys = std::vector<int>;
  using MayGo = std::function<bool(int)>;

  virtual ~NaivePolicy() = default;
  // Records a use of a resident key.
  virtual void use(int key) = 0;
  // Inserts a key. Returns the evicted key if there was no room.
  virtual std::optional<int> admit(int key, bool is_full, const MayGo& may_go) = 0;
  // Called when all keys of one call are inserted.
  virtual void settle() {}
  virtual void restore(int key) = 0;
  virtual void remove(int key) = 0;
  virtual std::vector<Keys> lists() const = 0;
  virtual double target() const { return 0; }

 protected:
  static bool has(const Keys& list, int key) { return std::ranges::find(list, key) != list.end(); }
  static std::optional<int> oldest(const Keys& list, const MayGo& may_go) {
    const auto found = std::ranges::find_if(list, may_go);
    return found == list.end() ? std::nullopt : std::optional(*found);
  }
};

class NaiveArcPaper final : public NaivePolicy {
 public:
  explicit NaiveArcPaper(int num_slots) : c_(static_cast<std::size_t>(num_slots)) {}

  void use(int key) override {  // case I
    std::erase(t1_, key);
    std::erase(t2_, key);
    t2_.push_back(key);
  }

  std::optional<int> admit(int key, bool is_full, const MayGo& may_go) override {
    const auto size = [](const Keys& list) { return static_cast<double>(list.size()); };
    std::optional<int> victim;
    if (has(b1_, key)) {  // case II
      const double delta = b1_.size() >= b2_.size() ? 1 : size(b2_) / size(b1_);
      p_ = std::min(p_ + delta, static_cast<double>(c_));
      std::erase(b1_, key);
      if (is_full) victim = replace(false, may_go);
      t2_.push_back(key);
    } else if (has(b2_, key)) {  // case III
      const double delta = b2_.size() >= b1_.size() ? 1 : size(b1_) / size(b2_);
      p_ = std::max(p_ - delta, 0.0);
      std::erase(b2_, key);
      if (is_full) victim = replace(true, may_go);
      t2_.push_back(key);
    } else {  // case IV
      if (t1_.size() + b1_.size() == c_ && t1_.size() == c_) {
        victim = oldest(t1_, may_go);
        std::erase(t1_, *victim);
      } else {
        drop_ghost();
        if (is_full) victim = replace(false, may_go);
      }
      t1_.push_back(key);
    }
    return victim;
  }

  void restore(int key) override {
    std::erase(b1_, key);
    std::erase(b2_, key);
    drop_ghost();
    t1_.insert(t1_.begin(), key);
  }
  void remove(int key) override {
    std::erase(t1_, key);
    std::erase(t2_, key);
  }
  std::vector<Keys> lists() const override { return {t1_, t2_, b1_, b2_}; }
  double target() const override { return p_; }

 private:
  void drop_ghost() {
    if (t1_.size() + b1_.size() == c_)
      b1_.erase(b1_.begin());
    else if (t1_.size() + b1_.size() + t2_.size() + b2_.size() == 2 * c_)
      b2_.erase(b2_.begin());
  }

  int replace(bool was_in_b2, const MayGo& may_go) {
    const auto size = static_cast<double>(t1_.size());
    const bool wants_t1 = !t1_.empty() && (size > p_ || (was_in_b2 && size == p_));
    const bool from_t1 = oldest(wants_t1 ? t1_ : t2_, may_go) ? wants_t1 : !wants_t1;
    const int victim = oldest(from_t1 ? t1_ : t2_, may_go).value();
    std::erase(from_t1 ? t1_ : t2_, victim);
    (from_t1 ? b1_ : b2_).push_back(victim);
    return victim;
  }

  std::size_t c_;
  double p_ = 0;
  Keys t1_, t2_, b1_, b2_;
};

class NaiveS3Fifo final : public NaivePolicy {
 public:
  explicit NaiveS3Fifo(int num_slots) : small_size_(std::max(1, num_slots / 10)), num_ghosts_(std::max(1, num_slots - small_size_)) {}

  void use(int key) override { freq_[key] = std::min(freq_[key] + 1, 3); }

  std::optional<int> admit(int key, bool is_full, const MayGo& may_go) override {
    const bool was_ghost = std::erase(ghosts_, key) > 0;
    std::optional<int> victim;
    while (is_full && !victim) victim = evict(may_go);
    (was_ghost ? to_main_ : to_small_).push_back(key);
    freq_[key] = 0;
    return victim;
  }

  // Keys that move because of a call are older than the keys that the call inserts.
  void settle() override {
    small_.insert(small_.end(), to_small_.begin(), to_small_.end());
    main_.insert(main_.end(), to_main_.begin(), to_main_.end());
    to_small_.clear();
    to_main_.clear();
  }

  void restore(int key) override {
    std::erase(ghosts_, key);
    small_.insert(small_.begin(), key);
    freq_[key] = 0;
  }
  void remove(int key) override {
    std::erase(small_, key);
    std::erase(main_, key);
  }
  std::vector<Keys> lists() const override { return {small_, main_, ghosts_}; }

 private:
  // Returns nullopt if the oldest key was not evicted.
  std::optional<int> evict(const MayGo& may_go) {
    const bool small_is_large = static_cast<int>(small_.size() + to_small_.size()) >= small_size_;
    if (oldest(main_, may_go) && !(small_is_large && oldest(small_, may_go))) return evict_main(*oldest(main_, may_go));
    return evict_small(oldest(small_, may_go).value());
  }

  std::optional<int> evict_small(int key) {
    std::erase(small_, key);
    if (freq_[key] > 1) {
      freq_[key] = 0;
      main_.push_back(key);
      return std::nullopt;
    }
    ghosts_.push_back(key);
    if (static_cast<int>(ghosts_.size()) > num_ghosts_) ghosts_.erase(ghosts_.begin());
    return key;
  }

  std::optional<int> evict_main(int key) {
    std::erase(main_, key);
    if (freq_[key] == 0) return key;
    --freq_[key];
    main_.push_back(key);
    return std::nullopt;
  }

  int small_size_, num_ghosts_;
  Keys small_, main_, ghosts_, to_small_, to_main_;
  std::map<int, int> freq_;
};

// Returns null for vLLM's policies.
inline std::unique_ptr<NaivePolicy> make_naive_policy(OffloadPolicy policy, int num_slots) {
  if (policy == OffloadPolicy::arc_paper) return std::make_unique<NaiveArcPaper>(num_slots);
  if (policy == OffloadPolicy::s3fifo) return std::make_unique<NaiveS3Fifo>(num_slots);
  return nullptr;
}

}  // namespace quire::test
