// Validates requests and reports errors to their clients. Runs on the client's thread in EngineImpl::submit(), fork() and append(), before
// anything is queued, with options that no longer change. The core must accept every request that passes these checks and check_served.h;
// otherwise the step loop stops the program. Every field that a client can set therefore has its limits here.
#include "engine/requests/validate_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/context_overflow.h"
#include "engine/requests/searches.h"

namespace quire {
namespace {

// Limits of what one request may make the engine keep in memory.
constexpr std::size_t kMaxTagBytes = 256;
constexpr std::size_t kMaxHints = 16;
constexpr std::uint32_t kMaxSiblings = 128;
constexpr double kMaxLengthPenalty = 10.0;
constexpr std::size_t kMaxPooledLogits = 256;
constexpr std::size_t kMaxTransferName = 128;  // in bytes
constexpr std::size_t kMaxTransferGroups = 64, kMaxTransferBlocks = std::size_t{1} << 20U;

Result<void> check_ids(const EngineRequest& request, std::uint32_t vocab_size) {
  const auto unknown = [vocab_size](TokenId id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocab_size; };
  const auto refuse = [vocab_size](const char* field, TokenId id) {
    return fail(ErrorCode::invalid_argument, field, fmt::format("token id {} is not in the vocabulary", id),
                fmt::format("use ids from 0 to {}", vocab_size - 1));
  };
  if (const auto bad = std::ranges::find_if(request.prompt, unknown); bad != request.prompt.end()) return refuse("prompt", *bad);
  const auto& stop_ids = request.sampling.stop_token_ids;
  if (const auto bad = std::ranges::find_if(stop_ids, unknown); bad != stop_ids.end()) return refuse("stop_token_ids", *bad);
  for (const auto& [token, bias] : request.sampling.logit_bias)
    if (unknown(token)) return refuse("logit_bias", token);
  const auto& allowed = request.sampling.allowed_token_ids;
  if (const auto bad = std::ranges::find_if(allowed, unknown); bad != allowed.end()) return refuse("allowed_token_ids", *bad);
  for (const std::vector<TokenId>& word : request.sampling.bad_words)
    if (const auto bad = std::ranges::find_if(word, unknown); bad != word.end()) return refuse("bad_words", *bad);
  const TimestampRules& times = request.sampling.timestamps;
  if (unknown(times.first_time)) return refuse("timestamps.first_time", times.first_time);
  if (const auto bad = std::ranges::find_if(times.not_first, unknown); bad != times.not_first.end())
    return refuse("timestamps.not_first", *bad);
  for (const std::vector<TokenId>& choice : times.begins)
    if (const auto bad = std::ranges::find_if(choice, unknown); bad != choice.end()) return refuse("timestamps.begins", *bad);
  const auto& wanted = request.sampling.pooling.logits_of;
  if (const auto bad = std::ranges::find_if(wanted, unknown); bad != wanted.end()) return refuse("pooling.logits_of", *bad);
  return {};
}

Result<void> check_tags(const RequestTags& tags) {
  const auto refuse = [](const char* field, std::string problem, std::size_t most) {
    return fail(ErrorCode::invalid_argument, field, std::move(problem), fmt::format("use at most {}", most));
  };
  for (const auto& [field, text] : {std::pair("job_id", &tags.job), std::pair("tool", &tags.tool)})
    if (text->size() > kMaxTagBytes) return refuse(field, fmt::format("has {} bytes", text->size()), kMaxTagBytes);
  if (tags.hints.size() > kMaxHints) return refuse("hints", fmt::format("has {} hints", tags.hints.size()), kMaxHints);
  for (const auto& [name, text] : tags.hints)
    for (const std::string* part : {&name, &text})
      if (part->size() > kMaxTagBytes) return refuse("hints", fmt::format("has a name or value of {} bytes", part->size()), kMaxTagBytes);
  return {};
}

// Checks a beam search. It uses the log probabilities of the model itself and ends only at EOS or max_tokens, so parameters that would
// change this are rejected.
Result<void> check_search(const EngineRequest& request, const BeamSearchOptions& search, const EngineOptions& options,
                          std::uint32_t vocab_size) {
  const auto refuse = [](const char* field, std::string problem, std::string remedy) {
    return fail(ErrorCode::invalid_argument, field, std::move(problem), std::move(remedy));
  };
  const std::uint32_t widest = std::min(BeamSearches::kMaxWidth, vocab_size / 2);
  if (request.n > widest) return refuse("n", fmt::format("is {}", request.n), fmt::format("use 1 to {} with beam search", widest));
  // A beam is forked before its parent ends, so the family has one request more than the width of the search.
  if (const std::uint32_t max_forks = options.max_fork_family; request.n >= max_forks) {
    return refuse(
        "n", fmt::format("is {}, but a beam search of this width needs --max-forks {}, which is {}", request.n, request.n + 1, max_forks),
        max_forks > 1 ? fmt::format("use at most {}, or start the server with a larger --max-forks", max_forks - 1)
                      : "start the server with a larger --max-forks");
  }
  if (const double penalty = search.length_penalty; !(penalty >= -kMaxLengthPenalty && penalty <= kMaxLengthPenalty))
    return refuse("length_penalty", fmt::format("is {}", penalty), fmt::format("use {} to {}", -kMaxLengthPenalty, kMaxLengthPenalty));
  const SamplingParams& sampling = request.sampling;
  const std::pair<const char*, bool> given[] = {{"stop_token_ids", !sampling.stop_token_ids.empty()},
                                                {"min_tokens", sampling.min_tokens > 0},
                                                {"prompt_logprobs", sampling.prompt_logprobs.has_value()},
                                                {"routed_experts", sampling.routed_experts},
                                                {"logit_bias", !sampling.logit_bias.empty()},
                                                {"repetition_penalty", sampling.repetition_penalty != 1.0F},
                                                {"presence_penalty", sampling.presence_penalty != 0.0F},
                                                {"frequency_penalty", sampling.frequency_penalty != 0.0F},
                                                {"job_id", !request.tags.job.empty()},
                                                {"allowed_token_ids", !sampling.allowed_token_ids.empty()},
                                                {"bad_words", !sampling.bad_words.empty()},
                                                {"timestamps", sampling.timestamps.first_time > 0},
                                                {"repetition_detection", sampling.repetition.max_pattern_tokens > 0}};
  for (const auto& [field, is_given] : given)
    if (is_given) return refuse(field, "is set, but beam search does not support it", "leave it out, or turn beam search off");
  return {};
}

// Checks a pooling request. Its output is vectors, so parameters for output tokens are rejected.
Result<void> check_pooling(const EngineRequest& request) {
  const PoolingParams& params = request.sampling.pooling;
  if (!request.pooling) {
    if (params.kind == PoolingKind::last && params.logits_of.empty()) return {};
    return fail(ErrorCode::invalid_argument, "pooling", "is off, but pooling parameters are set", "turn pooling on");
  }
  if (!params.logits_of.empty() && params.kind != PoolingKind::last)
    return fail(ErrorCode::invalid_argument, "pooling.kind", "is set, but logits are computed for the last token only", "leave it out");
  if (params.logits_of.size() > kMaxPooledLogits) {
    return fail(ErrorCode::invalid_argument, "pooling.logits_of", fmt::format("has {} tokens", params.logits_of.size()),
                fmt::format("use at most {}", kMaxPooledLogits));
  }
  const std::pair<const char*, bool> given[] = {{"n", request.n > 1},
                                                {"beam_search", request.beam_search.has_value()},
                                                {"structured_output", request.structured_output.has_value()},
                                                {"logprobs", request.sampling.logprobs.has_value()},
                                                {"prompt_logprobs", request.sampling.prompt_logprobs.has_value()},
                                                {"routed_experts", request.sampling.routed_experts}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::invalid_argument, field, "is set, but a pooling request generates no tokens", "leave it out");
  return {};
}

// Checks a session. Its later inputs are not known yet, so parameters that need the whole prompt, or share the prompt, are rejected.
Result<void> check_session(const EngineRequest& request) {
  if (!request.session) return {};
  const std::pair<const char*, bool> given[] = {{"n", request.n > 1},
                                                {"beam_search", request.beam_search.has_value()},
                                                {"pooling", request.pooling},
                                                {"prompt_logprobs", request.sampling.prompt_logprobs.has_value()},
                                                {"routed_experts", request.sampling.routed_experts}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::unsupported, field, "is set, but a session does not support it", "leave it out");
  return {};
}

}  // namespace

Result<void> validate_transfer(const EngineRequest& request, KvRole role) {
  if (!request.kv_transfer) return {};
  const auto refuse = [](ErrorCode code, std::string problem, std::string remedy) {
    return fail(code, "kv_transfer_params", std::move(problem), std::move(remedy));
  };
  const KvTransferParams& params = *request.kv_transfer;
  if (role == KvRole::none)
    return refuse(ErrorCode::unsupported, "is set, but this server does not exchange KV cache blocks with other servers",
                  "start the server with --kv-role, or leave it out");
  if (params.do_remote_decode && params.do_remote_prefill)
    return refuse(ErrorCode::invalid_argument, "sets both do_remote_decode and do_remote_prefill", "set only one of them");
  if (params.do_remote_decode && role == KvRole::consumer)
    return refuse(ErrorCode::unsupported, "sets do_remote_decode, but this server is a consumer", "send the request to a producer");
  if (params.do_remote_prefill && role == KvRole::producer)
    return refuse(ErrorCode::unsupported, "sets do_remote_prefill, but this server is a producer", "send the request to a consumer");
  const std::pair<const char*, bool> given[] = {
      {"n", request.n > 1}, {"beam_search", request.beam_search.has_value()}, {"session", request.session}, {"pooling", request.pooling}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::unsupported, field, "is set, but kv_transfer_params do not support it", "leave it out");
  for (const auto& [field, name] :
       {std::pair("remote_engine_id", &params.remote_engine_id), std::pair("remote_request_id", &params.remote_request_id),
        std::pair("remote_host", &params.remote_host)})
    if (name->size() > kMaxTransferName)
      return refuse(ErrorCode::invalid_argument, fmt::format("has a {} of {} bytes", field, name->size()),
                    fmt::format("use at most {}", kMaxTransferName));
  std::size_t num_blocks = 0;
  for (const auto& ids : params.remote_block_ids) num_blocks += ids.size();
  if (params.remote_block_ids.size() > kMaxTransferGroups || num_blocks > kMaxTransferBlocks)
    return refuse(ErrorCode::invalid_argument,
                  fmt::format("has {} remote_block_ids in {} groups, but at most {} in {} groups are allowed", num_blocks,
                              params.remote_block_ids.size(), kMaxTransferBlocks, kMaxTransferGroups),
                  "send the kv_transfer_params from the producer's answer");
  const bool has_source =
      !params.remote_engine_id.empty() && !params.remote_request_id.empty() && !params.remote_host.empty() && params.remote_port != 0;
  if (params.do_remote_prefill && num_blocks > 0 && !has_source)
    return refuse(ErrorCode::invalid_argument, "sets do_remote_prefill, but does not name the source of the blocks",
                  "send remote_engine_id, remote_request_id, remote_host and remote_port from the producer's answer");
  return {};
}

Result<void> validate_tokens(const std::vector<TokenId>& tokens, std::uint32_t vocab_size) {
  for (const TokenId id : tokens) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < vocab_size) continue;
    return fail(ErrorCode::invalid_argument, "prompt", fmt::format("token id {} is not in the vocabulary", id),
                fmt::format("use ids from 0 to {}", vocab_size - 1));
  }
  return {};
}

