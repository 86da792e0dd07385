#include "server/prepare.h"

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <utility>

#include "base/json_text.h"
#include "quire/detokenizer.h"
#include "server/api/anthropic/messages_request.h"
#include "server/api/responses/responses_request.h"
#include "server/field_names.h"
#include "server/http/tenants.h"
#include "server/request/answer_grammar.h"
#include "server/request/object_reader.h"
#include "server/request/small_requests.h"
#include "text/bash_tool.h"
#include "text/tool_calls/answer_parser.h"
#include "text/utf8.h"

namespace quire {

namespace {

// The tool that an answer calls: the first one, or by the convention of mini-swe-agent.
std::string called_tool(const ServedModel& model, const ToolUse& use, bool in_thought, std::span<const TokenId> outputs) {
  const Tokenizer& tokenizer = model.tokenizer();
  if (use.choice == ToolUse::Choice::none || use.tools.empty()) return bash_tool(tokenizer.decode(outputs, true));
  AnswerParser parser(model.call_format(), use.tools, {.in_thought = in_thought, .max_calls = 1});
  Detokenizer text(tokenizer, {.skip_special = false});
  for (const TokenId token : outputs)
    if (!tokenizer.is_special(token) || model.is_mark(token)) parser.feed(text.push(token));
  parser.finish();
  for (const AnswerPart& part : parser.take_parts())
    if (part.kind == AnswerPart::Kind::call) return part.text;
  return bash_tool(tokenizer.decode(outputs, true));
}

// The choices of a prompt differ by their seed, as in vLLM.
EngineRequest engine_request(std::vector<TokenId> prompt, const CompletionRequest& request, const ServedModel& model) {
  EngineRequest out{std::move(prompt), request.sampling, request.cache_salt, request.priority, request.tags, request.best_of};
  out.beam_search = request.beam_search;
  out.session = request.session;
  if (request.form) out.structured_output = request.form->wanted;
  // The best are those whose tokens are the likeliest.
  if (request.best_of > request.n && !out.sampling.logprobs) out.sampling.logprobs = 0;
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

Result<PreparedCompletion> prepare_request(CompletionRequest parsed, std::string_view tenant, const ServedModel& model,
                                           const ServerOptions& options) {
  if (const auto named = model.check_name(parsed.model); !named) return std::unexpected(named.error());
  parsed.tags.tenant = tenant;
  parsed.cache_salt = salt_of(options.tenant_secret, tenant, std::move(parsed.cache_salt));
  auto prompts = model.encode_prompts(parsed);
  if (!prompts) return std::unexpected(prompts.error());
  auto bad_words = model.encode_bad_words(parsed.bad_words);
  if (!bad_words) return std::unexpected(bad_words.error());
  parsed.sampling.bad_words = std::move(*bad_words);
  if (const auto held = constrain_answer(parsed, model); !held) return std::unexpected(held.error());
  PreparedCompletion prepared{.request = std::move(parsed), .prompts = {}, .echoes = {}, .num_prompt_tokens = {}};
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
  return prepared;
}

Result<PreparedCompletion> prepare_parsed(Result<CompletionRequest> parsed, std::string_view tenant, const ServedModel& model,
                                          const ServerOptions& options) {
  if (!parsed) return std::unexpected(parsed.error());
  const AnswerShape shape = parsed->shape;
  auto prepared = prepare_request(std::move(*parsed), tenant, model, options);
  if (!prepared) prepared.error() = in_words_of(shape, std::move(prepared.error()));
  return prepared;
}

RequestLimits limits_of(const ServedModel& model, const ServerOptions& options) {
  return {.max_choices = options.max_choices, .vocab_size = model.tokenizer().vocab_size(), .defaults = options.generation_defaults};
}

// As the chat that says the same.
Result<CompletionRequest> parse_chat_of(AnswerShape shape, boost::json::object chat, const std::vector<std::string>& ignored,
                                        const ServedModel& model, const ServerOptions& options) {
  auto parsed = parse_completion_request(Api::chat, std::move(chat), limits_of(model, options));
  if (!parsed) return std::unexpected(in_words_of(shape, std::move(parsed.error())));
  parsed->shape = shape;
  parsed->ignored.insert(parsed->ignored.begin(), ignored.begin(), ignored.end());
  return parsed;
}

Result<CompletionRequest> parse_message(std::string body, bool counts_only, const ServedModel& model, const ServerOptions& options) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(object.error());
  std::vector<std::string> ignored;
  auto chat = chat_of_messages(std::move(*object), counts_only, ignored);
  if (!chat) return std::unexpected(chat.error());
  return parse_chat_of(AnswerShape::message, std::move(*chat), ignored, model, options);
}

Result<CompletionRequest> parse_response(std::string body, ResponseShelf shelf, const ServedModel& model, const ServerOptions& options) {
  auto object = parse_object(std::exchange(body, {}));
  if (!object) return std::unexpected(object.error());
  std::vector<std::string> ignored;
  fill_defaults(*object, {.temperature = options.generation_defaults.temperature, .top_p = options.generation_defaults.top_p});
  auto translated = chat_of_response(std::move(*object), shelf, ignored);
  if (!translated) return std::unexpected(translated.error());
  auto parsed = parse_chat_of(AnswerShape::response, std::move(translated->chat), ignored, model, options);
  if (!parsed) return parsed;
  parsed->return_token_ids = translated->call.is_stored;
  if (translated->previous != nullptr) parsed->known_beginning = {translated->previous, &translated->previous->tokens};
  parsed->response = std::make_shared<const ResponseCall>(std::move(translated->call));
  return parsed;
}

Result<std::size_t> count_prompt(Result<CompletionRequest> parsed, const ServedModel& model) {
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.check_name(parsed->model); !named) return std::unexpected(named.error());
  const auto prompts = model.encode_prompts(*parsed);
  if (!prompts) return std::unexpected(in_words_of(parsed->shape, prompts.error()));
  return prompts->front().size();
}

}  // namespace

