// What is wrong with a request, said to its client. Runs on the client's thread in EngineImpl::submit() (and fork(), append()), before
// anything is queued, with options that no longer change. What passes here and check_served.h the core must take: the step loop stops the
// program if it does not. So every field that a client can set has its bounds here.
#include "engine/requests/validate_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/requests/searches.h"

namespace quire {
namespace {

// Bounds on what one request may make the engine keep.
constexpr std::size_t kMaxTagBytes = 256;
constexpr std::size_t kMaxHints = 16;
constexpr std::uint32_t kMaxSiblings = 128;
constexpr double kMaxLengthPenalty = 10.0;
constexpr std::size_t kMaxPooledLogits = 256;
constexpr std::size_t kMaxTransferName = 128;  // bytes
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
    return fail(ErrorCode::invalid_argument, field, std::move(problem), fmt::format("give at most {}", most));
  };
  for (const auto& [field, text] : {std::pair("job_id", &tags.job), std::pair("tool", &tags.tool)})
    if (text->size() > kMaxTagBytes) return refuse(field, fmt::format("has {} bytes", text->size()), kMaxTagBytes);
  if (tags.hints.size() > kMaxHints) return refuse("hints", fmt::format("holds {} hints", tags.hints.size()), kMaxHints);
  for (const auto& [name, text] : tags.hints)
    for (const std::string* part : {&name, &text})
      if (part->size() > kMaxTagBytes)
        return refuse("hints", fmt::format("holds a name or a text of {} bytes", part->size()), kMaxTagBytes);
  return {};
}

// A search judges by the log probabilities of the model itself, and ends at EOS or max_tokens alone.
Result<void> check_search(const EngineRequest& request, const BeamSearchOptions& search, std::uint32_t vocab_size) {
  const auto refuse = [](const char* field, std::string problem, std::string remedy) {
    return fail(ErrorCode::invalid_argument, field, std::move(problem), std::move(remedy));
  };
  const std::uint32_t widest = std::min(Searches::kMaxWidth, vocab_size / 2);
  if (request.n > widest) return refuse("n", fmt::format("is {}", request.n), fmt::format("a beam search is 1 to {} wide", widest));
  if (const double penalty = search.length_penalty; !(penalty >= -kMaxLengthPenalty && penalty <= kMaxLengthPenalty))
    return refuse("length_penalty", fmt::format("is {}", penalty), fmt::format("give {} to {}", -kMaxLengthPenalty, kMaxLengthPenalty));
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
    if (is_given) return refuse(field, "is given, and a beam search does not heed it", "leave it out, or draw tokens");
  return {};
}

// One vector is its answer.
Result<void> check_pooling(const EngineRequest& request) {
  const PoolingParams& params = request.sampling.pooling;
  if (!request.pooling) {
    if (params.kind == PoolingKind::last && params.logits_of.empty()) return {};
    return fail(ErrorCode::invalid_argument, "pooling", "is off, and what to pool is given", "turn it on");
  }
  if (!params.logits_of.empty() && params.kind != PoolingKind::last)
    return fail(ErrorCode::invalid_argument, "pooling.kind", "is given, and logits stand behind the last token", "leave it out");
  if (params.logits_of.size() > kMaxPooledLogits) {
    return fail(ErrorCode::invalid_argument, "pooling.logits_of", fmt::format("holds {} tokens", params.logits_of.size()),
                fmt::format("give at most {}", kMaxPooledLogits));
  }
  const std::pair<const char*, bool> given[] = {{"n", request.n > 1},
                                                {"beam_search", request.beam_search.has_value()},
                                                {"structured_output", request.structured_output.has_value()},
                                                {"logprobs", request.sampling.logprobs.has_value()},
                                                {"prompt_logprobs", request.sampling.prompt_logprobs.has_value()},
                                                {"routed_experts", request.sampling.routed_experts}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::invalid_argument, field, "is given, and a pooling request has no tokens", "leave it out");
  return {};
}

