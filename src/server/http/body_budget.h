#pragma once
// How many bytes of request bodies all connections together may hold.
// A lease grows before the bytes are read, so the bound holds at every moment.
#include <atomic>
#include <cstdint>

namespace quire {

class BodyBudget {
 public:
  // An eighth of it is kept for bodies of up to this size, so that large ones cannot keep out the ordinary.
  static constexpr std::uint64_t kSmallBodyBytes = 64 << 10;

  explicit BodyBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;

  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

  // What one body holds; given back when this goes, on any thread. The budget must outlive it.
  class Lease {
   public:
    explicit Lease(BodyBudget& budget) : budget_(&budget) {}
    ~Lease() { budget_->used_bytes_ -= bytes_; }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    // False: there is no room, and this holds what it held.
    [[nodiscard]] bool grow_to(std::uint64_t bytes);

   private:
    BodyBudget* budget_;
    std::uint64_t bytes_ = 0;
  };

 private:
  std::uint64_t total_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

}  // namespace quire
