#pragma once
// The rules in which the core's decisions may differ from vLLM 0.19.0: fixes of errors in vLLM, and the differences of vLLM 0.32.0. The
// core's decisions test rules by their names, not a version or a configured fix. Checks for unsupported features test the version. Values;
// any thread may read them.
//
// Brackets contain the functions of vLLM 0.19.0 that a rule changes. A rule without brackets changes the functions in the first line of its
// group. The letters in brackets stand for files of vLLM; docs/vllm_0_32.md lists them, with the functions and pull requests of vLLM
// 0.32.0.
#include <cstdint>

namespace quire {

enum class DecisionProfile : std::uint8_t { vllm_0_19, vllm_0_32 };

// Fixes of errors in vLLM's decisions. With all options off, decisions are vLLM's. ContinuumOptions has three more fixes.
struct FixOptions {
  // Under SchedulingPolicy::priority a step can preempt a request that it has already scheduled. The request's new blocks are in the prefix
  // cache by then, but nothing will be written to these blocks. vLLM keeps them in the cache, so a later hit reads garbage. With this
  // option they are removed from the cache. [S schedule, _preempt_request]
  bool forget_unwritten_blocks = false;
  // With async scheduling, reset_prefix_cache(preempt_running) makes each preempted request drop the next token that arrives for it,
  // because that token was in flight. vLLM drops a token even if none was in flight. The request then loses a valid token, and its
  // placeholder is never removed. Near its end such a request is no longer scheduled, but stays in the batch until it is aborted. With this
  // option a token is dropped only if one is in flight. [S reset_prefix_cache]
  bool discard_only_in_flight = false;
  // reserve_full_isl counts a block for every token of a request, although a sliding window releases most of these blocks before the last
  // tokens run. In vLLM a prompt with more tokens than the cache has slots therefore waits forever, although its windows would fit. With
  // this option an admission reserves no more blocks than the request holds at any one time. [M can_fit_full_sequence]
  bool reserve_windows_only = false;
  // Requests with loaded blocks, and sessions with their next input, hold blocks while they wait. In vLLM all of them wait forever if no
  // request runs and the first of them needs blocks that the others hold. With this option the last of these requests then releases its
  // blocks and computes them again. [S schedule]
  bool loaded_give_way = false;
  // With several cache groups and a connector, vLLM handles one group after another: it takes the cached blocks that a request hits, then
  // new blocks for the tokens to load. If no other request holds a block that a later group hits, that block can be taken as a new block of
  // an earlier group. The request then has the block in both groups, and the load overwrites the hit. With this option all hits are taken
  // first. OffloadConnector requires the option. [C allocate_new_computed_blocks]
  bool hits_before_loads = false;
  // vLLM asks a connector about a request only when the waiting loop reaches the request, which requires a free batch row and tokens. If
  // the batch is full, a request therefore first waits for a row, and then for its blocks. With this option the core also asks about the
  // next requests in the queues, one per step, so that loads for which a request waits (ExternalMatch::load_async) start early, in queue
  // order. These loads use only blocks that earlier requests do not need. A request releases early loaded blocks when an earlier request
  // needs blocks. [S schedule]
  bool early_loads = false;
  // With async scheduling, draft tokens in flight count as computed until they are rejected. In vLLM a sliding window therefore moves over
  // them, and may have released its first blocks when the draft tokens are rejected. The next step then attends to the later content of
  // these blocks. vLLM also subtracts the rejected draft tokens of a result that a reset drops, although the request starts from scratch.
  // With this option a window moves only over tokens that cannot be rejected, and a dropped result subtracts nothing. [M allocate_slots, S
  // update_from_output]
  bool unsure_drafts = false;
  // With async scheduling, a step may be in flight that computes tokens after the end of a session's answer. vLLM appends the token that
  // this step samples. At the next input, vLLM keeps the draft tokens, and the hash of a block that this token or the answer's last token
  // had filled, although the block then holds other tokens. With this option a session that waits for input takes no token. Tokens that its
  // next input replaces lose their block hashes and draft tokens. A session also starts no load while a token of it is in flight, because
  // that token may end its answer; in vLLM such a session continues with half of its blocks loaded.
  // [S _update_request_as_session, A _update_request_with_output]
  bool cut_sessions = false;
  // A request may run on blocks before their load fails. vLLM then cuts the request back to the first of these blocks and continues. With
  // async scheduling, the step in flight has also run on these blocks, and its token is accepted. Meanwhile the blocks stay in the prefix
  // cache, so other requests may hit them and blocks that were computed from them. With several cache groups vLLM cannot recover at all.
  // With this option the request starts from scratch like a preempted request, as does every request that has hit such a block. No block or
  // token that these requests computed from the failed blocks is hit, accepted or stored, and these requests load nothing more. Under
  // KvLoadFailurePolicy::fail they end, with any number of groups. A request that waits for its load loads at most twice; vLLM asks a
  // connector again as long as the connector reports tokens, even if it cannot load them. [S _handle_invalid_blocks,
  // _update_requests_with_invalid_blocks]
  bool unloaded_begin_anew = false;
  // A session that waits for its next input holds its blocks. In vLLM other requests wait for these blocks until the input comes. With this
  // option the session that has waited longest releases its blocks when another request needs blocks, before any request is preempted. When
  // the input comes, the session finds blocks that are still cached or that a connector has, and computes the others again. [S schedule]
  bool idle_sessions_yield = false;

