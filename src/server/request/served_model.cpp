// Converts text to tokens for every handler, with the chat template, the vocabulary, and the model's format of calls and reasoning. Created
// once, before the server runs, and never changed, so the server's thread and the job pool use it concurrently. Clients choose the length
// of texts, so text that is too long must be refused before the costly steps.
#include "server/request/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/context_overflow.h"
#include "base/name_pattern.h"
#include "base/trim.h"
#include "text/tool_calls/message_text.h"
#include "text/tool_calls/tool_definitions.h"
#include "text/tool_calls/tool_prompt.h"

namespace quire {

namespace {

// Returns the local time of this machine, which strftime_now shows in templates.
std::int64_t local_now_s() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&now, &local);
  return static_cast<std::int64_t>(now) + local.tm_gmtoff;
}

// Tokens of a text are counted up to this many times the context length. A client that compacts a conversation needs to know by how much it
// is too long.
constexpr std::size_t kCountedContexts = 2;

// Maximum number of names in the error for an unknown model.
constexpr std::size_t kMaxListedModels = 8;

// Appended to the last message while it is rendered, as in transformers (apply_chat_template), because the template's own text may look
// like the message. The trailing space shows whether the template trims the text.
constexpr std::string_view kContinueHere = "CONTINUE_FINAL_MESSAGE_HERE ";

boost::json::string& last_text(boost::json::array& parts) {
  boost::json::value* text = parts.empty() || !parts.back().is_object() ? nullptr : parts.back().get_object().if_contains("text");
  if (text != nullptr && text->is_string()) return text->get_string();
  parts.push_back(boost::json::object{{"type", "text"}, {"text", ""}});
  return parts.back().get_object()["text"].get_string();
}

void append_sentinel(boost::json::array& messages) {
  boost::json::value& content = messages.back().get_object()["content"];
  if (content.is_array()) {
    last_text(content.get_array()) += kContinueHere;
    return;
  }
  if (!content.is_string()) content = "";
  content.get_string() += kContinueHere;
}

Result<std::string> cut_at_sentinel(std::string rendered) {
  const std::size_t at = rendered.rfind(kContinueHere.substr(0, kContinueHere.size() - 1));
  if (at == std::string::npos)
    return fail(ErrorCode::invalid_argument, "continue_final_message",
                "is set, but the chat template does not render the text of the last message", "leave it out, or use /v1/completions");
  const bool is_trimmed = !std::string_view(rendered).substr(at).starts_with(kContinueHere);
  rendered.resize(at);
  if (is_trimmed) rendered.resize(rendered.find_last_not_of(" \t\r\n") + 1);
  return rendered;
}

