#pragma once
// What a transport tells of transfers that have ended: collected by its threads, taken by poll(). Whoever calls holds the transport's
// mutex.
#include <utility>
#include <vector>

#include "quire/base/transfer.h"

namespace quire {

class EndedTransfers {
 public:
  // `bad`: blocks that did not come; completion.bad_blocks is set when it is told.
  void add(const TransferCompletion& completion, std::vector<BlockId> bad) { ended_.push_back({completion, std::move(bad)}); }

  // Appends all that have ended since the last time. Their bad blocks are there until the next one.
  void tell(std::vector<TransferCompletion>& out) {
    told_.swap(ended_);
    ended_.clear();
    for (const Ended& one : told_) {
      out.push_back(one.completion);
      out.back().bad_blocks = one.bad;
    }
  }

 private:
  struct Ended {
    TransferCompletion completion;
    std::vector<BlockId> bad;
  };
  std::vector<Ended> ended_, told_;
};

}  // namespace quire
