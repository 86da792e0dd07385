#pragma once
// Reads the fields of one line of a JSON Lines file by name. Keeps the first error, so that a caller can read all fields and check for an
// error once.
#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

class JsonLine {
 public:
  JsonLine(const boost::json::object& object, std::string& wrong) : object_(object), wrong_(wrong) {}

  [[nodiscard]] bool has(std::string_view name) const { return object_.if_contains(name) != nullptr; }
  // Returns a whole number from `low` to `high`. On an error returns `low` and sets `wrong` to the reason.
  std::uint64_t count(std::string_view name, std::uint64_t low, std::uint64_t high) const;
  // Returns a finite number of at least `low`.
  double number(std::string_view name, double low) const;
  double number_or(std::string_view name, double low, double otherwise) const { return has(name) ? number(name, low) : otherwise; }
  [[nodiscard]] std::string_view text(std::string_view name) const;
  // Returns null if the field is not an array.
  const boost::json::array* array(std::string_view name) const;

  void set_error(std::string_view name, std::string_view what) const;

 private:
  const boost::json::object& object_;
  std::string& wrong_;
};

// Returns a whole number, which may also be written as 3.0; nullopt for any other value.
std::optional<std::uint64_t> whole_number(const boost::json::value& value);

}  // namespace quire
