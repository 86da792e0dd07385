#pragma once
// Parts of answer ids. A client or a proxy may send the same X-Request-Id with several requests, so an answer id ends with a unique part
// from this server's counter: "chatcmpl-trace-7-0123...". Ids of tool calls contain only the unique part, because other vendors accept at
// most 40 characters.
#include <string_view>

namespace quire {

// Returns the part of the id that is unique to the answer.
[[nodiscard]] inline std::string_view unique_part(std::string_view id) {
  return id.substr(id.find_last_of("-_") + 1);
}

// Returns the id without its unique part. Serving::find() accepts it for the newest answer to a request with this X-Request-Id. Returns an
// empty string if the client sent no X-Request-Id.
[[nodiscard]] inline std::string_view client_part(std::string_view id) {
  const std::size_t prefix = id.find_first_of("-_"), own = id.find_last_of("-_");
  return own == prefix ? std::string_view() : id.substr(0, own);
}

}  // namespace quire
