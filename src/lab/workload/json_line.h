#pragma once
// One line of a JSON Lines file, read by names. The first thing that is wrong is kept, so that a reader can ask for all its fields and look
// once.
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
  // A whole number from `low` to `high`; else `low`, and `wrong` says why.
  std::uint64_t count(std::string_view name, std::uint64_t low, std::uint64_t high) const;
  // A finite number of at least `low`.
  double number(std::string_view name, double low) const;
  double number_or(std::string_view name, double low, double otherwise) const { return has(name) ? number(name, low) : otherwise; }
  [[nodiscard]] std::string_view text(std::string_view name) const;
  // Null where it is no array.
  const boost::json::array* array(std::string_view name) const;

  void complain(std::string_view name, std::string_view what) const;

 private:
  const boost::json::object& object_;
  std::string& wrong_;
};

// Whole numbers only, also those written as 3.0; nullopt: something else.
std::optional<std::uint64_t> whole_number(const boost::json::value& value);

}  // namespace quire
