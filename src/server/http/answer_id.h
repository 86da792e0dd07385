#pragma once
// Ids of answers. A client or a proxy may send one X-Request-Id with several requests, so an id ends with a unique part from this server's
// counter: "chatcmpl-trace-7-0123...". Ids of tool calls contain only that part, because other vendors accept at most 40 characters.
#include <string_view>

namespace quire {

// Returns the part of an answer's id that no other answer has.
[[nodiscard]] inline std::string_view unique_part(std::string_view id) {
  return id.substr(id.find_last_of("-_") + 1);
}

// Returns the id without that part: it refers to the newest answer to a request with this X-Request-Id. Empty: the client sent none.
[[nodiscard]] inline std::string_view client_part(std::string_view id) {
  const std::size_t prefix = id.find_first_of("-_"), own = id.find_last_of("-_");
  return own == prefix ? std::string_view() : id.substr(0, own);
}

}  // namespace quire
