// Reads bodies of /v1/completions and /v1/chat/completions into CompletionRequest. The other APIs translate their bodies into chats first.
// Runs where the body is read, on the server's thread or in the job pool. An unsupported field is refused if it would change the answer,
// and otherwise reported as ignored. The size of every number and list is limited, here or in SamplingParams::validate().
#include "server/request/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/request/chat_messages.h"
#include "server/request/object_reader.h"
#include "server/request/request_fields.h"
#include "server/request/retention.h"
#include "server/request/routed_experts.h"
#include "server/request/thinking_fields.h"
#include "server/request/token_fields.h"
#include "server/request/transfer_params.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxBadWords = 1000;
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

// Reads a string, token ids, a list of strings, or a list of lists of token ids.
void read_prompts(ObjectReader& reader, const RequestLimits& limits, std::vector<Prompt>& prompts) {
  const json::value* prompt = reader.find("prompt");
  if (prompt == nullptr) return reader.reject("prompt", "is missing", "send a string");
  if (prompt->is_string()) {
    prompts.emplace_back(std::string(prompt->get_string()));
    return;
  }
  if (!prompt->is_array() || prompt->get_array().empty()) {
    return reader.reject("prompt",
                         "must be a string, a list of strings, token ids or a list of lists of token ids, not " + describe(*prompt));
  }
  const json::array& items = prompt->get_array();
  if (items.front().is_number()) {
    prompts.emplace_back(read_tokens(reader, "prompt", *prompt, limits.vocab_size));
    return;
  }
  if (items.size() > limits.max_choices)
    return reader.reject("prompt", fmt::format("contains {} prompts", items.size()), fmt::format("send at most {}", limits.max_choices));
  for (const json::value& item : items) {
    if (reader.failed()) return;
    if (item.is_string())
      prompts.emplace_back(std::string(item.get_string()));
    else
      prompts.emplace_back(read_tokens(reader, "prompt", item, limits.vocab_size));
  }
}

void read_stop(ObjectReader& reader, std::vector<std::string>& stop) {
  const json::value* value = reader.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const json::value& item) {
    if (!item.is_string() || item.get_string().empty() || item.get_string().size() > kMaxStopBytes)
      return reader.reject("stop", "contains " + describe(item), fmt::format("use stop strings of 1 to {} bytes", kMaxStopBytes));
    stop.emplace_back(item.get_string());
  };
  if (!value->is_array()) return add(*value);
  if (value->get_array().size() > kMaxStopStrings) {
    return reader.reject("stop", fmt::format("contains {} strings", value->get_array().size()),
                         fmt::format("send at most {}", kMaxStopStrings));
  }
  for (const json::value& item : value->get_array()) add(item);
}

void read_bad_words(ObjectReader& reader, std::vector<std::string>& words) {
  const json::value* value = reader.find("bad_words");
  if (value == nullptr) return;
  if (!value->is_array()) return reader.reject("bad_words", "must be an array of strings, not " + describe(*value));
  if (value->get_array().size() > kMaxBadWords)
    return reader.reject("bad_words", fmt::format("contains {} words", value->get_array().size()),
                         fmt::format("send at most {}", kMaxBadWords));
  for (const json::value& word : value->get_array()) {
    if (!word.is_string() || word.get_string().empty() || word.get_string().size() > kMaxStopBytes)
      return reader.reject("bad_words", "contains " + describe(word), fmt::format("use words of 1 to {} bytes", kMaxStopBytes));
    words.emplace_back(word.get_string());
  }
}

// Reads logit_bias: {"token id": bias}.
void read_logit_bias(ObjectReader& reader, std::uint32_t vocab_size, SamplingParams& sampling) {
  const json::value* value = reader.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.reject("logit_bias", "must be an object, not " + describe(*value));
  for (const auto& [key, bias] : value->get_object()) {
    std::int64_t token = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || !token_of(json::value(token), vocab_size)) {
      return reader.reject("logit_bias", "has the invalid key " + describe(json::value(key)),
                           fmt::format("use token ids from 0 to {} as keys", std::int64_t{vocab_size} - 1));
    }
    if (!bias.is_number()) return reader.reject("logit_bias", fmt::format("of token {} must be a number, not {}", token, describe(bias)));
    sampling.logit_bias.emplace_back(static_cast<TokenId>(token), bias.to_number<float>());
  }
}

