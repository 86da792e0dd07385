// The steps between a parsed request and the engine's input: templates, tokens, grammars and limits of the answer. Runs on the server's
// thread for small bodies and in the job pool for others. Every function therefore depends only on its arguments, and the shared data (the
// model, the options) never changes.
#include "server/request/prepare.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>

#include "base/context_overflow.h"
#include "base/digest.h"
#include "quire/text/detokenizer.h"
#include "server/http/tenants.h"
#include "server/request/answer_grammar.h"
#include "server/request/routed_experts.h"
#include "server/request/served_model.h"
#include "text/bash_tool.h"
#include "text/tool_calls/answer_parser.h"

namespace quire {

namespace {

// Returns the tool that an answer calls: the tool of its first call, or a tool called by the convention of mini-swe-agent.
std::string called_tool(const ServedModel& model, const ToolUse& use, bool in_reasoning, std::span<const TokenId> outputs) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (use.choice == ToolUse::Choice::none || use.tools.empty()) return bash_tool(tokenizer.decode(outputs, true));
  const auto parser = make_answer_parser(model.call_format(), use.tools, {.in_reasoning = in_reasoning, .max_calls = 1});
  Detokenizer text(tokenizer, {.skip_special = false});
  for (const TokenId token : outputs)
    if (!tokenizer.is_special(token) || model.is_delimiter(token)) parser->feed(text.push(token));
  parser->finish(false);
  for (const AnswerPart& part : parser->take_parts())
    if (part.kind == AnswerPart::Kind::call) return part.text;
  return bash_tool(tokenizer.decode(outputs, true));
}

// Builds the engine's request for a prompt. The choices of a prompt differ by their seed, as in vLLM.
EngineRequest engine_request(std::vector<TokenId> prompt, const CompletionRequest& request, const ServedModel& model) {
  EngineRequest out{std::move(prompt), request.sampling, request.cache_salt, request.priority, request.tags, request.best_of};
  out.beam_search = request.beam_search;
  out.session = request.session;
  out.kv_transfer = request.kv_transfer;
  out.adapter = request.adapter;
  out.pictures = request.pictures;
  if (request.form) out.structured_output = request.form->wanted;
  // The answer contains the most likely choices, so log probabilities are needed to rank them.
  if (request.best_of > request.n && !out.sampling.logprobs) out.sampling.logprobs = 0;
  // The core needs the tool that an answer calls in one case: the request has a job, the job has a next step, and the client has not named
  // the tool.
  if (!request.tags.job.empty() && !request.tags.is_last_step && request.tags.tool.empty())
    out.tool_name_function = [&model, tools = request.tool_use, in_reasoning = request.in_reasoning](std::span<const TokenId> outputs) {
      return called_tool(model, tools, in_reasoning, outputs);
    };
  return out;
}

Result<void> add_echo(PreparedCompletion& prepared, const std::string& text, std::size_t num_choices, const ServerOptions& options) {
  if (text.size() * num_choices > options.max_echo_bytes) {
    return fail(ErrorCode::invalid_argument, "echo",
                fmt::format("would repeat {} bytes in each of {} choices, more than {} bytes in total", text.size(), num_choices,
                            options.max_echo_bytes),
                "request fewer choices, or leave it out");
  }
  prepared.echoes.insert(prepared.echoes.end(), prepared.request.best_of, text);
  return {};
}

// Checks the memory of prompt log probabilities. Each choice of a prompt repeats them, except in chats, which report them once.
Result<void> check_prompt_logprobs(const PreparedCompletion& prepared, const ServerOptions& options) {
  const CompletionRequest& request = prepared.request;
  if (!request.sampling.prompt_logprobs) return {};
  const std::uint64_t num_tokens = std::accumulate(prepared.num_prompt_tokens.begin(), prepared.num_prompt_tokens.end(), std::uint64_t{0});
  const std::uint64_t per_token = (1 + *request.sampling.prompt_logprobs) * std::uint64_t{request.api == Api::chat ? 1 : request.n};
  if (num_tokens * per_token <= options.max_prompt_logprobs) return {};
  return fail(ErrorCode::invalid_argument, request.prompt_logprobs ? "prompt_logprobs" : "echo",
              fmt::format("would return {} tokens with {} values each, more than {} values in total", num_tokens, per_token,
                          options.max_prompt_logprobs),
              "request fewer values or fewer choices, or send a shorter prompt");
}

// The maximum length of a job's name in the engine. A longer session id is replaced by its hash.
constexpr std::size_t kMaxJobBytes = 64;

std::string job_of(std::string_view session) {
  return session.size() <= kMaxJobBytes ? std::string(session) : to_hex(Sha256::of(std::as_bytes(std::span(session))));
}

// Sets the job from the session id if the client has not named a job. A beam search has no job.
void set_job_tag(CompletionRequest& request, const RequestContext& context) {
  if (!request.tags.job.empty() || request.beam_search) return;
  request.tags.job = job_of(request.session_key.empty() ? context.session : request.session_key);
}

Result<PreparedCompletion> prepare_request(CompletionRequest parsed, const RequestContext& context) {
  const ServedModel& model = context.model;
  const ServerOptions& options = context.options;
  auto adapter = model.adapter_of(parsed.model);
  if (!adapter) return std::unexpected(std::move(adapter.error()));
  parsed.adapter = *std::move(adapter);
  parsed.tags.tenant = context.tenant;
  set_job_tag(parsed, context);
  // The salt determines which cached blocks a prompt may find, so it must be set before any block is hashed.
  parsed.cache_salt = salt_of(options.tenant_secret, context.tenant, std::move(parsed.cache_salt));
  // Encoding moves parts out of the chat, so the chat must be hashed first.
  std::optional<PromptFingerprint> fingerprint;
  if (parsed.compare) fingerprint = fingerprint_of(parsed.chat);
  auto prompts = model.encode_prompts(parsed, context.cancellation);
  if (!prompts) return std::unexpected(prompts.error());
  auto bad_words = model.encode_bad_words(parsed.bad_words);
  if (!bad_words) return std::unexpected(bad_words.error());
  parsed.sampling.bad_words = std::move(*bad_words);
  pass(context.cancellation);
  if (const auto held = constrain_answer(parsed, model, options.one_call_spelling); !held) return std::unexpected(held.error());
  // constrain_answer() may have added unenforced constraints to the ignored fields.
  if (const auto heeded = check_ignored(parsed.ignored, options); !heeded) return std::unexpected(heeded.error());
  PreparedCompletion prepared{.request = std::move(parsed), .prompts = {}, .echoes = {}, .num_prompt_tokens = {}};
  if (fingerprint) add_tokens(*fingerprint, prompts->front());
  prepared.fingerprint = std::move(fingerprint);
  const CompletionRequest& request = prepared.request;
  const std::size_t num_choices = prompts->size() * request.best_of;
  prepared.prompts.reserve(prompts->size());
  for (std::vector<TokenId>& prompt : *prompts) {
    prepared.num_prompt_tokens.push_back(prompt.size());
    prepared.first_prompt_tokens.push_back(prompt.empty() ? 0 : prompt.front());
    if (request.return_token_ids) prepared.returned_prompts.push_back(prompt);
    if (request.echo) {
      const auto added = add_echo(prepared, model.tokenizer().decode(prompt, request.skip_special_tokens), num_choices, options);
      if (!added) return std::unexpected(added.error());
    }
    prepared.prompts.push_back(engine_request(std::move(prompt), request, model));
  }
  if (const auto fits = check_prompt_logprobs(prepared, options); !fits) return std::unexpected(fits.error());
  if (const auto fits = check_routed_experts(prepared, model, options); !fits) return std::unexpected(fits.error());
  return prepared;
}

}  // namespace

