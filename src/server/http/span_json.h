#pragma once
// A request as a span of OpenTelemetry, in OTLP's JSON, with the attributes of vLLM's spans: tools that know those know ours.
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "server/http/reply.h"
#include "server/http/trace_context.h"

namespace quire {

struct RequestSpan {
  std::string request_id, method, path;
  unsigned status = 0;
  std::optional<TraceContext> parent;  // of the client's
  std::chrono::system_clock::time_point begin;
  std::chrono::steady_clock::duration duration{};
  AnswerSource::TokenCounts tokens;
  std::optional<AnswerSource::Progress> progress;  // nothing: no tokens were asked for, or it was refused before
};

// What two spans may not have in common: 16 digits, and 32 of a trace that begins here. Hexadecimal.
struct SpanIds {
  std::string trace_id, span_id;
};

// One object of `spans`.
[[nodiscard]] std::string span_json(const RequestSpan& span, const SpanIds& ids, const std::string& model);
// The body of a request to a collector: ExportTraceServiceRequest.
[[nodiscard]] std::string spans_body(std::span<const std::string> spans, const std::string& service);

}  // namespace quire
