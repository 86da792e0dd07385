// Preemption by swapping: stores the blocks of a request, loads them again, and drops them (SwapOptions; swap.h lists the states). Called
// while a step is planned and when a result is taken, on the core's thread. may_begin() checks in advance that all transfers of a swap can
// be opened, because a request that is only partly stored could neither run nor wait.
#include "core/schedule/moves/swap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/cache_groups.h"

namespace quire {

Swap::Swap(Context& context, KvCacheManager& kv, OpenTransfers& open, Requests& requests, Queues& queues)
    : context_(context), kv_(kv), open_transfers_(open), requests_(requests), queues_(queues) {
  for (const KvCacheGroup& group : context.config.kv.groups) {
    group_bytes_.push_back(page_size_bytes(group) * (group.layer_specs.empty() ? group.layer_names.size() : 1));
    is_encoded_.push_back(std::holds_alternative<CrossAttentionSpec>(group.spec));
  }
  // Pushes the slots in descending order, so that the lowest slots are used first.
  for (std::uint32_t place = context.config.swap.num_swap_slots; place > 0; --place) return_slot(place - 1);
}

std::uint32_t Swap::take_slot() {
  std::vector<std::uint32_t>& places = free_slots_.empty() ? free_slow_slots_ : free_slots_;
  QUIRE_CHECK(!places.empty(), "there is a free swap slot");
  const std::uint32_t place = places.back();
  places.pop_back();
  return place;
}

bool Swap::swap_out(Request& victim, bool was_planned, EventCause why) {
  if (!is_on() || !may_move(victim, was_planned)) return false;
  const std::uint32_t num_exclusive = kv_.num_exclusive_blocks(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens));
  if (num_exclusive > num_free_slots() || !may_begin()) return decline(victim, EventCause::no_place, context_.totals.num_swaps_no_slot);
  if (!is_worth_it(victim)) return decline(victim, EventCause::no_gain, context_.totals.num_swaps_no_gain);
  QUIRE_CHECK(victim.swapped == nullptr, "the victim is not swapped out yet");
  SwappedBlocks& swapped = make(victim);
  kv_.swap_out(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens), swapped.blocks);
  QUIRE_CHECK(swapped.blocks.size() <= num_free_slots(), "there are enough free swap slots");
  for (std::size_t i = 0; i < swapped.blocks.size(); ++i) swapped.places.push_back(take_slot());
  // Blocks that other requests also hold stay in the pool; only private blocks move.
  swapped.stage = swapped.blocks.empty() ? SwappedBlocks::Stage::stored : SwappedBlocks::Stage::storing;
  if (!swapped.blocks.empty()) to_begin_.push_back(&swapped);
  ++context_.totals.num_swapped_out;
  context_.totals.num_swapped_out_blocks += swapped.blocks.size();
  report_swap(EventKind::swapped_out, why, victim, swapped.blocks.size());
  return true;
}

// Returns whether the request may be swapped out. It may not be if:
// - it is a session, which may be shortened while it waits;
// - it is a pooling request that needs all rows, which must be computed in one run;
// - this step planned a block copy for it, which will not be made, so the destination has no content;
// - a load still fills one of its blocks.
bool Swap::may_move(const Request& victim, bool was_planned) const {
  if (victim.num_computed_tokens <= 0 || victim.resumable || (victim.pooling && victim.skip_reading_prefix_cache)) return false;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    if (was_planned && victim.blocks.copy_on_write_block(group)) return false;
    for (const BlockId block : victim.blocks.blocks(group))
      if (open_transfers_.is_being_loaded(block)) return false;
  }
  return true;
}

