#pragma once
// Declares the tables of filters, tests, methods and global functions, and the class that binds arguments to their parameters.
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "text/template/value.h"

namespace quire::jinja {

using Function = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

struct Filter {
  std::string_view name;
  Function function;
};

struct Test {
  std::string_view name;
  Function function;  // returns a bool
};

struct Method {
  std::string_view name;
  Function function;
};

// Return null if there is no filter or test with this name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
// Returns the method of this object's type, or null if the type has no such method.
const Method* find_method(const Value& self, std::string_view name);
// Returns whether the object's Python type has this attribute, even if this subset does not support it. An attribute hides a dict's key
// with the same name.
bool is_python_attribute(const Value& self, std::string_view name);
// Returns whether the method changes a list or dict. The sandbox forbids these methods.
bool is_mutating_method(const Value& self, std::string_view name);
// Returns range, dict, namespace, cycler, joiner, raise_exception or strftime_now, or null. These functions ignore `self`.
const Method* find_global(std::string_view name);

// The tables that the find functions search. Each table is defined next to its functions.
std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> grouping_filters();
std::span<const Filter> layout_filters();
std::span<const Method> text_methods();
std::span<const Method> split_methods();
std::span<const Method> layout_methods();
std::span<const Method> list_methods();
std::span<const Method> dict_methods();

// Binds arguments to parameter names as Python does.
class Bound {
 public:
  // Fails if there are too many arguments, or a keyword argument is unknown. `what` begins the error message: "filter 'join'".
  Bound(Runtime& runtime, std::string_view what, const Arguments& arguments, std::initializer_list<std::string_view> parameters);

  // Returns null if the argument is not given.
  [[nodiscard]] const Value* get(std::size_t index) const { return values_[index]; }
  // Fails if the argument is not given.
  const Value& need(std::size_t index) const;
  [[nodiscard]] bool flag(std::size_t index, bool fallback) const;
  // Returns `fallback` if the argument is not given. Fails if it is not an integer of 64 bits.
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  // Returns `fallback` if the argument is not given. Fails if it is not text.
  [[nodiscard]] std::string_view text(std::size_t index, std::string_view fallback) const;

 private:
  Runtime& runtime_;
  std::string_view what_;
  // Views of the arguments, which must outlive this object.
  std::array<const Value*, 6> values_{};
  std::array<std::string_view, 6> names_{};
};

}  // namespace quire::jinja