std::unique_ptr<const MediaFetcher> fetcher_of(const ServerOptions& server) {
  if (server.allowed_media_domains.empty()) return nullptr;
  auto domains = parse_media_domains(server.allowed_media_domains);
  QUIRE_CHECK(domains.has_value(), "the allowed media domains are valid");
  return std::make_unique<MediaFetcher>(MediaFetcher::Options{
      .domains = *std::move(domains), .max_bytes = server.max_media_bytes, .timeout = std::chrono::milliseconds(server.media_timeout_ms)});
}

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::create(Engine& engine, const ServerOptions& server) {
  const ModelInfo& info = engine.model();
  const EngineOptions& options = engine.options();
  // An adapter with the model's name is an error, because no request could choose it.
  std::vector<std::string> names = {options.served_model_name.empty() ? info.name : options.served_model_name};
  std::ranges::remove_copy_if(server.served_model_aliases, std::back_inserter(names), is_pattern);
  for (const AdapterInfo& adapter : engine.adapters())
    if (std::ranges::find(names, adapter.name) != names.end())
      return fail(ErrorCode::invalid_argument, "lora_modules", fmt::format("contain '{}', which is the name of the model", adapter.name),
                  "choose another name for the adapter");
  if (server.enable_return_routed_experts && info.num_experts == 0)
    return fail(ErrorCode::unsupported, "enable_return_routed_experts", "is set, but the model has no experts", "leave it out");
  auto tokenizer = Tokenizer::create(*info.tokenizer);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  std::unique_ptr<ServedModel> model(new ServedModel());
  model->engine_ = &engine;
  model->names_ = std::move(names);
  std::ranges::copy_if(server.served_model_aliases, std::back_inserter(model->name_patterns_), is_pattern);
  model->tokenizer_ = std::move(*tokenizer);
  model->max_model_len_ = options.scheduler.max_model_len;
  model->pooling_ = info.pooling;
  model->hidden_size_ = info.hidden_size;
  model->experts_ = {info.num_layers, info.experts_per_token, info.num_experts};
  model->images_ = info.pictures;
  if (info.pictures.any()) model->processor_ = find_image_processor(info.pictures.processor);
  model->max_images_ = server.max_pictures;
  model->max_pixels_ = server.max_pixels;
  model->accepts_embeds_ = server.enable_mm_embeds;
  if (info.pictures.any()) model->fetcher_ = fetcher_of(server);
  model->template_source_ = server.chat_template.empty() ? info.tokenizer->chat_template : server.chat_template;
  if (!model->template_source_.empty()) model->template_ = ChatTemplate::parse(model->template_source_);
  if (!model->template_ && !server.chat_template.empty()) return std::unexpected(model->template_.error());
  model->iterates_parts_ = iterates_parts(model->template_source_);
  model->infill_ = find_infill(*model->tokenizer_);
  model->call_format_ = detect_call_format(model->template_source_);
  if (model->template_) model->roles_ = find_roles(*model->template_, model->template_source_);
  model->call_format_.shows_calls &= model->roles_.calls;
  model->call_format_.wants_text_arguments |= model->roles_.text_arguments;
  for (const std::string& delimiter : model->call_format_.delimiters())
    if (const auto token = model->control_token(delimiter)) model->delimiters_.push_back(*token);
  std::ranges::sort(model->delimiters_);
  if (const auto bos = model->tokenizer_->bos()) model->bos_ = model->tokenizer_->token_bytes(*bos);
  if (const auto eos = model->tokenizer_->eos()) model->eos_ = model->tokenizer_->token_bytes(*eos);
  model->longest_piece_bytes_ = std::max<std::size_t>(1, model->tokenizer_->max_token_bytes());
  return model;
}

std::optional<TokenId> ServedModel::control_token(std::string_view text) const {
  const auto token = tokenizer_->find(text);
  return token && tokenizer_->is_special(*token) ? token : std::nullopt;
}

std::optional<TokenId> ServedModel::single_token(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  const auto tokens = tokenizer_->encode(text, {.add_special = false, .parse_special = true});
  return tokens && tokens->size() == 1 ? std::optional(tokens->front()) : std::nullopt;
}

Result<std::string> ServedModel::adapter_of(const std::string& requested) const {
  if (requested.empty() || std::ranges::find(names_, requested) != names_.end()) return std::string();
  if (engine_->lease_adapter(requested, false)) return requested;
  const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, requested); };
  if (std::ranges::any_of(name_patterns_, matches)) return std::string();
  std::vector<std::string> known = names_;
  for (const AdapterInfo& adapter : engine_->adapters())
    if (known.size() < kMaxListedModels) known.push_back(adapter.name);
  return fail(ErrorCode::not_found, "model", fmt::format("'{}' is not served by this server", requested.substr(0, 200)),
              fmt::format("use '{}'{}", fmt::join(known, "' or '"), known.size() < kMaxListedModels ? "" : ", or see /v1/models"));
}

Result<std::string> ServedModel::render(ChatPrompt chat, const CancellationPoint* cancellation) const {
  const std::vector<ChatImage> pictures = std::exchange(chat.pictures, {});
  const auto prompt = ImagePrompt::create(pictures, images_, processor_, max_pixels_);
  if (!prompt) return std::unexpected(prompt.error());
  return render_with(*prompt, std::move(chat), cancellation);
}

