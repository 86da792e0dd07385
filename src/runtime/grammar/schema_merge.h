#pragma once
// JSON schemas as sets of keywords: what two of them demand together, and whether two of them never allow the same value.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string_view>

namespace quire {

// Returns both as one schema; nullopt: only an `allOf` can express that.
[[nodiscard]] std::optional<boost::json::object> merged(const boost::json::object& a, const boost::json::object& b);

// Whether `type` of the schema, if it has one, allows the value. 2.0 is an integer.
[[nodiscard]] bool has_type_of(const boost::json::object& schema, const boost::json::value& value);
[[nodiscard]] bool allows_type(const boost::json::object& schema, std::string_view type);

// Returns true if no value satisfies both, by their types, constants, or a property that at least one of them requires. False: not known.
[[nodiscard]] bool are_disjoint(const boost::json::object& a, const boost::json::object& b);

}  // namespace quire
