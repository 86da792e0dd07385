#pragma once
// A request as it enters the core, and read-only views of it. Core::add() copies its argument on the core's thread. Views are valid until
// the next call that changes the core. Counts are tokens unless they say otherwise; times are seconds of the caller's clock.
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

// vLLM's RequestStatus, in its order: everything after `preempted` is finished.
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

// Why a request ended, as its client sees it.
enum class FinishReason : std::uint8_t { stop, length, abort, error, repetition };

// Returns the reason's name, as vLLM writes it.
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

// Labels of a request for scheduling, counting and explanations. They are free text from clients, compared byte by byte and never
// interpreted, except by SchedulingPolicy::continuum.
struct RequestTags {
  std::string job{};          // an agent's run of several requests (turns); empty: none
  bool is_last_step = false;  // no turn of the job follows
  std::string tool{};         // tool that runs after this turn, if the caller knows it; else the output may name it (ToolNamer)
  std::string tenant{};       // the tenant that sent the request
  std::vector<std::pair<std::string, std::string>> hints{};  // further labels from the caller, by name

  friend bool operator==(const RequestTags&, const RequestTags&) = default;
};

// A request to add. Core::add copies everything except `sampling`, or moves it if prompt_storage is set.
struct NewRequest {
  RequestId id;
  std::string_view name{};            // the caller's id; breaks ties of equal priority and arrival time (byte order)
  std::span<const TokenId> prompt{};  // zeros if the prompt consists of embeddings
  // The vector that `prompt` views as a whole, if the core may take it: it is moved from when the request is accepted.
  std::vector<TokenId>* prompt_storage = nullptr;
  std::uint32_t client_index = 0;
  std::int64_t priority = 0;  // smaller goes first under SchedulingPolicy::priority
  double arrival_time = 0.0;  // s, any epoch

  std::uint32_t max_tokens = 16;  // 1 for pooling
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids{};  // these end the request without a stop reason; empty: EOS is ignored
  std::span<const TokenId> stop_token_ids{};
  RepetitionDetection repetition{};

  bool pooling = false;            // the request ends with its first pooled output
  bool structured_output = false;  // the request waits until its grammar is compiled
  bool resumable = false;          // a streaming session: more input may follow under the same id
  bool skip_reading_prefix_cache = false;
  bool loads_nothing = false;  // the connector is not asked for tokens; computed blocks are stored as usual

  std::int64_t lora_id = 0;  // 0: the base model
  std::string_view lora_name{};
  std::string_view lora_path{};                     // part of block hashes (DecisionRules::tagged_keys)
  std::string_view cache_salt{};                    // requests with different salts never share blocks
  std::span<const MultimodalFeature> multimodal{};  // ascending by offset

  // Embeddings instead of a prompt, row after row, one row per token of `prompt`. They are part of its block hashes. Empty: none.
  std::span<const std::byte> prompt_embeds{};

  // Hashes of the full blocks of the prompt that another engine made, each as long as the hash algorithm's. Empty: the core computes them.
  // Hashes of later blocks continue the chain.
  std::span<const std::uint8_t> block_hashes{};

  const RequestTags* tags = nullptr;  // null: none

  const SamplingParams* sampling = nullptr;  // passed on to the plans, never read; must live until the request is retired
};

// A request that continues from the tokens of its parent (Core::fork). All other properties are the parent's, except that it has no job.
struct ForkRequest {
  RequestId id;
  std::string_view name{};  // see NewRequest
  std::uint32_t client_index = 0;
  double arrival_time = 0.0;                  // s; not the parent's: requests with equal times may preempt each other forever (priority)
  std::uint32_t num_tokens = 0;               // tokens of the parent that the fork begins with, at least the prompt; 0: all known tokens
  std::optional<TokenId> next_token{};        // an output after these tokens; the parent need not have sampled it
  std::optional<std::uint32_t> max_tokens{};  // outputs, including the parent's that it begins with; nullopt: the parent's limit
  bool resumable = false;                     // a streaming session
  bool waits_for_input = false;               // a session that begins with its next input; it keeps its shared blocks until then
  const SamplingParams* sampling = nullptr;
};

// The next input of a streaming session. Limits that were given when the session began stay (max_tokens too, as in vLLM).
struct SessionInput {
  std::span<const TokenId> tokens{};
  std::span<const MultimodalFeature> multimodal{};  // offsets count from the start of this input
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;  // for this input's answer (DecisionRules::truncates_session_answers); otherwise the session's limit stays
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
  // In a session that waits, the next input is appended after these tokens. The session may have given their blocks back: num_blocks is
  // then 0.
  std::uint32_t num_computed_tokens = 0;
  std::int32_t num_output_placeholders = 0;  // below 0 if draft tokens are rejected that a reset has discarded, as in vLLM
  std::int64_t num_cached_tokens = -1;       // hit at first admission; -1: not admitted yet
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_preemptions = 0;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  std::int32_t num_tokens_in_flight = 0;       // tokens that plans in flight run
  std::int32_t num_stale_tokens = 0;           // of these, tokens from before a preemption (DecisionRules::stale_outputs)
  bool drops_stale = false;                    // stale tokens will be dropped
  std::span<const std::uint8_t> block_hashes;  // hashes of the full blocks, 32 bytes each (shorter hashes are padded with zeros)
  std::uint32_t num_blocks = 0;                // in all cache groups, null blocks included
  const RequestTags* tags = nullptr;           // never null in a view that the core gives
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;
  std::uint32_t num_encoder_inputs = 0;
  bool resumable = false;
  std::string_view cache_salt;
  std::optional<TokenId> stop_token;  // the stop id that ended the request, or an answer of a session
};

}  // namespace quire
