// One request of a client, from submission to its last token. Converts the engine's outputs to text, stops at stop strings, and writes
// events or stores the text for a whole answer. Runs on the server's thread: EngineClient calls on_output() for each output of a step, and
// Connection sends the events. Choice::running keeps the ids of the running requests, because no request may keep running after its client
// has disconnected.
#include "server/answers/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/json_writer.h"
#include "server/http/error_response.h"
#include "text/utf8.h"

namespace quire {

Result<std::shared_ptr<Completion>> Completion::start(EngineClient& engine, const ServedModel& model, Start start) {
  std::shared_ptr<Completion> completion(new Completion(engine, model, std::move(start)));
  if (const auto submitted = completion->submit_all(); !submitted) return std::unexpected(submitted.error());
  return completion;
}

Completion::Completion(EngineClient& engine, const ServedModel& model, Start start)
    : engine_(&engine),
      model_(&model),
      id_(std::move(start.id)),
      request_(std::move(start.prepared.request)),
      unsubmitted_(std::move(start.prepared.prompts)),
      num_prompt_tokens_(std::move(start.prepared.num_prompt_tokens)),
      first_prompt_tokens_(std::move(start.prepared.first_prompt_tokens)),
      returned_prompts_(std::move(start.prepared.returned_prompts)),
      wake_(std::move(start.wake)),
      writer_(request_.shape->make_writer({request_.api, id_, request_.adapter.empty() ? model.name() : request_.adapter, start.created_s,
                                           request_.warnings, request_.tags.is_background ? kBackgroundTier : ""},
                                          request_, model.tokenizer())) {
  std::vector<std::string>& echoes = start.prepared.echoes;
  for (std::size_t i = 0; i < num_prompt_tokens_.size() * request_.best_of; ++i) {
    auto chat = make_chat();
    const bool skip_special = request_.skip_special_tokens && chat == nullptr;
    choices_.push_back({.detokenizer = Detokenizer(model.tokenizer(), {.skip_special = skip_special}),
                        .stops = StopStrings(request_.stop, request_.include_stop),
                        .running = {},
                        .text = echoes.empty() ? std::string() : std::move(echoes[i]),
                        .logprobs = {},
                        .finish = {},
                        .cause = {},
                        .chat = std::move(chat)});
  }
  num_unfinished_ = choices_.size();
}

// Returns null if the answer can only be plain text.
std::unique_ptr<ChatAnswer> Completion::make_chat() const {
  const CallFormat& format = model_->call_format();
  const ToolUse& use = request_.tool_use;
  const bool reads_calls = use.choice != ToolUse::Choice::none && !use.tools.empty();
  if (request_.api != Api::chat || (!reads_calls && format.think_open.empty() && !request_.shape->always_has_parts())) return nullptr;
  ChatAnswerOptions options;
  options.parser.in_reasoning = request_.in_reasoning;
  options.parser.max_calls = reads_calls ? (use.parallel ? std::numeric_limits<std::uint32_t>::max() : 1) : 0;
  options.includes_reasoning = request_.includes_reasoning;
  options.is_stream = request_.stream;
  return std::make_unique<ChatAnswer>(format, use.tools, options);
}

Completion::~Completion() {
  abort();
}

void Completion::abort() {
  for (Choice& choice : choices_)
    if (const auto id = std::exchange(choice.running, std::nullopt)) engine_->finish(*id, FinishReason::abort);
}

Result<void> Completion::submit_all() {
  submitted_ = std::chrono::steady_clock::now();
  std::uint32_t choice = 0;
  for (EngineRequest& prompt : unsubmitted_) {
    prompt.name = id_;
    const auto first = engine_->submit(std::move(prompt), *this, choice);
    if (!first) return std::unexpected(first.error());
    // The requests of one submission have consecutive ids.
    for (std::uint32_t i = 0; i < request_.best_of; ++i) choices_[choice++].running = RequestId{first->value + i};
  }
  unsubmitted_ = {};
  return {};
}

Result<std::shared_ptr<Completion>> Completion::fork(const ForkCall& call, std::shared_ptr<const AnswerShape> shape, Start start) const {
  if (request_.beam_search)
    return fail(ErrorCode::unsupported, "id", "is a beam search, which cannot be forked", "fork a request without use_beam_search");
  if (request_.session && !call.stream)
    return fail(ErrorCode::invalid_argument, "stream", "must be true, because the fork of a session is a session",
                "send \"stream\": true as well");
  if (request_.session && call.fork.n > 1)
    return fail(ErrorCode::invalid_argument, "n", fmt::format("is {}, but the fork of a session has only one choice", call.fork.n),
                "send a separate fork request for each session");
  if (call.choice >= choices_.size())
    return fail(ErrorCode::invalid_argument, "choice", fmt::format("is {}, but no such choice exists", call.choice),
                fmt::format("use an index below {}", choices_.size()));
  const std::optional<RequestId> parent = choices_[call.choice].running;
  if (!parent)
    return fail(ErrorCode::not_found, "choice", fmt::format("{} has finished", call.choice),
                "fork a choice that is still generating tokens");
  start.prepared.request = request_;
  start.prepared.request.n = start.prepared.request.best_of = call.fork.n;
  start.prepared.request.stream = call.stream;
  start.prepared.request.shape = std::move(shape);
  start.prepared.request.echo = start.prepared.request.echo_only = start.prepared.request.prompt_logprobs = false;
  start.prepared.request.sampling.routed_experts = false;
  start.prepared.num_prompt_tokens = {num_prompt_tokens_[call.choice / request_.best_of]};
  if (!returned_prompts_.empty()) start.prepared.returned_prompts = {returned_prompts_[call.choice / request_.best_of]};
  std::shared_ptr<Completion> child(new Completion(*engine_, *model_, std::move(start)));
  child->submitted_ = std::chrono::steady_clock::now();
  child->is_fork_ = true;
  EngineFork fork = call.fork;
  fork.name = child->id_;
  const auto first = engine_->fork(*parent, fork, *child, 0);
  if (!first) return std::unexpected(first.error());
  for (std::uint32_t i = 0; i < call.fork.n; ++i) child->choices_[i].running = RequestId{first->value + i};
  return child;
}

Result<void> Completion::append(std::vector<TokenId> tokens, bool is_last) {
  if (!request_.session)
    return fail(ErrorCode::invalid_argument, "id", "is not a session", R"(start one with "session": true in /v1/completions)");
  const std::optional<RequestId> id = choices_.front().running;
  if (!id) return fail(ErrorCode::not_found, "id", "has ended", "start a new session");
  const std::size_t num_tokens = tokens.size();
  if (num_tokens > 0)
    if (auto taken = engine_->append(*id, std::move(tokens)); !taken) return taken;
  if (num_tokens > 0) ++num_unanswered_inputs_;
  num_prompt_tokens_.front() += num_tokens;
  if (num_tokens > 0) waiting_since_.reset();
  return is_last ? engine_->append(*id, {}) : Result<void>();
}

void Completion::time_out() {
  abort();
  waiting_since_.reset();
  num_unfinished_ = 0;
  error_ = "the session received no input for too long (--session-timeout-ms)";
  end_stream();
  wake_();
}

// Ends the answer to one input of a session. More inputs may follow, so the next answer gets a new detokenizer.
void Completion::end_input(std::uint32_t index, const RequestOutput& output) {
  Choice& choice = choices_[index];
  append_text(choice, choice.detokenizer.flush());
  choice.finish = output.reason;
  write_choice(index);
  choice.finish.reset();
  choice.cause = {};
  choice.detokenizer = Detokenizer(model_->tokenizer(), {.skip_special = request_.skip_special_tokens});
  if (--num_unanswered_inputs_ == 0) waiting_since_ = std::chrono::steady_clock::now();
}

void Completion::on_output(std::uint32_t index, RequestOutput& output) {
  Choice& choice = choices_[index];
  if (output.refusal && !refusal_) refuse(*std::move(output.refusal));
  has_begun_ |= !output.refusal;
  choice.num_cached_tokens = std::max(choice.num_cached_tokens, output.num_cached_tokens);
  waited_s_ = std::max(waited_s_, output.waited_s);
  if (!output.tokens.empty() && !first_token_) first_token_ = std::chrono::steady_clock::now();
  if (output.prompt_logprobs != nullptr) choice.prompt_logprobs = std::move(output.prompt_logprobs);
  if (output.prompt_experts != nullptr) choice.experts = *output.prompt_experts;
  choice.experts.insert(choice.experts.end(), output.routed_experts.begin(), output.routed_experts.end());
  if (!request_.echo_only) std::ranges::move(output.logprobs, std::back_inserter(choice.logprobs));
  if (is_stream() && !output.refusal && !std::exchange(choice.begun, true)) writer_->begin_choice(events_, index, usage());
  take_tokens(choice, output);
  if (output.input_ended) return end_input(index, output);
  if (output.finished) choice.running.reset();
  if (output.kv_transfer != nullptr) choice.kv_transfer = std::move(output.kv_transfer);
  if (output.finished && !choice.finish) close(choice, output);
  if (choice.finish && choice.chat != nullptr)
    choice.chat->finish(choice.finish != FinishReason::stop || choice.cause.text.has_value() || choice.cause.token.has_value());
  if (choice.finish) {
    // A stop string ended the choice. The engine does not check stop strings, so its request must be ended.
    if (const auto running = std::exchange(choice.running, std::nullopt)) engine_->finish(*running, FinishReason::stop);
  }
  if (choice.finish) --num_unfinished_;
  // A session that ends has already written all its text.
  const bool is_written = request_.session && choice.finish == FinishReason::stop && output.tokens.empty();
  if (is_stream() && !is_written) write_choice(index);
  if (!finished()) return;
  if (is_stream())
    end_stream();
  else if (!refusal_ && error_.empty())
    whole_ = whole_answer();
}

// Stores the error of a refused request, with the field name that the client sent.
void Completion::refuse(Error refusal) {
  refusal_ = std::move(refusal);
  if (refusal_->field == "structured_output" && request_.form) refusal_->field = request_.form->field;
  refusal_ = request_.shape->with_client_field_names(*std::move(refusal_));
}

void Completion::on_failure() noexcept {
  num_unfinished_ = 0;
  error_ = "out of memory";
  events_.clear();  // the last event may be incomplete
  try {
    abort();
    if (is_stream()) end_stream();
  } catch (const std::exception&) {
    events_.clear();  // the stream then ends without "[DONE]"
  }
}

// Returns the text that `token` adds; `span` receives the range of its bytes. If several tokens form a character, the span of each token
// contains at least the first byte of the character.
std::string_view Completion::detokenize(Choice& choice, TokenId token, TextSpan* span) {
  const std::size_t begin = choice.num_text_bytes;
  const std::string_view text = choice.detokenizer.push(token);
  choice.num_text_bytes += text.size();
  if (span != nullptr) *span = {begin, choice.num_text_bytes + (choice.detokenizer.num_held_bytes() > 0 ? 1 : 0)};
  return text;
}

void Completion::take_tokens(Choice& choice, const RequestOutput& output) {
  const bool has_spans = choice.chat != nullptr && output.logprobs.size() == output.tokens.size();
  const std::size_t first = choice.spans.size();
  if (choice.chat != nullptr) choice.spans.resize(choice.logprobs.size(), {choice.num_text_bytes, choice.num_text_bytes});
  for (std::size_t i = 0; i < output.tokens.size() && !choice.finish; ++i) {
    ++choice.num_tokens;
    if (request_.echo_only) continue;
    const TokenId token = output.tokens[i];
    if (request_.return_token_ids) choice.tokens.push_back(token);
    const bool ends = (output.finished || output.input_ended) && output.stop_token == token && i + 1 == output.tokens.size();
    const bool by_id = std::ranges::find(request_.sampling.stop_token_ids, token) != request_.sampling.stop_token_ids.end();
    if (ends && (by_id || request_.beam_search)) choice.cause.token = token;  // as in vLLM, a beam search also reports EOS
    // The token that ends an answer is not part of its text.
    if (ends && !(by_id && request_.include_stop)) continue;
    if (is_skipped(choice, token)) continue;
    const bool was_thinking = choice.chat != nullptr && choice.chat->is_thinking();
    const std::string_view text = detokenize(choice, token, has_spans ? &choice.spans[first + i] : nullptr);
    // Stop strings are checked only after min_tokens tokens, as in vLLM.
    if (choice.num_tokens <= request_.sampling.min_tokens)
      append_text(choice, text);
    else
      take_text(choice, text);
    if (was_thinking && choice.chat->is_thinking()) ++choice.num_reasoning_tokens;
  }
}

// Returns whether the token's text is left out of the answer. Special tokens that delimit tool calls and reasoning are kept, because the
// parser needs them.
bool Completion::is_skipped(const Choice& choice, TokenId token) const {
  return choice.chat != nullptr && request_.skip_special_tokens && model_->tokenizer().is_special(token) && !model_->is_delimiter(token);
}

void Completion::append_text(Choice& choice, std::string_view text) {
  if (choice.chat == nullptr)
    choice.text += text;
  else
    choice.chat->feed(text);
}

void Completion::take_text(Choice& choice, std::string_view text) {
  const StopStrings::Output out = choice.stops.push(text);
  append_text(choice, out.text);
  if (!out.matched) return;
  choice.finish = FinishReason::stop;
  choice.cause.text = request_.stop[*out.matched];
  choice.cause.token.reset();
}

void Completion::close(Choice& choice, const RequestOutput& output) {
  take_text(choice, choice.detokenizer.flush());
  if (!choice.stops.stopped()) append_text(choice, choice.stops.flush());
  if (!choice.finish) choice.finish = output.reason;
  if (output.reason == FinishReason::error) error_ = output.error.empty() ? "the engine failed" : output.error;
}

ChoiceText Completion::describe(std::uint32_t index) const {
  const Choice& choice = choices_[index];
  ChoiceText text{.index = index,
                  .text = choice.text,
                  .logprobs = request_.sampling.logprobs ? &choice.logprobs : nullptr,
                  .token_spans = request_.sampling.logprobs && choice.chat != nullptr ? &choice.spans : nullptr,
                  .text_offset = choice.num_characters,
                  .prompt = choice.prompt_logprobs.get(),
                  .writes_prompt_logprobs = request_.prompt_logprobs,
                  .finish = choice.finish,
                  .tokens_as_ids = request_.tokens_as_ids,
                  .calls_tools = choice.chat != nullptr && choice.chat->calls_tools(),
                  .cause = choice.cause,
                  .kv_transfer = choice.kv_transfer.get()};
  if (request_.sampling.routed_experts) text.routed = experts_of(index);
  if (request_.return_token_ids) text.token_ids = &choice.tokens;
  if (!returned_prompts_.empty() && !choice.has_written_prompt_ids) text.prompt_token_ids = &returned_prompts_[index / request_.best_of];
  if (choice.chat != nullptr) text.parts = &choice.chat->parts();
  if (request_.echo && request_.sampling.logprobs && text.prompt != nullptr) {
    text.echoed = first_prompt_tokens_[index / request_.best_of];
    text.num_echoed_logprobs = *request_.sampling.logprobs;
  }
  return text;
}

// Returns the experts of the choice's tokens, from `first_routed_token` on. Leaves out tokens that the engine sampled after a stop string.
ReportedExperts Completion::experts_of(std::uint32_t index) const {
  const Choice& choice = choices_[index];
  const ExpertShape& shape = model_->experts();
  const std::uint64_t num_tokens = num_prompt_tokens_[index / request_.best_of] + choice.num_tokens;
  std::span<const std::uint16_t> experts(choice.experts);
  experts = experts.first(std::min(experts.size(), (num_tokens - 1) * shape.per_token()));
  return {experts.subspan(std::min(experts.size(), request_.first_routed_token * shape.per_token())), shape};
}

// Writes the new part of a choice if the part has text or ends the choice. Log probabilities are written together with the text of their
// token.
void Completion::write_choice(std::uint32_t index) {
  Choice& choice = choices_[index];
  const bool has_parts = choice.chat != nullptr && !choice.chat->parts().empty();
  if (choice.text.empty() && !has_parts && !choice.finish) return;
  const std::size_t before = events_.size();
  if (!writer_->write_choice(events_, describe(index), usage())) return;
  if (request_.echo && choice.num_characters == 0) num_echo_bytes_ += events_.size() - before;
  choice.num_characters += count_characters(choice.text);
  choice.text.clear();
  clear_written(choice);
}

void Completion::clear_written(Choice& choice) {
  choice.logprobs.clear();
  choice.spans.clear();
  choice.prompt_logprobs.reset();
  choice.tokens.clear();
  choice.has_written_prompt_ids = true;
  if (choice.chat != nullptr) choice.chat->forget_parts();
}

void Completion::end_stream() {
  std::optional<Error> error = refusal_;
  if (!error && !error_.empty()) error = Error{ErrorCode::io, "", error_, "try again"};
  writer_->end_stream(events_, usage(), error ? &*error : nullptr);
}

Usage Completion::usage() const {
  Usage usage;
  usage.elapsed = std::chrono::steady_clock::now() - submitted_;
  usage.to_first_token = first_token_ ? *first_token_ - submitted_ : usage.elapsed;
  usage.prompt_tokens = std::accumulate(num_prompt_tokens_.begin(), num_prompt_tokens_.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += request_.echo_only ? 0 : choices_[i].num_tokens;
    usage.reasoning_tokens += choices_[i].num_reasoning_tokens;
    if (i % request_.best_of == 0) usage.cached_tokens += choices_[i].num_cached_tokens;
  }
  return usage;
}

// Returns the indices of the choices in the answer. If best_of equals n, these are all choices in order. Otherwise they are, for each
// prompt, the n choices with the highest mean log probability, best first.
std::vector<std::uint32_t> Completion::best() const {
  std::vector<std::uint32_t> order(choices_.size());
  std::iota(order.begin(), order.end(), 0U);
  if (request_.best_of == request_.n) return order;
  const auto likelihood = [this](std::uint32_t index) {
    double sum = 0.0;
    for (const PositionLogprobs& position : choices_[index].logprobs) sum += position.entries.empty() ? 0.0 : position.entries[0].logprob;
    return sum / static_cast<double>(std::max<std::size_t>(1, choices_[index].logprobs.size()));
  };
  std::vector<std::uint32_t> best;
  for (auto first = order.begin(); first != order.end(); first += request_.best_of) {
    std::ranges::sort(first, first + request_.best_of, [&](std::uint32_t a, std::uint32_t b) {
      const double of_a = likelihood(a), of_b = likelihood(b);
      return of_a != of_b ? of_a > of_b : a < b;
    });
    best.insert(best.end(), first, first + request_.n);
  }
  return best;
}

std::string warnings_json(const AnswerHead& head) {
  std::string out;
  if (!head.warnings.empty()) JsonWriter(out).field("warnings", head.warnings);
  return out;
}

std::string Completion::ignored_fields() const {
  return fmt::format("{}", fmt::join(request_.ignored, ", "));
}

AnswerSource::TokenCounts Completion::num_tokens() const {
  const Usage so_far = usage();
  return {.prompt = so_far.prompt_tokens, .cached = so_far.cached_tokens, .output = so_far.completion_tokens};
}

std::optional<AnswerSource::Progress> Completion::progress() const {
  Progress progress{.queued = std::chrono::duration<double>(waited_s_),
                    .temperature = request_.sampling.temperature,
                    .top_p = request_.sampling.top_p,
                    .max_tokens = request_.sampling.max_tokens,
                    .n = request_.n};
  if (first_token_) progress.to_first_token = *first_token_ - submitted_;
  return progress;
}

std::string Completion::whole_answer() {
  std::vector<ChoiceText> choices;
  for (const std::uint32_t index : best()) {
    choices.push_back(describe(index));
    choices.back().index = static_cast<std::uint32_t>(choices.size() - 1);
  }
  return writer_->whole_answer(choices, usage());
}

HttpResponse Completion::take_response() {
  if (refusal_) return error_response(*refusal_);
  if (!error_.empty()) return error_response(500, Error{ErrorCode::io, "", error_, "try again"});
  return {200, "application/json", std::move(whole_), {}};
}

}  // namespace quire