Result<std::string> ServedModel::render_with(const ImagePrompt& prompt, ChatPrompt chat, const CancellationPoint* cancellation) const {
  auto text = render_messages(std::move(chat), cancellation);
  return text && prompt.any() ? prompt.expand(*text) : text;
}

Result<std::string> ServedModel::render_messages(ChatPrompt chat, const CancellationPoint* cancellation) const {
  if (!template_) return std::unexpected(template_.error());
  adapt_messages(call_format_, chat.tools, chat.messages);
  adapt_roles(roles_, chat.messages);
  boost::json::object context = std::move(chat.template_kwargs);
  if (chat.continue_final_message) append_sentinel(chat.messages);
  if (iterates_parts_ && processor_ != nullptr) wrap_in_parts(chat.messages);
  context["messages"] = std::move(chat.messages);
  context["tools"] = std::move(chat.tools);
  context["add_generation_prompt"] = chat.add_generation_prompt;
  context["bos_token"] = bos_;
  context["eos_token"] = eos_;
  const TemplateOptions options{.now_s = local_now_s(), .limits = {}, .cancellation = cancellation};
  auto text = render_with_tools(*template_, context, options);
  const bool may_join = processor_ == nullptr && has_text_parts(context["messages"].get_array());
  if (may_join && !(text && shows_text_parts(context["messages"].get_array(), *text))) {
    join_text_parts(context["messages"].get_array());
    text = render_with_tools(*template_, context, options);
  }
  if (text && chat.continue_final_message) return cut_at_sentinel(std::move(*text));
  return text;
}

Result<std::vector<TokenId>> ServedModel::encode(std::string_view text, EncodeOptions options, const char* field) const {
  // A lower bound of the number of tokens, which assumes that every token has the maximum length.
  const std::size_t least_tokens = text.size() / longest_piece_bytes_;
  const auto too_long = [&](std::size_t num_tokens, bool is_at_least) {
    return std::unexpected(
        overflow_error(field, {.prompt_tokens = num_tokens, .max_model_len = max_model_len_, .is_at_least = is_at_least}));
  };
  options.max_tokens = kCountedContexts * max_model_len_;
  if (least_tokens > options.max_tokens) return too_long(least_tokens, true);
  auto tokens = tokenizer_->encode(text, options);
  if (!tokens && tokens.error().code == ErrorCode::too_large) return too_long(options.max_tokens + 1, true);
  if (tokens && tokens->size() > max_model_len_) return too_long(tokens->size(), false);
  // The tokenizer's errors name the field "text", which is not the client's name.
  if (!tokens) tokens.error().field = field;
  return tokens;
}

Result<std::vector<TokenId>> ServedModel::encode_rendered(std::string_view text, bool add_special,
                                                          const CancellationPoint* cancellation) const {
  return encode(text, EncodeOptions{.add_special = add_special, .parse_special = true, .cancellation = cancellation}, "messages");
}

Result<std::vector<TokenId>> ServedModel::encode_input(TextOrChat input, bool add_special_tokens,
                                                       const CancellationPoint* cancellation) const {
  auto* const chat = std::get_if<ChatPrompt>(&input);
  if (chat != nullptr) {
    const auto text = render(std::move(*chat), cancellation);
    if (!text) return std::unexpected(text.error());
    return encode_rendered(*text, add_special_tokens, cancellation);
  }
  return encode(std::get<std::string>(input), {.add_special = add_special_tokens, .parse_special = true, .cancellation = cancellation},
                "prompt");
}

// Keeps the last tokens, because the question is at the end of a prompt. As in vLLM, -1 keeps as many tokens as fit.
void ServedModel::truncate(std::vector<TokenId>& tokens, const CompletionRequest& request) const {
  if (!request.truncate_to) return;
  const std::size_t room = max_model_len_ - std::min<std::size_t>(max_model_len_, request.max_tokens.value_or(1));
  const std::size_t most = *request.truncate_to < 0 ? room : static_cast<std::size_t>(*request.truncate_to);
  if (tokens.size() > most) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
}

