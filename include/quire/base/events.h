#pragma once
// What the core decided and why, told where it is decided. An event is a value: it refers to nothing, and outlives its request.
// Told to an EventSink on the core's thread, in the middle of its decisions; any thread may read a copy.
#include <array>
#include <cstdint>

#include "quire/base/ids.h"

namespace quire {

enum class EventKind : std::uint8_t {
  step_begins,        // expired pins have ended; nothing of the step is decided yet
  prefix_looked_up,   // `owner` has `amount` of `total` tokens in the prefix cache; on every look-up, admitted then or not
  admission_tried,    // after a look-up that found out everything: `amount` tokens of `total` are here, `external` more elsewhere
  admission_blocked,  // `owner`, the head of its queue, lacked `amount` free blocks
  preempted,          // `owner` lost its blocks because `beneficiary` (perhaps itself) lacked `amount` free ones
  block_cached,       // `block`, which ends with the `total`-th token, became findable under `name`, behind the one named `parent`
  block_evicted,      // `block` was needed for new content: what it held under `name` is lost
  pinned,             // the `amount` blocks of `owner`, which has ended, stay for the next turn of its job
  unpinned,           // they do no more
  forked,             // `owner` shares `amount` blocks with `beneficiary`, which begins with its tokens
  unshared,           // `owner`, forked, had not run: it gave up what it shared, `amount` blocks, and will be computed
  gave_way,           // `owner`, which waits, lost its `amount` blocks: `beneficiary` lacked some, and nothing runs or it goes first
  pressure_high,      // `amount` of `total` blocks are referenced: nobody is admitted until pressure_low
  pressure_low,       // `amount` of `total` are: requests are admitted again
  swapped_out,        // `owner`, preempted: `amount` blocks are being stored, others have the rest too
  swapped_in,         // they have been loaded, and it goes on behind `total` tokens
  swap_declined,      // `owner`, preempted, will be computed again: its `amount` blocks are not moved
  swap_lost,          // `owner`, swapped out, will be computed again
  queued,             // `owner` came, and waits
  passed_over,        // `owner`, looked at in this step's turn, goes on waiting for something of its own, and others go before it
  queue_held,         // all who wait besides, in this step: `owner`, in front of them, could not go (0: nobody is to blame)
  admitted,           // `owner` runs from this step on: `amount` of `total` tokens need not be computed
  ended,              // `owner` is no more, but for blocks that something keeps
  block_forgotten,    // `block` is not findable under `name` any more, though nobody needed it: its content is wrong, or unknown
  cache_reset         // no block is findable any more
};

enum class EventCause : std::uint8_t {
  none,
  lack_of_blocks,   // preempted, admission_blocked, queue_held, unpinned (pins_give_way), unshared, gave_way, swapped_out, swap_lost
  expired,          // unpinned
  replaced,         // unpinned: a later turn of the job was pinned
  job_over,         // unpinned: pins_end_with_job
  ended_by_host,    // unpinned, unshared, gave_way, swap_lost: a reset of the prefix cache, or end_pins()
  above_high,       // pressure_high, admission_blocked, preempted, queue_held
  below_low,        // pressure_low
  no_place,         // swap_declined
  no_gain,          // swap_declined: computing is as fast
  failed_transfer,  // swap_lost, unshared
  paused,           // queue_held: by the host
  no_tokens,        // queue_held: the step's budget is spent, or the next chunk does not fit into what is left
  no_slot,          // queue_held: max_num_seqs run
  preempting,       // queue_held: running ones lacked blocks in this step, so nobody is admitted
  grammar,          // passed_over: it is not compiled yet
  loading,          // passed_over: its blocks are on their way
  connector,        // passed_over: it does not know yet what it has
  adapter,          // passed_over: max_loras others run
  input             // passed_over: a session waits for its next input
};

// The bytes of a block's name, padded with zeros; all zeros: none.
using NameBytes = std::array<std::uint8_t, 32>;

// Which fields count depends on `what`: those that EventKind's comment names. The others keep their defaults.
struct Event {
  EventKind what = EventKind::step_begins;
  EventCause cause = EventCause::none;
  bool load_async = false;  // admission_tried: the blocks would be filled while the request waits
  StepId step{};            // the one being planned, else the newest plan
  double time_s = 0.0;      // StepInput::now of the call in which it happened
  RequestId owner{};
  RequestId beneficiary{};
  std::uint32_t amount = 0, total = 0, external = 0;
  BlockId block{};
  NameBytes name{}, parent{};
};

// Called in the middle of a decision: it records and returns, and calls nothing of the core but its const members.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(const Event& event) = 0;
};

}  // namespace quire