Result<void> check_ignored(const std::vector<std::string>& ignored, const ServerOptions& options) {
  if (!options.strict_fields || ignored.empty()) return {};
  return fail(ErrorCode::unsupported, ignored.front(), "would be ignored, which --strict-fields forbids", "leave it out");
}

RequestLimits limits_of(const RequestContext& context) {
  return {.max_choices = context.options.max_choices,
          .vocab_size = context.model.tokenizer().vocab_size(),
          .defaults = context.options.generation_defaults,
          .routed_experts = context.options.enable_return_routed_experts,
          .image_reading = context.model.image_reading(),
          .cancellation = context.cancellation};
}

Result<CompletionRequest> read_chat_of(std::shared_ptr<const AnswerShape> shape, boost::json::object chat,
                                       const std::vector<std::string>& ignored, const RequestContext& context) {
  RequestLimits limits = limits_of(context);
  limits.routed_experts = false;  // other APIs have no field for them
  auto parsed = parse_completion_request(Api::chat, std::move(chat), limits);
  if (!parsed) return std::unexpected(shape->with_client_field_names(std::move(parsed.error())));
  parsed->shape = std::move(shape);
  parsed->ignored.insert(parsed->ignored.begin(), ignored.begin(), ignored.end());
  return parsed;
}

Result<PreparedCompletion> prepare_completion(CompletionRequest request, const RequestContext& context) {
  // check_ignored() reports the client's field names, so with_client_field_names() is not needed.
  if (const auto heeded = check_ignored(request.ignored, context.options); !heeded) return std::unexpected(heeded.error());
  const std::shared_ptr<const AnswerShape> shape = request.shape;
  auto prepared = prepare_request(std::move(request), context);
  if (!prepared) prepared.error() = shape->with_client_field_names(std::move(prepared.error()));
  return prepared;
}

Result<std::size_t> count_prompt_tokens(CompletionRequest request, const RequestContext& context) {
  if (const auto named = context.model.adapter_of(request.model); !named) return std::unexpected(named.error());
  const auto prompts = context.model.encode_prompts(request, context.cancellation);
  if (!prompts) {
    // A client counts tokens in order to learn whether its prompt fits, so an overflow is not an error.
    if (const auto overflow = overflow_of(prompts.error()); overflow && !overflow->is_at_least) return overflow->prompt_tokens;
    return std::unexpected(request.shape->with_client_field_names(prompts.error()));
  }
  return prompts->front().size();
}

}  // namespace quire