Result<void> validate_count(std::uint32_t n) {
  if (n == 0 || n > kMaxSiblings)
    return fail(ErrorCode::invalid_argument, "n", fmt::format("is {}", n), fmt::format("use 1 to {}", kMaxSiblings));
  return {};
}

Result<void> validate_encoder_input(const EngineRequest& request, const ModelInfo& model) {
  if (!model.has_encoder()) {
    if (request.encoder_input == nullptr) return {};
    return fail(ErrorCode::unsupported, "encoder_input", "is set, but the model has no encoder", "leave it out");
  }
  if (request.encoder_input == nullptr)
    return fail(ErrorCode::unsupported, "model", fmt::format("{} accepts audio input only", model.name),
                "send audio to /v1/audio/transcriptions");
  const std::size_t wanted = std::size_t{2} * model.encoder.num_positions * model.encoder.num_features;
  if (const std::size_t given = request.encoder_input->features.size(); given != wanted)
    return fail(ErrorCode::invalid_argument, "encoder_input", fmt::format("has {} values", given), fmt::format("send {} values", wanted));
  const std::pair<const char*, bool> given[] = {
      {"n", request.n > 1}, {"beam_search", request.beam_search.has_value()}, {"session", request.session}, {"pooling", request.pooling}};
  for (const auto& [field, is_given] : given)
    if (is_given)
      return fail(ErrorCode::unsupported, field, "is set, but a request with an encoder input does not support it", "leave it out");
  return {};
}

