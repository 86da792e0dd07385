#pragma once
// Fields within the parts of a body of /v1/messages: its turns, blocks and tools.
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Appends to `ignored` the names of those that nobody reads, with the first place of each: a conversation says the same in every turn, and
// there is room for kMaxIgnored. What is no turn, block or tool of a known type is passed over, for its reader to refuse. Error: a name
// that is nearly one that is read, unless `is_beta`.
[[nodiscard]] Result<void> name_unknown_fields(boost::json::object& body, bool is_beta, std::vector<std::string>& ignored);

}  // namespace quire
