#pragma once
// One request as the scheduler sees it. Plain data: request_table owns them, the parts of the scheduler move them. Counters are signed
// where vLLM's arithmetic may pass below 0 on its way.
// Read and written on the core's thread alone; others are shown a RequestView. Token counts are of the request from its first token on.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/intrusive_list.h"
#include "core/agent/job_table.h"
#include "core/kv/kv_blocks.h"
#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "quire/base/request.h"
#include "quire/core.h"
#include "quire/hash_function.h"

namespace quire {

// Which queue holds a request.
enum class QueueName : std::uint8_t { none, waiting, skipped, step_skipped };

inline constexpr Slot kNoSlot{UINT32_MAX};
inline constexpr StepId kNeverScheduled{UINT64_MAX};

// SessionInput, kept.
struct SessionUpdate {
  std::vector<TokenId> tokens;
  std::vector<MultimodalFeature> features;
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> eos_ids;
  std::vector<TokenId> stop_token_ids;
  RepetitionDetection repetition;
  const SamplingParams* sampling = nullptr;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [tokens, features, arrival_time, max_tokens, min_tokens, eos_ids, stop_token_ids, repetition, sampling] = self;
    form.tokens(tokens);
    form(features, arrival_time, max_tokens, min_tokens, eos_ids, stop_token_ids, repetition);
  }
};

struct SwappedBlocks;

// The counts of tokens, and what they mean (num_tokens() is prompt and known outputs):
//   num_computed_tokens       have keys and values, or will have when the plans under way have run; drafts in flight among them
//   num_output_placeholders   tokens in flight, not known yet (asynchronous scheduling)
//   num_tokens_with_drafts()  what the next step could run at most, but for placeholders
// Between two calls 0 <= num_computed_tokens <= num_tokens() + num_output_placeholders + drafts, as long as it runs or waits for its turn.
struct Request {
  RequestId id;
  RequestStatus status = RequestStatus::waiting;
  QueueName queue = QueueName::none;
  // vLLM's scheduler.requests has it: false once its blocks are freed for good; outstanding plans may still name it.
  bool known = false;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  bool drops_stale = false;      // what is stale of it is dropped when it comes (DecisionRules::stale_outputs)
  bool deferred = false;         // it waits, and was passed over since it was queued, or is blocked (DecisionRules::holders_first)
  bool grammar_failed = false;   // ends with the next result (DecisionRules::refused_tokens_end)
  bool told = false;             // an update has told of it
  bool admitted_before = false;  // to the batch, at least once
  bool pooling = false;
  bool structured_output = false;
  bool resumable = false;
  bool skip_reading_prefix_cache = false;
  // The connector is not asked about it: as it was given, or since it ran on blocks that were not loaded, or lost two loads.
  bool loads_nothing = false;
  Slot slot = kNoSlot;              // while running
  std::uint32_t num_in_flight = 0;  // outstanding plans that name it

  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;  // the last so many of `tokens`
  std::int32_t num_computed_tokens = 0;
  std::int32_t num_output_placeholders = 0;
  std::int32_t num_tokens_in_flight = 0;     // run in the plans under way
  std::uint32_t shared_prefix_boundary = 0;  // KvHit::shared_prefix_boundary of its last look-up
  std::int32_t num_stale_tokens = 0;         // of these, the oldest: from before it was preempted (DecisionRules::stale_outputs)
  std::vector<TokenId> tokens;               // all_token_ids
  std::vector<TokenId> draft_tokens;         // spec_token_ids
  // Held until ended_requests.cpp gives them back; a finished request may keep them for a transfer or a pin.
  KvBlocks blocks;
  std::vector<BlockHash> hashes;  // of the full hash blocks of `tokens`; empty without prefix caching

  StepId last_step = kNeverScheduled;    // the newest plan that names it,
  std::uint32_t last_index = 0;          // and where in its `scheduled`
  StepId asked_early = kNeverScheduled;  // the newest plan for which the connector was asked before its turn
  ListHook<Request> queue_hook;

  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::string name;
  std::uint32_t client_index = 0;
  std::uint32_t num_preemptions = 0;
  std::int64_t num_cached_tokens = -1;  // -1: not admitted yet
  std::int64_t num_external_computed_tokens = 0;
  bool finished_receiving = false;  // finished_recving_kv_req_ids has it
  bool failed_receiving = false;    // failed_recving_kv_req_ids has it
  bool loaded_early = false;        // its load began before its turn, and it has not run since
  bool lost_load = false;           // a load failed, and what came before it is no use without it: all its blocks go back
  bool has_lost_load = false;       // so it did before
  bool ended_loading = false;       // a transfer still fills its blocks although it has finished
  bool load_failed = false;         // while a result is taken: its part is skipped
  bool is_prefilling = false;       // it loads, or computes its prompt: blocks for the rest of it are not loaded into
  std::uint64_t last_fence = 0;     // StepFences: the newest step that may write to its blocks

  std::uint32_t max_tokens = 0;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> eos_ids, stop_token_ids;
  RepetitionDetection repetition;
  std::optional<TokenId> stop_token;  // stop_reason: stays, as in vLLM, when a session goes on, until another reason replaces it

