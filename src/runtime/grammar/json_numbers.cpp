// Builds regular expressions for intervals of numbers. A bound is split into its digits and the power of ten of its first digit. A number
// without an exponent is compared digit by digit. A number with an exponent is first compared by the power of ten of its first digit.
#include "runtime/grammar/json_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;

constexpr const char* kFraction = R"((?:\.[0-9]+)?)";
constexpr const char* kUnsigned = R"((?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)";
constexpr const char* kZero = R"(0(?:\.0{1,16})?(?:[eE][+-]?[0-9]+)?)";
constexpr const char* kNotZero = R"((?:[1-9][0-9]*(?:\.[0-9]+)?|0\.0*[1-9][0-9]*)(?:[eE][+-]?[0-9]+)?)";
constexpr const char* kInteger = R"(-?(?:0|[1-9][0-9]*)(?:\.0{1,16})?(?:[eE](?:\+?[0-9]+|-0+))?)";
constexpr const char* kZeroExponent = "(?:[eE][+-]?0+)?";
// Maximum number of digits before the point of a number with an exponent.
constexpr int kMostDigits = 4;
// A double represents every integer up to this value.
constexpr double kExactIntegers = 9007199254740992.0;

// Digits of a non-negative number: no leading zeros except "0", and no trailing zeros after the point.
struct Magnitude {
  std::string whole, fraction;
  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

struct SignedNumber {
  bool is_negative = false;
  Magnitude size;
};

// Returns the value without an exponent, with the fewest digits that identify it.
std::string plain_digits(double value) {
  std::array<char, 64> written{};
  const auto [end, failed] = std::to_chars(written.data(), written.data() + written.size(), value, std::chars_format::scientific);
  std::string text(written.data(), end);
  const std::size_t exponent_at = text.find('e');
  int power = 0;
  (void)std::from_chars(text.data() + exponent_at + (text[exponent_at + 1] == '+' ? 2 : 1), text.data() + text.size(), power);
  const std::string sign = text.starts_with('-') ? "-" : "";
  std::string digits = text.substr(sign.size(), exponent_at - sign.size());
  std::erase(digits, '.');
  if (power < 0) return sign + "0." + std::string(static_cast<std::size_t>(-power - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(power) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0');
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

SignedNumber number_of(const json::value& value) {
  std::string text;
  if (value.is_int64())
    text = fmt::format("{}", value.get_int64());
  else if (value.is_uint64())
    text = fmt::format("{}", value.get_uint64());
  else
    text = plain_digits(value.get_double());
  SignedNumber number{.is_negative = text.starts_with('-'), .size = {}};
  text.erase(0, number.is_negative ? 1 : 0);
  const std::size_t point = std::min(text.find('.'), text.size());
  number.size.whole = text.substr(0, point);
  if (point < text.size()) number.size.fraction = text.substr(point + 1);
  while (number.size.fraction.ends_with('0')) number.size.fraction.pop_back();
  if (number.size.is_zero()) number.is_negative = false;
  return number;
}

std::string digit_class(char first, char last) {
  return first == last ? std::string(1, first) : fmt::format("[{}-{}]", first, last);
}
std::string any_digits(std::size_t count) {
  return count == 0 ? std::string() : count == 1 ? "[0-9]" : fmt::format("[0-9]{{{}}}", count);
}
std::string one_of(const std::vector<std::string>& parts) {
  return parts.size() == 1 ? parts.front() : fmt::format("(?:{})", fmt::join(parts, "|"));
}

// Returns an expression for numbers with as many digits as `digits`: the larger ones (`is_larger`) or the smaller ones, followed by `free`,
// and the equal number, followed by `tail`. Returns nullopt if nothing matches.
std::optional<std::string> same_length(const std::string& digits, std::optional<std::string> tail, std::string_view free, bool is_larger) {
  std::optional<std::string> rest = std::move(tail);
  for (std::size_t i = digits.size(); i-- > 0;) {
    const char digit = digits[i];
    const char first = is_larger ? static_cast<char>(digit + 1) : (i == 0 && digits.size() > 1 ? '1' : '0');
    const char last = is_larger ? '9' : static_cast<char>(digit - 1);
    std::vector<std::string> parts;
    if (rest) parts.push_back(digit + *rest);
    if (first <= last) parts.push_back(digit_class(first, last) + any_digits(digits.size() - 1 - i) + std::string(free));
    rest = parts.empty() ? std::nullopt : std::optional(one_of(parts));
  }
  return rest;
}

// Returns an expression for the fraction after an equal whole part, if the number must be at least (or, exclusive, above) the bound.
std::string fraction_at_least(std::string_view fraction, bool is_exclusive) {
  const std::string more = is_exclusive ? "[0-9]*[1-9][0-9]*" : "[0-9]*";
  if (fraction.empty()) return is_exclusive ? R"(\.)" + more : kFraction;
  std::string rest = more;
  for (std::size_t i = fraction.size(); i-- > 0;) {
    std::vector<std::string> parts{fraction[i] + rest};
    if (fraction[i] < '9') parts.push_back(digit_class(static_cast<char>(fraction[i] + 1), '9') + "[0-9]*");
    rest = one_of(parts);
  }
  return R"(\.)" + rest;
}
// Returns an expression for the fraction after an equal whole part, if the number must be at most (or, exclusive, below) the bound.
std::optional<std::string> fraction_at_most(std::string_view fraction, bool is_exclusive) {
  if (fraction.empty()) return is_exclusive ? std::nullopt : std::optional<std::string>(R"((?:\.0{1,16})?)");
  std::optional<std::string> rest = is_exclusive ? std::nullopt : std::optional<std::string>("0*");
  for (std::size_t i = fraction.size(); i-- > 0;) {
    std::vector<std::string> parts;
    if (rest) parts.push_back(fraction[i] + *rest);
    if (fraction[i] > '0') parts.push_back(digit_class('0', static_cast<char>(fraction[i] - 1)) + "[0-9]*");
    // A shorter fraction with these digits is smaller.
    rest = i == 0 ? one_of(parts) : parts.empty() ? std::string() : "(?:" + one_of(parts) + ")?";
  }
  return R"((?:\.)" + *rest + ")?";
}

// whole_at_most() matches whole numbers from 0 to `most`, whole_at_least() from `least` (above 0) on, without leading zeros.
std::string whole_at_most(int most) {
  const std::string digits = std::to_string(most);
  std::string shorter;
  for (std::size_t size = 1; size < digits.size(); ++size) shorter += any_digits(size) + "|";
  return fmt::format("(?:{}{})", shorter, *same_length(digits, "", "", false));
}
std::string whole_at_least(int least) {
  const std::string digits = std::to_string(least);
  return fmt::format("(?:{}|[1-9][0-9]{{{},}})", *same_length(digits, "", "", true), digits.size());
}

// exponent_at_least() matches exponents from `least` on, exponent_at_most() up to `most`, with any number of leading zeros.
std::string exponent_at_least(int least) {
  if (least > 0) return R"(\+?0*)" + whole_at_least(least);
  return fmt::format(R"((?:\+?[0-9]+|-0*{}))", whole_at_most(-least));
}
std::string exponent_at_most(int most) {
  if (most < 0) return "-0*" + whole_at_least(-most);
  return fmt::format(R"((?:-[0-9]+|\+?0*{}))", whole_at_most(most));
}
std::string exponent_of(int exponent) {
  if (exponent == 0) return "[+-]?0+";
  return exponent > 0 ? fmt::format(R"(\+?0*{})", exponent) : fmt::format("-0*{}", -exponent);
}

// Returns the digits of a positive bound from its first non-zero digit on, and the power of ten of this digit.
std::pair<std::string, int> scientific(const Magnitude& bound) {
  const std::string all = bound.whole + bound.fraction;
  const std::size_t first = all.find_first_not_of('0');
  return {all.substr(first), static_cast<int>(bound.whole.size()) - 1 - static_cast<int>(first)};
}

// Returns the digits of a bound as a number with `count` digits before the point.
Magnitude with_whole_digits(std::string digits, std::size_t count) {
  if (digits.size() < count) digits.append(count - digits.size(), '0');
  Magnitude scaled{digits.substr(0, count), digits.substr(count)};
  while (scaled.fraction.ends_with('0')) scaled.fraction.pop_back();
  return scaled;
}

std::string at_least(const Magnitude& bound, bool is_exclusive) {
  if (bound.is_zero()) return is_exclusive ? kNotZero : kUnsigned;
  std::vector<std::string> parts{
      fmt::format("[1-9][0-9]{{{},}}{}{}", bound.whole.size(), kFraction, kZeroExponent),
      *same_length(bound.whole, fraction_at_least(bound.fraction, is_exclusive), kFraction, true) + kZeroExponent};
  const auto [digits, power] = scientific(bound);
  for (int count = 1; count <= kMostDigits; ++count) {
    const Magnitude scaled = with_whole_digits(digits, static_cast<std::size_t>(count));
    parts.push_back(
        fmt::format("[1-9]{}{}[eE]{}", any_digits(static_cast<std::size_t>(count) - 1), kFraction, exponent_at_least(power - count + 2)));
    parts.push_back(*same_length(scaled.whole, fraction_at_least(scaled.fraction, is_exclusive), kFraction, true) + "[eE]" +
                    exponent_of(power - count + 1));
  }
  return one_of(parts);
}

// Returns an expression for numbers from 0 up to a positive bound.
std::string at_most(const Magnitude& bound, bool is_exclusive) {
  std::vector<std::string> parts{kZero};
  if (bound.whole.size() > 1)
    parts.push_back(fmt::format("(?:0|[1-9][0-9]{{0,{}}}){}{}", bound.whole.size() - 2, kFraction, kZeroExponent));
  if (const auto same = same_length(bound.whole, fraction_at_most(bound.fraction, is_exclusive), kFraction, false))
    parts.push_back(*same + kZeroExponent);
  const auto [digits, power] = scientific(bound);
  parts.push_back(fmt::format(R"(0\.[0-9]+[eE]{})", exponent_at_most(power)));
  for (int count = 1; count <= kMostDigits; ++count) {
    const Magnitude scaled = with_whole_digits(digits, static_cast<std::size_t>(count));
    parts.push_back(
        fmt::format("[1-9]{}{}[eE]{}", any_digits(static_cast<std::size_t>(count) - 1), kFraction, exponent_at_most(power - count)));
    // If the only digit before the point is 0, the number is below this power of ten, and so below the bound.
    if (const auto same = same_length(scaled.whole, fraction_at_most(scaled.fraction, is_exclusive), kFraction, false))
      parts.push_back(*same + "[eE]" + exponent_of(power - count + 1));
  }
  return one_of(parts);
}

std::string from(const NumberBound& bound) {
  const SignedNumber number = number_of(bound.value);
  if (number.is_negative) return fmt::format("(?:{}|-{})", kUnsigned, at_most(number.size, bound.is_exclusive));
  if (number.size.is_zero() && !bound.is_exclusive) return fmt::format("(?:{}|-{})", kUnsigned, kZero);
  return at_least(number.size, bound.is_exclusive);
}

std::string up_to(const NumberBound& bound) {
  const SignedNumber number = number_of(bound.value);
  if (number.is_negative) return "-" + at_least(number.size, bound.is_exclusive);
  if (!number.size.is_zero()) return fmt::format("(?:-{}|{})", kUnsigned, at_most(number.size, bound.is_exclusive));
  return bound.is_exclusive ? fmt::format("-{}", kNotZero) : fmt::format("(?:-{}|{})", kUnsigned, kZero);
}

// Returns a value below zero if `a` is smaller.
int compare(const Magnitude& a, const Magnitude& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  return (a.whole + a.fraction).compare(b.whole + b.fraction);
}
int compare(const SignedNumber& a, const SignedNumber& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  return a.is_negative ? compare(b.size, a.size) : compare(a.size, b.size);
}

bool is_empty(const NumberBounds& bounds) {
  if (!bounds.min || !bounds.max) return false;
  const int order = compare(number_of(bounds.min->value), number_of(bounds.max->value));
  if (order > 0 || (order == 0 && (bounds.min->is_exclusive || bounds.max->is_exclusive))) return true;
  const double min = bounds.min->value.to_number<double>(), max = bounds.max->value.to_number<double>();
  if (!bounds.is_integer || std::max(std::abs(min), std::abs(max)) > kExactIntegers) return false;
  const double least = bounds.min->is_exclusive && std::floor(min) == min ? min + 1 : std::ceil(min);
  const double most = bounds.max->is_exclusive && std::floor(max) == max ? max - 1 : std::floor(max);
  return least > most;
}

// Returns an expression for the digits of a fraction, or for zeros if the fraction is zero.
std::string exact_fraction(std::string_view fraction) {
  return fraction.empty() ? R"((?:\.0{1,16})?)" : fmt::format(R"(\.{}0*)", fraction);
}

}  // namespace

std::string constant_number(const json::value& number) {
  const auto [is_negative, size] = number_of(number);
  if (size.is_zero()) return fmt::format("/-?{}/", kZero);
  std::vector<std::string> parts{size.whole + exact_fraction(size.fraction) + kZeroExponent};
  const auto [digits, power] = scientific(size);
  // In a number with an exponent, the point may follow any digit, or follow additional zeros.
  const std::size_t last = std::min<std::size_t>(digits.size() + kMostDigits, 40);
  for (std::size_t count = 1; count <= last; ++count) {
    const Magnitude scaled = with_whole_digits(digits, count);
    parts.push_back(scaled.whole + exact_fraction(scaled.fraction) + "[eE]" + exponent_of(power - static_cast<int>(count) + 1));
  }
  return fmt::format("/{}{}/", is_negative ? "-" : "", one_of(parts));
}

std::optional<std::string> number_terminal(const NumberBounds& bounds) {
  if (is_empty(bounds)) return std::nullopt;
  std::string body = bounds.is_integer ? fmt::format("/{}/", kInteger) : fmt::format("/-?{}/", kUnsigned);
  if (bounds.min) body += fmt::format(" & /{}/", from(*bounds.min));
  if (bounds.max) body += fmt::format(" & /{}/", up_to(*bounds.max));
  return body;
}

}  // namespace quire
