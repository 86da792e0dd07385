#pragma once
// Schemas of tools that are not strict.
#include <boost/json/value.hpp>

namespace quire {

// Takes out what llguidance refuses a whole schema for, whatever it is told to let go: patterns that look around or back, types that JSON
// does not have, references to elsewhere, and keywords that are not what they must be.
void loosen_schema(boost::json::value& schema);

}  // namespace quire