Result<std::vector<TokenId>> ServedModel::encode_prompt(std::string_view text, const CompletionRequest& request,
                                                        const CancellationPoint* cancellation) const {
  const EncodeOptions options{.add_special = request.add_special_tokens, .parse_special = !request.suffix, .cancellation = cancellation};
  const char* const field = request.api == Api::chat ? "messages" : "prompt";
  if (!request.truncate_to) {
    auto tokens = encode(text, options, field);
    if (tokens) return tokens;
    if (auto overflow = overflow_of(tokens.error())) {
      overflow->answer_tokens = request.max_tokens.value_or(1);
      return std::unexpected(overflow_error(field, *overflow));
    }
    return tokens;
  }
  auto tokens = tokenizer_->encode(text, options);
  if (!tokens) tokens.error().field = field;
  return tokens;
}

Result<std::vector<TokenId>> ServedModel::with_suffix(std::vector<TokenId> prefix, const CompletionRequest& request) const {
  if (!request.suffix) return prefix;
  if (!infill_) {
    return fail(ErrorCode::unsupported, "suffix", "is not supported: the model has no fill-in-the-middle tokens",
                "put the text into the prompt");
  }
  // The suffix does not begin a text, so SentencePiece must not add a space before its first word. As in CodeLlama's code
  // (Tokenizer.encode_infilling), a character is put before the suffix, and the tokens of the character are removed.
  const std::string before = tokenizer_->strips_leading_space() ? "\u263A" : "";
  const EncodeOptions options{.add_special = false, .parse_special = false};
  auto suffix = encode(before + *request.suffix, options, "suffix");
  if (!suffix) return suffix;
  const auto taken = encode(before, options, "suffix");
  if (!taken) return taken;
  suffix->erase(suffix->begin(), suffix->begin() + static_cast<std::ptrdiff_t>(taken->size()));
  return infill_prompt(*infill_, *tokenizer_, std::move(prefix), *suffix);
}

// Encodes the text, and reuses the tokens of `known` with which the text begins. Unless all known tokens match, the reused part ends before
// or after a control token, because texts on both sides of a control token are tokenized separately anyway.
Result<std::vector<TokenId>> ServedModel::encode_after_prefix(const std::vector<TokenId>& known, std::string_view text,
                                                              const CompletionRequest& request,
                                                              const CancellationPoint* cancellation) const {
  std::size_t num_known = 0, num_bytes = 0, at = 0;
  for (std::size_t i = 0; i < known.size(); ++i) {
    const std::string_view bytes = tokenizer_->token_bytes(known[i]);
    if (!text.substr(at).starts_with(bytes)) break;
    at += bytes.size();
    if (i + 1 < known.size() && !tokenizer_->is_special(known[i]) && !tokenizer_->is_special(known[i + 1])) continue;
    num_known = i + 1;
    num_bytes = at;
  }
  if (num_known == 0) return encode_prompt(text, request, cancellation);
  auto rest = encode_prompt(text.substr(num_bytes), request, cancellation);
  if (!rest) return rest;
  rest->insert(rest->begin(), known.begin(), known.begin() + static_cast<std::ptrdiff_t>(num_known));
  return rest;
}

Result<std::vector<std::vector<TokenId>>> ServedModel::encode_bad_words(const std::vector<std::string>& words) const {
  std::vector<std::vector<TokenId>> encoded;
  for (const std::string& word : words) {
    const std::string bare(trim_left(word));
    std::vector<TokenId> first;
    for (const bool has_space : {false, true}) {
      auto tokens = encode((has_space ? " " : "") + bare, {.add_special = false, .parse_special = true}, "bad_words");
      if (!tokens) return std::unexpected(tokens.error());
      if (tokens->empty()) return fail(ErrorCode::invalid_argument, "bad_words", "contains a word without tokens", "leave it out");
      // If the space is a separate token, the tokens without the space also match the word within a text.
      if (has_space && (tokens->front() == first.front() || tokens->size() != first.size())) continue;
      if (!has_space) first = *tokens;
      encoded.push_back(std::move(*tokens));
    }
  }
  return encoded;
}

