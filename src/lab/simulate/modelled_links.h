#pragma once
// Copies between a KV cache and the memory beside it, in virtual time: a link each way, which moves one copy after the other.
#include <span>
#include <vector>

#include "quire/base/transfer.h"
#include "quire/simulation.h"

namespace quire {

class ModelledLinks {
 public:
  ModelledLinks(const TierModel& tier, std::uint64_t block_bytes) : tier_(tier), block_bytes_(static_cast<double>(block_bytes)) {}

  // It begins when its link is free, and not before `from_s`.
  void begin(const Transfer& transfer, double from_s);
  // When these are all over; those that are over already count as 0.
  [[nodiscard]] double end_of(std::span<const TransferId> transfers) const;
  // kNever: nothing moves.
  [[nodiscard]] double next_end_s() const;
  // What is over by now, in the order in which it ended; each once. Valid until the next call.
  std::span<const TransferCompletion> take_over(double now_s);

  [[nodiscard]] double loaded_bytes() const { return loaded_bytes_; }
  [[nodiscard]] double stored_bytes() const { return stored_bytes_; }

 private:
  struct Open {
    double end_s;
    TransferCompletion completion;
  };
  const TierModel tier_;
  const double block_bytes_;
  double load_free_s_ = 0.0, store_free_s_ = 0.0;
  double loaded_bytes_ = 0.0, stored_bytes_ = 0.0;
  std::vector<Open> open_;
  std::vector<TransferCompletion> over_;
};

}  // namespace quire
