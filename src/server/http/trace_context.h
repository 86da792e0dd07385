#pragma once
// Parses the traceparent header of W3C's Trace Context, level 1: the ids of the client's trace and of its current span.
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16 hexadecimal digits
  bool is_sampled = true;
};

// Returns nullopt if the header is invalid. The request then begins a new trace, as the standard requires.
[[nodiscard]] std::optional<TraceContext> parse_traceparent(std::string_view header);

}  // namespace quire