Result<void> validate_output(const EngineRequest& request, const ModelInfo& model) {
  if (model.has_output || (request.pooling && request.sampling.pooling.logits_of.empty())) return {};
  return fail(ErrorCode::unsupported, "model",
              fmt::format("{} cannot generate text: it has no output matrix (lm_head.weight), and its config does not tie the output "
                          "matrix to the embeddings",
                          model.name),
              "send texts to /v1/embeddings, or serve a model folder that includes lm_head.weight");
}

Result<void> validate_rows(const EngineRequest& request, std::uint32_t hidden_size) {
  if (request.sampling.pooling.kind != PoolingKind::all) return {};
  if (std::uint64_t{request.prompt.size()} * hidden_size <= kMaxPooledValues) return {};
  return fail(ErrorCode::invalid_argument, "prompt",
              fmt::format("has {} tokens; with {} values per token, the output exceeds the limit of {} values", request.prompt.size(),
                          hidden_size, kMaxPooledValues),
              fmt::format("send at most {} tokens", kMaxPooledValues / hidden_size));
}

Result<void> validate_request(EngineRequest& request, const EngineOptions& options, std::uint32_t vocab_size) {
  if (request.priority != 0 && options.scheduler.policy != SchedulingPolicy::priority) {
    return fail(ErrorCode::invalid_argument, "priority",
                fmt::format("is {}, but the scheduling policy is first come, first served", request.priority),
                "start the server with --scheduling-policy priority, or leave it out");
  }
  if (auto valid = check_tags(request.tags); !valid) return valid;
  if (auto valid = validate_count(request.n); !valid) return valid;
  if (request.prompt.empty()) return fail(ErrorCode::invalid_argument, "prompt", "is empty", "send at least one token");
  const std::uint32_t max_model_len = options.scheduler.max_model_len;
  if (request.prompt.size() >= max_model_len)
    return std::unexpected(overflow_error("prompt", {.prompt_tokens = request.prompt.size(), .max_model_len = max_model_len}));
  if (auto valid = request.sampling.validate(); !valid) return valid;
  if (auto valid = check_ids(request, vocab_size); !valid) return valid;
  if (auto valid = check_pooling(request); !valid) return valid;
  if (auto valid = check_session(request); !valid) return valid;
  if (request.beam_search.has_value())
    if (auto valid = check_search(request, *request.beam_search, options, vocab_size); !valid) return valid;
  const std::uint32_t room = max_model_len - static_cast<std::uint32_t>(request.prompt.size());
  request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  return {};
}

}  // namespace quire
