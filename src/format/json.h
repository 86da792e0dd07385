#pragma once
// Parses JSON with limits, and reports errors with the path of the field ("config.json: rope_scaling.factor"). A thin layer over
// Boost.JSON. Used by the readers of models' and adapters' files and by the hub, on any thread. The texts are not trusted: a defect is
// reported as an error, never as an exception.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"

namespace quire {

struct JsonLimits {
  std::uint64_t max_bytes = std::uint64_t{64} << 20;
  std::uint32_t max_depth = 64;
  bool reject_duplicate_keys = false;  // false: the last of two equal keys wins, as in Python
  bool python_numbers = false;         // Infinity, -Infinity and NaN are numbers, as in Python's json module
};

// Limits for files that Python reads and writes, such as config.json.
inline constexpr JsonLimits kPythonJson{.python_numbers = true};

// Parses `text`. `name` (a file name) begins the `field` of every error. Errors: `corrupt` (not JSON, not UTF-8, trailing text, nested too
// deeply, a duplicate key), `too_large`.
Result<boost::json::value> parse_json(std::string_view text, std::string_view name, const JsonLimits& limits = {});
Result<boost::json::value> read_json_file(const std::string& path, const JsonLimits& limits = {});

// A JSON value and its path, which errors name. Borrows the value. Cheap to copy. Treats a JSON null as absent, except in is_null().
class JsonRef {
 public:
  JsonRef(const boost::json::value& value, std::string_view name) : value_(&value), name_(name) {}

  [[nodiscard]] const boost::json::value& value() const { return *value_; }
  // Returns for example "config.json: rope_scaling.factor".
  [[nodiscard]] std::string path() const { return path_.empty() ? name_ : name_ + ": " + path_; }

  // Returns the member, or nullopt if it is absent or this is not an object.
  [[nodiscard]] std::optional<JsonRef> find(std::string_view key) const;
  // Returns whether the member exists and is null; find() returns nullopt for such a member.
  [[nodiscard]] bool is_null(std::string_view key) const;
  // Returns the member. Errors: `corrupt` if this is not an object or does not have the member.
  [[nodiscard]] Result<JsonRef> at(std::string_view key) const;
  // Returns the elements. Errors: `corrupt` if this is not an array.
  [[nodiscard]] Result<std::vector<JsonRef>> elements() const;
  [[nodiscard]] Result<const boost::json::object*> object() const;
  [[nodiscard]] JsonRef element(std::size_t index, const boost::json::value& value) const;

  // Returns the value as T: bool, an integer, float, double, std::string_view or std::string. Errors: `corrupt` if the value has another
  // type or is out of T's range.
  template <class T>
  [[nodiscard]] Result<T> as() const;

  template <class T>
  [[nodiscard]] Result<T> get(std::string_view key) const {
    auto member = at(key);
    if (!member) return std::unexpected(std::move(member.error()));
    return member->as<T>();
  }
  template <class T>
  [[nodiscard]] Result<std::optional<T>> get_optional(std::string_view key) const {
    const auto member = find(key);
    if (!member) return std::optional<T>{};
    auto value = member->as<T>();
    if (!value) return std::unexpected(std::move(value.error()));
    return std::optional<T>(std::move(*value));
  }
  template <class T>
  [[nodiscard]] Result<T> get_or(std::string_view key, T fallback) const {
    auto value = get_optional<T>(key);
    if (!value) return std::unexpected(std::move(value.error()));
    return std::move(*value).value_or(std::move(fallback));
  }

  // Returns a `corrupt` error at this path.
  [[nodiscard]] std::unexpected<Error> error(std::string message, std::string remedy = {}) const;

 private:
  [[nodiscard]] JsonRef member(std::string_view key, const boost::json::value& value) const;
  [[nodiscard]] Result<std::int64_t> as_int64() const;
  [[nodiscard]] Result<std::uint64_t> as_uint64() const;
  [[nodiscard]] std::unexpected<Error> out_of_range() const;

  const boost::json::value* value_;
  std::string name_;
  std::string path_;
};

template <>
Result<bool> JsonRef::as<bool>() const;
template <>
Result<double> JsonRef::as<double>() const;
template <>
Result<std::string_view> JsonRef::as<std::string_view>() const;

template <class T>
Result<T> JsonRef::as() const {
  if constexpr (std::same_as<T, std::string>) {
    auto text = as<std::string_view>();
    if (!text) return std::unexpected(std::move(text.error()));
    return std::string(*text);
  } else if constexpr (std::same_as<T, float>) {
    auto number = as<double>();
    if (!number) return std::unexpected(std::move(number.error()));
    return static_cast<float>(*number);
  } else if constexpr (std::signed_integral<T>) {
    auto number = as_int64();
    if (!number) return std::unexpected(std::move(number.error()));
    if (!std::in_range<T>(*number)) return out_of_range();
    return static_cast<T>(*number);
  } else {
    static_assert(std::unsigned_integral<T>);
    auto number = as_uint64();
    if (!number) return std::unexpected(std::move(number.error()));
    if (!std::in_range<T>(*number)) return out_of_range();
    return static_cast<T>(*number);
  }
}

}  // namespace quire