  std::int64_t lora_id = 0;
  std::vector<MultimodalFeature> features;
  std::string lora_name, lora_path, cache_salt;
  std::vector<std::byte> prompt_embeds;  // where blocks are named
  std::size_t embed_bytes = 0;           // of a token's row; 0: no embeddings
  RequestTags tags;
  Job* job = nullptr;                                     // under CONTINUUM, as long as it is known
  double entered = 0.0;                                   // under CONTINUUM: what counts as its entry if it has no job, s
  std::uint64_t family = 0;                               // it and its relatives by forks that have not ended; 0: none
  std::uint8_t holders = 0;                               // who keeps its blocks although it has finished (holds.h)
  std::uint32_t num_open_loads = 0, num_open_stores = 0;  // transfers, while it is known
  bool awaits_transfer = false;                           // a connector keeps its blocks, and no result yet is of a plan that says it ended
  bool had_transfer = false;                              // so the core knows itself when the last one is over
  bool lacks_transfer = false;                            // the newest plan refused it one
  bool lacks_load = false;                                // of which one was a load
  SwappedBlocks* swapped = nullptr;                       // while blocks of its lie outside of the pool
  const SamplingParams* sampling = nullptr;
  std::vector<RequestEvent> events;                       // since the last update, with log_stats
  std::vector<std::optional<SessionUpdate>> next_inputs;  // streaming_queue; nullopt: no more will come

  [[nodiscard]] std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  [[nodiscard]] std::int32_t num_tokens_with_drafts() const { return static_cast<std::int32_t>(tokens.size() + draft_tokens.size()); }
  // The outputs are always the end of `tokens`: a session's earlier outputs count as its prompt.
  [[nodiscard]] std::span<const TokenId> outputs() const {
    QUIRE_CHECK(static_cast<std::size_t>(num_output_tokens) <= tokens.size(), "outputs are among the tokens");
    return std::span(tokens).last(static_cast<std::size_t>(num_output_tokens));
  }
  [[nodiscard]] bool has_encoder_inputs() const { return !features.empty(); }
  [[nodiscard]] bool finished() const { return is_finished(status); }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile. The table has its id, the
  // queues say in which one it is, Swap what of it is swapped out; `load_failed` is set within a call only, and `sampling` is the host's.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [id, status, queue, known, is_prefill_chunk, discard_latest_async_tokens, drops_stale, deferred, grammar_failed,
                            told, admitted_before, pooling, structured_output, resumable, skip_reading_prefix_cache, loads_nothing, slot,
                            num_in_flight, num_prompt_tokens, num_output_tokens, num_computed_tokens, num_output_placeholders,
                            num_tokens_in_flight, shared_prefix_boundary, num_stale_tokens, tokens, draft_tokens, blocks, hashes, last_step,
                            last_index, asked_early, queue_hook, priority, arrival_time, name, client_index, num_preemptions,
                            num_cached_tokens, num_external_computed_tokens, finished_receiving, failed_receiving, loaded_early, lost_load,
                            has_lost_load, ended_loading, load_failed, is_prefilling, last_fence, max_tokens, min_tokens, eos_ids,
                            stop_token_ids, repetition, stop_token, lora_id, features, lora_name, lora_path, cache_salt, prompt_embeds,
                            embed_bytes, tags, job, entered, family, holders, num_open_loads, num_open_stores, awaits_transfer,
                            had_transfer, lacks_transfer, lacks_load, swapped, sampling, events, next_inputs] = self;
    form(status, known, is_prefill_chunk, discard_latest_async_tokens, drops_stale, deferred, grammar_failed, told, admitted_before,
         pooling, structured_output, resumable, skip_reading_prefix_cache, loads_nothing, slot, num_in_flight, num_prompt_tokens,
         num_output_tokens, num_computed_tokens, num_output_placeholders, num_tokens_in_flight, shared_prefix_boundary, num_stale_tokens);
    form.tokens(tokens, num_output_tokens);
    form.drafts(draft_tokens);
    form(blocks, hashes, last_step, last_index, asked_early, priority, arrival_time, name, client_index, num_preemptions, num_cached_tokens,
         num_external_computed_tokens, finished_receiving, failed_receiving, loaded_early, lost_load, has_lost_load, ended_loading,
         is_prefilling, last_fence, max_tokens, min_tokens, eos_ids, stop_token_ids, repetition, stop_token, lora_id, features, lora_name,
         lora_path, cache_salt);
    form.embeds(prompt_embeds);
    form(embed_bytes, tags, job, entered, family, holders, num_open_loads, num_open_stores, awaits_transfer, had_transfer, lacks_transfer,
         lacks_load, events, next_inputs);
  }
};

// vLLM 0.32.0's _holds_kv_blocks.
inline bool holds_kv(const Request& request) {
  return request.num_computed_tokens > 0 || request.status == RequestStatus::waiting_for_remote_kv;
}

// A transfer fills its blocks.
inline bool is_loading(const Request& request) {
  return request.status == RequestStatus::waiting_for_remote_kv && !request.finished_receiving;
}

// It waits for something else than its turn.
inline bool is_blocked(const Request& request) {
  return request.status == RequestStatus::waiting_for_grammar || request.status == RequestStatus::waiting_for_remote_kv ||
         request.status == RequestStatus::waiting_for_input;
}

// vLLM's Request.__lt__: a total order.
inline bool goes_before(const Request& a, const Request& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.arrival_time != b.arrival_time) return a.arrival_time < b.arrival_time;
  const int names = a.name.compare(b.name);
  return names != 0 ? names < 0 : a.id < b.id;
}

}  // namespace quire
