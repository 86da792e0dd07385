#pragma once
// Finds unknown fields within the parts of a /v1/messages body: its turns, blocks and tools.
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Appends the names of unknown fields to `ignored`, each with its first position. Conversations repeat fields in every turn, and `ignored`
// holds at most kMaxIgnored names. Elements that are not a turn, block or tool of a known type are left to their reader. Error: a name that
// is nearly a known one, unless `is_beta`.
[[nodiscard]] Result<void> name_unknown_fields(boost::json::object& body, bool is_beta, std::vector<std::string>& ignored);

}  // namespace quire
