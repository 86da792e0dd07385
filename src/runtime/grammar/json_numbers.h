#pragma once
// Regular expressions for the JSON spellings of all numbers in an interval.
#include <boost/json/value.hpp>
#include <optional>
#include <string>

namespace quire {

struct NumberBound {
  boost::json::value value;  // a finite number
  bool is_exclusive = false;
};

struct NumberBounds {
  std::optional<NumberBound> min{}, max{};
  bool is_integer = false;
};

// Returns the body of a Lark terminal; nullopt if the bounds exclude all numbers. Integers may have a fraction of zeros and a non-negative
// exponent. If there is a bound, a number with an exponent has one to four digits before the point.
[[nodiscard]] std::optional<std::string> number_terminal(const NumberBounds& bounds);
// Returns the terminal of one finite number.
[[nodiscard]] std::string constant_number(const boost::json::value& number);

}  // namespace quire
