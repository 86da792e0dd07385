// What lies between a request that has been read and the engine's: templates, tokens, grammars, bounds on the answer. Called by Serving,
// for small bodies on the server's thread and for others on one of the job pool: so everything here is a function of its arguments, and
// what it shares (the model, the options) never changes.
#include "server/request/prepare.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>

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

// The tool that an answer calls: the first one, or by the convention of mini-swe-agent.
std::string called_tool(const ServedModel& model, const ToolUse& use, bool in_thought, std::span<const TokenId> outputs) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (use.choice == ToolUse::Choice::none || use.tools.empty()) return bash_tool(tokenizer.decode(outputs, true));
  const auto parser = make_answer_parser(model.call_format(), use.tools, {.in_thought = in_thought, .max_calls = 1});
  Detokenizer text(tokenizer, {.skip_special = false});
  for (const TokenId token : outputs)
    if (!tokenizer.is_special(token) || model.is_mark(token)) parser->feed(text.push(token));
  parser->finish();
  for (const AnswerPart& part : parser->take_parts())
    if (part.kind == AnswerPart::Kind::call) return part.text;
  return bash_tool(tokenizer.decode(outputs, true));
}

// The choices of a prompt differ by their seed, as in vLLM.
EngineRequest engine_request(std::vector<TokenId> prompt, const CompletionRequest& request, const ServedModel& model) {
  EngineRequest out{std::move(prompt), request.sampling, request.cache_salt, request.priority, request.tags, request.best_of};
  out.beam_search = request.beam_search;
  out.session = request.session;
  out.kv_transfer = request.kv_transfer;
  out.adapter = request.adapter;
  out.pictures = request.pictures;
  if (request.form) out.structured_output = request.form->wanted;
  // The best are those whose tokens are the likeliest.
  if (request.best_of > request.n && !out.sampling.logprobs) out.sampling.logprobs = 0;
  // Only where the core needs to know which tool is called, and the client has not said it.
  if (!request.tags.job.empty() && !request.tags.is_last_step && request.tags.tool.empty())
    out.name_tool = [&model, tools = request.tool_use, in_thought = request.in_thought](std::span<const TokenId> outputs) {
      return called_tool(model, tools, in_thought, outputs);
    };
  return out;
}

Result<void> add_echo(PreparedCompletion& prepared, const std::string& text, std::size_t num_choices, const ServerOptions& options) {
  if (text.size() * num_choices > options.max_echo_bytes) {
    return fail(ErrorCode::invalid_argument, "echo",
                fmt::format("would repeat {} bytes in {} choices, more than {}", text.size(), num_choices, options.max_echo_bytes),
                "ask for fewer choices, or drop it");
  }
  prepared.echoes.insert(prepared.echoes.end(), prepared.request.best_of, text);
  return {};
}

// What is said of the prompts is in each of their choices, but for chats, which have it once.
Result<void> check_prompt_logprobs(const PreparedCompletion& prepared, const ServerOptions& options) {
  const CompletionRequest& request = prepared.request;
  if (!request.sampling.prompt_logprobs) return {};
  const std::uint64_t num_tokens = std::accumulate(prepared.num_prompt_tokens.begin(), prepared.num_prompt_tokens.end(), std::uint64_t{0});
  const std::uint64_t per_token = (1 + *request.sampling.prompt_logprobs) * std::uint64_t{request.api == Api::chat ? 1 : request.n};
  if (num_tokens * per_token <= options.max_prompt_logprobs) return {};
  return fail(ErrorCode::invalid_argument, request.prompt_logprobs ? "prompt_logprobs" : "echo",
              fmt::format("of {} tokens, {} each, are more than {}", num_tokens, per_token, options.max_prompt_logprobs),
              "ask for fewer of them, for fewer choices, or of a shorter prompt");
}

// A job of the engine's is no longer than this: longer names of sessions are known by their hash.
constexpr std::size_t kMaxJobBytes = 64;

std::string job_of(std::string_view session) {
  return session.size() <= kMaxJobBytes ? std::string(session) : to_hex(Sha256::of(std::as_bytes(std::span(session))));
}

