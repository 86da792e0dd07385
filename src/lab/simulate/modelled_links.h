#pragma once
// Models copies between a KV cache and its memory tier in virtual time: one link per direction, which moves one copy after another.
#include <span>
#include <vector>

#include "quire/base/transfer.h"
#include "quire/simulation.h"

namespace quire {

class ModelledLinks {
 public:
  ModelledLinks(const TierModel& tier, std::uint64_t block_bytes) : tier_(tier), block_bytes_(static_cast<double>(block_bytes)) {}

  // Begins a copy when its link is free, and not before `from_s`.
  void begin(const Transfer& transfer, double from_s);
  // Returns when all these transfers are over. Transfers that are already over count as 0.
  [[nodiscard]] double end_of(std::span<const TransferId> transfers) const;
  // Returns when the next transfer ends; kNever if no transfer is in flight.
  [[nodiscard]] double next_end_s() const;
  // Returns the transfers that are over by `now_s`, each once, in the order of their ends. Valid until the next call.
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
