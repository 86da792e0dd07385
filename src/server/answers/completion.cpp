// A client's request from submission to its last token: what the engine puts out becomes text, stops where it must, and is written as
// events or kept for a whole answer. On the server's thread: EngineClient calls on_output() for each output of a step, Session takes events
// and sends them. It must not run a request on once nobody wants its answer, and must not forget an id that still runs (Choice::running).
#include "server/answers/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

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
      told_prompts_(std::move(start.prepared.told_prompts)),
      wake_(std::move(start.wake)),
      writer_(request_.shape->make_writer({request_.api, id_, request_.adapter.empty() ? model.name() : request_.adapter, start.created_s},
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

// Null where an answer is nothing but text.
std::unique_ptr<ChatAnswer> Completion::make_chat() const {
  const CallFormat& format = model_->call_format();
  const ToolUse& use = request_.tool_use;
  const bool reads_calls = use.choice != ToolUse::Choice::none && !use.tools.empty();
  if (request_.api != Api::chat || (!reads_calls && format.think_open.empty() && !request_.shape->always_has_parts())) return nullptr;
  ChatAnswerOptions options;
  options.parser.in_thought = request_.in_thought;
  options.parser.max_calls = reads_calls ? (use.parallel ? std::numeric_limits<std::uint32_t>::max() : 1) : 0;
  options.tells_thoughts = request_.tells_thoughts;
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
    // Siblings have ids in a row.
    for (std::uint32_t i = 0; i < request_.best_of; ++i) choices_[choice++].running = RequestId{first->value + i};
  }
  unsubmitted_ = {};
  return {};
}

Result<std::shared_ptr<Completion>> Completion::fork(const ForkCall& call, std::shared_ptr<const AnswerShape> shape, Start start) const {
  if (request_.beam_search)
    return fail(ErrorCode::unsupported, "id", "is a beam search, and what it finds is known at its end", "fork an answer that is drawn");
  if (request_.session && !call.stream)
    return fail(ErrorCode::invalid_argument, "stream", "is off, and the child of a session is a session", "send \"stream\": true as well");
  if (request_.session && call.fork.n > 1)
    return fail(ErrorCode::invalid_argument, "n", fmt::format("is {}, and each session has a stream of its own", call.fork.n),
                "fork one after the other");
  if (call.choice >= choices_.size())
    return fail(ErrorCode::invalid_argument, "choice", fmt::format("is {}", call.choice), fmt::format("there are {}", choices_.size()));
  const std::optional<RequestId> parent = choices_[call.choice].running;
  if (!parent) return fail(ErrorCode::not_found, "choice", fmt::format("{} has ended", call.choice), "fork it while it puts out tokens");
  start.prepared.request = request_;
  start.prepared.request.n = start.prepared.request.best_of = call.fork.n;
  start.prepared.request.stream = call.stream;
  start.prepared.request.shape = std::move(shape);
  start.prepared.request.echo = start.prepared.request.echo_only = start.prepared.request.prompt_logprobs = false;
  start.prepared.request.sampling.routed_experts = false;
  start.prepared.num_prompt_tokens = {num_prompt_tokens_[call.choice / request_.best_of]};
  if (!told_prompts_.empty()) start.prepared.told_prompts = {told_prompts_[call.choice / request_.best_of]};
  std::shared_ptr<Completion> child(new Completion(*engine_, *model_, std::move(start)));
  child->submitted_ = std::chrono::steady_clock::now();
  EngineFork fork = call.fork;
  fork.name = child->id_;
  const auto first = engine_->fork(*parent, fork, *child, 0);
  if (!first) return std::unexpected(first.error());
  for (std::uint32_t i = 0; i < call.fork.n; ++i) child->choices_[i].running = RequestId{first->value + i};
  return child;
}

Result<void> Completion::append(std::vector<TokenId> tokens, bool is_last) {
  if (!request_.session)
    return fail(ErrorCode::invalid_argument, "id", "is no session", R"(begin one: "session": true in /v1/completions)");
  const std::optional<RequestId> id = choices_.front().running;
  if (!id) return fail(ErrorCode::not_found, "id", "has ended", "begin another session");
  const std::size_t num_tokens = tokens.size();
  if (num_tokens > 0)
    if (auto taken = engine_->append(*id, std::move(tokens)); !taken) return taken;
  if (num_tokens > 0) ++num_inputs_;
  num_prompt_tokens_.front() += num_tokens;
  if (num_tokens > 0) waits_since_.reset();
  return is_last ? engine_->append(*id, {}) : Result<void>();
}

void Completion::time_out() {
  abort();
  waits_since_.reset();
  num_unfinished_ = 0;
  error_ = "nothing has come for this session for too long (--session-timeout-ms)";
  end_stream();
  wake_();
}

// More may come: the next answer begins anew.
void Completion::end_input(std::uint32_t index, const RequestOutput& output) {
  Choice& choice = choices_[index];
  say(choice, choice.detokenizer.flush());
  choice.finish = output.reason;
  tell(index);
  choice.finish.reset();
  choice.cause = {};
  choice.detokenizer = Detokenizer(model_->tokenizer(), {.skip_special = request_.skip_special_tokens});
  if (--num_inputs_ == 0) waits_since_ = std::chrono::steady_clock::now();
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
  if (choice.finish && choice.chat != nullptr) choice.chat->finish();
  if (choice.finish) {
    // It has stopped here, by a stop string, and the engine does not know.
    if (const auto running = std::exchange(choice.running, std::nullopt)) engine_->finish(*running, FinishReason::stop);
  }
  if (choice.finish) --num_unfinished_;
  // Of a session that is over everything has been told.
  const bool is_told = request_.session && choice.finish == FinishReason::stop && output.tokens.empty();
  if (is_stream() && !is_told) tell(index);
  if (!finished()) return;
  if (is_stream())
    end_stream();
  else if (!refusal_ && error_.empty())
    whole_ = whole_answer();
}

// In the words of the field that the client has sent.
void Completion::refuse(Error refusal) {
  refusal_ = std::move(refusal);
  if (refusal_->field == "structured_output" && request_.form) refusal_->field = request_.form->field;
  refusal_ = request_.shape->in_words_of_client(*std::move(refusal_));
}

void Completion::on_failure() noexcept {
  num_unfinished_ = 0;
  error_ = "out of memory";
  events_.clear();  // an event may be half written
  try {
    abort();
    if (is_stream()) end_stream();
  } catch (const std::exception&) {
    events_.clear();  // then the stream ends without "[DONE]"
  }
}

// Of a character that comes in several tokens each has its first byte at least.
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
    if (ends && (by_id || request_.beam_search)) choice.cause.token = token;  // as in vLLM, a beam search tells of EOS too
    // The token that ends an answer is not part of it.
    if (ends && !(by_id && request_.include_stop)) continue;
    if (is_skipped(choice, token)) continue;
    const std::string_view text = detokenize(choice, token, has_spans ? &choice.spans[first + i] : nullptr);
    // As in vLLM, stop strings are looked for once there are min_tokens.
    if (choice.num_tokens <= request_.sampling.min_tokens)
      say(choice, text);
    else
      take_text(choice, text);
  }
}

