// Finds the tokens that a waiting request need not compute, first in the prefix cache, then through the connector. Also moves blocked
// requests out of their states. Called by the waiting loop and early loads on the core's thread, once per attempt to admit a request. As in
// vLLM, each attempt counts as a look-up. Under PrefillLimits and with counts_hits_at_admission, only admissions count. A look-up takes no
// blocks and changes no queue.
#include "core/schedule/moves/look_up.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

namespace {

enum class Held : std::uint8_t { nothing, untracked, tracked };

// Classifies the blocks that a request holds before its look-up, which can be left from a failed load:
// - nothing: the request holds no blocks.
// - tracked: each group with blocks counts its cached blocks, so the KV manager can add external tokens.
// - untracked: a group does not count its cached blocks, so the KV manager cannot add external tokens.
Held held(const KvBlocks& blocks) {
  Held result = Held::nothing;
  for (std::uint32_t group = 0; group < blocks.num_groups(); ++group) {
    if (!blocks.blocks(group).empty()) {
      if (!blocks.num_cached_blocks(group)) return Held::untracked;
      result = Held::tracked;
    }
  }
  return result;
}

}  // namespace

std::optional<Computed> PrefixLookUp::find(Request& request, bool counts_now) {
  Computed computed;
  // A request whose transfer has ended already has computed tokens and blocks.
  if (request.num_computed_tokens != 0) {
    computed.num_tokens = request.num_computed_tokens;
    return computed;
  }
  computed.is_counted = counts_now && !context_.rules.counts_hits_at_admission;
  computed.hit = kv_.find_prefix(requests_.kv_request(request), computed.is_counted);
  computed.was_looked_up = true;
  request.shared_prefix_boundary = computed.hit.shared_prefix_boundary;
  if (computed.is_counted) count(request, computed.hit);
  // Reports before the request takes blocks, because CurveSampler reads the number of held blocks at this moment.
  if (!context_.rules.counts_hits_at_admission) report_prefix(request, computed.hit);
  // A failed load can leave blocks without computed tokens. With a hit, vLLM's assertions would fail in this case; here the hit is ignored.
  const Held holds = held(request.blocks);
  if (holds != Held::nothing) computed.hit = {};
  computed.num_tokens = static_cast<std::int32_t>(computed.hit.num_tokens);
  if (context_.seams.connector != nullptr) {
    if (!ask(request, holds != Held::untracked, computed)) return std::nullopt;
    if (!context_.rules.reports_cached_of_last_lookup) request.num_external_computed_tokens = computed.num_external;
  }
  if (context_.rules.reports_cached_of_last_lookup && request.num_preemptions == 0) {
    request.num_cached_tokens = computed.num_tokens;
    request.num_external_computed_tokens = computed.num_external;
  }
  report_look_up(request, computed);
  return computed;
}

// Looks up like find(), but counts and reports nothing: the load may not begin, and the request is looked up again at its turn.
std::optional<Computed> PrefixLookUp::find_load(Request& request) {
  Computed computed;
  computed.hit = kv_.find_prefix(requests_.kv_request(request));
  return ask(request, true, computed) && computed.load_async ? std::optional(computed) : std::nullopt;
}

CacheProbe PrefixLookUp::probe(const Request& request) {
  CacheProbe probe;
  probe.num_tokens = static_cast<std::uint32_t>(request.num_tokens());
  if (!request.skip_reading_prefix_cache) probe.num_local_tokens = kv_.count_prefix(request.hashes, probe.num_tokens);
  if (context_.seams.connector == nullptr || !request.load.is_allowed()) return probe;
  probe.is_external_known = context_.seams.connector->peek(Requests::view(request), probe.num_local_tokens, probe.external);
  // At least one token must be computed, unless the request waits for the load of all its tokens (see ask()).
  std::uint32_t left = probe.num_tokens - probe.num_local_tokens;
  for (TierMatch& match : probe.external) {
    match.num_tokens = std::min(match.num_tokens, left - (match.load_async || left == 0 ? 0 : 1));
    left -= match.num_tokens;
  }
  return probe;
}

void PrefixLookUp::note_admission(Request& request, const Computed& computed) {
  if (computed.is_counted || !computed.was_looked_up) return;
  kv_.count_admission(requests_.kv_request(request), computed.hit.num_tokens);
  count(request, computed.hit);
  if (context_.rules.counts_hits_at_admission) report_prefix(request, computed.hit);
}

void PrefixLookUp::note_load(Request& request, const Computed& computed) {
  QUIRE_CHECK(computed.load_async && computed.num_external > 0, "an asynchronous load has tokens");
  request.num_external_computed_tokens = computed.num_external;
  count(request, computed.hit);
  report_prefix(request, computed.hit);
  report_look_up(request, computed);
  notify_connector(request, computed);
}

