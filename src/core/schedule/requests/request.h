#pragma once
// A request in the scheduler. Plain data: RequestTable owns the requests, and the parts of the scheduler change them. Counters are signed
// where vLLM's arithmetic can temporarily go below 0.
// Only the core's thread reads and writes a request; other threads get a RequestView. Token counts begin at the request's first token.
#include <boost/pfr/tuple_size.hpp>
#include <cstddef>
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

// The queue that contains a request.
enum class QueueName : std::uint8_t { none, waiting, skipped, step_skipped };

inline constexpr Slot kNoSlot{UINT32_MAX};
inline constexpr StepId kNeverScheduled{UINT64_MAX};

// Number of members of an aggregate. fields() functions assert it, so that a new member cannot be forgotten.
template <class T>
inline constexpr std::size_t kNumMembers = boost::pfr::tuple_size_v<T>;

// The rules that end an answer. The next input of a session replaces them.
struct StopRules {
  std::uint32_t max_tokens = 0;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> eos_ids, stop_token_ids;
  RepetitionDetection repetition;
};

// An owned copy of a SessionInput.
struct SessionUpdate {
  std::vector<TokenId> tokens;
  std::vector<MultimodalFeature> features;
  double arrival_time = 0.0;
  StopRules stops;
  const SamplingParams* sampling = nullptr;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). `sampling` is not saved, because it belongs to the host.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    static_assert(kNumMembers<SessionUpdate> == 5);
    form.tokens(self.tokens);
    form(self.features, self.arrival_time, self.stops);
  }
};

struct SwappedBlocks;

// The failure of a load for which the request waits.
//   none -> partial   the bad blocks are known, or the connector reports the request (vLLM's failed_recving_kv_req_ids)
//   none, partial -> lost   earlier blocks are useless without the load: all blocks of the request are freed when the load has ended
//   partial, lost -> none   the load has ended, or the request has ended
enum class LoadFailure : std::uint8_t { none, partial, lost };

// The loads of a request, by a connector or from swap.
struct RequestLoad {
  bool received = false;  // the load has ended, but the request was not promoted yet: vLLM's finished_recving_kv_req_ids
  LoadFailure failure = LoadFailure::none;
  bool early = false;             // the load began before the request's turn, and the request has not run since
  bool outlives_request = false;  // the load still fills the blocks although the request has finished
  bool skips_result = false;      // true while a result is taken from which the request's part is skipped
  // If 0, the connector is not asked: NewRequest::loads_nothing is set, the request ran on blocks whose load failed, or two loads of it
  // failed.
  std::uint8_t num_attempts_left = 2;
  StepId last_early_query = kNeverScheduled;  // the newest plan for which the connector was asked before the request's turn

  [[nodiscard]] bool is_allowed() const { return num_attempts_left > 0; }
};

// The transfers that the newest plan refused. A refused load takes precedence, because the request still waits for its blocks.
enum class TransferRefusal : std::uint8_t { none, store, load };

// The transfers of a request between the pool and other places.
struct RequestTransfers {
  std::uint32_t num_open_loads = 0, num_open_stores = 0;  // while the request is known
  bool awaits_end = false;  // a connector keeps the blocks until the plan that reports the request's end is applied
  bool had_any = false;     // if set, the core itself detects the end of the last transfer
  TransferRefusal refused = TransferRefusal::none;

  [[nodiscard]] bool is_idle() const { return num_open_loads + num_open_stores == 0 && refused == TransferRefusal::none; }
};

// The outstanding plans with the request, and their tokens.
struct RequestInFlight {
  std::uint32_t num_plans = 0;
  std::int32_t num_tokens = 0;
  std::int32_t num_stale_tokens = 0;   // the oldest of num_tokens, planned before the request was preempted (DecisionRules::stale_outputs)
  bool drops_stale_tokens = false;     // the results of stale tokens are dropped (DecisionRules::stale_outputs)
  bool discards_latest_token = false;  // vLLM's discard_latest_async_tokens
  StepId last_step = kNeverScheduled;  // the newest plan with the request
  std::uint32_t last_index = 0;        // index in the `scheduled` list of that plan
  std::uint64_t last_fence = 0;        // StepFences: the newest step that may write to the request's blocks
};

