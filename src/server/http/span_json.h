#pragma once
// Formats a request as an OpenTelemetry span, in OTLP's JSON. Spans have the same attributes as vLLM's spans, so tools for vLLM can read
// them.
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "server/http/reply.h"
#include "server/http/trace_context.h"

namespace quire {

struct RequestSpan {
  std::string request_id, answer_id, method, path;
  unsigned status = 0;
  std::optional<TraceContext> parent;  // trace context of the client
  std::chrono::system_clock::time_point begin;
  std::chrono::steady_clock::duration duration{};
  AnswerSource::TokenCounts tokens;
  std::optional<AnswerSource::Progress> progress;  // nullopt: the request samples no tokens, or was refused before it was queued
};

// Unique hexadecimal ids: 16 digits for a span, and 32 digits for a trace that begins in this server.
struct SpanIds {
  std::string trace_id, span_id;
};

// Returns one object of OTLP's `spans`.
[[nodiscard]] std::string span_json(const RequestSpan& span, const SpanIds& ids, const std::string& model);
// Returns the body of a request to a collector: an ExportTraceServiceRequest.
[[nodiscard]] std::string spans_body(std::span<const std::string> spans, const std::string& service);

}  // namespace quire
