// Finds filters, tests, methods and global functions by name, in the tables of the other files in this folder. Called by the parser, which
// rejects unknown names, and by the evaluator. Also lists the attributes of Python that this subset does not support, so that errors can
// name them.
#include "text/template/builtin.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "text/template/runtime.h"

namespace quire::jinja {
namespace {

template <class T>
const T* find_in(std::span<const T> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const T& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 47> kTextAttributes = {
    "capitalize",   "casefold", "center",   "count",   "encode",    "endswith",   "expandtabs",   "find",      "format",    "format_map",
    "index",        "isalnum",  "isalpha",  "isascii", "isdecimal", "isdigit",    "isidentifier", "islower",   "isnumeric", "isprintable",
    "isspace",      "istitle",  "isupper",  "join",    "ljust",     "lower",      "lstrip",       "maketrans", "partition", "removeprefix",
    "removesuffix", "replace",  "rfind",    "rindex",  "rjust",     "rpartition", "rsplit",       "rstrip",    "split",     "splitlines",
    "startswith",   "strip",    "swapcase", "title",   "translate", "upper",      "zfill"};
constexpr std::array<std::string_view, 11> kListAttributes = {"append", "clear", "copy",   "count",   "extend", "index",
                                                              "insert", "pop",   "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 11> kDictAttributes = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                                              "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::array<std::string_view, 5> kRangeAttributes = {"count", "index", "start", "stop", "step"};
constexpr std::array<std::string_view, 2> kTupleAttributes = {"count", "index"};
constexpr std::array<std::string_view, 13> kNumberAttributes = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                                                "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                                                "numerator",        "real",      "to_bytes"};
constexpr std::array<std::string_view, 8> kMutatingList = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::array<std::string_view, 5> kMutatingDict = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

const Filter* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), number_filters(), sequence_filters(), grouping_filters(), layout_filters()})
    if (const Filter* found = find_in(table, name)) return found;
  return nullptr;
}

const Method* find_method(const Value& self, std::string_view name) {
  if (self.is_text()) {
    for (const auto table : {text_methods(), split_methods(), layout_methods()})
      if (const Method* found = find_in(table, name)) return found;
    return nullptr;
  }
  if (self.is<Dict*>()) return find_in(dict_methods(), name);
  if (self.is<List*>() && self.as<List*>()->kind <= ListKind::tuple)
    return name == "copy" && self.as<List*>()->kind == ListKind::tuple ? nullptr : find_in(list_methods(), name);
  return nullptr;
}

bool is_python_attribute(const Value& self, std::string_view name) {
  if (self.is_text()) return is_one_of(kTextAttributes, name);
  if (self.is<Dict*>()) return is_one_of(kDictAttributes, name);
  if (self.is_number()) return is_one_of(kNumberAttributes, name);
  if (!self.is<List*>()) return false;
  switch (self.as<List*>()->kind) {
    case ListKind::list:
      return is_one_of(kListAttributes, name);
    case ListKind::tuple:
      return is_one_of(kTupleAttributes, name);
    case ListKind::range:
      return is_one_of(kRangeAttributes, name);
    default:
      return false;
  }
}

bool is_mutating_method(const Value& self, std::string_view name) {
  if (self.is<Dict*>()) return is_one_of(kMutatingDict, name);
  return self.is<List*>() && self.as<List*>()->kind == ListKind::list && is_one_of(kMutatingList, name);
}

Bound::Bound(Runtime& runtime, std::string_view what, const Arguments& arguments, std::initializer_list<std::string_view> parameters)
    : runtime_(runtime), what_(what) {
  std::copy(parameters.begin(), parameters.end(), names_.begin());
  if (arguments.positional.size() > parameters.size()) runtime.fail(fmt::format("{} takes at most {} arguments", what, parameters.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), std::string_view(name));
    if (found == parameters.end()) runtime.fail(fmt::format("{} got an unexpected keyword argument '{}'", what, name));
    const auto index = static_cast<std::size_t>(found - parameters.begin());
    if (values_[index] != nullptr) runtime.fail(fmt::format("{} got multiple values for argument '{}'", what, name));
    values_[index] = &value;
  }
}

const Value& Bound::need(std::size_t index) const {
  if (values_[index] == nullptr) runtime_.fail(fmt::format("{} requires the argument '{}'", what_, names_[index]));
  return *values_[index];
}

bool Bound::flag(std::size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : truth(*values_[index]);
}

std::int64_t Bound::integer(std::size_t index, std::int64_t fallback) const {
  if (values_[index] == nullptr) return fallback;
  const Value& value = *values_[index];
  runtime_.require_defined(value);
  using Limits = std::numeric_limits<std::int64_t>;
  if (!value.is_int() || value.integer() > Limits::max() || value.integer() < Limits::min())
    runtime_.fail(fmt::format("{}: argument '{}' must be an integer, not {}", what_, names_[index], type_name(value)));
  return static_cast<std::int64_t>(value.integer());
}

std::string_view Bound::text(std::size_t index, std::string_view fallback) const {
  if (values_[index] == nullptr) return fallback;
  runtime_.require_defined(*values_[index]);
  if (!values_[index]->is_text())
    runtime_.fail(fmt::format("{}: argument '{}' must be a string, not {}", what_, names_[index], type_name(*values_[index])));
  return values_[index]->text();
}

}  // namespace quire::jinja
