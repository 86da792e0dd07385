#pragma once
// Finds unknown fields in the turns, content blocks and tools of a /v1/messages body.
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Appends each unknown field name to `ignored` once, with its first position, because conversations repeat fields in every turn and
// `ignored` holds at most kMaxIgnored names. Skips elements that are not a turn, block or tool of a known type; their reader reports them.
// Error: a name that is similar to a known name, unless `is_beta`.
[[nodiscard]] Result<void> name_unknown_fields(boost::json::object& body, bool is_beta, std::vector<std::string>& ignored);

}  // namespace quire
