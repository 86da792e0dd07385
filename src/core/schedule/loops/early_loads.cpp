#include "core/schedule/loops/early_loads.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kNumSeen = 64;            // requests that are next, of which one is looked up in a step:
constexpr std::uint64_t kStepsUntilAsked = 16;  // what the tier does not have, or has no time for, it may have later
constexpr std::uint32_t kShareLeftFree = 8;     // one in so many blocks

}  // namespace

void EarlyLoads::begin(StepId step) {
  if (!context_.config.cures.early_loads || context_.seams.connector == nullptr) return;
  queues_.next_waiting(kNumSeen, next_);
  QUIRE_CHECK(next_.size() <= kNumSeen, "the look at those that are next is bounded");
  // What has come is found by others, who would load the same.
  for (Request* request : next_)
    if (request->loaded_early && request->finished_receiving) look_up_.try_promote(*request);
  const auto asked = std::ranges::find_if(next_, [&](const Request* request) { return may_ask(*request, step); });
  if (asked == next_.end() || pressure_.is_stopped()) return;
  // What those before it will want stays free: a load must never make an earlier request wait.
  std::uint32_t num_left_free = num_kept_for_running();
  for (auto earlier = next_.begin(); earlier != asked; ++earlier) {
    // What was swapped out comes back when it is its turn: blocks lack.
    if ((*earlier)->swapped != nullptr || num_left_free >= kv_.pool().num_free_blocks()) return;
    num_left_free += num_wanted_blocks(**earlier);
  }
  // One in a step: nobody waits for it yet.
  (*asked)->asked_early = step;
  try_begin(**asked, num_left_free);
}

// A late token may move a session on: it is to be in the queue where that is expected of it.
bool EarlyLoads::may_ask(const Request& request, StepId step) const {
  if (is_blocked(request) || request.resumable || request.loads_nothing || request.num_in_flight > 0 || request.swapped != nullptr)
    return false;
  if (request.num_computed_tokens != 0 || Requests::num_blocks(request) != 0 || budget_.exceeds_max_loras(request)) return false;
  QUIRE_CHECK(request.asked_early == kNeverScheduled || request.asked_early <= step, "nobody was asked about in a step to come");
  return request.asked_early == kNeverScheduled || step.value - request.asked_early.value >= kStepsUntilAsked;
}

std::uint32_t EarlyLoads::num_kept_for_running() const {
  std::uint64_t num_blocks = pressure_.num_left_free() + kv_.pool().num_blocks() / kShareLeftFree;
  for (const Request* request : queues_.running) {
    const auto num_tokens = static_cast<std::uint32_t>(std::max(request->num_tokens_with_drafts() + request->num_output_placeholders, 0));
    for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
      const std::size_t num_known = (num_tokens + kv_.block_size(group) - 1) / kv_.block_size(group);
      // What its known tokens lack, and one block more to grow into.
      num_blocks += std::max(num_known, request->blocks.blocks(group).size()) - request->blocks.blocks(group).size() + 1;
    }
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(num_blocks, kv_.pool().num_blocks()));
}

std::uint32_t EarlyLoads::num_wanted_blocks(Request& request) {
  // What lacks when all that is free stays free.
  return kv_.missing_for_full_sequence(requests_.kv_request(request), {.num_left_free = kv_.pool().num_free_blocks()});
}

void EarlyLoads::try_begin(Request& request, std::uint32_t num_left_free) {
  const std::optional<Computed> computed = look_up_.find_load(request);
  if (!computed) return;
  QUIRE_CHECK(computed->load_async && computed->num_external > 0, "only a request that waits loads before its turn");
  QUIRE_CHECK(Requests::num_blocks(request) == 0 && request.num_computed_tokens == 0, "nothing of it is here yet");
  QUIRE_CHECK(request.status == RequestStatus::waiting || request.status == RequestStatus::preempted, "who loads early waits for its turn");
  const SlotDemand demand{.num_new_computed_tokens = computed->hit.num_tokens,
                          .num_external_tokens = computed->num_external,
                          .delay_caching = true,
                          .num_left_free = num_left_free};
  requests_.reserve_memory(request);
  const KvRequest view = requests_.kv_request(request);
  if (kv_.missing_for_full_sequence(view, demand, computed->hit) > 0 || kv_.allocate_slots(view, demand, computed->hit) > 0) return;
  look_up_.note_load(request, *computed);
  request.status = RequestStatus::waiting_for_remote_kv;
  request.loaded_early = true;
  request.num_computed_tokens = computed->num_tokens;
  ++queues_.num_loading;
}

}  // namespace quire