// A beam search has no job.
void name_job(CompletionRequest& request, const RequestContext& context) {
  if (!request.tags.job.empty() || request.beam_search) return;
  request.tags.job = job_of(request.session_key.empty() ? context.session : request.session_key);
}

// --strict-fields: nothing is ignored.
Result<void> check_ignored(const CompletionRequest& request, const ServerOptions& options) {
  if (!options.strict_fields || request.ignored.empty()) return {};
  return fail(ErrorCode::unsupported, request.ignored.front(), "would be ignored, and this server refuses that (--strict-fields)",
              "leave it out");
}

Result<PreparedCompletion> prepare_request(CompletionRequest parsed, const RequestContext& context) {
  const ServedModel& model = context.model;
  const ServerOptions& options = context.options;
  auto adapter = model.adapter_of(parsed.model);
  if (!adapter) return std::unexpected(std::move(adapter.error()));
  parsed.adapter = *std::move(adapter);
  parsed.tags.tenant = context.tenant;
  name_job(parsed, context);
  // Whose blocks a prompt may find is decided here, before any token is named.
  parsed.cache_salt = salt_of(options.tenant_secret, context.tenant, std::move(parsed.cache_salt));
  // The chat is taken apart when it is encoded.
  std::optional<PromptPrint> print;
  if (parsed.compare) print = print_of(parsed.chat);
  auto prompts = model.encode_prompts(parsed);
  if (!prompts) return std::unexpected(prompts.error());
  auto bad_words = model.encode_bad_words(parsed.bad_words);
  if (!bad_words) return std::unexpected(bad_words.error());
  parsed.sampling.bad_words = std::move(*bad_words);
  if (const auto held = constrain_answer(parsed, model, options.one_call_spelling); !held) return std::unexpected(held.error());
  PreparedCompletion prepared{.request = std::move(parsed), .prompts = {}, .echoes = {}, .num_prompt_tokens = {}};
  if (print) add_tokens(*print, prompts->front());
  prepared.print = std::move(print);
  const CompletionRequest& request = prepared.request;
  const std::size_t num_choices = prompts->size() * request.best_of;
  prepared.prompts.reserve(prompts->size());
  for (std::vector<TokenId>& prompt : *prompts) {
    prepared.num_prompt_tokens.push_back(prompt.size());
    prepared.first_prompt_tokens.push_back(prompt.empty() ? 0 : prompt.front());
    if (request.return_token_ids) prepared.told_prompts.push_back(prompt);
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

RequestLimits limits_of(const RequestContext& context) {
  return {.max_choices = context.options.max_choices,
          .vocab_size = context.model.tokenizer().vocab_size(),
          .defaults = context.options.generation_defaults,
          .routed_experts = context.options.enable_return_routed_experts,
          .pictures = context.model.picture_reading()};
}

Result<CompletionRequest> read_chat_of(std::shared_ptr<const AnswerShape> shape, boost::json::object chat,
                                       const std::vector<std::string>& ignored, const RequestContext& context) {
  RequestLimits limits = limits_of(context);
  limits.routed_experts = false;  // other APIs have no place for them
  auto parsed = parse_completion_request(Api::chat, std::move(chat), limits);
  if (!parsed) return std::unexpected(shape->in_words_of_client(std::move(parsed.error())));
  parsed->shape = std::move(shape);
  parsed->ignored.insert(parsed->ignored.begin(), ignored.begin(), ignored.end());
  return parsed;
}

Result<PreparedCompletion> prepare_completion(CompletionRequest request, const RequestContext& context) {
  // These names are the client's already.
  if (const auto heeded = check_ignored(request, context.options); !heeded) return std::unexpected(heeded.error());
  const std::shared_ptr<const AnswerShape> shape = request.shape;
  auto prepared = prepare_request(std::move(request), context);
  if (!prepared) prepared.error() = shape->in_words_of_client(std::move(prepared.error()));
  return prepared;
}

Result<std::size_t> count_prompt_tokens(CompletionRequest request, const RequestContext& context) {
  if (const auto named = context.model.adapter_of(request.model); !named) return std::unexpected(named.error());
  const auto prompts = context.model.encode_prompts(request);
  if (!prompts) return std::unexpected(request.shape->in_words_of_client(prompts.error()));
  return prompts->front().size();
}

}  // namespace quire
