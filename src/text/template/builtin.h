#pragma once
// The tables of filters, tests, methods and global functions, and how they read their arguments.
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

// Null if there is none of this name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
// A method of this object's type.
const Method* find_method(const Value& self, std::string_view name);
// Does any type have a supported method of this name?
bool is_method_name(std::string_view name);
// Python's own attributes of the type, supported or not: they hide a dict's key of the same name.
bool is_python_attribute(const Value& self, std::string_view name);
// Methods that change a list or dict: the sandbox forbids them.
bool is_mutating_method(const Value& self, std::string_view name);
// range, dict, namespace, raise_exception; self is unused.
const Method* find_global(std::string_view name);
// Python or jinja2 has a global of this name that is not supported here.
bool is_unsupported_global(std::string_view name);

// One file each, joined by the find functions.
std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();
std::span<const Method> text_methods();
std::span<const Method> split_methods();
std::span<const Method> list_methods();
std::span<const Method> dict_methods();

// Arguments by parameter name, as Python binds them.
class Bound {
 public:
  // Fails if there are too many, or one of an unknown name. `what` opens the message: "filter 'join'".
  Bound(Runtime& runtime, std::string_view what, const Arguments& arguments, std::initializer_list<std::string_view> parameters);

  // Null if not given.
  [[nodiscard]] const Value* get(std::size_t index) const { return values_[index]; }
  // Fails if not given.
  const Value& need(std::size_t index) const;
  [[nodiscard]] bool flag(std::size_t index, bool fallback) const;
  // Fails if given and no integer that fits.
  [[nodiscard]] std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  // Fails if given and no text.
  [[nodiscard]] std::string_view text(std::size_t index, std::string_view fallback) const;

 private:
  Runtime& runtime_;
  std::string_view what_;
  // Views of the arguments, which outlive this.
  std::array<const Value*, 6> values_{};
  std::array<std::string_view, 6> names_{};
};

}  // namespace quire::jinja
