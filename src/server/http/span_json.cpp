#include "server/http/span_json.h"

#include <concepts>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "quire/base/version.h"

namespace quire {
namespace {

constexpr unsigned kServerFault = 500;

class Attributes {
 public:
  explicit Attributes(JsonWriter& json) : json_(json) { json_.begin_array("attributes"); }
  void text(std::string_view key, std::string_view value) { add(key, "stringValue", value); }
  // In the JSON format of protocol buffers, 64-bit integers are strings.
  void count(std::string_view key, std::uint64_t value) { add(key, "intValue", std::to_string(value)); }
  void number(std::string_view key, std::floating_point auto value) { add(key, "doubleValue", value); }
  void end() { json_.end_array(); }

 private:
  template <class Value>
  void add(std::string_view key, std::string_view type, const Value& value) {
    json_.begin_object().field("key", key).begin_object("value").field(type, value).end_object().end_object();
  }
  JsonWriter& json_;
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
  const auto end = span.begin + std::chrono::duration_cast<std::chrono::system_clock::duration>(span.duration);
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("traceId", span.parent ? span.parent->trace_id : ids.trace_id).field("spanId", ids.span_id);
  json.field("parentSpanId", span.parent ? span.parent->parent_id : "").field("name", "llm_request").field("kind", 2);
  json.field("startTimeUnixNano", std::to_string(nanoseconds(span.begin)));
  json.field("endTimeUnixNano", std::to_string(nanoseconds(end)));
  Attributes attributes(json);
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
  attributes.end();
  json.begin_object("status").field("code", span.status >= kServerFault ? 2 : 0).end_object().end_object();
  return out;
}

std::string spans_body(std::span<const std::string> spans, const std::string& service) {
  return json_object([&](JsonWriter& json) {
    json.begin_array("resourceSpans").begin_object().begin_object("resource");
    Attributes resource(json);
    resource.text("service.name", service);
    resource.end();
    json.end_object().begin_array("scopeSpans").begin_object();
    json.begin_object("scope").field("name", "quire").field("version", kVersion).end_object();
    json.begin_array("spans");
    for (const std::string& span : spans) json.raw(span);
    json.end_array().end_object().end_array().end_object().end_array();
  });
}

}  // namespace quire