// What comes next depends on its client, so nothing can be expected, prepared or shared.
Result<void> check_session(const EngineRequest& request) {
  if (!request.session) return {};
  const std::pair<const char*, bool> given[] = {{"n", request.n > 1},
                                                {"beam_search", request.beam_search.has_value()},
                                                {"pooling", request.pooling},
                                                {"prompt_logprobs", request.sampling.prompt_logprobs.has_value()},
                                                {"routed_experts", request.sampling.routed_experts}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::unsupported, field, "is given, and a session has no such thing", "leave it out");
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
    return refuse(ErrorCode::unsupported, "is given, and this server neither keeps blocks for others nor loads theirs",
                  "serve with --kv-role, or leave it out");
  if (params.do_remote_decode && params.do_remote_prefill)
    return refuse(ErrorCode::invalid_argument, "has both do_remote_decode and do_remote_prefill", "send one of them");
  if (params.do_remote_decode && role == KvRole::consumer)
    return refuse(ErrorCode::unsupported, "asks for do_remote_decode, and this server is a consumer", "send it to a producer");
  if (params.do_remote_prefill && role == KvRole::producer)
    return refuse(ErrorCode::unsupported, "asks for do_remote_prefill, and this server is a producer", "send it to a consumer");
  const std::pair<const char*, bool> given[] = {
      {"n", request.n > 1}, {"beam_search", request.beam_search.has_value()}, {"session", request.session}, {"pooling", request.pooling}};
  for (const auto& [field, is_given] : given)
    if (is_given) return fail(ErrorCode::unsupported, field, "is given with kv_transfer_params, which go with one answer", "leave it out");
  for (const auto& [field, name] :
       {std::pair("remote_engine_id", &params.remote_engine_id), std::pair("remote_request_id", &params.remote_request_id),
        std::pair("remote_host", &params.remote_host)})
    if (name->size() > kMaxTransferName)
      return refuse(ErrorCode::invalid_argument, fmt::format("has a {} of {} bytes", field, name->size()),
                    fmt::format("give at most {}", kMaxTransferName));
  std::size_t num_blocks = 0;
  for (const auto& ids : params.remote_block_ids) num_blocks += ids.size();
  if (params.remote_block_ids.size() > kMaxTransferGroups || num_blocks > kMaxTransferBlocks)
    return refuse(ErrorCode::invalid_argument, fmt::format("has {} remote_block_ids", num_blocks), "send what the producer has answered");
  const bool has_source =
      !params.remote_engine_id.empty() && !params.remote_request_id.empty() && !params.remote_host.empty() && params.remote_port != 0;
  if (params.do_remote_prefill && num_blocks > 0 && !has_source)
    return refuse(ErrorCode::invalid_argument, "asks for do_remote_prefill, and says not whose blocks",
                  "send remote_engine_id, remote_request_id, remote_host and remote_port, as the producer has answered them");
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
    return fail(ErrorCode::invalid_argument, "n", fmt::format("is {}", n), fmt::format("give 1 to {}", kMaxSiblings));
  return {};
}

Result<void> validate_encoder_input(const EngineRequest& request, const ModelInfo& model) {
  if (!model.has_encoder()) {
    if (request.encoder_input == nullptr) return {};
    return fail(ErrorCode::unsupported, "encoder_input", "is given, and the model has no encoder", "leave it out");
  }
  if (request.encoder_input == nullptr)
    return fail(ErrorCode::unsupported, "model", fmt::format("{} answers to sound alone", model.name),
                "send a recording to /v1/audio/transcriptions");
  const std::size_t wanted = std::size_t{2} * model.encoder.num_positions * model.encoder.num_features;
  if (const std::size_t given = request.encoder_input->features.size(); given != wanted)
    return fail(ErrorCode::invalid_argument, "encoder_input", fmt::format("has {} numbers", given), fmt::format("give {}", wanted));
  const std::pair<const char*, bool> given[] = {
      {"n", request.n > 1}, {"beam_search", request.beam_search.has_value()}, {"session", request.session}, {"pooling", request.pooling}};
  for (const auto& [field, is_given] : given)
    if (is_given)
      return fail(ErrorCode::unsupported, field, "is given, and what an encoder makes belongs to one request alone", "leave it out");
  return {};
}

Result<void> validate_rows(const EngineRequest& request, std::uint32_t hidden_size) {
  if (request.sampling.pooling.kind != PoolingKind::all) return {};
  if (std::uint64_t{request.prompt.size()} * hidden_size <= kMaxPooledNumbers) return {};
  return fail(
      ErrorCode::invalid_argument, "prompt",
      fmt::format("has {} tokens, whose rows of {} numbers each are more than {}", request.prompt.size(), hidden_size, kMaxPooledNumbers),
      fmt::format("send at most {} tokens", kMaxPooledNumbers / std::max(hidden_size, 1U)));
}

Result<void> validate_request(EngineRequest& request, const EngineOptions& options, std::uint32_t vocab_size) {
  if (request.priority != 0 && options.scheduler.policy != SchedulingPolicy::priority) {
    return fail(ErrorCode::invalid_argument, "priority",
                fmt::format("is {}, but requests are served first come, first served", request.priority),
                "serve with --scheduling-policy priority, or leave it out");
  }
  if (auto valid = check_tags(request.tags); !valid) return valid;
  if (auto valid = validate_count(request.n); !valid) return valid;
  if (request.prompt.empty()) return fail(ErrorCode::invalid_argument, "prompt", "is empty", "give at least one token");
  const std::uint32_t max_model_len = options.scheduler.max_model_len;
  if (request.prompt.size() >= max_model_len) {
    return fail(ErrorCode::invalid_argument, "prompt",
                fmt::format("has {} tokens, and prompt and output together may have {}", request.prompt.size(), max_model_len),
                "shorten the prompt, or serve with a larger max_model_len and KV cache");
  }
  if (auto valid = request.sampling.validate(); !valid) return valid;
  if (auto valid = check_ids(request, vocab_size); !valid) return valid;
  if (auto valid = check_pooling(request); !valid) return valid;
  if (auto valid = check_session(request); !valid) return valid;
  if (request.beam_search.has_value())
    if (auto valid = check_search(request, *request.beam_search, vocab_size); !valid) return valid;
  const std::uint32_t room = max_model_len - static_cast<std::uint32_t>(request.prompt.size());
  request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  return {};
}

}  // namespace quire
