#pragma once
// Finds unknown fields and cache_control in the turns, content blocks and tools of a /v1/messages body.
#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Appends each unknown field name to `ignored` once, with its first position, because conversations repeat fields in every turn and
// `ignored` holds at most kMaxIgnored names. Skips elements that are not a turn, block or tool of a known type; their reader reports them.
// Returns the longest time of all cache_control fields in seconds; 0: none. Errors: a name that is similar to a known name, unless
// `is_beta`; an invalid cache_control.
[[nodiscard]] Result<std::uint32_t> name_unknown_fields(boost::json::object& body, bool is_beta, std::vector<std::string>& ignored);

}  // namespace quire
