#pragma once
// The core's decisions and their causes, reported where they are made. A sink is called in the middle of a decision: it records and
// returns, and never calls back into the core.
#include <cstdint>

#include "quire/ids.h"

namespace quire {

struct BlockHash;

class EventSink {
 public:
  virtual ~EventSink() = default;

  // `hit_tokens` of `queried_tokens` were found in the prefix cache; reported on every look-up, also when the request is then not admitted.
  virtual void on_prefix_lookup(RequestId /*id*/, std::uint32_t /*queried_tokens*/, std::uint32_t /*hit_tokens*/) {}
  // `block` became findable under `hash`.
  virtual void on_block_cached(BlockId /*block*/, const BlockHash& /*hash*/) {}
  // `block` was needed for new content: what it held under `hash` is lost.
  virtual void on_block_evicted(BlockId /*block*/, const BlockHash& /*hash*/) {}
  // `victim` lost its blocks because `cause` (perhaps itself) needed `missing_blocks` more than were free.
  virtual void on_preempted(RequestId /*victim*/, RequestId /*cause*/, std::uint32_t /*missing_blocks*/) {}
  // The head of the waiting queue was not admitted in this step although it had budget: `missing_blocks` more had to be free.
  virtual void on_admission_blocked(RequestId /*id*/, std::uint32_t /*missing_blocks*/) {}
};

}  // namespace quire