// Reads repetition_detection, whose fields have vLLM's names.
void read_repetition(ObjectReader& reader, RepetitionDetection& repetition) {
  json::value* given = reader.find("repetition_detection");
  if (given == nullptr) return;
  if (!given->is_object())
    return reader.reject("repetition_detection", "must be an object, not " + describe(*given),
                         R"(send {"max_pattern_size": 20, "min_count": 3})");
  ObjectReader inner(given->get_object(), "repetition_detection.");
  repetition.max_pattern_tokens = static_cast<std::int32_t>(inner.integer("max_pattern_size", 0, 0, kMaxInt));
  repetition.min_pattern_tokens = static_cast<std::int32_t>(inner.integer("min_pattern_size", 0, 0, kMaxInt));
  repetition.min_count = static_cast<std::int32_t>(inner.integer("min_count", 0, 0, kMaxInt));
  if (const auto done = inner.finish(); !done) reader.reject(done.error());
}

void read_sampling(ObjectReader& reader, std::uint32_t vocab_size, CompletionRequest& request) {
  SamplingParams& sampling = request.sampling;
  sampling.temperature = static_cast<float>(reader.number("temperature", 1.0));
  sampling.top_p = static_cast<float>(reader.number("top_p", 1.0));
  sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(0, reader.integer("top_k", 0, -1, kMaxInt)));  // -1: off, as in vLLM
  sampling.min_p = static_cast<float>(reader.number("min_p", 0.0));
  sampling.repetition_penalty = static_cast<float>(reader.number("repetition_penalty", 1.0));
  sampling.presence_penalty = static_cast<float>(reader.number("presence_penalty", 0.0));
  sampling.frequency_penalty = static_cast<float>(reader.number("frequency_penalty", 0.0));
  if (const auto seed = reader.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()))
    sampling.seed = static_cast<std::uint64_t>(*seed);
  sampling.min_tokens = static_cast<std::uint32_t>(reader.integer("min_tokens", 0, 0, kMaxInt));
  sampling.ignore_eos = reader.boolean("ignore_eos", false);
  if (const json::value* ids = reader.find("stop_token_ids"))
    sampling.stop_token_ids = read_tokens(reader, "stop_token_ids", *ids, vocab_size);
  if (const json::value* ids = reader.find("allowed_token_ids")) {
    sampling.allowed_token_ids = read_tokens(reader, "allowed_token_ids", *ids, vocab_size);
    if (sampling.allowed_token_ids.empty()) reader.reject("allowed_token_ids", "is empty, which allows no token", "leave it out");
  }
  read_repetition(reader, sampling.repetition);
  read_bad_words(reader, request.bad_words);
  read_logit_bias(reader, vocab_size, sampling);
  read_stop(reader, request.stop);
  request.include_stop = reader.boolean("include_stop_str_in_output", false);
  request.skip_special_tokens = reader.boolean("skip_special_tokens", true);
}

void read_limits(ObjectReader& reader, const RequestLimits& limits, CompletionRequest& request) {
  const GenerationDefaults& defaults = limits.defaults;
  const auto plain = reader.integer("max_tokens", request.api == Api::completion ? 0 : 1, kMaxInt);
  const auto newer = request.api == Api::chat ? reader.integer("max_completion_tokens", 1, kMaxInt) : std::nullopt;
  if (plain && newer && *plain != *newer) reader.reject("max_completion_tokens", "differs from max_tokens", "send only one of them");
  if (const auto most = newer ? newer : plain) request.max_tokens = static_cast<std::uint32_t>(*most);
  // A chat without a limit may use the rest of the context.
  if (!request.max_tokens && request.api == Api::completion) request.max_tokens = limits.completion_tokens;
  if (defaults.max_limit && request.max_tokens) request.max_tokens = std::min(*request.max_tokens, *defaults.max_limit);
  request.default_max_tokens = defaults.max_tokens;
  if (defaults.max_limit) request.default_max_tokens = std::min(defaults.max_tokens.value_or(*defaults.max_limit), *defaults.max_limit);
  request.echo_only = request.max_tokens == 0;
  // max_tokens 0 becomes 1, because the engine samples at least one token.
  if (request.echo_only) request.max_tokens = 1;
  request.n = static_cast<std::uint32_t>(reader.integer("n", 1, 1, kMaxInt));
  request.best_of = request.n;
  if (request.api == Api::completion) request.best_of = static_cast<std::uint32_t>(reader.integer("best_of", request.n, 1, kMaxInt));
}