Result<void> ServedModel::check_length(std::size_t num_tokens, const CompletionRequest& request) const {
  const char* field = request.api == Api::chat ? "messages" : "prompt";
  if (num_tokens == 0) return fail(ErrorCode::invalid_argument, field, "has no tokens", "send some text");
  const std::uint64_t answer_tokens = request.max_tokens.value_or(1);
  if (num_tokens + answer_tokens <= max_model_len_) return {};
  return std::unexpected(overflow_error(num_tokens < max_model_len_ ? "max_tokens" : field,
                                        {.prompt_tokens = num_tokens, .answer_tokens = answer_tokens, .max_model_len = max_model_len_}));
}

// Renders and encodes a conversation. A prompt that is too long is refused before its images are decoded.
Result<std::vector<TokenId>> ServedModel::encode_chat(CompletionRequest& request, const CancellationPoint* cancellation) const {
  const std::vector<ChatImage> pictures = std::exchange(request.chat.pictures, {});
  const auto prompt = ImagePrompt::create(pictures, images_, processor_, max_pixels_);
  if (!prompt) return std::unexpected(prompt.error());
  const auto text = render_with(*prompt, std::move(request.chat), cancellation);
  if (!text) return std::unexpected(text.error());
  request.in_reasoning = ends_in_reasoning(call_format_, *text);
  auto tokens = request.known_prefix_tokens ? encode_after_prefix(*request.known_prefix_tokens, *text, request, cancellation)
                                            : encode_prompt(*text, request, cancellation);
  request.known_prefix_tokens.reset();
  if (!tokens || !prompt->any()) return tokens;
  if (request.truncate_to) return fail(ErrorCode::unsupported, "truncate_prompt_tokens", "is not supported with images", "leave it out");
  if (const auto fits = check_length(tokens->size(), request); !fits) return std::unexpected(fits.error());
  auto made = prompt->make(*tokens, {*image_memory_, request.tags.tenant, request.cache_salt, cancellation});
  if (!made) return std::unexpected(std::move(made.error()));
  request.pictures = *std::move(made);
  return tokens;
}

Result<std::vector<std::vector<TokenId>>> ServedModel::encode_prompts(CompletionRequest& request,
                                                                      const CancellationPoint* cancellation) const {
  std::vector<std::vector<TokenId>> encoded;
  if (request.api == Api::chat) {
    auto tokens = encode_chat(request, cancellation);
    if (!tokens) return std::unexpected(std::move(tokens.error()));
    encoded.push_back(*std::move(tokens));
  }
  for (Prompt& prompt : request.prompts) {
    if (auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      encoded.push_back(std::move(*tokens));
    } else {
      const std::string text = std::move(std::get<std::string>(prompt));
      auto of_text = encode_prompt(text, request, cancellation);
      if (!of_text) return std::unexpected(of_text.error());
      encoded.push_back(std::move(*of_text));
    }
    auto whole = with_suffix(std::move(encoded.back()), request);
    if (!whole) return std::unexpected(whole.error());
    encoded.back() = *std::move(whole);
  }
  if (request.suffix && infill_) std::ranges::copy(infill_->ends, std::back_inserter(request.sampling.stop_token_ids));
  std::size_t longest = 0;
  for (std::vector<TokenId>& tokens : encoded) {
    truncate(tokens, request);
    if (const auto fits = check_length(tokens.size(), request); !fits) return std::unexpected(fits.error());
    longest = std::max(longest, tokens.size());
  }
  if (!request.max_tokens) {
    const std::uint32_t room = max_model_len_ - static_cast<std::uint32_t>(longest);
    request.sampling.max_tokens = std::min(room, request.default_max_tokens.value_or(room));
  }
  if (request.sampling.min_tokens > request.sampling.max_tokens) {
    return fail(ErrorCode::invalid_argument, "min_tokens",
                fmt::format("{} tokens do not fit into the context", request.sampling.min_tokens),
                fmt::format("use at most {}", request.sampling.max_tokens));
  }
  return encoded;
}

}  // namespace quire
