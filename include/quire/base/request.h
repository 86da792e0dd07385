#pragma once
// A request for the core, and read-only views of its state. Core::add() copies its argument on the core's thread. Views are valid until the
// next call that changes the core. Counts are tokens unless a comment says otherwise; times are in seconds of the caller's clock.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "quire/base/sampling.h"

namespace quire {

// The status of a request: vLLM's RequestStatus, in the same order. Each status after `preempted` is finished.
enum class RequestStatus : std::uint8_t {
  waiting,
  waiting_for_grammar,
  waiting_for_remote_kv,
  waiting_for_input,  // a streaming session that waits for its next input
  running,
  preempted,
  finished_stopped,
  finished_length,
  finished_aborted,
  finished_ignored,
  finished_error,
  finished_repetition
};

// Returns true if the request has ended.
constexpr bool is_finished(RequestStatus status) {
  return status > RequestStatus::preempted;
}

// Why a request ended, as reported to its client.
enum class FinishReason : std::uint8_t { stop, length, abort, error, repetition };

// Returns the name of the reason that vLLM uses.
constexpr std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
    case FinishReason::error:
      return "error";
    case FinishReason::repetition:
      return "repetition";
  }
  return "error";
}

// Labels of a request for scheduling, counting and explanations. The texts come from clients. SchedulingPolicy::continuum
// reads `job`, `is_last_step` and `tool`; SchedulerOptions::tenant_turns reads `tenant` and `is_background`. All other code compares the
// texts byte by byte.
struct RequestTags {
  std::string job{};          // the agent run that this request (turn) belongs to; empty: none
  bool is_last_step = false;  // no turn of the job follows
  std::string tool{};         // tool that runs after this turn, if the caller knows it; else the ToolNamer may read it from the output
  std::string tenant{};       // the tenant that sent the request
  // The request runs on what other requests leave: it is admitted after them, gets prompt tokens after them, and gives its row and blocks
  // to them (SchedulerOptions::tenant_turns).
  bool is_background = false;
  // How long the blocks of the request are kept after its end, in seconds, within PrefixCacheOptions::retained_share. 0: as others.
  std::uint32_t retention_s = 0;
  std::vector<std::pair<std::string, std::string>> hints{};  // further labels from the caller, by name

  friend bool operator==(const RequestTags&, const RequestTags&) = default;
};

// A request for Core::add(), which copies everything except `sampling`. If prompt_storage is set, the prompt is moved instead of copied.
struct NewRequest {
  RequestId id;
  std::string_view name{};            // the caller's id; orders requests of equal priority and arrival time (byte order)
  std::span<const TokenId> prompt{};  // zeros if the prompt consists of embeddings
  // The vector whose elements `prompt` views, if the core may move from it. The core moves from it when the request is accepted.
  std::vector<TokenId>* prompt_storage = nullptr;
  std::uint32_t client_index = 0;
  std::int64_t priority = 0;  // a smaller value goes first under SchedulingPolicy::priority
  double arrival_time = 0.0;  // seconds, from any origin

  std::uint32_t max_tokens = 16;  // must be 1 for pooling
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids{};  // ids that end the request without a stop reason; empty: EOS is ignored
  std::span<const TokenId> stop_token_ids{};
  RepetitionDetection repetition{};

  bool pooling = false;            // the request ends with its first pooled output
  bool structured_output = false;  // the request waits until its grammar is compiled
  bool resumable = false;          // a streaming session: more input may follow under the same id
  bool skip_reading_prefix_cache = false;
  bool loads_nothing = false;  // the connector's match() is not called; computed blocks are stored as usual

  std::int64_t lora_id = 0;  // 0: the base model
  std::string_view lora_name{};
  std::string_view lora_path{};                     // part of block hashes (DecisionRules::tagged_keys)
  std::string_view cache_salt{};                    // requests with different salts never share blocks
  std::span<const MultimodalFeature> multimodal{};  // ascending by offset

  // Embeddings instead of a prompt, one row per token of `prompt`, row after row. The block hashes depend on them. Empty: none.
  std::span<const std::byte> prompt_embeds{};

  // Hashes of the full blocks of the prompt, if another engine has made them; each has the size of the hash algorithm. The core continues
  // the chain for later blocks. Empty: the core computes all hashes.
  std::span<const std::uint8_t> block_hashes{};

  const RequestTags* tags = nullptr;  // null: none

  const SamplingParams* sampling = nullptr;  // passed on to the plans and never read; must be valid until the request is retired
};

// A request that continues after tokens of its parent (Core::fork). All other properties are the parent's, except that the fork belongs to
// no job.
struct ForkRequest {
  RequestId id;
  std::string_view name{};  // see NewRequest
  std::uint32_t client_index = 0;
  double arrival_time = 0.0;                  // s; not the parent's: with equal times the two may preempt each other forever
  std::uint32_t num_tokens = 0;               // number of the parent's tokens that the fork begins with, at least the prompt; 0: all known
  std::optional<TokenId> next_token{};        // an output token after these tokens; the parent need not have sampled it
  std::optional<std::uint32_t> max_tokens{};  // output tokens, including the parent's tokens; nullopt: the parent's limit
  bool resumable = false;                     // a streaming session
  bool waits_for_input = false;               // the fork begins with its next input, and keeps its shared blocks until then
  const SamplingParams* sampling = nullptr;
};

// The next input of a streaming session. The limits that were given when the session began also apply to it (max_tokens too, as in vLLM).
struct SessionInput {
  std::span<const TokenId> tokens{};
  std::span<const MultimodalFeature> multimodal{};  // offsets count from the start of this input
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;  // limit of this input's answer, only with DecisionRules::truncates_session_answers
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids{};
  std::span<const TokenId> stop_token_ids{};
  RepetitionDetection repetition{};
  const SamplingParams* sampling = nullptr;
};

// The current state of one request. A view, valid until the next non-const call on the core.
struct RequestView {
  RequestId id;
  std::string_view name;
  RequestStatus status = RequestStatus::waiting;
  std::uint32_t client_index = 0;
  std::span<const TokenId> tokens;  // prompt, then outputs
  std::uint32_t num_prompt_tokens = 0;
  std::span<const TokenId> draft_tokens;  // vLLM's spec_token_ids
  // Number of computed tokens. In a session that waits, the next input is appended after these tokens. If the session has released their
  // blocks, num_blocks is 0.
  std::uint32_t num_computed_tokens = 0;
  std::int32_t num_output_placeholders = 0;  // negative if draft tokens are rejected whose result a reset has dropped, as in vLLM
  std::int64_t num_cached_tokens = -1;       // prompt tokens found at first admission; -1: not admitted yet
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_preemptions = 0;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  std::int32_t num_tokens_in_flight = 0;       // tokens that the plans in flight compute
  std::int32_t num_stale_tokens = 0;           // of these tokens, those from before a preemption (DecisionRules::stale_outputs)
  bool drops_stale = false;                    // stale tokens will be dropped when they arrive
  std::span<const std::uint8_t> block_hashes;  // hashes of the full blocks, 32 bytes each (shorter hashes are padded with zeros)
  std::uint32_t num_blocks = 0;                // in all cache groups, null blocks included
  const RequestTags* tags = nullptr;           // never null in a view that the core returns
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;
  std::uint32_t num_encoder_inputs = 0;
  bool resumable = false;
  std::string_view cache_salt;
  std::optional<TokenId> stop_token;  // the stop id that ended the request, or a session's answer
};

}  // namespace quire