// Compares the time to store and load the private blocks with the time to compute them again. Shared blocks need neither, as long as other
// requests hold them.
bool Swap::is_worth_it(const Request& victim) const {
  if (context_.config.swap.swap_choice == SwapChoice::always) return true;
  const bool has_fast = context_.config.swap.num_slow_slots < context_.config.swap.num_swap_slots;
  if (has_fast && (costs_.out_bytes_per_s <= 0.0 || costs_.in_bytes_per_s <= 0.0)) return false;
  if (costs_.prefill_tokens_per_s <= 0.0) return false;
  double bytes = 0.0;
  std::int64_t num_tokens = 0, num_encoded = 0;
  std::uint64_t num_blocks = 0;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const std::uint32_t num_exclusive =
        kv_.num_exclusive_blocks(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens), group);
    bytes += static_cast<double>(group_bytes_[group]) * num_exclusive;
    num_blocks += num_exclusive;
    // Computing a position of encoder output costs about as much as computing a token.
    std::int64_t& count = is_encoded_[group] ? num_encoded : num_tokens;
    count = std::max(count, std::int64_t{num_exclusive} * kv_.block_size(group));
  }
  const auto to_compute = static_cast<double>(std::min<std::int64_t>(num_tokens, victim.num_computed_tokens) + num_encoded);
  // Number of blocks for which only slow slots are free.
  const std::uint64_t num_slow = num_blocks - std::min<std::uint64_t>(num_blocks, free_slots_.size());
  const double slow_bytes = num_blocks == 0 ? 0.0 : bytes * static_cast<double>(num_slow) / static_cast<double>(num_blocks);
  if (slow_bytes > 0.0 && (costs_.disk_out_bytes_per_s <= 0.0 || costs_.disk_in_bytes_per_s <= 0.0)) return false;
  const double fast_bytes = bytes - slow_bytes;
  double seconds = fast_bytes > 0.0 ? fast_bytes / costs_.out_bytes_per_s + fast_bytes / costs_.in_bytes_per_s : 0.0;
  if (slow_bytes > 0.0) seconds += slow_bytes / costs_.disk_out_bytes_per_s + slow_bytes / costs_.disk_in_bytes_per_s;
  return seconds < to_compute / costs_.prefill_tokens_per_s;
}

bool Swap::decline(const Request& victim, EventCause cause, std::uint64_t& counter) {
  ++counter;
  report_swap(EventKind::swap_declined, cause, victim, Requests::num_blocks(victim));
  return false;
}

SwappedBlocks& Swap::make(Request& request) {
  if (spare_.empty()) spare_.push_back(std::make_unique<SwappedBlocks>());
  SwappedBlocks& swapped = *swapped_.emplace_back(std::move(spare_.back()));
  spare_.pop_back();
  QUIRE_CHECK(swapped.blocks.empty() && swapped.places.empty() && swapped.num_open == 0, "a reused swap record is empty");
  swapped.has_failed = false;
  swapped.request = &request;
  request.swapped = &swapped;
  return swapped;
}

void Swap::release(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.request == nullptr && swapped.num_open == 0, "no request and no transfer needs the swapped blocks");
  QUIRE_CHECK(num_free_slots() + swapped.places.size() <= context_.config.swap.num_swap_slots, "a swap slot is freed once");
  // In reverse order, so that the free slots are in their earlier order again.
  for (auto place = swapped.places.rbegin(); place != swapped.places.rend(); ++place) return_slot(static_cast<std::uint32_t>(*place));
  swapped.blocks.clear();
  swapped.places.clear();
  const auto found = std::ranges::find(swapped_, &swapped, &std::unique_ptr<SwappedBlocks>::get);
  QUIRE_CHECK(found != swapped_.end(), "swapped blocks are released once");
  spare_.push_back(std::move(*found));
  swapped_.erase(found);
}

bool Swap::can_swap_in(const Request& request) const {
  QUIRE_CHECK(request.swapped != nullptr, "the request is swapped out");
  return request.swapped->stage == SwappedBlocks::Stage::stored && request.in_flight.num_plans == 0 && may_begin();
}

std::uint32_t Swap::swap_in(Request& request, std::uint32_t num_min_free_blocks) {
  SwappedBlocks& swapped = *request.swapped;
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::stored, "only stored blocks are swapped in");
  const auto num_next =
      static_cast<std::uint32_t>(context_.config.scheduler.reserve_full_isl ? request.num_tokens() : request.num_computed_tokens + 1);
  if (const std::uint32_t missing =
          kv_.swap_in(requests_.kv_request(request), swapped.blocks, {.num_tokens = num_next, .num_min_free_blocks = num_min_free_blocks}))
    return missing;
  swapped.stage = SwappedBlocks::Stage::loading;
  to_begin_.push_back(&swapped);
  return 0;
}

void Swap::drop(Request& request, EventCause cause) {
  QUIRE_CHECK(request.swapped != nullptr, "a request that drops its swap is swapped out");
  ++context_.totals.num_swaps_lost;
  report_swap(EventKind::swap_lost, cause, request, request.swapped->blocks.size());
  forget(request);
}

