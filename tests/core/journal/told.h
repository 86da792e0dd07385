#pragma once
// A digest of everything that the core reports: plans, outcomes, events, counters and snapshots.
#include <bit>
#include <concepts>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "quire/base/events.h"
#include "quire/core.h"

namespace quire::test {

// FNV-1a over all fields in order, with the sizes of lists. `sampling` is excluded since a plan only passes it through.
class Told final : public EventSink {
 public:
  // `everything` includes fields that are newer than the first record.
  explicit Told(bool everything = false) : everything_(everything) {}
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

  template <class... Values>
  void operator()(const Values&... values) {
    (add(values), ...);
  }

  // Skips events that are newer than the record, so that the record still matches the decisions.
  void on_event(const Event& e) override {
    const bool is_new_cause = e.cause == EventCause::ended_by_host || e.cause == EventCause::failed_transfer;
    if (everything_) number(std::bit_cast<std::uint64_t>(e.time_s));
    if (!everything_ && (e.what > EventKind::swap_lost || (e.what == EventKind::preempted && is_new_cause))) return;
    const std::uint32_t total = e.what == EventKind::block_cached && !everything_ ? 0 : e.total;
    (*this)(e.what, e.cause, e.load_async, e.step, e.owner, e.beneficiary, e.amount, total, e.external, e.block, e.name, e.parent);
  }

 private:
  void number(std::uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8) digest_ = (digest_ ^ ((value >> shift) & 0xFFU)) * 0x100000001b3U;
  }

