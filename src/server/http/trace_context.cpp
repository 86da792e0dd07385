#include "server/http/trace_context.h"

#include <algorithm>

namespace quire {
namespace {

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

// Parses version "-" trace-id "-" parent-id "-" flags. Later versions may append "-" and further fields.
std::optional<TraceContext> parse_traceparent(std::string_view header) {
  constexpr std::size_t kLength = 55;
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const std::string_view version = header.substr(0, 2), flags = header.substr(53, 2);
  if (!is_hex(version) || version == "ff" || !is_hex(flags)) return std::nullopt;
  if (header.size() > kLength && (version == "00" || header[kLength] != '-')) return std::nullopt;
  const std::string_view trace_id = header.substr(3, 32), parent_id = header.substr(36, 16);
  if (!is_id(trace_id) || !is_id(parent_id)) return std::nullopt;
  constexpr std::string_view kOdd = "13579bdf";
  return TraceContext{.trace_id = std::string(trace_id), .parent_id = std::string(parent_id), .is_sampled = kOdd.contains(flags[1])};
}

}  // namespace quire