void read_beam_search(ObjectReader& reader, CompletionRequest& request) {
  if (!reader.boolean("use_beam_search", false)) return reader.only("length_penalty", "1", "send use_beam_search as well");
  request.beam_search = BeamSearchOptions{.length_penalty = reader.number("length_penalty", 1.0)};
  if (request.stream)
    reader.reject("stream", "is not supported with use_beam_search: the results are known only at the end", "do not stream");
  if (!request.stop.empty()) reader.reject("stop", "is not supported with use_beam_search", "leave it out, or do not use beam search");
  if (request.best_of != request.n) reader.reject("best_of", "is not supported with use_beam_search", "leave it out; n is the beam width");
}

void read_stream(ObjectReader& reader, CompletionRequest& request) {
  request.stream = reader.boolean("stream", false);
  json::value* options = reader.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.reject("stream_options", "must be an object, not " + describe(*options));
  if (!request.stream) return reader.reject("stream_options", "requires stream", "send \"stream\": true as well");
  ObjectReader inner(options->get_object(), "stream_options.");
  request.include_usage = inner.boolean("include_usage", false);
  request.continuous_usage = inner.boolean("continuous_usage_stats", false);
  inner.ignore("include_obfuscation");
  if (const auto done = inner.finish(request.ignored); !done) reader.reject(done.error());
}

// Reads prompt_logprobs. As in vLLM, `echo` with logprobs requests the same number of log probabilities for the prompt. With `stream`,
// prompt_logprobs 0 requests none.
void read_prompt_logprobs(ObjectReader& reader, CompletionRequest& request) {
  const auto count = reader.integer("prompt_logprobs", 0, 20);
  if (count && *count > 0 && request.stream) reader.reject("prompt_logprobs", "is not supported with stream", "do not stream");
  request.prompt_logprobs = count && !request.stream;
  if (request.prompt_logprobs)
    request.sampling.prompt_logprobs = static_cast<std::uint32_t>(*count);
  else if (request.echo)
    request.sampling.prompt_logprobs = request.sampling.logprobs;
}

void read_logprobs(ObjectReader& reader, CompletionRequest& request) {
  if (request.api == Api::completion) {
    if (const auto count = reader.integer("logprobs", 0, 20)) request.sampling.logprobs = static_cast<std::uint32_t>(*count);
    return;
  }
  const bool wanted = reader.boolean("logprobs", false);
  const auto count = reader.integer("top_logprobs", 0, 20);
  if (count && *count > 0 && !wanted) reader.reject("top_logprobs", "requires logprobs", "send \"logprobs\": true as well");
  if (wanted) request.sampling.logprobs = static_cast<std::uint32_t>(count.value_or(0));
}

// Reads priority and cache_salt. As in vLLM, an empty salt is an error.
void read_scheduling(ObjectReader& reader, CompletionRequest& request) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(), kMost = std::numeric_limits<std::int64_t>::max();
  request.priority = reader.integer("priority", 0, kLeast, kMost);
  if (const json::value* salt = reader.find("cache_salt"); salt != nullptr && salt->is_string() && salt->get_string().empty())
    reader.reject("cache_salt", "is empty", "send a string that others cannot guess, or leave it out");
  request.cache_salt = reader.text("cache_salt");
}

// Reads hints: {"name": "text"}.
void read_hints(ObjectReader& reader, RequestTags& tags) {
  const json::value* value = reader.find("hints");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.reject("hints", "must be an object, not " + describe(*value), R"(send {"name": "text"})");
  tags.hints.clear();
  for (const auto& [name, text] : value->get_object()) {
    if (!text.is_string()) return reader.reject("hints", "contains " + describe(text), R"(send {"name": "text"})");
    tags.hints.emplace_back(name, text.get_string());
  }
}

