#pragma once
// Decisions of the core and their causes, reported at the time of the decision. The core calls an EventSink on the core's thread, in the
// middle of its decisions. An event is a value: it contains no references and outlives its request. Any thread may read a copy.
#include <array>
#include <cstdint>

#include "quire/base/ids.h"

namespace quire {

enum class EventKind : std::uint8_t {
  step_begins,        // expired pins have ended; nothing of the step is decided yet
  prefix_looked_up,   // prefix-cache look-up: `amount` of `total` tokens of `owner` were found; reported on every look-up
  admission_tried,    // after a complete look-up: `amount` of `total` tokens are in the prefix cache, `external` more in a connector
  admission_blocked,  // `owner`, the head of its queue, is not admitted: `amount` free blocks are missing
  preempted,          // `owner` is preempted for `beneficiary` (which may be `owner` itself), which needs `amount` more free blocks
  block_cached,       // `block`, which ends with the `total`-th token, is cached under hash `name`, after the block with hash `parent`
  block_evicted,      // `block` is taken for new content; its cached content under block hash `name` is lost
  pinned,             // `owner` has ended; its `amount` blocks stay for the next turn of its job
  unpinned,           // the `amount` pinned blocks of `owner` are released
  forked,             // `beneficiary` is forked from `owner` and shares `amount` of its blocks
  unshared,           // `owner`, a fork that has not run, releases its `amount` shared blocks and will be computed
  gave_way,           // `owner`, a waiting request, releases its `amount` blocks because `beneficiary` needs blocks
  pressure_high,      // `amount` of `total` blocks are referenced: no request is admitted until pressure_low
  pressure_low,       // `amount` of `total` blocks are referenced: requests are admitted again
  swapped_out,        // `owner` is preempted: `amount` blocks are being stored, other requests hold the rest
  swapped_in,         // the `amount` blocks of `owner` have been loaded, and it continues after `total` tokens
  swap_declined,      // `owner` is preempted and will be computed again: its `amount` blocks are not moved
  swap_lost,          // `owner`, swapped out, loses its `amount` stored blocks and will be computed again
  queued,             // `owner` has arrived and waits
  passed_over,        // `owner` waits for a condition other than its turn; in this step other requests go before it
  queue_held,         // no more requests are admitted in this step; `owner` is the first that was not (0: no single request)
  admitted,           // `owner` runs from this step on: `amount` of `total` tokens need not be computed
  ended,              // `owner` has ended; a pin or a transfer may still hold its blocks
  block_forgotten,    // `block` loses its block hash `name`, because its content is wrong or unknown
  cache_reset         // the prefix cache is empty
};

// Why an event happened. The comment of each cause lists the kinds of events that can have the cause.
enum class EventCause : std::uint8_t {
  none,
  lack_of_blocks,   // preempted, admission_blocked, queue_held, unpinned (pins_give_way), unshared, gave_way, swapped_out, swap_lost
  expired,          // unpinned
  replaced,         // unpinned: a later turn of the job was pinned
  job_over,         // unpinned: the job has ended (pins_end_with_job)
  ended_by_host,    // preempted, unpinned, unshared, gave_way, swap_lost: a reset of the prefix cache, or end_pins()
  above_high,       // pressure_high, admission_blocked, preempted, queue_held
  below_low,        // pressure_low
  no_place,         // swap_declined: too few free slots, or too many open transfers
  no_gain,          // swap_declined: computing again is as fast
  failed_transfer,  // preempted, swap_lost, unshared
  paused,           // queue_held: the host has paused admissions
  no_tokens,        // queue_held: the step's tokens or prompt tokens are spent, or the next chunk does not fit into the rest
  no_slot,          // queue_held: max_num_seqs requests run; preempted: another request took its batch row (tenant_turns)
  preempting,       // queue_held: running requests needed blocks in this step, so no request is admitted
  grammar,          // passed_over: its grammar is not compiled yet
  loading,          // passed_over: its blocks are being loaded
  connector,        // passed_over: the connector does not know yet which tokens it can load
  adapter,          // passed_over: max_loras other adapters are in the step
  input             // passed_over: a session waits for its next input
};

// The bytes of a block hash, padded with zeros. All zeros: no block hash.
using BlockHashBytes = std::array<std::uint8_t, 32>;

// One decision. The comment of its EventKind lists the fields that have a meaning; all other fields keep their defaults.
struct Event {
  EventKind what = EventKind::step_begins;
  EventCause cause = EventCause::none;
  bool load_async = false;  // admission_tried: the request would wait while its blocks are loaded
  StepId step{};            // the step being planned, else the step of the newest plan
  double time_s = 0.0;      // `StepInput::now` of the call in which it happened
  RequestId owner{};
  RequestId beneficiary{};
  std::uint32_t amount = 0, total = 0, external = 0;
  BlockId block{};
  BlockHashBytes name{}, parent{};
};

// Receives the core's events. on_event() is called in the middle of a decision: it must only record the event and return. It may call only
// const members of the core.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called on the core's thread once per event.
  virtual void on_event(const Event& event) = 0;
};

}  // namespace quire
