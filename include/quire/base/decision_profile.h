#pragma once
// Whose decisions the core makes, where versions of vLLM differ. Each difference is one rule, and is asked for by its name in one place;
// nothing in the core asks for a version. docs/vllm_0_32.md says where in vLLM each comes from. Values only; any thread.
#include <cstdint>

namespace quire {

// The engine's own is vllm_0_19, with the cures of CureOptions.
enum class DecisionProfile : std::uint8_t { vllm_0_19, vllm_0_32 };

// All off: vLLM 0.19.0.
struct DecisionRules {
  // Queues. Who waits and holds blocks (CoreSnapshot's skipped_waiting) goes before all others under each policy, and is admitted while new
  // ones are paused; all others wait in one queue, whether they were passed over or not.
  bool holders_first = false;
  bool sessions_take_places = false;  // a session between two inputs counts against max_num_seqs

  // A step.
  bool lone_prefill_unbound = false;    // long_prefill_token_threshold is not for a request that is alone
  bool victims_move_cursor = false;     // a victim before the cursor moves it back, also if this step had nothing for it
  bool lookahead_at_admission = false;  // slots for a drafter are taken when a request is admitted, not first when it runs
  bool padded_decodes = false;          // who is admitted for one token runs as many placeholders for drafts as the others do, or waits
  // What is in flight for a request that is preempted is awaited no more: it is appended when it comes, and changes no count. Until then
  // the request is passed over. A reset drops it instead, and names whom it preempted in the next plan.
  bool stale_outputs = false;

  // Results.
  bool min_tokens_hold_repetition = false;  // min_tokens holds back nothing else
  bool no_connector_resets = false;         // a reset of the connector's cache succeeds where there is no connector
  bool refused_tokens_end = false;          // tokens that a grammar refuses end their request, and so does a grammar that is none
  bool sessions_cut = false;                // an answer ends behind the tokens that are computed for good; see CureOptions::cut_sessions

  // Blocks.
  bool unnamed_blocks_first = false;     // a freed block without a name is the next to be used
  bool hits_count_at_admission = false;  // a look-up that comes to nothing is not counted
  bool resets_by_group = false;          // where no layer keeps a cache there is nothing to reset, nor to tell of it
  bool tagged_keys = false;              // what goes into a block's name beside tokens says what it is

  // Windows.
  bool windows_follow_results = false;  // a window moves on over tokens whose results have come
  bool windows_cap_admission = false;   // no more of a window is reserved than a sequence holds: see SchedulerOptions::max_in_flight_tokens
  bool sparse_windows = false;          // only blocks that a hit can begin behind get a name: see PrefixCacheOptions::retention_interval
  bool eagle_drops_once = false;        // with several cache groups EAGLE drops a block once for each length, not once in each pass

  // Transfers.
  bool loads_leave_room = false;     // one that is awaited begins only beside what those that compute their prompts still need
  bool unread_load_nothing = false;  // who does not read the prefix cache loads nothing; the connector is asked all the same
  bool lookups_tell_cached = false;  // what a request has found is told as its last look-up found it, whatever became of a load
  bool loads_leave_a_token = false;  // also of a load that failed in part the last token of all is left to compute
  bool ends_show_computed = false;   // at the end a connector is shown blocks of computed tokens, and windows as of results that have come
  bool hits_before_loads = false;    // CureOptions::hits_before_loads
  bool passed_load_nothing = false;  // what of a load a window has passed takes no block, also where it has not passed a whole one

  // Encoders.
  bool outputs_follow_results = false;  // an output may go when the results of its tokens have come, not when they are planned
  bool inputs_hold_outputs = false;     // who has an input twice holds its output to the last of them, not to the first
  bool whole_inputs_first = false;      // where none is cut, whether an input fits is asked before whether it is cached
  bool drafters_need_inputs = false;    // what a drafter reads ahead counts to what is needed of an input
  bool inputs_bisected = false;         // a chunk's inputs are found by bisection, also where a session has put them out of order
  bool sizes_must_agree = false;        // an input of another size than what is kept under its name ends its request
  bool kept_outputs_stay = false;       // what was evicted and is computed again in the same step is not told as freed
};

constexpr DecisionRules rules_of(DecisionProfile profile) {
  if (profile == DecisionProfile::vllm_0_19) return {};
  return {.holders_first = true,
          .sessions_take_places = true,
          .lone_prefill_unbound = true,
          .victims_move_cursor = true,
          .lookahead_at_admission = true,
          .padded_decodes = true,
          .stale_outputs = true,
          .min_tokens_hold_repetition = true,
          .no_connector_resets = true,
          .refused_tokens_end = true,
          .sessions_cut = true,
          .unnamed_blocks_first = true,
          .hits_count_at_admission = true,
          .resets_by_group = true,
          .tagged_keys = true,
          .windows_follow_results = true,
          .windows_cap_admission = true,
          .sparse_windows = true,
          .eagle_drops_once = true,
          .loads_leave_room = true,
          .unread_load_nothing = true,
          .lookups_tell_cached = true,
          .loads_leave_a_token = true,
          .ends_show_computed = true,
          .hits_before_loads = true,
          .passed_load_nothing = true,
          .outputs_follow_results = true,
          .inputs_hold_outputs = true,
          .whole_inputs_first = true,
          .drafters_need_inputs = true,
          .inputs_bisected = true,
          .sizes_must_agree = true,
          .kept_outputs_stay = true};
}

}  // namespace quire