// Reads job_id, is_last_step, tool and hints. They may be in the body or in vllm_xargs, where vLLM's clients put fields that OpenAI does
// not have.
void read_tags(ObjectReader& reader, RequestTags& tags) {
  reader.only("tenant", "null", "leave it out: the API key determines the tenant");
  tags.job = reader.text("job_id", std::move(tags.job));
  tags.is_last_step = reader.boolean("is_last_step", tags.is_last_step);
  tags.tool = reader.text("tool", std::move(tags.tool));
  read_hints(reader, tags);
}

void read_agent(ObjectReader& reader, CompletionRequest& request) {
  if (json::value* args = reader.find("vllm_xargs")) {
    if (!args->is_object()) return reader.reject("vllm_xargs", "must be an object, not " + describe(*args));
    ObjectReader inner(args->get_object(), "vllm_xargs.");
    read_tags(inner, request.tags);
    if (const auto done = inner.finish(request.ignored); !done) return reader.reject(done.error());
  }
  read_tags(reader, request.tags);
  // Any other tier, such as "auto" or "priority", is the default one.
  const json::value* tier = reader.find("service_tier");
  request.tags.is_background = tier != nullptr && tier->is_string() && tier->get_string() == kBackgroundTier;
  request.tags.retention_s = std::max(request.tags.retention_s, read_retention(reader));
  // Requests with the same prompt_cache_key belong to one conversation. The key becomes their job if the request names no job.
  if (const json::value* key = reader.find("prompt_cache_key"); key != nullptr && key->is_string()) request.session_key = key->get_string();
  if (request.tags.job.empty() && request.session_key.empty() && request.tags.is_last_step)
    reader.reject("is_last_step", "requires job_id", "send the job_id as well");
}

// Refuses fields that a session does not support, because a session streams one answer after another.
Result<void> check_session(const CompletionRequest& request) {
  if (!request.session) return {};
  const auto refuse = [](const char* field, const char* problem, const char* remedy) {
    return fail(ErrorCode::invalid_argument, field, problem, remedy);
  };
  if (!request.stream) return refuse("session", "requires stream", "send \"stream\": true as well");
  if (request.prompts.size() > 1) return refuse("session", "is not supported with several prompts", "start a session for each prompt");
  const std::pair<const char*, bool> given[] = {{"n", request.best_of > 1},
                                                {"stop", !request.stop.empty()},
                                                {"echo", request.echo},
                                                {"max_tokens", request.echo_only},
                                                {"use_beam_search", request.beam_search.has_value()}};
  for (const auto& [field, is_given] : given)
    if (is_given) return refuse(field, "is not supported with session", "leave it out; stop_token_ids can end an answer");
  return {};
}

Result<void> check_together(const CompletionRequest& request, const RequestLimits& limits) {
  if (request.best_of < request.n)
    return fail(ErrorCode::invalid_argument, "best_of", fmt::format("is {}, which is less than n ({})", request.best_of, request.n),
                "raise it, or lower n");
  if (request.best_of > request.n && request.stream)
    return fail(ErrorCode::invalid_argument, "best_of", "must not exceed n in a stream: the best choices are known only at the end",
                "do not stream");
  const char* const count = request.best_of > request.n ? "best_of" : "n";
  const std::uint64_t choices = std::uint64_t{request.best_of} * std::max<std::size_t>(1, request.prompts.size());
  if (choices > limits.max_choices) {
    return fail(ErrorCode::invalid_argument, count, fmt::format("the number of prompts times {} is {}", count, choices),
                fmt::format("request at most {} choices", limits.max_choices));
  }
  if (request.beam_search && request.echo && request.sampling.logprobs) {
    return fail(ErrorCode::unsupported, "echo", "is not supported with logprobs and use_beam_search: beam search has no prompt logprobs",
                "leave one of them out");
  }
  if (request.best_of > 1 && request.sampling.temperature == 0.0F && !request.beam_search)
    return fail(ErrorCode::invalid_argument, count, "must be 1 with temperature 0: all choices would be the same", "raise temperature");
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens) {
    return fail(ErrorCode::invalid_argument, "min_tokens",
                fmt::format("{} is more than max_tokens ({})", request.sampling.min_tokens, *request.max_tokens), "lower min_tokens");
  }
  if (const auto fits = check_session(request); !fits) return fits;
  if (request.suffix && (request.echo || request.session || request.truncate_to)) {
    return fail(ErrorCode::invalid_argument, "suffix", "is not supported with echo, session or truncate_prompt_tokens",
                "leave out these fields or the suffix");
  }
  return request.sampling.validate();
}

}  // namespace

