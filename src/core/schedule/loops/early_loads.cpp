#include "core/schedule/loops/early_loads.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kNumSeen = 64;            // number of waiting requests to consider; at most one is looked up per step
constexpr std::uint64_t kStepsUntilAsked = 16;  // steps between two look-ups of a request, so that the tier's content can change
constexpr std::uint32_t kShareLeftFree = 8;     // one in this many blocks stays free

}  // namespace

void EarlyLoads::begin(StepId step) {
  if (!context_.rules.early_loads || context_.seams.connector == nullptr) return;
  queues_.next_waiting(kNumSeen, next_);
  QUIRE_CHECK(next_.size() <= kNumSeen, "the number of requests considered for early loads is bounded");
  // Promotes requests whose loads have ended, so that other requests hit these blocks instead of loading them too.
  for (Request* request : next_)
    if (request->load.early && request->load.received) look_up_.try_promote(*request);
  const auto asked = std::ranges::find_if(next_, [&](const Request* request) { return can_query(*request, step); });
  if (asked == next_.end() || pressure_.is_stopped()) return;
  // Reserves the blocks that earlier requests will need: an early load must not make an earlier request wait.
  std::uint32_t num_min_free_blocks = num_reserved_for_running();
  for (auto earlier = next_.begin(); earlier != asked; ++earlier) {
    // A swapped-out request needs free blocks at its turn, so nothing is loaded early after it.
    if ((*earlier)->swapped != nullptr || num_min_free_blocks >= kv_.pool().num_free_blocks()) return;
    num_min_free_blocks += num_wanted_blocks(**earlier);
  }
  // Looks up one request per step, because no request waits for the result yet.
  (*asked)->load.last_early_query = step;
  try_begin(**asked, num_min_free_blocks);
}

// Returns whether the request may be looked up for an early load. Excludes sessions: a late token may continue a session, which must then
// be in the waiting state that other code expects.
bool EarlyLoads::can_query(const Request& request, StepId step) const {
  if (is_blocked(request) || request.resumable || !request.load.is_allowed() || request.in_flight.num_plans > 0 ||
      request.swapped != nullptr)
    return false;
  if (request.num_computed_tokens != 0 || Requests::num_blocks(request) != 0 || budget_.exceeds_max_loras(request)) return false;
  QUIRE_CHECK(request.load.last_early_query == kNeverScheduled || request.load.last_early_query <= step,
              "the connector was not queried for a later step");
  return request.load.last_early_query == kNeverScheduled || step.value - request.load.last_early_query.value >= kStepsUntilAsked;
}

std::uint32_t EarlyLoads::num_reserved_for_running() const {
  std::uint64_t num_blocks = pressure_.num_min_free_blocks() + kv_.pool().num_blocks() / kShareLeftFree;
  for (const Request* request : queues_.running) {
    const auto num_tokens = static_cast<std::uint32_t>(std::max(request->num_tokens_with_drafts() + request->num_output_placeholders, 0));
    for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
      const std::size_t num_known = (num_tokens + kv_.block_size(group) - 1) / kv_.block_size(group);
      // Adds the blocks that the known tokens still need, and one block for outputs.
      num_blocks += std::max(num_known, request->blocks.blocks(group).size()) - request->blocks.blocks(group).size() + 1;
    }
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(num_blocks, kv_.pool().num_blocks()));
}

std::uint32_t EarlyLoads::num_wanted_blocks(Request& request) {
  // With num_min_free_blocks equal to the free blocks, the result is the number of blocks that the request needs.
  return kv_.missing_for_full_sequence(requests_.kv_request(request), {.num_min_free_blocks = kv_.pool().num_free_blocks()});
}

void EarlyLoads::try_begin(Request& request, std::uint32_t num_min_free_blocks) {
  const std::optional<Computed> computed = look_up_.find_load(request);
  if (!computed) return;
  QUIRE_CHECK(computed->load_async && computed->num_external > 0, "an early load is asynchronous and has tokens");
  QUIRE_CHECK(Requests::num_blocks(request) == 0 && request.num_computed_tokens == 0, "a request that loads early has no blocks");
  QUIRE_CHECK(request.status == RequestStatus::waiting || request.status == RequestStatus::preempted,
              "a request that loads early waits for its turn");
  const SlotDemand demand{.num_new_computed_tokens = computed->hit.num_tokens,
                          .num_external_tokens = computed->num_external,
                          .delay_caching = true,
                          .num_min_free_blocks = num_min_free_blocks};
  requests_.reserve_memory(request);
  const KvRequest view = requests_.kv_request(request);
  if (kv_.missing_for_full_sequence(view, demand, computed->hit) > 0 || kv_.allocate_slots(view, demand, computed->hit) > 0) return;
  look_up_.note_load(request, *computed);
  request.status = RequestStatus::waiting_for_remote_kv;
  request.load.early = true;
  request.num_computed_tokens = computed->num_tokens;
  ++queues_.num_loading;
}

}  // namespace quire