  friend bool operator==(const FixOptions&, const FixOptions&) = default;
};

// Returns the fixes that are on in an engine's core, under DecisionProfile::vllm_0_19. A simulation of an engine with tiers also uses them.
// `early_loads` requires tiers that choose by measured costs.
constexpr FixOptions engine_fixes(bool early_loads) {
  FixOptions fixes;
  fixes.early_loads = early_loads;
  fixes.forget_unwritten_blocks = fixes.discard_only_in_flight = fixes.reserve_windows_only = true;
  fixes.loaded_give_way = fixes.hits_before_loads = fixes.unloaded_begin_anew = true;
  fixes.unsure_drafts = fixes.cut_sessions = fixes.idle_sessions_yield = true;
  return fixes;
}

// All rules of one core. A fix is also a rule, with the same name. Each other rule is on under vLLM 0.32.0 and off under 0.19.0.
struct DecisionRules : FixOptions {
  constexpr DecisionRules() = default;  // vLLM 0.19.0 without fixes
  // Resolves the rules of a configuration. hits_before_loads is always on under vLLM 0.32.0, which has this fix itself.
  constexpr DecisionRules(DecisionProfile profile, const FixOptions& fixes)
      : FixOptions(fixes), is_newer_(profile == DecisionProfile::vllm_0_32) {
    hits_before_loads |= is_newer_;
  }

 private:
  bool is_newer_ = false;  // value of all rules below, and therefore declared before them

 public:
  // Queues: S schedule.
  // Requests that hold blocks while they wait (CoreSnapshot's skipped_waiting) go before all other requests under each policy. They are
  // also admitted while new requests are paused. All other requests wait in one queue, whether they were passed over or not. [S
  // _select_waiting_queue_for_scheduling, _enqueue_waiting_request, get_num_unfinished_requests]
  bool block_holders_first = is_newer_;
  bool waiting_sessions_count_as_running = is_newer_;  // a session that waits for input counts against max_num_seqs

  // Rules of a step. They change S schedule.
  bool no_prefill_threshold_when_alone = is_newer_;  // long_prefill_token_threshold does not limit the only request
  bool victims_move_cursor = is_newer_;     // a preempted request before the cursor moves it back, even if not scheduled in this step
  bool lookahead_at_admission = is_newer_;  // a request gets slots for draft tokens at its admission, not in its first running step
  bool padded_decodes = is_newer_;          // a request admitted for one token runs as many draft placeholders as other requests, or waits
  // A preempted request does not wait for its tokens in flight: they are appended when they arrive, and change no count. Until they have
  // arrived, the request is passed over. A reset drops these tokens instead, and the next plan lists the requests that the reset preempted.
  // [S _preempt_request, reset_prefix_cache, A _update_request_with_output]
  bool stale_outputs = is_newer_;

