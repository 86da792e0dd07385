#pragma once
// Merges two JSON schemas, and finds out whether two schemas never allow the same value.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string_view>

namespace quire {

// Returns one schema that demands both; nullopt if only `allOf` can express this.
[[nodiscard]] std::optional<boost::json::object> merged(const boost::json::object& a, const boost::json::object& b);

// Return whether `type` of the schema allows the value (or the type), or is missing. 2.0 is an integer.
[[nodiscard]] bool has_type_of(const boost::json::object& schema, const boost::json::value& value);
[[nodiscard]] bool allows_type(const boost::json::object& schema, std::string_view type);

// Returns true if no value satisfies both schemas, because of their types, constants, or a required property. False means that this is not
// known.
[[nodiscard]] bool are_disjoint(const boost::json::object& a, const boost::json::object& b);

}  // namespace quire