// Inputs of a block hash other than tokens, images and audio.
struct BlockHashInputs {
  std::int64_t lora_id = 0;
  std::string lora_name, lora_path, cache_salt;
  std::vector<std::byte> prompt_embeds;  // set only if blocks are hashed
  std::size_t embed_bytes = 0;           // bytes per token; 0: no embeddings
};

// The counts of tokens (num_tokens() counts the prompt and the known outputs):
//   num_computed_tokens       tokens with keys and values once the plans in flight have run; includes draft tokens in flight
//   num_output_placeholders   tokens in flight that are not known yet (asynchronous scheduling)
//   num_tokens_with_drafts()  the maximum that the next step can run, without placeholders
// Between two calls, 0 <= num_computed_tokens <= num_tokens() + num_output_placeholders + draft tokens while the request runs or waits for
// its turn.
struct Request {
  RequestId id;
  RequestStatus status = RequestStatus::waiting;
  QueueName queue = QueueName::none;
  // True while vLLM's scheduler.requests would contain the request: until its blocks are freed finally. Outstanding plans may refer to the
  // request longer.
  bool known = false;
  bool is_prefill_chunk = false;
  bool is_prefilling = false;  // the request loads or computes its prompt; blocks for the rest of the prompt may be reserved for it
  // The request waits and was skipped since it was queued, or is blocked (DecisionRules::block_holders_first).
  bool deferred = false;
  bool grammar_failed = false;       // the request ends with the next result (DecisionRules::grammar_rejection_ends_request)
  bool reported = false;             // an update has reported the request
  bool was_admitted_before = false;  // the request was in the batch at least once
  bool pooling = false;
  bool structured_output = false;
  bool resumable = false;
  bool skip_reading_prefix_cache = false;
  Slot slot = kNoSlot;  // while running
  RequestInFlight in_flight;

  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;  // the last tokens of `tokens`
  std::int32_t num_computed_tokens = 0;
  std::int32_t num_output_placeholders = 0;
  std::uint32_t shared_prefix_boundary = 0;  // KvHit::shared_prefix_boundary of the last look-up
  std::vector<TokenId> tokens;               // vLLM's all_token_ids
  std::vector<TokenId> draft_tokens;         // vLLM's spec_token_ids
  // Held until ended_requests.cpp frees them. A finished request may keep its blocks for a transfer or a pin.
  KvBlocks blocks;
  std::vector<BlockHash> hashes;  // one per full hash block of `tokens`; empty if blocks are not hashed
  ListHook<Request> queue_hook;

  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::string name;
  std::uint32_t client_index = 0;
  std::uint32_t num_preemptions = 0;
  std::int64_t num_cached_tokens = -1;  // -1: not admitted yet
  std::int64_t num_external_computed_tokens = 0;
  RequestLoad load;
  StopRules stops;
  std::optional<TokenId> stop_token;  // stop_reason; as in vLLM, it stays when a session continues, until the next stop replaces it

  std::vector<MultimodalFeature> features;
  BlockHashInputs hash_inputs;
  RequestTags tags;
  Job* job = nullptr;        // under CONTINUUM, while the request is known
  double entry_time = 0.0;   // under CONTINUUM, for a request without a job: its time of entry, s
  std::uint64_t family = 0;  // shared with its relatives by forks that have not ended; 0: no relatives
  std::uint8_t holders = 0;  // holders that keep the blocks although the request has finished (holds.h)
  RequestTransfers transfers;
  SwappedBlocks* swapped = nullptr;  // not null while the request is swapped out
  const SamplingParams* sampling = nullptr;
  std::vector<RequestEvent> events;                       // since the last update, with log_stats
  std::vector<std::optional<SessionUpdate>> next_inputs;  // vLLM's streaming_queue; nullopt: no more inputs will come

  [[nodiscard]] std::int32_t num_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  [[nodiscard]] std::int32_t num_tokens_with_drafts() const { return static_cast<std::int32_t>(tokens.size() + draft_tokens.size()); }
  // The outputs are always at the end of `tokens`: a session's earlier outputs count as its prompt.
  [[nodiscard]] std::span<const TokenId> outputs() const {
    QUIRE_CHECK(static_cast<std::size_t>(num_output_tokens) <= tokens.size(), "outputs are part of the tokens");
    return std::span(tokens).last(static_cast<std::size_t>(num_output_tokens));
  }
  [[nodiscard]] bool has_encoder_inputs() const { return !features.empty(); }
  [[nodiscard]] bool finished() const { return is_finished(status); }

