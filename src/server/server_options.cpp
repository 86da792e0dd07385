#include "server/server_options.h"

#include <fmt/format.h>

namespace quire {

namespace {

Result<void> at_least(const char* name, std::uint64_t value, std::uint64_t least) {
  if (value >= least) return {};
  return fail(ErrorCode::invalid_argument, name, fmt::format("{} is too small", value), fmt::format("use at least {}", least));
}

}  // namespace

Result<void> ServerOptions::validate() const {
  for (const auto& checked : {at_least("max_body_bytes", max_body_bytes, 1024), at_least("max_header_bytes", max_header_bytes, 1024),
                              at_least("max_header_fields", max_header_fields, 8), at_least("max_connections", max_connections, 1),
                              at_least("max_choices", max_choices, 1), at_least("max_stream_buffer_bytes", max_stream_buffer_bytes, 1024),
                              at_least("idle_timeout_ms", idle_timeout_ms, 1), at_least("header_timeout_ms", header_timeout_ms, 1),
                              at_least("body_timeout_ms", body_timeout_ms, 1), at_least("write_timeout_ms", write_timeout_ms, 1)}) {
    if (!checked) return checked;
  }
  if (api_key.find_first_of("\r\n\t ") != std::string::npos)
    return fail(ErrorCode::invalid_argument, "api_key", "contains white space", "use a key of visible characters");
  if (allow_remote_admin && api_key.empty()) {
    return fail(ErrorCode::invalid_argument, "allow_remote_admin", "is set without api_key: anyone could pause the engine",
                "set --api-key as well");
  }
  return {};
}

}  // namespace quire
