// Transcribes a recording with one engine request per window and attempt. A window begins where the last complete segment of the previous
// window ends. The first request also detects the language, unless the client sends it. Without timestamps, a stream sends text as it is
// generated. With timestamps, a stream sends only complete segments, because audio after the last complete segment is transcribed again.
// Runs on the server's thread, except compute_features().
#include "server/api/audio/transcription_call.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "audio/log_mel.h"
#include "base/trim.h"
#include "server/http/error_response.h"
#include "server/request/served_model.h"

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
  transcript_.duration_s = static_cast<double>(request.samples->size()) / kAudioSampleRate;
  const bool needs_times = request.form != TranscriptForm::json && request.form != TranscriptForm::text;
  has_times_ = needs_times || request.samples->size() > kWindowSamples;
  is_checked_ = has_times_ || !request.stream;
  temperatures_ =
      is_checked_ ? temperatures_from(request.sampling.temperature, request.thresholds) : std::vector{request.sampling.temperature};
  if (!request.keeps_previous) previous_tokens_ = request.previous;
}

TranscriptionCall::~TranscriptionCall() {
  abort();
}

void TranscriptionCall::abort() {
  if (const auto id = std::exchange(running_, std::nullopt)) serving_->engine().finish(*id, FinishReason::abort);
}

SharedFeatures TranscriptionCall::compute_features(const SpeechModel& speech, std::span<const float> samples, std::size_t begin) {
  const std::span<const float> rest = samples.subspan(std::min(begin, samples.size()));
  return std::make_shared<const EncoderInput>(EncoderInput{speech.mel.compute(rest.first(std::min(rest.size(), kWindowSamples)))});
}

Result<void> TranscriptionCall::begin_window(SharedFeatures features) {
  const std::vector<TokenId> before = previous();
  const WindowTask task{.language = transcript_.language,
                        .has_timestamps = has_times_,
                        .is_checked = is_checked_,
                        .previous = before,
                        .temperature = temperatures_[num_attempts_]};
  EngineRequest request{.prompt = prompt_of(start_.request, words(), task), .sampling = sampling_of(start_.request, *start_.speech, task)};
  num_prefix_outputs_ = request.sampling.timestamps.begins.size();
  request.tags.tenant = start_.tenant;
  request.name = start_.id;
  ++num_attempts_;
  if (num_attempts_ < temperatures_.size()) window_ = features;
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
  if (is_checked_ && no_speech.has_value() && has_entries(2) && logprobs->entries.back().token == *no_speech)
    no_speech_prob_ = std::exp(static_cast<double>(logprobs->entries.back().logprob));
  if (num_prefix_outputs_ == 0 && has_entries(1)) logprob_sum_ += static_cast<double>(logprobs->entries.front().logprob);
  if (token == words().end) return;
  if (num_prefix_outputs_ > 0) {
    --num_prefix_outputs_;
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
    return fail_with({ErrorCode::shutting_down, "", "the engine aborted the request", "send the request again"});
  if (output.reason == FinishReason::error)
    return fail_with({ErrorCode::io, "", output.error.empty() ? "the engine failed" : output.error, "try again"});
}

void TranscriptionCall::on_failure() noexcept {
  events_.clear();  // the last event may be incomplete
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
  return static_cast<double>(std::min(rest, kWindowSamples)) / kAudioSampleRate;
}

std::vector<TokenId> TranscriptionCall::previous() const {
  // The limit of openai-whisper's _get_initial_tokens().
  const std::size_t most = start_.speech->max_model_len / 2 - 1;
  std::vector<TokenId> before;
  if (start_.request.keeps_previous) before = start_.request.previous;
  const std::size_t rest = std::min(previous_tokens_.size(), most - std::min(most, before.size()));
  before.insert(before.end(), previous_tokens_.end() - static_cast<std::ptrdiff_t>(rest), previous_tokens_.end());
  return before;
}

std::string TranscriptionCall::text_of(std::span<const TokenId> tokens) const {
  std::vector<TokenId> said;
  std::ranges::copy_if(tokens, std::back_inserter(said), [&](TokenId token) { return !words().is_timestamp(token); });
  return serving_->model().tokenizer().decode(said);
}

WindowScores TranscriptionCall::score() const {
  return {.temperature = temperatures_[num_attempts_ - 1],
          .mean_logprob = logprob_sum_ / static_cast<double>(outputs_.size() + 1),
          .compression_ratio = compression_ratio(trim(text_of(outputs_))),
          .no_speech_prob = no_speech_prob_};
}

// Adds a segment to the transcript, to the text that conditions the next window, and to the stream. Skips segments without text or without
// duration.
void TranscriptionCall::add_segment(const TranscribedWindow::Part& part, double window_s, const WindowScores& scores) {
  SpeechSegment segment{.start_s = window_s + part.start_s,
                        .end_s = window_s + std::max(part.start_s, part.end_s),
                        .text = text_of(part.tokens),
                        .tokens = {part.tokens.begin(), part.tokens.end()},
                        .window_s = window_s,
                        .scores = scores};
  if (trim(segment.text).empty() || !(part.start_s < part.end_s)) return;
  previous_tokens_.insert(previous_tokens_.end(), segment.tokens.begin(), segment.tokens.end());
  if (is_stream() && has_times_) {
    events_ += delta_event(segment.text);
    has_begun_ = true;
  }
  transcript_.segments.push_back(std::move(segment));
}

void TranscriptionCall::end_window() {
  const WindowScores scores = score();
  const WindowThresholds& thresholds = start_.request.thresholds;
  if (num_attempts_ < temperatures_.size() && needs_retry(scores, thresholds)) {
    if (auto begun = begin_window(std::exchange(window_, nullptr)); !begun) fail_with(std::move(begun.error()));
    return;
  }
  window_.reset();
  num_attempts_ = 0;
  if (is_checked_ && is_silence(scores, thresholds)) return advance_window(window_seconds());
  add_window(scores);
}

void TranscriptionCall::add_window(const WindowScores& scores) {
  const double window_s = static_cast<double>(window_begin_) / kAudioSampleRate;
  const double length_s = window_seconds();
  if (!has_times_) {
    add_segment({0.0, length_s, outputs_}, window_s, scores);
    return advance_window(length_s);
  }
  const TranscribedWindow window = cut_window(outputs_, length_s, words());
  for (const TranscribedWindow::Part& part : window.parts) add_segment(part, window_s, scores);
  // Text sampled at a high temperature is unreliable and must not condition the next window.
  constexpr float kTooHot = 0.5F;
  if (!start_.request.conditions_on_previous || scores.temperature > kTooHot) previous_tokens_.clear();
  advance_window(window.next_s);
}

void TranscriptionCall::advance_window(double seconds) {
  window_begin_ += static_cast<std::size_t>(std::llround(seconds * kAudioSampleRate));
  if (window_begin_ + kFrameSamples > start_.request.samples->size()) return finish();
  compute_next_features();
}

// Computes the features of the next window in the job pool. If the client has disconnected when the job ends, the features are dropped. The
// job holds only a weak reference to this object, which must be destroyed on the server's thread.
void TranscriptionCall::compute_next_features() {
  struct Job {
    SharedFeatures features{};
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>();
  auto work = [job, speech = start_.speech, samples = start_.request.samples, begin = window_begin_] {
    try {
      job->features = compute_features(*speech, *samples, begin);
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
  if (serving_->submit_job(JobPool::Lane::large, start_.client, std::move(work), std::move(done))) return;
  fail_with({ErrorCode::overloaded, "", "too many transcriptions are waiting", "try again later"});
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