  // Checkpoint fields (schedule/checkpoint/state_archive.h), in the order of their bytes. The table saves the id, the queues save their
  // requests, and Swap saves swapped-out blocks. `load.skips_result` is set only within one call, and `sampling` belongs to the host.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    static_assert(kNumMembers<Request> == 48 && kNumMembers<RequestInFlight> == 8 && kNumMembers<RequestLoad> == 7 &&
                  kNumMembers<RequestTransfers> == 5 && kNumMembers<BlockHashInputs> == 6);
    auto& [num_plans, num_tokens, num_stale_tokens, drops_stale_tokens, discards_latest_token, last_step, last_index, last_fence] =
        self.in_flight;
    auto& load = self.load;
    auto& transfers = self.transfers;
    auto& hashed = self.hash_inputs;
    bool loads_nothing = !load.is_allowed(), lost_load_before = load.num_attempts_left == 1;
    bool lost_part = load.failure == LoadFailure::partial, lost_load = load.failure == LoadFailure::lost;
    bool was_refused_load = transfers.refused == TransferRefusal::load, was_refused = transfers.refused != TransferRefusal::none;
    form(self.status, self.known, self.is_prefill_chunk, discards_latest_token, drops_stale_tokens, self.deferred, self.grammar_failed,
         self.reported, self.was_admitted_before, self.pooling, self.structured_output, self.resumable, self.skip_reading_prefix_cache,
         loads_nothing, self.slot, num_plans, self.num_prompt_tokens, self.num_output_tokens, self.num_computed_tokens,
         self.num_output_placeholders, num_tokens, self.shared_prefix_boundary, num_stale_tokens);
    form.tokens(self.tokens, self.num_output_tokens);
    form.drafts(self.draft_tokens);
    form(self.blocks, self.hashes, last_step, last_index, load.last_early_query, self.priority, self.arrival_time, self.name,
         self.client_index, self.num_preemptions, self.num_cached_tokens, self.num_external_computed_tokens, load.received, lost_part,
         load.early, lost_load, lost_load_before, load.outlives_request, self.is_prefilling, last_fence, self.stops, self.stop_token,
         hashed.lora_id, self.features, hashed.lora_name, hashed.lora_path, hashed.cache_salt);
    form.embeds(hashed.prompt_embeds);
    form(hashed.embed_bytes, self.tags, self.job, self.entry_time, self.family, self.holders, transfers.num_open_loads,
         transfers.num_open_stores, transfers.awaits_end, transfers.had_any, was_refused, was_refused_load, self.events, self.next_inputs);
    if constexpr (Archive::kIsReading) {
      load.num_attempts_left = loads_nothing ? 0 : lost_load_before ? 1 : 2;
      load.failure = lost_load ? LoadFailure::lost : lost_part ? LoadFailure::partial : LoadFailure::none;
      transfers.refused = was_refused_load ? TransferRefusal::load : was_refused ? TransferRefusal::store : TransferRefusal::none;
    }
  }
};

// vLLM 0.32.0's _holds_kv_blocks: returns whether the request has computed tokens or waits for a load.
inline bool holds_kv(const Request& request) {
  return request.num_computed_tokens > 0 || request.status == RequestStatus::waiting_for_remote_kv;
}

// Returns whether a transfer still fills the request's blocks.
inline bool is_loading(const Request& request) {
  return request.status == RequestStatus::waiting_for_remote_kv && !request.load.received;
}

// Returns whether the request waits for something other than its turn.
inline bool is_blocked(const Request& request) {
  return request.status == RequestStatus::waiting_for_grammar || request.status == RequestStatus::waiting_for_remote_kv ||
         request.status == RequestStatus::waiting_for_input;
}

// vLLM's Request.__lt__. A total order.
inline bool precedes_in_queue(const Request& a, const Request& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.arrival_time != b.arrival_time) return a.arrival_time < b.arrival_time;
  const int names = a.name.compare(b.name);
  return names != 0 ? names < 0 : a.id < b.id;
}

}  // namespace quire
