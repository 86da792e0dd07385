// Builds a plan in reused memory. Called by the two loops and by step.cpp, on the core's thread. The worker reads a plan on other threads
// while the next plan is made in another arena, so a sealed plan must not move in memory. Only its flags and the values of its draft tokens
// change, and only before it runs.
#include "core/schedule/requests/plan_arena.h"

#include <algorithm>

#include "base/check.h"
#include "core/schedule/requests/drafts.h"

namespace quire {
namespace {

template <class T, class Range>
std::span<const T> part(const std::vector<T>& pool, const Range& range) {
  QUIRE_CHECK(range.begin + range.size <= pool.size(), "a range lies within its list");
  return std::span(pool).subspan(range.begin, range.size);
}

}  // namespace

void PlanArena::reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens) {
  released_.reserve(max_num_seqs);
  admitted_.reserve(max_num_seqs);
  num_admitted_tokens_.reserve(max_num_seqs);
  table_deltas_.reserve(std::size_t{max_num_seqs} * num_groups);
  delta_ranges_.reserve(std::size_t{max_num_seqs} * num_groups);
  blocks_.reserve(num_blocks);
  copies_.reserve(std::size_t{max_num_seqs} * num_groups);
  scheduled_.reserve(max_num_seqs);
  entries_.reserve(max_num_seqs);
  requests_.reserve(max_num_seqs);
  drafts_.reserve(std::size_t{max_num_seqs} * num_spec_tokens);
  finished_.reserve(max_num_seqs);
  preempted_.reserve(max_num_seqs);
  first_admissions_.reserve(max_num_seqs);
  common_prefix_blocks_.reserve(num_groups);
}

void PlanArena::begin(StepId step) {
  plan_ = {};
  plan_.step = step;
  released_.clear();
  admitted_.clear();
  num_admitted_tokens_.clear();
  table_deltas_.clear();
  delta_ranges_.clear();
  blocks_.clear();
  copies_.clear();
  scheduled_.clear();
  entries_.clear();
  requests_.clear();
  drafts_.clear();
  encoder_inputs_.clear();
  finished_.clear();
  preempted_.clear();
  first_admissions_.clear();
  num_freed_ = 0;
  blocks_to_zero_.clear();
  transfers_.clear();
  fences_.clear();
}

void PlanArena::admit(const Request& request, bool first_time) {
  QUIRE_CHECK(request.slot != kNoSlot, "an admitted request has a slot");
  admitted_.push_back({.id = request.id,
                       .slot = request.slot,
                       .tokens = request.tokens,
                       .num_prompt_tokens = static_cast<std::uint32_t>(request.num_prompt_tokens),
                       .sampling = request.sampling,
                       .lora_id = request.hash_inputs.lora_id});
  num_admitted_tokens_.push_back(static_cast<std::uint32_t>(request.tokens.size()));
  if (first_time) first_admissions_.push_back({request.id, static_cast<std::uint32_t>(request.num_cached_tokens)});
}

void PlanArena::table_delta(const Request& request, std::uint32_t group, TableUpdate update, std::span<const BlockId> blocks) {
  QUIRE_CHECK(schedules(request), "only a scheduled request has block table updates");
  table_deltas_.push_back({.slot = request.slot, .group = group, .id = request.id, .update = update, .index = 0, .blocks = {}});
  delta_ranges_.push_back({static_cast<std::uint32_t>(blocks_.size()), static_cast<std::uint32_t>(blocks.size())});
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
}

void PlanArena::copy_block(const Request& request, std::uint32_t group, const CopyOnWriteBlock& copy) {
  QUIRE_CHECK(copy.source != copy.destination && copy.destination != kNullBlock, "a block is copied to another block of the pool");
  copies_.push_back({.id = request.id, .group = group, .source = copy.source, .destination = copy.destination});
}

void PlanArena::replace_block(const Request& request, std::uint32_t group, const CopyOnWriteBlock& copy) {
  table_delta(request, group, TableUpdate::replace_one, {&copy.destination, 1});
  table_deltas_.back().index = copy.index;
}

