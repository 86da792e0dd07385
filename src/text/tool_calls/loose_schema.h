#pragma once
// Schemas of tools as the grammar's library is given them.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace quire {

// Takes out what llguidance refuses a whole schema for, whatever it is told to let go: patterns that look around or back, types that JSON
// does not have, references to elsewhere, and keywords that are not what they must be.
void loosen_schema(boost::json::value& schema);

// The schema's "x-guidance": JSON's white space as Python writes it. `one_spelling`: of a string, too, no escape but the short ones. A
// schema that `is_loose` is held as far as the library can.
[[nodiscard]] boost::json::object json_spelling(bool is_loose, bool one_spelling);

}  // namespace quire
