#pragma once
// A request as it enters the core, and as others may look at it there.
// What enters is copied by Core::add() on the core's thread; views are valid until the next call that changes the core. Counts are tokens
// unless they say otherwise; times are seconds of the caller's own clock.
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
  waiting_for_input,  // a streaming session between two inputs
  running,
  preempted,
  finished_stopped,
  finished_length,
  finished_aborted,
  finished_ignored,
  finished_error,
  finished_repetition
};

constexpr bool is_finished(RequestStatus status) {
  return status > RequestStatus::preempted;
}

// Why a request ended, as its client sees it.
enum class FinishReason : std::uint8_t { stop, length, abort, error, repetition };

// As vLLM writes it.
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

// What a request belongs to, for those who schedule, count or explain by it. Free text from clients, compared byte by byte and never
// interpreted, but for SchedulingPolicy::continuum.
struct RequestTags {
  std::string job{};          // an agent's run of several requests (turns); empty: none
  bool is_last_step = false;  // no turn of the job follows
  std::string tool{};         // the tool that runs after this turn, where the caller knows; else the output may name it (ToolNamer)
  std::string tenant{};       // on whose behalf
  std::vector<std::pair<std::string, std::string>> hints{};  // what else the caller says of it, by name

  friend bool operator==(const RequestTags&, const RequestTags&) = default;
};

// Everything but `sampling` is copied by Core::add, or moved where prompt_storage says so.
struct NewRequest {
  RequestId id;
  std::string_view name{};            // the caller's own id; breaks ties of equal priority and arrival time (byte order)
  std::span<const TokenId> prompt{};  // zeros where the prompt is embeddings
  // The vector that `prompt` views as a whole, if the core may take it over: moved from when the request is accepted.
  std::vector<TokenId>* prompt_storage = nullptr;
  std::uint32_t client_index = 0;
  std::int64_t priority = 0;  // smaller goes first under SchedulingPolicy::priority
  double arrival_time = 0.0;  // s, any epoch

  std::uint32_t max_tokens = 16;  // 1 for pooling
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids{};  // they stop without a stop reason; empty to ignore them
  std::span<const TokenId> stop_token_ids{};
  RepetitionDetection repetition{};

  bool pooling = false;            // ends with its first pooled output
  bool structured_output = false;  // waits for its grammar
  bool resumable = false;          // a streaming session: more input may follow under the same id
  bool skip_reading_prefix_cache = false;
  bool loads_nothing = false;  // the connector is not asked what it has; what is computed is stored as usual

  std::int64_t lora_id = 0;  // 0: the base model
  std::string_view lora_name{};
  std::string_view lora_path{};                     // names its blocks too (DecisionRules::tagged_keys)
  std::string_view cache_salt{};                    // requests with different salts never share blocks
  std::span<const MultimodalFeature> multimodal{};  // ascending by offset

  // Embeddings handed in instead of a prompt, row after row, as many rows as `prompt` has tokens. They name its blocks. Empty: none.
  std::span<const std::byte> prompt_embeds{};

  // Names of the full blocks of the prompt (as many bytes each as the hash mode has), where another engine made them; empty: the core
  // names the blocks itself. The blocks after them continue the chain.
  std::span<const std::uint8_t> block_hashes{};

  const RequestTags* tags = nullptr;  // null: none

  const SamplingParams* sampling = nullptr;  // handed through to the plans, never read; must live until the request is retired
};

// A request that goes on from where another one is (Core::fork). What is not here it has from its parent; it has no job.
struct ForkRequest {
  RequestId id;
  std::string_view name{};  // see NewRequest
  std::uint32_t client_index = 0;
  double arrival_time = 0.0;            // s; not the parent's: equal ones can preempt each other for ever (SchedulingPolicy::priority)
  std::uint32_t num_tokens = 0;         // of the parent's that it begins with, the prompt at least; 0: all that are known
  std::optional<TokenId> next_token{};  // an output behind these that the parent need not have sampled
  std::optional<std::uint32_t> max_tokens{};  // outputs, those that it begins with among them; nullopt: the parent's
  bool resumable = false;                     // a streaming session
  bool waits_for_input = false;               // that begins with its next input; it keeps its share until then
  const SamplingParams* sampling = nullptr;
};

// The next input of a streaming session. Limits that were given when it began stay (max_tokens too, as in vLLM).
struct SessionInput {
  std::span<const TokenId> tokens{};
  std::span<const MultimodalFeature> multimodal{};  // offsets count from the start of this input
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;  // of this input's answer (DecisionRules::sessions_cut); else as the request was given
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids{};
  std::span<const TokenId> stop_token_ids{};
  RepetitionDetection repetition{};
  const SamplingParams* sampling = nullptr;
};

// One request as it is now. A view, valid until the next non-const call on the core.
struct RequestView {
  RequestId id;
  std::string_view name;
  RequestStatus status = RequestStatus::waiting;
  std::uint32_t client_index = 0;
  std::span<const TokenId> tokens;  // prompt, then outputs
  std::uint32_t num_prompt_tokens = 0;
  std::span<const TokenId> draft_tokens;  // spec_token_ids
  std::uint32_t num_computed_tokens = 0;
  std::int32_t num_output_placeholders = 0;  // below 0 where drafts are refused that a reset has discarded, as in vLLM
  std::int64_t num_cached_tokens = -1;       // hit at first admission; -1: not admitted yet
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_preemptions = 0;
  bool is_prefill_chunk = false;
  bool discard_latest_async_tokens = false;
  std::int32_t num_tokens_in_flight = 0;       // run in the plans under way
  std::int32_t num_stale_tokens = 0;           // of these, from before it was preempted (DecisionRules::stale_outputs),
  bool drops_stale = false;                    // which will be dropped
  std::span<const std::uint8_t> block_hashes;  // names of the full blocks, 32 bytes each (shorter hashes are padded with zeros)
  std::uint32_t num_blocks = 0;                // over all cache groups, null blocks among them
  const RequestTags* tags = nullptr;           // never null in a view that the core gives
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t max_tokens = 0;
  std::uint32_t num_encoder_inputs = 0;
  bool resumable = false;
  std::string_view cache_salt;
  std::optional<TokenId> stop_token;  // the stop id that ended it, or an input of a session
};

}  // namespace quire