void fill_defaults(json::object& body, const GenerationDefaults& defaults) {
  const auto fill = [&body](std::string_view name, const auto& value) {
    if (!value) return;
    json::value& field = body[name];
    if (field.is_null()) field = *value;
  };
  fill("temperature", defaults.temperature);
  fill("top_p", defaults.top_p);
  fill("top_k", defaults.top_k);
  fill("min_p", defaults.min_p);
  fill("repetition_penalty", defaults.repetition_penalty);
}

Result<CompletionRequest> parse_completion_request(Api api, std::string_view body, const RequestLimits& limits) {
  auto object = parse_object(body, limits.cancellation);
  if (!object) return std::unexpected(object.error());
  return parse_completion_request(api, std::move(*object), limits);
}

namespace {

Result<CompletionRequest> read_request(Api api, json::object& object, const RequestLimits& limits) {
  ObjectReader reader(object, api == Api::chat ? FieldApi::chat : FieldApi::completion);
  CompletionRequest request;
  request.api = api;
  request.model = reader.text("model");
  request.add_special_tokens = reader.boolean("add_special_tokens", api == Api::completion);
  if (api == Api::chat) {
    request.tags.retention_s = read_part_retention(reader);
    request.chat = read_chat_prompt(reader, limits.image_reading, limits.cancellation);
    request.tool_use = read_tool_use(reader, request.chat.tools);
    request.includes_reasoning = reader.boolean("include_reasoning", true);
    read_thinking(reader, request);
  } else {
    read_prompts(reader, limits, request.prompts);
    request.echo = reader.boolean("echo", false);
    request.session = reader.boolean("session", false);
    if (std::string suffix = reader.text("suffix"); !suffix.empty()) request.suffix = std::move(suffix);
  }
  read_sampling(reader, limits.vocab_size, request);
  read_limits(reader, limits, request);
  read_stream(reader, request);
  read_beam_search(reader, request);
  read_logprobs(reader, request);
  read_prompt_logprobs(reader, request);
  request.truncate_to = reader.integer("truncate_prompt_tokens", -1, kMaxInt);
  if (request.truncate_to == 0) reader.reject("truncate_prompt_tokens", "is 0", "use -1, or the number of tokens to keep");
  request.return_token_ids = reader.boolean("return_token_ids", false);
  request.tokens_as_ids = reader.boolean("return_tokens_as_token_ids", false);
  read_scheduling(reader, request);
  read_agent(reader, request);
  request.form = read_output_form(reader);
  read_transfer_params(reader, request);
  request.cached_only = reader.boolean("fail_if_not_cached", false);
  if (request.cached_only && (request.hidden_states || request.prompts.size() > 1))
    reader.reject("fail_if_not_cached", "is not supported with hidden states or several prompts", "send one prompt without hidden states");
  if (request.hidden_states && (request.stream || request.prompts.size() > 1))
    reader.reject("kv_transfer_params", "requests hidden states, which require one prompt and no stream",
                  "do not stream, and send one prompt");
  read_routed_experts(reader, limits.routed_experts, request);
  if (const auto done = reader.finish(request.ignored); !done) return std::unexpected(done.error());
  request.sampling.max_tokens = request.max_tokens.value_or(static_cast<std::uint32_t>(kMaxInt));
  if (const auto fits = check_together(request, limits); !fits) return std::unexpected(fits.error());
  return request;
}

}  // namespace

Result<CompletionRequest> parse_completion_request(Api api, json::object object, const RequestLimits& limits) {
  const auto taken = apply_aliases(object, api == Api::chat ? FieldApi::chat : FieldApi::completion);
  if (!taken) return std::unexpected(taken.error());
  fill_defaults(object, limits.defaults);
  if (api == Api::chat) take_reasoning(object);
  auto request = read_request(api, object, limits);
  if (!request) return std::unexpected(with_alias_name(*taken, std::move(request.error())));
  return request;
}

}  // namespace quire
