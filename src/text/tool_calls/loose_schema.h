#pragma once
// Adapts the schemas of tools to llguidance.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

namespace quire {

// Removes parts for which llguidance rejects the whole schema, even with the option `lenient`: patterns with look-around or
// back-references, types that JSON does not have, references to other documents, and keywords with values of a wrong type.
void loosen_schema(boost::json::value& schema);

// Returns the schema's "x-guidance". `is_canonical`: white space is as Python writes it, and strings have only the short escapes.
// `is_loose`: llguidance enforces as much of the schema as it can.
[[nodiscard]] boost::json::object json_settings(bool is_loose, bool is_canonical);

}  // namespace quire
