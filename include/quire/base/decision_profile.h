#pragma once
// The rules by which the core's decisions may differ from vLLM 0.19.0: fixes of its errors, and the differences of vLLM 0.32.0.
// The core tests rules by their names and never tests for a version or for a configured fix. Values; any thread may read them.
//
// Brackets name the functions of vLLM 0.19.0 that a rule changes. The rules of a group without brackets change the functions in the group's
// first line. docs/vllm_0_32.md explains the letters, which stand for files, and lists the functions and pull requests of vLLM 0.32.0.
#include <cstdint>

namespace quire {

enum class DecisionProfile : std::uint8_t { vllm_0_19, vllm_0_32 };

// Fixes of errors in vLLM's decisions, as configured. With all options off, decisions are vLLM's. ContinuumOptions has three more fixes.
struct FixOptions {
  // Under SchedulingPolicy::priority a step can preempt a request that it has already scheduled. The request's new blocks are in the prefix
  // cache by then, but nothing will be written to them. vLLM keeps them there, so a later hit reads garbage. With this option they are
  // removed. [S schedule, _preempt_request]
  bool forget_unwritten_blocks = false;
  // With async scheduling, reset_prefix_cache(preempt_running) makes each preempted request drop the next token that arrives for it,
  // because that token was in flight. vLLM drops a token even if none was in flight. It then loses a valid token and never removes its
  // placeholder. Near its end the request is no longer scheduled, but stays in the batch until it is aborted. With this option a token is
  // dropped only if one is in flight. [S reset_prefix_cache]
  bool discard_only_in_flight = false;
  // reserve_full_isl counts a block for every token of a request, although a window passes most of them before the last tokens run. In vLLM
  // a prompt with more tokens than the cache has slots for therefore waits forever, although its windows fit. With this option an admission
  // reserves no more than the request holds at any one time. [M can_fit_full_sequence]
  bool reserve_windows_only = false;
  // Requests with loaded blocks, and sessions with their next input, hold blocks while they wait. If no request runs and the first of them
  // needs blocks that the others hold, in vLLM all of them wait forever. With this option the last of them then gives its blocks back and
  // computes them again. [S schedule]
  bool loaded_give_way = false;
  // With several cache groups and a connector, vLLM handles group after group: it takes the cached blocks that a request hits, then new
  // blocks for the tokens to load. A block that a later group hits can be taken as such a new block if no other request holds it. The
  // request then has the block in both groups, and the load overwrites the hit. With this option all hits are taken first. OffloadConnector
  // requires it. [C allocate_new_computed_blocks]
  bool hits_before_loads = false;
  // vLLM asks a connector about a request when the waiting loop reaches the request, which requires a free batch row and tokens. With a
  // full batch a request therefore waits for its turn first, and for its blocks afterwards. With this option the core also asks about the
  // next requests in the queues, one per step. Loads that run while their request waits (ExternalMatch::load_async) start early, in queue
  // order. They use only blocks that earlier requests do not need. A request gives early loaded blocks back when an earlier request needs
  // blocks. [S schedule]
  bool early_loads = false;
  // With async scheduling, draft tokens in flight count as computed until they are rejected. In vLLM a sliding window therefore moves on
  // over them, and its first blocks may be gone when the draft tokens are rejected. The next step then attends to whatever these blocks
  // hold by then. vLLM also subtracts the rejected draft tokens of a result that a reset drops, although the request starts from scratch.
  // With this option a window moves only over tokens that cannot be rejected, and a dropped result subtracts nothing.
  // [M allocate_slots, S update_from_output]
  bool unsure_drafts = false;
  // With async scheduling a step may be in flight that computes tokens after the end of a session's answer. vLLM appends the token that
  // this step samples. With the next input it keeps the draft tokens. It also keeps the hash of a block that this token or the answer's
  // last token had filled, although the block then holds other tokens. With this option a session that waits for input takes no token.
  // Tokens that its next input replaces lose their block hashes and draft tokens. A session also starts no load while a token of it is in
  // flight, since that token may end its answer. In vLLM such a session continues with half of its blocks loaded.
  // [S _update_request_as_session, A _update_request_with_output]
  bool cut_sessions = false;
  // A request may run on blocks before their load fails. vLLM cuts it back to the first such block, and it continues there. With async
  // scheduling the step in flight has run on these blocks too, and its token is accepted. Meanwhile the blocks stay in the prefix cache, so
  // other requests may hit them and what was computed from them. With several cache groups vLLM cannot recover at all. With this option the
  // request starts from scratch like a preempted one, as does every request that has hit such a block. Nothing that they computed from
  // these blocks is hit, accepted or stored, and they load nothing more. Under KvLoadFailurePolicy::fail they end, with any number of
  // groups. A request that waits for its load loads at most twice. vLLM asks a connector again as long as it reports tokens that it cannot
  // load. [S _handle_invalid_blocks, _update_requests_with_invalid_blocks]
  bool unloaded_begin_anew = false;
  // A session that waits for its next input holds its blocks. In vLLM other requests wait for these blocks however long that takes. With
  // this option the session that has waited longest gives its blocks back when another request needs blocks. This happens before any
  // request is preempted. When the input comes, blocks that are still cached, or that a connector has, are found again. The others are
  // computed again. [S schedule]
  bool idle_sessions_yield = false;