  // Rules of results.
  bool min_tokens_limits_only_repetition = is_newer_;  // min_tokens suppresses only the repetition check [U check_stop]
  bool reset_succeeds_without_connector = is_newer_;   // without a connector, a reset of its cache succeeds [S reset_connector_cache]
  // A request ends if its grammar rejects its tokens or cannot be compiled. [S update_from_output]
  bool grammar_rejection_ends_request = is_newer_;
  // A session's answer is cut after the last token that no result can revoke. cut_sessions corrects the session at its next input instead.
  // [S _handle_stopped_request, _update_request_as_session]
  bool truncates_session_answers = is_newer_;

  // Blocks.
  bool unhashed_blocks_first = is_newer_;         // freed blocks without a block hash are reused first [B free_blocks]
  bool counts_hits_at_admission = is_newer_;      // a look-up is counted only when its request is admitted [M get_computed_blocks]
  bool reset_is_noop_without_groups = is_newer_;  // without groups, a reset succeeds and reports no event [B reset_prefix_cache]
  bool tagged_keys = is_newer_;                   // extra keys of a hash are tagged with their kind [K generate_block_hash_extra_keys]

  // Windows.
  bool windows_advance_on_results = is_newer_;  // a window moves only over tokens whose results have arrived [M allocate_slots]
  // An admission reserves no more than a window holds: see SchedulerOptions::max_in_flight_tokens. [M can_fit_full_sequence]
  bool admission_capped_by_window = is_newer_;
  // Only blocks that a later hit can use get a block hash: see PrefixCacheOptions::retention_interval. [T cache_blocks]
  bool caches_windows_sparsely = is_newer_;
  // With several cache groups and EAGLE, a look-up drops the last block once per hit length, not once per search pass. [C
  // find_longest_cache_hit]
  bool eagle_drops_once = is_newer_;

  // Rules of transfers. They change S schedule.
  bool loads_reserve_prefill_blocks = is_newer_;     // a load for which its request waits leaves the blocks free that prefills still need
  bool no_load_when_cache_read_skipped = is_newer_;  // the connector is asked even if the request skips the prefix cache; then nothing is
                                                     // loaded
  // The reported number of cached tokens is the number of the last look-up, even if a load failed. [S schedule,
  // _update_requests_with_invalid_blocks]
  bool reports_cached_of_last_lookup = is_newer_;
  // After a load that failed in part, the last token is also computed. [S _update_waiting_for_remote_kv]
  bool partial_loads_leave_last_token = is_newer_;
  // When a request ends, the connector is shown only computed blocks, and sliding windows as of the tokens whose results have arrived. [S
  // _connector_finished]
  bool finish_shows_computed_blocks = is_newer_;
  // A load takes no block for tokens that a window has passed, even if the window has not passed a whole block. [T
  // allocate_new_computed_blocks]
  bool no_load_for_skipped_tokens = is_newer_;

  // Encoders: S _try_schedule_encoder_inputs.
  // An encoder output may be released when the results of its tokens have arrived, not when the tokens are planned. [S
  // _update_after_schedule]
  bool encoder_outputs_freed_on_results = is_newer_;
  // A request that contains an input twice holds the output until the last occurrence is computed, not the first. [E free_encoder_input]
  bool encoder_outputs_held_per_input = is_newer_;
  // With disable_chunked_mm_input, the scheduler checks whether an input fits before it checks whether the input is cached.
  bool input_fit_checked_before_cache = is_newer_;
  bool inputs_include_drafter_lookahead = is_newer_;  // tokens that a drafter reads ahead count in the choice of a step's inputs
  bool inputs_found_by_bisection = is_newer_;         // a chunk's inputs are found by bisection, even if a session has unordered inputs
  bool rejects_mismatched_encoder_sizes = is_newer_;  // a cached output of another size with the same identifier ends the request
  // An output that is evicted and computed again in one step is not reported as freed. [E get_freed_mm_hashes]
  bool recomputed_outputs_not_freed = is_newer_;
};

}  // namespace quire