void Swap::forget(Request& request) {
  SwappedBlocks& swapped = *request.swapped;
  // If the request was swapped out in this same step, its transfers have not begun and are cancelled.
  if (swapped.stage == SwappedBlocks::Stage::storing && swapped.num_open == 0) std::erase(to_begin_, &swapped);
  QUIRE_CHECK(std::ranges::find(to_begin_, &swapped) == to_begin_.end(), "no transfer of the request is about to begin");
  // Loads still write to the request's blocks, so swapped.left holds the blocks until the last load has ended.
  if (is_loading(request)) {
    QUIRE_CHECK(queues_.num_loading > 0, "num_loading counts the requests whose blocks are being loaded");
    std::swap(request.blocks, swapped.left);
    request.status = RequestStatus::preempted;
    request.load.failure = LoadFailure::none;
    --queues_.num_loading;
  } else {
    kv_.free(request.blocks);
  }
  detach(request);
  request.num_computed_tokens = 0;
  if (swapped.num_open == 0) release(swapped);
}

void Swap::detach(Request& request) {
  QUIRE_CHECK(request.swapped != nullptr && request.swapped->request == &request, "a request and its swapped blocks refer to each other");
  request.swapped->request = nullptr;
  request.swapped = nullptr;
}

bool Swap::drop_last_swap(const Request& beneficiary) {
  const auto gives = [&](const std::unique_ptr<SwappedBlocks>& swapped) {
    const Request* request = swapped->request;
    return request != nullptr && request != &beneficiary && swapped->stage != SwappedBlocks::Stage::loading &&
           kv_.holds_any(request->blocks);
  };
  const auto last = std::find_if(swapped_.rbegin(), swapped_.rend(), gives);
  if (last == swapped_.rend()) return false;
  drop(*(*last)->request, EventCause::lack_of_blocks);
  return true;
}

void Swap::drop_all(EventCause cause) {
  for (std::size_t i = swapped_.size(); i > 0; --i)
    if (swapped_[i - 1]->request != nullptr) drop(*swapped_[i - 1]->request, cause);
}

void Swap::plan(PlanArena& arena) {
  for (SwappedBlocks* swapped : to_begin_) begin(*swapped, arena);
  to_begin_.clear();
}

// Opens one transfer per cache group.
void Swap::begin(SwappedBlocks& swapped, PlanArena& arena) {
  QUIRE_CHECK(swapped.request != nullptr && swapped.num_open == 0, "the transfers of a swap begin in one plan");
  // All blocks of the request were shared, so no load is needed, and no transfer would report its end.
  if (swapped.blocks.empty()) return on_loads_completed(swapped);
  for (std::size_t first = 0; first < swapped.blocks.size();) {
    const std::uint32_t group = swapped.blocks[first].group;
    ids_.clear();
    while (first + ids_.size() < swapped.blocks.size() && swapped.blocks[first + ids_.size()].group == group)
      ids_.push_back(swapped.blocks[first + ids_.size()].block);
    const bool is_store = swapped.stage == SwappedBlocks::Stage::storing;
    const std::optional<Transfer> opened = open_transfers_.open({.id = {},
                                                                 .request = swapped.request->id,
                                                                 .direction = is_store ? TransferDirection::store : TransferDirection::load,
                                                                 .need = TransferNeed::nothing,
                                                                 .group = group,
                                                                 .tier = kSwapTier,
                                                                 .blocks = ids_,
                                                                 .places = std::span(swapped.places).subspan(first, ids_.size())});
    QUIRE_CHECK(opened.has_value(), "there is room for the transfers of a swap");
    arena.add_transfer(*opened);
    open_.push_back({opened->id, &swapped});
    ++swapped.num_open;
    first += ids_.size();
  }
}

void Swap::over(const TransferCompletion& completion) {
  const auto found = std::ranges::find(open_, completion.transfer, &Open::id);
  QUIRE_CHECK(found != open_.end() && found->swapped->num_open > 0, "the number of open transfers of swapped blocks is correct");
  SwappedBlocks& swapped = *found->swapped;
  open_.erase(found);
  swapped.has_failed |= completion.outcome == TransferOutcome::failed;
  if (--swapped.num_open > 0) return;
  if (swapped.request == nullptr) {
    kv_.free(swapped.left);
    release(swapped);
  } else if (swapped.stage == SwappedBlocks::Stage::storing) {
    on_stores_completed(swapped);
  } else {
    on_loads_completed(swapped);
  }
}

void Swap::on_stores_completed(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::storing && swapped.request != nullptr, "a request needs the stored blocks");
  swapped.stage = SwappedBlocks::Stage::stored;
  if (swapped.has_failed) drop(*swapped.request, EventCause::failed_transfer);
}

