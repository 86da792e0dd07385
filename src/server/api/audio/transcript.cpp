// Writes the segments of a transcript as JSON, text or subtitles. Called on the server's thread after a window has been transcribed. All
// functions take values and return text; none of them blocks or fails.
#include "server/api/audio/transcript.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "base/trim.h"

namespace quire {
namespace {

// Returns the time as 01:02:03.456, with `point` before the milliseconds.
std::string clock_time(double seconds, char point) {
  const auto ms = static_cast<std::uint64_t>(std::llround(std::max(seconds, 0.0) * 1000.0));
  return fmt::format("{:02}:{:02}:{:02}{}{:03}", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60, point, ms % 1000);
}

std::string usage_json(const Transcript& transcript) {
  return json_object([&](JsonWriter& json) {
    json.field("type", "duration").field("seconds", static_cast<std::uint64_t>(std::ceil(transcript.duration_s)));
  });
}

void write_segment(JsonWriter& json, const SpeechSegment& segment, std::size_t id) {
  const WindowScores& scores = segment.scores;
  // Whisper counts `seek` in frames of 10 ms.
  json.begin_object().field("id", id).field("seek", std::llround(segment.window_s * 100.0));
  json.fixed_field("start", segment.start_s, 2).fixed_field("end", segment.end_s, 2).field("text", segment.text);
  json.field("tokens", segment.tokens).field("temperature", scores.temperature).fixed_field("avg_logprob", scores.mean_logprob, 6);
  json.field("compression_ratio", scores.compression_ratio).field("no_speech_prob", scores.no_speech_prob).end_object();
}

std::string verbose_json(const Transcript& transcript) {
  return json_object([&](JsonWriter& json) {
    json.field("task", transcript.is_translation ? "translate" : "transcribe").field("language", transcript.language);
    json.fixed_field("duration", transcript.duration_s, 2).field("text", transcript.text()).begin_array("segments");
    for (std::size_t i = 0; i < transcript.segments.size(); ++i) write_segment(json, transcript.segments[i], i);
    json.end_array().raw_field("usage", usage_json(transcript));
  });
}

std::string event_of(std::string_view type, const char* field, std::string_view text, std::string_view usage) {
  const std::string event = json_object([&](JsonWriter& json) {
    json.field("type", type).field(field, text);
    if (!usage.empty()) json.raw_field("usage", usage);
  });
  return "data: " + event + "\n\n";
}

// Returns the text of a subtitle cue without "-->", which a player would read as the cue's times.
std::string cue_text(std::string_view text) {
  std::string cue(trim(text));
  for (std::size_t at = cue.find("-->"); at != std::string::npos; at = cue.find("-->", at)) cue.replace(at, 3, "->");
  return cue;
}

std::string subtitles(const Transcript& transcript, bool is_vtt) {
  std::string body = is_vtt ? "WEBVTT\n\n" : "";
  const char point = is_vtt ? '.' : ',';
  std::size_t number = 0;
  for (const SpeechSegment& segment : transcript.segments) {
    const std::string text = cue_text(segment.text);
    if (text.empty()) continue;
    if (!is_vtt) body += fmt::format("{}\n", ++number);
    body += fmt::format("{} --> {}\n{}\n\n", clock_time(segment.start_s, point), clock_time(segment.end_s, point), text);
  }
  return body;
}

}  // namespace

std::string Transcript::text() const {
  std::string all;
  for (const SpeechSegment& segment : segments) all += segment.text;
  return std::string(trim(all));
}

std::string write_transcript(const Transcript& transcript, TranscriptForm form) {
  switch (form) {
    case TranscriptForm::json:
      return json_object([&](JsonWriter& json) { json.field("text", transcript.text()).raw_field("usage", usage_json(transcript)); });
    case TranscriptForm::verbose_json:
      return verbose_json(transcript);
    case TranscriptForm::text:
      return transcript.text() + "\n";
    case TranscriptForm::srt:
      return subtitles(transcript, false);
    case TranscriptForm::vtt:
      return subtitles(transcript, true);
  }
  return {};
}

std::string_view media_type(TranscriptForm form) {
  return form == TranscriptForm::json || form == TranscriptForm::verbose_json ? "application/json" : "text/plain; charset=utf-8";
}

std::string delta_event(std::string_view text) {
  return event_of("transcript.text.delta", "delta", text, {});
}

std::string done_event(const Transcript& transcript) {
  return event_of("transcript.text.done", "text", transcript.text(), usage_json(transcript)) + "data: [DONE]\n\n";
}

TranscribedWindow cut_window(std::span<const TokenId> outputs, double window_s, const SpeechVocabulary& words) {
  // Guarantees progress: with a malicious recording, each window could otherwise advance by one step of 0.02 s.
  constexpr double kLeastProgress = 1.0;
  TranscribedWindow window{.parts = {}, .next_s = window_s};
  const auto is_timestamp = [&](std::size_t i) { return words.is_timestamp(outputs[i]); };
  const auto within = [&](double seconds) { return std::clamp(seconds, 0.0, window_s); };
  const std::size_t count = outputs.size();
  const bool ends_with_one_time = count >= 2 && is_timestamp(count - 1) && !is_timestamp(count - 2);
  std::size_t begin = 0;
  const auto cut_at = [&](std::size_t end) {
    const std::span<const TokenId> part = outputs.subspan(begin, end - begin);
    window.parts.push_back({within(words.seconds_of(part.front())), within(words.seconds_of(part.back())), part});
    begin = end;
  };
  for (std::size_t i = 1; i < count; ++i)
    if (is_timestamp(i) && is_timestamp(i - 1)) cut_at(i);
  if (window.parts.empty()) {
    // Without two adjacent timestamps, the window has one segment. The segment ends at its last timestamp, or with the window.
    const auto last = std::ranges::find_if(outputs.rbegin(), outputs.rend(), [&](TokenId token) { return words.is_timestamp(token); });
    const double end = last == outputs.rend() || *last == words.first_time ? window_s : within(words.seconds_of(*last));
    if (count > 0) window.parts.push_back({0.0, end, outputs});
    return window;
  }
  if (ends_with_one_time) {
    cut_at(count);
    return window;
  }
  window.next_s = std::min(window_s, std::max(kLeastProgress, within(words.seconds_of(outputs[begin - 1]))));
  return window;
}

}  // namespace quire
