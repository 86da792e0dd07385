#pragma once
// Where a request stands in a trace that somebody else has begun: the header traceparent of W3C's Trace Context, level 1.
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16
  bool is_sampled = true;
};

// Nothing: it is no such header, and a trace of its own begins, as the standard says.
[[nodiscard]] std::optional<TraceContext> parse_traceparent(std::string_view header);

}  // namespace quire