// On success and on failure, the request is promoted like a request that has received its blocks.
void Swap::on_loads_completed(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::loading && queues_.num_loading > 0, "a request waits for the loaded blocks");
  Request& request = *swapped.request;
  request.load.received = true;
  --queues_.num_loading;
  if (swapped.has_failed) return drop(request, EventCause::failed_transfer);
  kv_.restore_hashes(requests_.kv_request(request), swapped.blocks);
  ++context_.totals.num_swapped_in;
  context_.totals.num_swapped_in_blocks += swapped.blocks.size();
  context_.totals.num_swapped_in_tokens += static_cast<std::uint64_t>(request.num_computed_tokens);
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::swapped_in,
                              .owner = request.id,
                              .amount = static_cast<std::uint32_t>(swapped.blocks.size()),
                              .total = static_cast<std::uint32_t>(request.num_computed_tokens)});
  detach(request);
  release(swapped);
}

void Swap::report_swap(EventKind what, EventCause cause, const Request& request, std::size_t num_blocks) {
  if (context_.events.wanted())
    context_.events.on_event({.what = what, .cause = cause, .owner = request.id, .amount = static_cast<std::uint32_t>(num_blocks)});
}

std::uint32_t Swap::num_awaiting() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(swapped_, [](const std::unique_ptr<SwappedBlocks>& swapped) {
    return swapped->num_open > 0 && (swapped->request == nullptr || swapped->stage == SwappedBlocks::Stage::storing);
  }));
}

bool Swap::has_swapped_out() const {
  return std::ranges::any_of(swapped_, [](const std::unique_ptr<SwappedBlocks>& swapped) { return swapped->request != nullptr; });
}

void Swap::check_invariants() const {
  check_rules(broken_rule());
}

const Rule* Swap::broken_rule() const {
  std::vector<std::uint32_t> num_owners(context_.config.swap.num_swap_slots, 0);
  bool are_places = true;
  const auto count = [&](std::uint64_t place) {
    are_places &= place < num_owners.size();
    if (are_places) ++num_owners[static_cast<std::size_t>(place)];
  };
  std::ranges::for_each(free_slots_, count);
  std::ranges::for_each(free_slow_slots_, count);
  std::size_t num_open = 0;
  for (const std::unique_ptr<SwappedBlocks>& swapped : swapped_) {
    std::ranges::for_each(swapped->places, count);
    QUIRE_RULE(swapped->request == nullptr || swapped->request->swapped == swapped.get(), "a request refers to its swapped blocks");
    QUIRE_RULE(swapped->request == nullptr || (swapped->stage == SwappedBlocks::Stage::stored) == (swapped->num_open == 0),
               "stored blocks have no open transfers");
    num_open += swapped->num_open;
  }
  QUIRE_RULE(are_places && std::ranges::all_of(num_owners, [](std::uint32_t num) { return num == 1; }),
             "a swap slot is free or has one owner");
  QUIRE_RULE(num_open == open_.size() && to_begin_.empty(), "the number of open transfers of swapped blocks is correct");
  return nullptr;
}

std::vector<Swap::SwapTransfer> Swap::to_swap_transfers() const {
  std::vector<SwapTransfer> all;
  for (const Open& open : open_) {
    const auto found = std::ranges::find(swapped_, open.swapped, &std::unique_ptr<SwappedBlocks>::get);
    QUIRE_CHECK(found != swapped_.end(), "an open swap transfer belongs to swapped blocks");
    all.push_back({.id = open.id.value, .place = static_cast<std::uint64_t>(found - swapped_.begin())});
  }
  return all;
}

bool Swap::assign(std::span<const SwapTransfer> all) {
  for (const std::unique_ptr<SwappedBlocks>& swapped : swapped_) {
    if (swapped->request == nullptr) continue;
    if (std::exchange(swapped->request->swapped, swapped.get()) != nullptr) return false;
  }
  std::vector<std::uint32_t> num_open(swapped_.size(), 0);
  for (const SwapTransfer& one : all) {
    const OpenTransfers::Entry* const entry = open_transfers_.find(TransferId{one.id});
    if (entry == nullptr || entry->tier != kSwapTier || one.place >= swapped_.size()) return false;
    if (std::ranges::find(open_, entry->id, &Open::id) != open_.end()) return false;
    open_.push_back({entry->id, swapped_[static_cast<std::size_t>(one.place)].get()});
    ++num_open[static_cast<std::size_t>(one.place)];
  }
  for (std::size_t i = 0; i < swapped_.size(); ++i)
    if (swapped_[i]->num_open != num_open[i]) return false;
  return static_cast<std::size_t>(std::ranges::count(open_transfers_.all(), kSwapTier, &OpenTransfers::Entry::tier)) == open_.size();
}

}  // namespace quire