void PlanArena::schedule(Request& request, const Grant& grant) {
  QUIRE_CHECK(!schedules(request), "a request is scheduled once per step");
  QUIRE_CHECK(request.slot != kNoSlot && grant.num_tokens > 0, "a scheduled request has a slot and tokens");
  request.in_flight.last_step = plan_.step;
  request.in_flight.last_index = static_cast<std::uint32_t>(scheduled_.size());
  const auto num_tokens = static_cast<std::int32_t>(grant.num_tokens);
  const bool whole = request.num_computed_tokens + num_tokens >= request.num_tokens() + request.num_output_placeholders;
  ScheduledRequest& s = scheduled_.emplace_back();
  s.id = request.id;
  s.slot = request.slot;
  s.num_computed_tokens = static_cast<std::uint32_t>(request.num_computed_tokens);
  s.num_tokens = grant.num_tokens;
  s.samples = whole && !request.pooling;
  s.pools = whole && request.pooling;
  s.kind = grant.kind;
  s.send_all_tokens = grant.send_all_tokens;
  s.num_output_tokens = request.num_output_tokens + request.num_output_placeholders;
  entries_.emplace_back();
  requests_.push_back(&request);
  plan_.num_scheduled_tokens += grant.num_tokens;
}

void PlanArena::set_drafts(std::span<const TokenId> drafts) {
  QUIRE_CHECK(!entries_.empty() && entries_.back().drafts.size == 0, "draft tokens are set once, for the request scheduled last");
  entries_.back().drafts = {static_cast<std::uint32_t>(drafts_.size()), static_cast<std::uint32_t>(drafts.size())};
  drafts_.insert(drafts_.end(), drafts.begin(), drafts.end());
}

void PlanArena::set_placeholders(std::uint32_t count) {
  QUIRE_CHECK(!entries_.empty() && entries_.back().drafts.size == 0, "draft tokens are set once, for the request scheduled last");
  entries_.back().drafts = {static_cast<std::uint32_t>(drafts_.size()), count};
  drafts_.insert(drafts_.end(), count, kDraftPlaceholder);
}

void PlanArena::set_encoder_inputs(std::span<const std::uint32_t> inputs) {
  QUIRE_CHECK(!entries_.empty() && entries_.back().encoder_inputs.size == 0, "encoder inputs are set once, for the request scheduled last");
  entries_.back().encoder_inputs = {static_cast<std::uint32_t>(encoder_inputs_.size()), static_cast<std::uint32_t>(inputs.size())};
  encoder_inputs_.insert(encoder_inputs_.end(), inputs.begin(), inputs.end());
}

void PlanArena::set_new_tokens(std::span<const TokenId> tokens) {
  QUIRE_CHECK(!scheduled_.empty(), "there is a request scheduled last");
  scheduled_.back().new_tokens = tokens;
  const auto begin = tokens.empty() ? 0 : tokens.data() - requests_.back()->tokens.data();
  entries_.back().new_tokens = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(tokens.size())};
}

std::span<const std::uint32_t> PlanArena::encoder_inputs(const Request& request) const {
  QUIRE_CHECK(schedules(request), "the request is in this plan");
  return part(encoder_inputs_, entries_[request.in_flight.last_index].encoder_inputs);
}

void PlanArena::unschedule(Request& request) {
  QUIRE_CHECK(schedules(request));
  QUIRE_CHECK(request.in_flight.last_index < requests_.size() && requests_[request.in_flight.last_index] == &request,
              "the request is at its recorded index");
  QUIRE_CHECK(plan_.num_scheduled_tokens >= scheduled_[request.in_flight.last_index].num_tokens, "the tokens of the request were counted");
  const auto index = static_cast<std::ptrdiff_t>(request.in_flight.last_index);
  plan_.num_scheduled_tokens -= scheduled_[request.in_flight.last_index].num_tokens;
  scheduled_.erase(scheduled_.begin() + index);
  entries_.erase(entries_.begin() + index);
  requests_.erase(requests_.begin() + index);
  for (std::uint32_t i = request.in_flight.last_index; i < requests_.size(); ++i) requests_[i]->in_flight.last_index = i;
  request.in_flight.last_step = kNeverScheduled;
  // Removes the request's table deltas too: their blocks are free by now, and the worker must not write them into a table.
  std::size_t kept = 0;
  for (std::size_t i = 0; i < table_deltas_.size(); ++i) {
    if (table_deltas_[i].id != request.id) {
      table_deltas_[kept] = table_deltas_[i];
      delta_ranges_[kept++] = delta_ranges_[i];
    }
  }
  table_deltas_.resize(kept);
  delta_ranges_.resize(kept);
  std::erase_if(copies_, [&](const BlockCopy& copy) { return copy.id == request.id; });
}

std::span<std::uint32_t> PlanArena::common_prefix_blocks(std::uint32_t num_groups) {
  common_prefix_blocks_.assign(num_groups, 0);
  return common_prefix_blocks_;
}

