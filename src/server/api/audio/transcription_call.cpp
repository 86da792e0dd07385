// One request of the engine for each window, which begins where the last whole segment of the one before ends. The first one also finds out
// the language, where nobody tells it. A text without times is one window, and told as it comes; with times a stream tells whole segments,
// because what follows the last of them is heard again. On the server's thread, but for hear().
#include "server/api/audio/transcription_call.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/trim.h"
#include "server/http/error_response.h"
#include "server/request/served_model.h"
#include "sound/log_mel.h"

namespace quire {

Result<std::shared_ptr<TranscriptionCall>> TranscriptionCall::start(Serving& serving, Start start) {
  std::shared_ptr<TranscriptionCall> call(new TranscriptionCall(serving, std::move(start)));
  if (auto begun = call->begin_window(std::exchange(call->start_.first_window, nullptr)); !begun)
    return std::unexpected(std::move(begun.error()));
  return call;
}

TranscriptionCall::TranscriptionCall(Serving& serving, Start start)
    : serving_(&serving), start_(std::move(start)), detokenizer_(serving.model().tokenizer(), {.skip_special = true}) {
  const TranscriptionRequest& request = start_.request;
  transcript_.is_translation = request.is_translation;
  transcript_.language = request.language;
  transcript_.duration_s = static_cast<double>(request.samples->size()) / kSoundRate;
  const bool needs_times = request.form != TranscriptForm::json && request.form != TranscriptForm::text;
  has_times_ = needs_times || request.samples->size() > kWindowSamples;
  is_judged_ = has_times_ || !request.stream;
  temperatures_ = is_judged_ ? temperatures_from(request.sampling.temperature, request.rules) : std::vector{request.sampling.temperature};
  if (!request.keeps_previous) said_ = request.previous;
}

TranscriptionCall::~TranscriptionCall() {
  abort();
}

void TranscriptionCall::abort() {
  if (const auto id = std::exchange(running_, std::nullopt)) serving_->engine().finish(*id, FinishReason::abort);
}

SharedFeatures TranscriptionCall::hear(const SpeechModel& speech, std::span<const float> samples, std::size_t begin) {
  const std::span<const float> rest = samples.subspan(std::min(begin, samples.size()));
  return std::make_shared<const EncoderInput>(EncoderInput{speech.mel.compute(rest.first(std::min(rest.size(), kWindowSamples)))});
}

Result<void> TranscriptionCall::begin_window(SharedFeatures features) {
  const std::vector<TokenId> before = previous();
  const WindowTask task{.language = transcript_.language,
                        .has_times = has_times_,
                        .is_judged = is_judged_,
                        .previous = before,
                        .temperature = temperatures_[num_tries_]};
  EngineRequest request{.prompt = prompt_of(start_.request, words(), task), .sampling = sampling_of(start_.request, *start_.speech, task)};
  num_before_ = request.sampling.timestamps.begins.size();
  request.tags.tenant = start_.tenant;
  request.name = start_.id;
  ++num_tries_;
  if (num_tries_ < temperatures_.size()) window_ = features;
  request.encoder_input = std::move(features);
  outputs_.clear();
  logprob_sum_ = 0.0;
  no_speech_prob_.reset();
  window_ended_ = false;
  counts_.prompt += request.prompt.size();
  const auto id = serving_->engine().submit(std::move(request), *this, 0);
  if (!id) return std::unexpected(id.error());
  running_ = *id;
  return {};
}

void TranscriptionCall::take_token(TokenId token, const PositionLogprobs* logprobs) {
  const auto has_entries = [&](std::size_t count) { return logprobs != nullptr && logprobs->entries.size() >= count; };
  const auto& no_speech = words().no_speech;
  if (is_judged_ && no_speech.has_value() && has_entries(2) && logprobs->entries.back().token == *no_speech)
    no_speech_prob_ = std::exp(static_cast<double>(logprobs->entries.back().logprob));
  if (num_before_ == 0 && has_entries(1)) logprob_sum_ += static_cast<double>(logprobs->entries.front().logprob);
  if (token == words().end) return;
  if (num_before_ > 0) {
    --num_before_;
    for (const auto& [code, spoken] : words().languages)
      if (token == spoken) transcript_.language = code;
    return;
  }
  outputs_.push_back(token);
  if (!is_stream() || has_times_) return;
  if (const std::string_view text = detokenizer_.push(token); !text.empty()) {
    events_ += delta_event(text);
    has_begun_ = true;
  }
}

void TranscriptionCall::on_output(std::uint32_t /*choice*/, RequestOutput& output) {
  for (std::size_t i = 0; i < output.tokens.size(); ++i)
    take_token(output.tokens[i], i < output.logprobs.size() ? &output.logprobs[i] : nullptr);
  counts_.output += output.tokens.size();
  if (!output.finished) return;
  running_.reset();
  window_ended_ = true;
  if (output.refusal) return fail_with(*std::move(output.refusal));
  if (output.reason == FinishReason::abort)
    return fail_with({ErrorCode::shutting_down, "", "the engine has ended the request", "send it again"});
  if (output.reason == FinishReason::error)
    return fail_with({ErrorCode::io, "", output.error.empty() ? "the engine failed" : output.error, "try again"});
}

void TranscriptionCall::on_failure() noexcept {
  events_.clear();  // an event may be half written
  try {
    fail_with({ErrorCode::io, "", "out of memory", "try again"});
  } catch (const std::exception&) {
    events_.clear();
    finished_ = true;
  }
}

void TranscriptionCall::on_step_end() {
  if (!finished_ && std::exchange(window_ended_, false)) end_window();
  start_.wake();
}

double TranscriptionCall::window_seconds() const {
  const std::size_t rest = start_.request.samples->size() - window_begin_;
  return static_cast<double>(std::min(rest, kWindowSamples)) / kSoundRate;
}

std::vector<TokenId> TranscriptionCall::previous() const {
  // As many as openai-whisper's _get_initial_tokens() takes.
  const std::size_t most = start_.speech->max_model_len / 2 - 1;
  std::vector<TokenId> before;
  if (start_.request.keeps_previous) before = start_.request.previous;
  const std::size_t rest = std::min(said_.size(), most - std::min(most, before.size()));
  before.insert(before.end(), said_.end() - static_cast<std::ptrdiff_t>(rest), said_.end());
  return before;
}

std::string TranscriptionCall::text_of(std::span<const TokenId> tokens) const {
  std::vector<TokenId> said;
  std::ranges::copy_if(tokens, std::back_inserter(said), [&](TokenId token) { return !words().is_time(token); });
  return serving_->model().tokenizer().decode(said);
}

WindowScores TranscriptionCall::score() const {
  return {.temperature = temperatures_[num_tries_ - 1],
          .mean_logprob = logprob_sum_ / static_cast<double>(outputs_.size() + 1),
          .compression_ratio = compression_ratio(trim(text_of(outputs_))),
          .no_speech_prob = no_speech_prob_};
}

// A segment that takes no time is nothing that was said.
void TranscriptionCall::add_segment(const HeardWindow::Part& part, double window_s, const WindowScores& scores) {
  SpeechSegment segment{.start_s = window_s + part.start_s,
                        .end_s = window_s + std::max(part.start_s, part.end_s),
                        .text = text_of(part.tokens),
                        .tokens = {part.tokens.begin(), part.tokens.end()},
                        .window_s = window_s,
                        .scores = scores};
  if (trim(segment.text).empty() || !(part.start_s < part.end_s)) return;
  said_.insert(said_.end(), segment.tokens.begin(), segment.tokens.end());
  if (is_stream() && has_times_) {
    events_ += delta_event(segment.text);
    has_begun_ = true;
  }
  transcript_.segments.push_back(std::move(segment));
}

void TranscriptionCall::end_window() {
  const WindowScores scores = score();
  const HearingRules& rules = start_.request.rules;
  if (num_tries_ < temperatures_.size() && is_doubtful(scores, rules)) {
    if (auto begun = begin_window(std::exchange(window_, nullptr)); !begun) fail_with(std::move(begun.error()));
    return;
  }
  window_.reset();
  num_tries_ = 0;
  if (is_judged_ && is_silence(scores, rules)) return go_on(window_seconds());
  add_window(scores);
}

void TranscriptionCall::add_window(const WindowScores& scores) {
  const double window_s = static_cast<double>(window_begin_) / kSoundRate;
  const double length_s = window_seconds();
  if (!has_times_) {
    add_segment({0.0, length_s, outputs_}, window_s, scores);
    return go_on(length_s);
  }
  const HeardWindow heard = cut_window(outputs_, length_s, words());
  for (const HeardWindow::Part& part : heard.parts) add_segment(part, window_s, scores);
  // What was drawn rather than heard is no good begin of anything.
  constexpr float kTooHot = 0.5F;
  if (!start_.request.goes_on || scores.temperature > kTooHot) said_.clear();
  go_on(heard.next_s);
}

void TranscriptionCall::go_on(double seconds) {
  window_begin_ += static_cast<std::size_t>(std::llround(seconds * kSoundRate));
  if (window_begin_ + kFrameSamples > start_.request.samples->size()) return finish();
  hear_next();
}

// The client may have gone when the features are there: then nobody waits for them. The job has no part in this object, which must go on
// the server's thread.
void TranscriptionCall::hear_next() {
  struct Job {
    SharedFeatures features{};
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>();
  auto work = [job, speech = start_.speech, samples = start_.request.samples, begin = window_begin_] {
    try {
      job->features = hear(*speech, *samples, begin);
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto done = [job, self = weak_from_this()] {
    const auto call = self.lock();
    if (call == nullptr || call->finished_) return;
    if (job->features == nullptr)
      call->fail_with({ErrorCode::io, "", "out of memory", "try again"});
    else if (auto begun = call->begin_window(std::move(job->features)); !begun)
      call->fail_with(std::move(begun.error()));
    call->start_.wake();
  };
  if (serving_->offload(JobPool::Lane::large, std::move(work), std::move(done))) return;
  fail_with({ErrorCode::overloaded, "", "too many recordings wait to be heard", "try again later"});
}

void TranscriptionCall::fail_with(Error error) {
  abort();
  if (finished_) return;
  error_ = std::move(error);
  if (has_begun_) events_ += "data: " + error_body(*error_, http_status(error_->code)) + "\n\ndata: [DONE]\n\n";
  finished_ = true;
}

void TranscriptionCall::finish() {
  if (is_stream() && !has_times_)
    if (const std::string_view rest = detokenizer_.flush(); !rest.empty()) events_ += delta_event(rest);
  if (is_stream()) events_ += done_event(transcript_);
  has_begun_ = is_stream();
  finished_ = true;
}

HttpResponse TranscriptionCall::take_response() {
  if (error_) return error_response(*error_, serving_->options().retry_after_s);
  const TranscriptForm form = start_.request.form;
  return {200, std::string(media_type(form)), write_transcript(transcript_, form), {}};
}

}  // namespace quire
