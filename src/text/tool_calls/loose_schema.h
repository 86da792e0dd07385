#pragma once
// Adapts the schemas of tools to llguidance.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace quire {

// Removes the parts for which llguidance rejects the whole schema even with its option `lenient`: patterns with look-around or
// back-references, types that JSON does not have, references to other documents, and keywords whose values have a wrong type.
void loosen_schema(boost::json::value& schema);

// Returns the value of "x-guidance" for a schema. `is_canonical`: white space as Python writes it, and only the short escapes in strings.
// `is_loose`: llguidance enforces only the part of the schema that it supports.
[[nodiscard]] boost::json::object json_settings(bool is_loose, bool is_canonical);

}  // namespace quire