// Control tokens that are marks of calls and thoughts stay in the text that is taken apart.
bool Completion::is_skipped(const Choice& choice, TokenId token) const {
  return choice.chat != nullptr && request_.skip_special_tokens && model_->tokenizer().is_special(token) && !model_->is_mark(token);
}

void Completion::say(Choice& choice, std::string_view text) {
  if (choice.chat == nullptr) {
    choice.text += text;
    return;
  }
  const bool was_thinking = choice.chat->is_thinking();
  choice.chat->feed(text);
  if (was_thinking && choice.chat->is_thinking()) ++choice.num_reasoning_tokens;
}

void Completion::take_text(Choice& choice, std::string_view text) {
  const StopStrings::Output out = choice.stops.push(text);
  say(choice, out.text);
  if (!out.matched) return;
  choice.finish = FinishReason::stop;
  choice.cause.text = request_.stop[*out.matched];
  choice.cause.token.reset();
}

void Completion::close(Choice& choice, const RequestOutput& output) {
  take_text(choice, choice.detokenizer.flush());
  if (!choice.stops.stopped()) say(choice, choice.stops.flush());
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
                  .tells_prompt = request_.prompt_logprobs,
                  .finish = choice.finish,
                  .tokens_as_ids = request_.tokens_as_ids,
                  .calls_tools = choice.chat != nullptr && choice.chat->calls_tools(),
                  .cause = choice.cause,
                  .kv_transfer = choice.kv_transfer.get()};
  if (request_.sampling.routed_experts) text.routed = experts_of(index);
  if (request_.return_token_ids) text.token_ids = &choice.tokens;
  if (!told_prompts_.empty() && !choice.told_prompt) text.prompt_token_ids = &told_prompts_[index / request_.best_of];
  if (choice.chat != nullptr) text.parts = &choice.chat->parts();
  if (request_.echo && request_.sampling.logprobs && text.prompt != nullptr) {
    text.echoed = first_prompt_tokens_[index / request_.best_of];
    text.num_echoed_logprobs = *request_.sampling.logprobs;
  }
  return text;
}

// What the engine put out behind a stop string is not told.
ToldExperts Completion::experts_of(std::uint32_t index) const {
  const Choice& choice = choices_[index];
  const ExpertShape& shape = model_->experts();
  const std::uint64_t num_tokens = num_prompt_tokens_[index / request_.best_of] + choice.num_tokens;
  std::span<const std::uint16_t> experts(choice.experts);
  experts = experts.first(std::min(experts.size(), (num_tokens - 1) * shape.per_token()));
  return {experts.subspan(std::min(experts.size(), request_.first_routed_token * shape.per_token())), shape};
}

// Log probabilities wait for the text of their token.
void Completion::tell(std::uint32_t index) {
  Choice& choice = choices_[index];
  const bool has_parts = choice.chat != nullptr && !choice.chat->parts().empty();
  if (choice.text.empty() && !has_parts && !choice.finish) return;
  const std::size_t before = events_.size();
  if (!writer_->tell(events_, describe(index), usage())) return;
  if (request_.echo && choice.num_characters == 0) num_echo_bytes_ += events_.size() - before;
  choice.num_characters += count_characters(choice.text);
  choice.text.clear();
  forget_told(choice);
}

void Completion::forget_told(Choice& choice) {
  choice.logprobs.clear();
  choice.spans.clear();
  choice.prompt_logprobs.reset();
  choice.tokens.clear();
  choice.told_prompt = true;
  if (choice.chat != nullptr) choice.chat->forget_parts();
}

void Completion::end_stream() {
  std::optional<Error> error = refusal_;
  if (!error && !error_.empty()) error = Error{ErrorCode::io, "", error_, "try again"};
  writer_->end_stream(events_, usage(), error ? &*error : nullptr);
}

Usage Completion::usage() const {
  Usage usage;
  usage.prompt_tokens = std::accumulate(num_prompt_tokens_.begin(), num_prompt_tokens_.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += request_.echo_only ? 0 : choices_[i].num_tokens;
    usage.reasoning_tokens += choices_[i].num_reasoning_tokens;
    if (i % request_.best_of == 0) usage.cached_tokens += choices_[i].num_cached_tokens;
  }
  return usage;
}

// Of each prompt the n whose tokens are the likeliest in the mean, best first.
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
