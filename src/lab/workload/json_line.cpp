#include "lab/workload/json_line.h"

#include <fmt/format.h>

#include <cmath>

namespace quire {

std::optional<std::uint64_t> whole_number(const boost::json::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  if (value.is_double() && value.get_double() >= 0.0 && value.get_double() < 0x1p53 && std::floor(value.get_double()) == value.get_double())
    return static_cast<std::uint64_t>(value.get_double());
  return std::nullopt;
}

void JsonLine::set_error(std::string_view name, std::string_view what) const {
  if (wrong_.empty()) wrong_ = fmt::format("`{}` {}", name, what);
}

std::uint64_t JsonLine::count(std::string_view name, std::uint64_t low, std::uint64_t high) const {
  const boost::json::value* const value = object_.if_contains(name);
  const std::optional<std::uint64_t> found = value != nullptr ? whole_number(*value) : std::nullopt;
  if (found && *found >= low && *found <= high) return *found;
  set_error(name, value == nullptr ? std::string("is missing") : fmt::format("is not a whole number from {} to {}", low, high));
  return low;
}

double JsonLine::number(std::string_view name, double low) const {
  const boost::json::value* const value = object_.if_contains(name);
  const double found = value != nullptr && value->is_number() ? value->to_number<double>() : NAN;
  if (std::isfinite(found) && found >= low) return found;
  set_error(name, value == nullptr ? std::string("is missing") : fmt::format("is not a number of at least {}", low));
  return low;
}

std::string_view JsonLine::text(std::string_view name) const {
  const boost::json::value* const value = object_.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

const boost::json::array* JsonLine::array(std::string_view name) const {
  const boost::json::value* const value = object_.if_contains(name);
  if (value != nullptr && value->is_array()) return &value->get_array();
  set_error(name, "is not a list");
  return nullptr;
}

}  // namespace quire
