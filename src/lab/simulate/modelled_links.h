#pragma once
// Models copies between a KV cache and its memory tier in virtual time, with one link per direction that makes one copy after another.
#include <span>
#include <vector>

#include "quire/base/transfer.h"
#include "quire/simulation.h"

namespace quire {

class ModelledLinks {
 public:
  ModelledLinks(const TierModel& tier, std::uint64_t block_bytes) : tier_(tier), block_bytes_(static_cast<double>(block_bytes)) {}

  // Adds a copy, which begins when its link is free, but not before `from_s`.
  void begin(const Transfer& transfer, double from_s);
  // Returns the time at which the last of these transfers is over. A transfer that is already over counts as 0.
  [[nodiscard]] double end_of(std::span<const TransferId> transfers) const;
  // Returns the time at which the next transfer ends; kNever if no transfer is in flight.
  [[nodiscard]] double next_end_s() const;
  // Returns the transfers that have ended by `now_s`, each once, in the order of their ends. Valid until the next call.
  std::span<const TransferCompletion> take_completed(double now_s);

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
