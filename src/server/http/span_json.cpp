#include "server/http/span_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "quire/base/version.h"

namespace quire {
namespace {

constexpr unsigned kServerFault = 500;

class Attributes {
 public:
  void text(std::string_view key, std::string_view value) { add(key, R"("stringValue")", json_string(value)); }
  // In the JSON of protocol buffers, 64-bit integers are strings.
  void count(std::string_view key, std::uint64_t value) { add(key, R"("intValue")", fmt::format("\"{}\"", value)); }
  template <class Number>
  void number(std::string_view key, Number value) {
    add(key, R"("doubleValue")", fmt::format("{}", value));
  }
  [[nodiscard]] std::string take() { return fmt::format("[{}]", fmt::join(items_, ",")); }

 private:
  void add(std::string_view key, std::string_view type, std::string_view value) {
    items_.push_back(fmt::format(R"({{"key":"{}","value":{{{}:{}}}}})", key, type, value));
  }
  std::vector<std::string> items_;
};

std::uint64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

double seconds(std::chrono::duration<double> time) {
  return time.count();
}

void add_progress(Attributes& attributes, const RequestSpan& span, const AnswerSource::Progress& progress) {
  attributes.number("gen_ai.latency.time_in_queue", seconds(progress.queued));
  if (progress.to_first_token) {
    attributes.number("gen_ai.latency.time_to_first_token", seconds(*progress.to_first_token));
    attributes.number("gen_ai.latency.time_in_model_prefill", seconds(*progress.to_first_token - progress.queued));
    attributes.number("gen_ai.latency.time_in_model_decode", seconds(span.duration - *progress.to_first_token));
  }
  attributes.number("gen_ai.latency.time_in_model_inference", seconds(span.duration - progress.queued));
  attributes.number("gen_ai.request.temperature", progress.temperature);
  attributes.number("gen_ai.request.top_p", progress.top_p);
  attributes.count("gen_ai.request.max_tokens", progress.max_tokens);
  attributes.count("gen_ai.request.n", progress.n);
}

}  // namespace

std::string span_json(const RequestSpan& span, const SpanIds& ids, const std::string& model) {
  Attributes attributes;
  attributes.text("gen_ai.request.id", span.request_id);
  attributes.text("gen_ai.response.id", span.answer_id);
  attributes.text("gen_ai.response.model", model);
  attributes.count("gen_ai.usage.prompt_tokens", span.tokens.prompt);
  attributes.count("gen_ai.usage.completion_tokens", span.tokens.output);
  attributes.count("gen_ai.usage.cache_read.input_tokens", span.tokens.cached);
  attributes.number("gen_ai.latency.e2e", seconds(span.duration));
  if (span.progress) add_progress(attributes, span, *span.progress);
  attributes.text("http.request.method", span.method);
  attributes.text("url.path", span.path);
  attributes.count("http.response.status_code", span.status);
  const auto end = span.begin + std::chrono::duration_cast<std::chrono::system_clock::duration>(span.duration);
  return fmt::format(R"({{"traceId":"{}","spanId":"{}","parentSpanId":"{}","name":"llm_request","kind":2,"startTimeUnixNano":"{}",)"
                     R"("endTimeUnixNano":"{}","attributes":{},"status":{{"code":{}}}}})",
                     span.parent ? span.parent->trace_id : ids.trace_id, ids.span_id, span.parent ? span.parent->parent_id : "",
                     nanoseconds(span.begin), nanoseconds(end), attributes.take(), span.status >= kServerFault ? 2 : 0);
}

std::string spans_body(std::span<const std::string> spans, const std::string& service) {
  Attributes resource;
  resource.text("service.name", service);
  return fmt::format(R"({{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"scope":{{"name":"quire","version":"{}"}},)"
                     R"("spans":[{}]}}]}}]}})",
                     resource.take(), kVersion, fmt::join(spans, ","));
}

}  // namespace quire