  friend bool operator==(const FixOptions&, const FixOptions&) = default;
};

// Returns the fixes that an engine's core has, under DecisionProfile::vllm_0_19. A simulation of an engine with tiers uses them, too.
// `early_loads` requires tiers that choose by measured costs.
constexpr FixOptions engine_fixes(bool early_loads) {
  FixOptions fixes;
  fixes.early_loads = early_loads;
  fixes.forget_unwritten_blocks = fixes.discard_only_in_flight = fixes.reserve_windows_only = true;
  fixes.loaded_give_way = fixes.hits_before_loads = fixes.unloaded_begin_anew = true;
  fixes.unsure_drafts = fixes.cut_sessions = fixes.idle_sessions_yield = true;
  return fixes;
}

// All rules of one core. A fix is the rule of the same name. Each other rule is on under vLLM 0.32.0 and off under 0.19.0.
struct DecisionRules : FixOptions {
  constexpr DecisionRules() = default;  // vLLM 0.19.0 without fixes
  // Resolves the rules of a configuration. vLLM 0.32.0 has one of the fixes itself.
  constexpr DecisionRules(DecisionProfile profile, const FixOptions& fixes)
      : FixOptions(fixes), is_newer_(profile == DecisionProfile::vllm_0_32) {
    hits_before_loads |= is_newer_;
  }

 private:
  bool is_newer_ = false;  // the value of all rules below; therefore before them

 public:
  // Queues: S schedule.
  // Requests that hold blocks while they wait (CoreSnapshot's skipped_waiting) go before all others under each policy. They are also
  // admitted while new requests are paused. All others wait in one queue, whether they were passed over or not.
  // [S _select_waiting_queue_for_scheduling, _enqueue_waiting_request, get_num_unfinished_requests]
  bool block_holders_first = is_newer_;
  bool waiting_sessions_count_as_running = is_newer_;  // a session that waits for input counts against max_num_seqs

  // A step: S schedule.
  bool no_prefill_threshold_when_alone = is_newer_;  // long_prefill_token_threshold does not limit a request that is alone
  bool victims_move_cursor = is_newer_;     // a victim before the cursor moves the cursor back, even if this step scheduled nothing for it
  bool lookahead_at_admission = is_newer_;  // a request gets slots for the drafter when it is admitted, not in its first running step
  bool padded_decodes = is_newer_;          // a request admitted for one token runs as many draft placeholders as the others, or waits
  // Tokens in flight of a preempted request are not awaited: they are appended when they arrive, and change no count. Until then the
  // request is passed over. A reset drops these tokens instead, and the next plan lists the requests that it preempted.
  // [S _preempt_request, reset_prefix_cache, A _update_request_with_output]
  bool stale_outputs = is_newer_;