Result<PreparedCompletion> prepare_completion(Api api, std::string body, std::string_view tenant, const ServedModel& model,
                                              const ServerOptions& options) {
  return prepare_parsed(parse_completion_request(api, std::exchange(body, {}), limits_of(model, options)), tenant, model, options);
}

Result<PreparedCompletion> prepare_message(std::string body, std::string_view tenant, const ServedModel& model,
                                           const ServerOptions& options) {
  return prepare_parsed(parse_message(std::move(body), false, model, options), tenant, model, options);
}

Result<PreparedCompletion> prepare_response(std::string body, std::string_view tenant, ResponseStore& responses, const ServedModel& model,
                                            const ServerOptions& options) {
  return prepare_parsed(parse_response(std::move(body), {responses, tenant}, model, options), tenant, model, options);
}

Result<PreparedInput> prepare_input(const std::string& body, const ServedModel& model) {
  auto call = parse_input_call(body, model.tokenizer().vocab_size());
  if (!call) return std::unexpected(call.error());
  PreparedInput input{.tenant = {}, .id = {}, .tokens = {}, .is_last = call->is_last};
  std::optional<Prompt> prompt = std::move(call->prompt);
  if (!prompt) return input;
  if (const auto* const text = std::get_if<std::string>(&*prompt)) {
    auto encoded = model.encode(*text, {.add_special = call->add_special_tokens, .parse_special = true}, "prompt");
    if (!encoded) return std::unexpected(encoded.error());
    input.tokens = std::move(*encoded);
  } else {
    input.tokens = std::move(std::get<std::vector<TokenId>>(*prompt));
  }
  if (input.tokens.empty()) return fail(ErrorCode::invalid_argument, "prompt", "has no tokens", R"(send some text, or "end": true alone)");
  return input;
}

Result<std::string> answer_count_tokens(std::string body, const ServedModel& model, const ServerOptions& options) {
  const auto count = count_prompt(parse_message(std::move(body), true, model, options), model);
  if (!count) return std::unexpected(count.error());
  return fmt::format(R"({{"input_tokens":{}}})", *count);
}

Result<std::string> answer_input_tokens(std::string body, std::string_view tenant, ResponseStore& responses, const ServedModel& model,
                                        const ServerOptions& options) {
  const auto count = count_prompt(parse_response(std::move(body), {responses, tenant}, model, options), model);
  if (!count) return std::unexpected(count.error());
  return fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})", *count);
}

Result<std::string> answer_tokenize(std::string body, const ServedModel& model) {
  auto parsed = parse_tokenize_request(std::exchange(body, {}));
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.check_name(parsed->model); !named) return std::unexpected(named.error());
  const auto tokens = model.encode_input(std::move(*parsed));
  if (!tokens) return std::unexpected(tokens.error());
  std::string strings = "null";
  if (parsed->return_token_strs) {
    strings = "[";
    for (const TokenId token : *tokens) {
      if (strings.size() > 1) strings += ',';
      append_json_string(strings, repair_utf8(model.tokenizer().token_bytes(token)));
    }
    strings += ']';
  }
  return fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":{}}})", tokens->size(), model.max_model_len(),
                     fmt::join(*tokens, ","), strings);
}

Result<std::string> answer_detokenize(std::string body, const ServedModel& model) {
  const auto parsed = parse_detokenize_request(std::exchange(body, {}), model.tokenizer().vocab_size());
  if (!parsed) return std::unexpected(parsed.error());
  if (const auto named = model.check_name(parsed->model); !named) return std::unexpected(named.error());
  if (parsed->tokens.size() > model.max_model_len()) {
    return fail(ErrorCode::invalid_argument, "tokens",
                fmt::format("has {} tokens, and the context holds {}", parsed->tokens.size(), model.max_model_len()), "send them in parts");
  }
  return fmt::format(R"({{"prompt":{}}})", json_string(model.tokenizer().decode(parsed->tokens, false)));
}

}  // namespace quire