void PlanArena::free_encoder_outputs(std::span<const std::string> identifiers) {
  freed_views_.clear();
  for (const std::string& identifier : identifiers) {
    if (num_freed_ == freed_encoder_outputs_.size()) freed_encoder_outputs_.emplace_back();
    freed_encoder_outputs_[num_freed_++] = identifier;
  }
  for (std::size_t i = 0; i < num_freed_; ++i) freed_views_.emplace_back(freed_encoder_outputs_[i]);
}

void PlanArena::skip_zeroing_of_copies() {
  for (const BlockCopy& copy : copies_) std::erase(blocks_to_zero_, copy.destination);
}

StepPlan& PlanArena::seal() {
  QUIRE_CHECK(scheduled_.size() == entries_.size() && scheduled_.size() == requests_.size() && table_deltas_.size() == delta_ranges_.size(),
              "parallel lists have the same length");
  QUIRE_CHECK(num_freed_ == 0 || num_freed_ == freed_views_.size(), "each freed identifier has a view");
  for (std::size_t i = 0; i < table_deltas_.size(); ++i) table_deltas_[i].blocks = part(blocks_, delta_ranges_[i]);
  if (!drafts_.empty() || !encoder_inputs_.empty()) {
    for (std::size_t i = 0; i < scheduled_.size(); ++i) {
      scheduled_[i].drafts = part(drafts_, entries_[i].drafts);
      scheduled_[i].encoder_inputs = part(encoder_inputs_, entries_[i].encoder_inputs);
    }
  }
  plan_.released = released_;
  plan_.admitted = admitted_;
  plan_.table_deltas = table_deltas_;
  plan_.copies = copies_;
  plan_.scheduled = scheduled_;
  plan_.finished = finished_;
  plan_.preempted = preempted_;
  plan_.num_common_prefix_blocks = common_prefix_blocks_;
  plan_.freed_encoder_outputs = std::span<const std::string_view>(freed_views_).first(num_freed_);
  plan_.blocks_to_zero = blocks_to_zero_;
  return plan_;
}

void PlanArena::seal_transfers() {
  plan_.transfers = transfers_;
  plan_.fences = fences_;
}

std::span<TokenId> PlanArena::drafts(std::uint32_t index) {
  QUIRE_CHECK(index < entries_.size(), "the index is in this plan");
  const Range& range = entries_[index].drafts;
  return std::span(drafts_).subspan(range.begin, range.size);
}

bool PlanArena::has_sound_parts() const {
  const auto is_in = [](const Range& range, std::size_t size) { return range.begin <= size && range.size <= size - range.begin; };
  return admitted_.size() == num_admitted_tokens_.size() && scheduled_.size() == entries_.size() && scheduled_.size() == requests_.size() &&
         table_deltas_.size() == delta_ranges_.size() &&
         std::ranges::all_of(delta_ranges_, [&](const Range& range) { return is_in(range, blocks_.size()); }) &&
         std::ranges::all_of(entries_, [&](const Entry& entry) {
           return is_in(entry.drafts, drafts_.size()) && is_in(entry.encoder_inputs, encoder_inputs_.size()) &&
                  entry.num_invalid_drafts <= entry.drafts.size;
         });
}

void PlanArena::clear_invalid_drafts() {
  for (Entry& entry : entries_) entry.num_invalid_drafts = 0;
}

void PlanRing::reserve(std::uint32_t max_num_seqs, std::uint32_t num_blocks, std::uint32_t num_groups, std::uint32_t num_spec_tokens) {
  for (PlanArena& arena : arenas_) arena.reserve(max_num_seqs, num_blocks, num_groups, num_spec_tokens);
}

PlanArena& PlanRing::begin() {
  QUIRE_CHECK(size_ + 1 < arenas_.size(), "fewer plans than the limit are outstanding");
  PlanArena& arena = at(size_);
  arena.begin(next_step_);
  ++next_step_.value;
  ++size_;
  return arena;
}

PlanArena& PlanRing::pop() {
  QUIRE_CHECK(size_ > 0, "there is an outstanding plan");
  PlanArena& arena = arenas_[oldest_];
  QUIRE_CHECK(arena.plan().step.value + size_ == next_step_.value, "plans are applied in the order in which they were made");
  oldest_ = (oldest_ + 1) % arenas_.size();
  --size_;
  return arena;
}

}  // namespace quire