  // Results.
  bool min_tokens_limits_only_repetition = is_newer_;  // min_tokens suppresses only the repetition check [U check_stop]
  bool reset_succeeds_without_connector = is_newer_;   // a reset of the connector's cache succeeds without one [S reset_connector_cache]
  // A request ends if its grammar rejects its tokens or cannot be compiled. [S update_from_output]
  bool grammar_rejection_ends_request = is_newer_;
  // An answer ends after the tokens that no result can take back. cut_sessions corrects the session at its next input instead.
  // [S _handle_stopped_request, _update_request_as_session]
  bool truncates_session_answers = is_newer_;

  // Blocks.
  bool unhashed_blocks_first = is_newer_;         // freed blocks without a block hash are reused first [B free_blocks]
  bool counts_hits_at_admission = is_newer_;      // a look-up is counted only when its request is admitted [M get_computed_blocks]
  bool reset_is_noop_without_groups = is_newer_;  // without groups, a reset succeeds and reports no event [B reset_prefix_cache]
  bool tagged_keys = is_newer_;                   // extra keys of a hash are tagged with their kind [K generate_block_hash_extra_keys]

  // Windows.
  bool windows_advance_on_results = is_newer_;  // a window moves only over tokens that have their results [M allocate_slots]
  // An admission reserves no more than a window holds: see SchedulerOptions::max_in_flight_tokens. [M can_fit_full_sequence]
  bool admission_capped_by_window = is_newer_;
  // Only blocks that a later hit can use get a block hash: see PrefixCacheOptions::retention_interval. [T cache_blocks]
  bool caches_windows_sparsely = is_newer_;
  // With several cache groups, EAGLE drops a block once per hit length, not once per search pass. [C find_longest_cache_hit]
  bool eagle_drops_once = is_newer_;

  // Transfers: S schedule.
  bool loads_reserve_prefill_blocks = is_newer_;     // a load that its request waits for leaves free the blocks that prefills still need
  bool no_load_when_cache_read_skipped = is_newer_;  // a request that skips the prefix cache loads nothing, although the connector is asked
  // Cached tokens are reported as the last look-up found them, even if a load failed. [S schedule, _update_requests_with_invalid_blocks]
  bool reports_cached_of_last_lookup = is_newer_;
  // A load that failed in part also leaves the last token to compute. [S _update_waiting_for_remote_kv]
  bool partial_loads_leave_last_token = is_newer_;
  // A connector sees an ended request's computed blocks, and windows as of tokens with results. [S _connector_finished]
  bool finish_shows_computed_blocks = is_newer_;
  // A load takes no block for tokens that a window has passed, even if it has not passed a whole block. [T allocate_new_computed_blocks]
  bool no_load_for_skipped_tokens = is_newer_;

  // Encoders: S _try_schedule_encoder_inputs.
  // An encoder output may be released when its tokens have their results, not when they are planned. [S _update_after_schedule]
  bool encoder_outputs_freed_on_results = is_newer_;
  // A request with an input twice holds the output until the last of them is computed, not the first. [E free_encoder_input]
  bool encoder_outputs_held_per_input = is_newer_;
  // With disable_chunked_mm_input, whether an input fits is checked before whether it is cached.
  bool input_fit_checked_before_cache = is_newer_;
  bool inputs_include_drafter_lookahead = is_newer_;  // tokens that a drafter reads ahead count when a step's inputs are chosen
  bool inputs_found_by_bisection = is_newer_;         // a chunk's inputs are found by bisection, even if a session has them out of order
  bool rejects_mismatched_encoder_sizes = is_newer_;  // an input ends its request if a cached output with its identifier has another size
  // An output that is evicted and computed again in one step is not reported as freed. [E get_freed_mm_hashes]
  bool recomputed_outputs_not_freed = is_newer_;
};

}  // namespace quire
