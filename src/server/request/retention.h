#pragma once
// Reads how long clients ask to keep the KV cache of a request (RequestTags::retention_s).
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads a duration, such as "30s", "5m", "1h" or "7d", of at most 30 days, and OpenAI's "in_memory", which is 0 seconds. `field` names the
// field in errors.
[[nodiscard]] Result<std::uint32_t> parse_retention(std::string_view text, const std::string& field);

// Reads prompt_cache_retention and cache_control of a body. Returns the longer time, in seconds; 0: none.
[[nodiscard]] std::uint32_t read_retention(ObjectReader& reader);

// Reads the cache_control of the messages, their parts and the tools of a chat. Call it before the messages are read, which takes them from
// the body. Returns the longest time, in seconds; 0: none.
[[nodiscard]] std::uint32_t read_part_retention(ObjectReader& reader);

// Reads a cache_control object. Anthropic's default time is 5 minutes. Null means none: 0 seconds.
[[nodiscard]] Result<std::uint32_t> parse_cache_control(const boost::json::value& value);

}  // namespace quire