bool PrefixLookUp::ask(const Request& request, bool can_add, Computed& computed) {
  const auto num_local = static_cast<std::int32_t>(computed.hit.num_tokens);
  if (!request.load.is_allowed()) return true;
  const ExternalMatch match = context_.seams.connector->match(Requests::view(request), computed.hit.num_tokens);
  const bool loads_nothing = context_.rules.no_load_when_cache_read_skipped && request.skip_reading_prefix_cache;
  if (!match.num_tokens && !loads_nothing) return false;
  // At least one token must be computed, unless the request waits for the load of all its tokens.
  const std::int32_t most = request.num_tokens() - num_local - (match.load_async ? 0 : 1);
  QUIRE_CHECK(most >= 0, "a hit leaves at least one token to compute");
  // Limits the connector's answer to the number of tokens that are left.
  computed.num_external = can_add && !loads_nothing ? std::min(*match.num_tokens, static_cast<std::uint32_t>(most)) : 0;
  computed.load_async = match.load_async && computed.num_external > 0;
  computed.num_connector_queries = static_cast<std::uint32_t>(request.num_tokens() - num_local);
  computed.num_tokens = num_local + static_cast<std::int32_t>(computed.num_external);
  return true;
}

void PrefixLookUp::report_look_up(const Request& request, const Computed& computed) {
  if (!context_.events.wanted()) return;
  context_.events.on_event({.what = EventKind::admission_tried,
                            .load_async = computed.load_async,
                            .owner = request.id,
                            .amount = computed.hit.num_tokens,
                            .total = static_cast<std::uint32_t>(request.num_tokens()),
                            .external = computed.num_external});
}

bool PrefixLookUp::reads_cache(const Request& request) const {
  return context_.config.prefix_cache.enable_prefix_caching && !request.skip_reading_prefix_cache;
}

void PrefixLookUp::report_prefix(const Request& request, const KvHit& hit) {
  if (!context_.events.wanted() || !reads_cache(request)) return;
  context_.events.on_event({.what = EventKind::prefix_looked_up,
                            .owner = request.id,
                            .amount = hit.num_tokens,
                            .total = static_cast<std::uint32_t>(request.num_tokens())});
}

void PrefixLookUp::count(const Request& request, const KvHit& hit) {
  if (!reads_cache(request)) return;
  const auto num_queried = static_cast<std::uint32_t>(request.num_tokens());
  const bool first_time = request.num_preemptions == 0;
  (first_time ? context_.totals.prefix_query_tokens : context_.totals.preempted_prefix_query_tokens) += num_queried;
  (first_time ? context_.totals.prefix_hit_tokens : context_.totals.preempted_prefix_hit_tokens) += hit.num_tokens;
}

void PrefixLookUp::notify_connector(const Request& request, const Computed& computed) {
  if (context_.seams.connector == nullptr) return;
  context_.seams.connector->allocated(Requests::view(request), requests_.group_blocks(request), computed.num_external);
  context_.totals.external_query_tokens += computed.num_connector_queries;
  context_.totals.external_hit_tokens += computed.num_external;
  if (!context_.config.report.log_stats || computed.num_connector_queries == 0) return;
  PrefixCacheStats& stats = connector_stats_;
  const bool preempted = request.num_preemptions > 0;
  ++(preempted ? stats.preempted_requests : stats.requests);
  (preempted ? stats.preempted_queries : stats.queries) += computed.num_connector_queries;
  (preempted ? stats.preempted_hits : stats.hits) += computed.num_external;
}

PrefixCacheStats PrefixLookUp::take_connector_stats() {
  return std::exchange(connector_stats_, {});
}

bool PrefixLookUp::try_promote(Request& request) {
  switch (request.status) {
    case RequestStatus::waiting_for_remote_kv:
      if (!request.load.received) return false;
      take_received(request);
      request.status = request.num_preemptions > 0 ? RequestStatus::preempted : RequestStatus::waiting;
      return true;
    case RequestStatus::waiting_for_grammar:
      if (context_.seams.grammar == nullptr) return false;
      if (context_.rules.grammar_rejection_ends_request && context_.seams.grammar->failed(request.id)) {
        request.grammar_failed = true;
        return false;
      }
      if (!context_.seams.grammar->ready(request.id)) return false;
      request.status = RequestStatus::waiting;
      return true;
    default:
      QUIRE_CHECK(request.status == RequestStatus::waiting_for_input && request.next_inputs.empty(),
                  "a blocked request waits for input and has none");
      return false;
  }
}

void PrefixLookUp::take_received(Request& request) {
  QUIRE_CHECK(request.num_computed_tokens >= 0 && request.num_computed_tokens <= request.num_tokens(), "loaded tokens are known tokens");
  QUIRE_CHECK(request.load.received, "the transfers of the request have ended");
  if (request.load.failure != LoadFailure::partial) {
    kv_.cache_blocks(requests_.kv_request(request), static_cast<std::uint32_t>(request.num_computed_tokens));
    // At least one token must be computed, because its output is the next token.
    if (request.num_computed_tokens == request.num_tokens()) --request.num_computed_tokens;
    if (request.num_cached_tokens < 0) request.num_cached_tokens = request.num_computed_tokens;
  } else if (request.num_computed_tokens != 0) {
    // A part of the load succeeded: the blocks before the first bad block are valid and are cached.
    kv_.cache_blocks(requests_.kv_request(request), static_cast<std::uint32_t>(request.num_computed_tokens));
    if (context_.rules.partial_loads_leave_last_token && request.num_computed_tokens == request.num_tokens()) --request.num_computed_tokens;
  } else {
    requests_.note_lost_load(request);
    kv_.free(request.blocks);
  }
  request.load.failure = LoadFailure::none;
  request.load.received = false;
}

}  // namespace quire
