#pragma once
// Queue of ended transfers: the threads of a transport add transfers, and poll() takes them. The caller must hold the transport's mutex.
#include <utility>
#include <vector>

#include "quire/base/transfer.h"

namespace quire {

class EndedTransfers {
 public:
  // `bad`: blocks that were not loaded; `report()` sets completion.bad_blocks.
  void add(const TransferCompletion& completion, std::vector<BlockId> bad) { ended_.push_back({completion, std::move(bad)}); }

  // Appends all transfers that have ended since the last call. Their bad blocks are valid until the next call.
  void report(std::vector<TransferCompletion>& out) {
    reported_.swap(ended_);
    ended_.clear();
    for (const Ended& one : reported_) {
      out.push_back(one.completion);
      out.back().bad_blocks = one.bad;
    }
  }

 private:
  struct Ended {
    TransferCompletion completion;
    std::vector<BlockId> bad;
  };
  std::vector<Ended> ended_, reported_;
};

}  // namespace quire