  template <class T>
  void add(const T& value) {
    if constexpr (std::is_enum_v<T>)
      number(static_cast<std::uint64_t>(std::to_underlying(value)));
    else if constexpr (std::is_floating_point_v<T>)
      number(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    else if constexpr (std::is_integral_v<T>)
      number(static_cast<std::uint64_t>(value));
    else if constexpr (requires { value.value + 0; })
      number(value.value);
    else if constexpr (requires { value.has_value(); }) {
      number(value.has_value() ? 1 : 0);
      if (value) add(*value);
    } else if constexpr (requires { value.valueless_by_exception(); }) {
      number(value.index());
      std::visit([this](const auto& held) { this->add(held); }, value);
    } else if constexpr (std::ranges::sized_range<T>) {
      number(std::ranges::size(value));
      for (const auto& item : value) add(item);
    } else if constexpr (requires { value.first; }) {
      (*this)(value.first, value.second);
    } else {
      fields(value);
    }
  }

  void fields(const AdmittedRequest& a) { (*this)(a.id, a.slot, a.tokens, a.num_prompt_tokens); }
  void fields(const ScheduledRequest& s) {
    (*this)(s.id, s.slot, s.num_computed_tokens, s.num_tokens, s.samples, s.pools, s.kind, s.send_all_tokens, s.num_output_tokens, s.drafts,
            s.new_tokens, s.encoder_inputs);
  }
  void fields(const BlockTableDelta& d) { (*this)(d.slot, d.group, d.id, d.update, d.index, d.blocks); }
  void fields(const BlockCopy& c) { (*this)(c.id, c.group, c.source, c.destination); }
  void fields(const Transfer& t) { (*this)(t.id, t.request, t.direction, t.need, t.group, t.blocks, t.places); }
  void fields(const StepPlan& p) {
    (*this)(p.step, p.released, p.admitted, p.table_deltas, p.copies, p.scheduled, p.num_scheduled_tokens, p.finished, p.preempted,
            p.num_common_prefix_blocks, p.freed_encoder_outputs, p.blocks_to_zero, p.transfers, p.fences, p.has_structured_output,
            p.pending_structured_output);
  }

  void fields(const RequestEvent& e) { (*this)(e.kind, e.timestamp); }
  void fields(const RequestUpdate& u) {
    (*this)(u.id, u.client_index, u.result_index, u.tokens, u.finished, u.status, u.reason, u.stop_token, u.session_waits,
            u.num_cached_tokens, u.num_external_computed_tokens, u.events);
    if (everything_) number(u.num_hashed_tokens);
  }
  void fields(const FirstAdmission& a) { (*this)(a.id, a.num_cached_tokens); }
  void fields(const FinishedSet& s) { (*this)(s.client_index, s.ids); }
  void fields(const PrefixCacheStats& s) {
    (*this)(s.reset, s.requests, s.queries, s.hits, s.preempted_requests, s.preempted_queries, s.preempted_hits);
  }
  void fields(const SpecDecodingStats& s) {
    (*this)(s.num_spec_tokens, s.num_drafts, s.num_draft_tokens, s.num_accepted_tokens, s.num_accepted_per_position);
    if (everything_) add(s.num_drafted_per_position);
  }
  void fields(const KvEvictionEvent& e) { (*this)(e.lifetime, e.idle, e.reuse_gaps); }
  void fields(const SchedulerStats& s) {
    (*this)(s.num_running, s.num_waiting, s.kv_cache_usage, s.encoder_cache_usage, s.prefix_cache, s.connector_prefix_cache,
            s.spec_decoding, s.evictions);
    if (everything_) number(s.num_deferred);
  }
  void fields(const MultimodalKey& k) { (*this)(k.identifier, k.offset); }
  void fields(const BlockStored& b) {
    (*this)(b.block_hashes, b.parent_block_hash, b.token_ids, b.block_size, b.lora_id, b.medium, b.lora_name, b.extra_keys);
  }
  void fields(const BlockRemoved& b) { (*this)(b.block_hash, b.medium); }
  void fields(const AllBlocksCleared& /*cleared*/) { number(0); }
  void fields(const StepOutcome& o) {
    (*this)(o.step, o.updates, o.first_admissions, o.preempted, o.failed_loads, o.retired, o.kv_events, o.finished_sets,
            o.stats != nullptr);
    if (o.stats != nullptr) add(*o.stats);
  }

  void fields(const CoreCounters& c) {
    (*this)(c.num_running, c.num_waiting, c.num_unfinished, c.num_awaiting_transfers, c.num_open_transfers, c.num_pinned, c.num_blocks,
            c.num_free_blocks, c.num_cached_blocks, c.num_steps, c.num_preemptions, c.num_evicted_blocks, c.num_scheduled_tokens,
            c.num_forks, c.num_copied_blocks, c.prefix_query_tokens, c.prefix_hit_tokens, c.preempted_prefix_query_tokens,
            c.preempted_prefix_hit_tokens);
    if (everything_)
      (*this)(c.external_query_tokens, c.external_hit_tokens, c.is_admission_stopped, c.num_admission_stops, c.num_pressure_preemptions,
              c.num_used_swap_slots, c.num_swapped_out, c.num_swapped_out_blocks, c.num_swapped_in, c.num_swapped_in_blocks,
              c.num_swapped_in_tokens, c.num_swaps_lost, c.num_swaps_no_slot, c.num_swaps_no_gain);
  }
  void fields(const RequestView& v) {
    (*this)(v.id, v.name, v.status, v.client_index, v.num_prompt_tokens, v.priority, v.arrival_time, v.max_tokens, v.num_encoder_inputs,
            v.num_blocks, v.resumable, v.cache_salt, v.stop_token);
  }
  void fields(const CoreSnapshot::Request& r) {
    (*this)(r.id, r.status, r.num_tokens, r.num_computed_tokens, r.num_preemptions, r.num_output_placeholders, r.num_cached_tokens,
            r.num_external_computed_tokens, r.is_prefill_chunk, r.discard_latest_async_tokens, r.tokens, r.draft_tokens, r.blocks,
            r.num_cached_blocks, r.block_hashes);
  }
  void fields(const CoreSnapshot::Block& b) { (*this)(b.ref_count, b.key); }
  void fields(const CoreSnapshot::EncoderEntry& e) { (*this)(e.identifier, e.holders, e.num_embeds); }
  void fields(const CoreSnapshot::Residency& r) { (*this)(r.block, r.birth, r.last_access, r.accesses); }
  void fields(const CoreSnapshot& s) {
    (*this)(s.running, s.waiting, s.skipped_waiting, s.requests, s.free_blocks, s.blocks, s.cached_blocks, s.residency, s.encoder_cached,
            s.encoder_freeable, s.encoder_freed, s.encoder_to_report, s.encoder_free_slots, s.encoder_freeable_slots, s.finished,
            s.finished_receiving, s.failed_receiving, s.pinned);
  }

  bool everything_;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

}  // namespace quire::test
