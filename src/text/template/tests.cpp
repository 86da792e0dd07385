// Implements the tests that follow `is` in an expression. Runs on the render's thread. A test returns a bool and changes nothing, except
// that a test that searches a generator consumes the generator's elements, as in jinja2.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/builtin.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

using Predicate = bool (*)(const Value& value);

// Wraps a test without arguments.
template <Predicate predicate>
Value plain(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "a test", arguments, {});
  return Value(predicate(value));
}

bool is_defined(const Value& value) {
  return !value.is<Undefined>();
}
bool is_undefined(const Value& value) {
  return value.is<Undefined>();
}
bool is_none(const Value& value) {
  return value.is<None>();
}
bool is_string(const Value& value) {
  return value.is_text();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_integer(const Value& value) {
  return value.is<Int>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && value.as<bool>();
}
bool is_false(const Value& value) {
  return value.is<bool>() && !value.as<bool>();
}
bool is_mapping(const Value& value) {
  return value.is<Dict*>();
}
bool is_callable(const Value& value) {
  return value.is<Callable*>();
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}

bool is_sequence(const Value& value) {
  if (value.is<Undefined>() || value.is_text() || value.is<Dict*>()) return true;
  if (!value.is<List*>()) return false;
  const ListKind kind = value.as<List*>()->kind;
  return kind == ListKind::list || kind == ListKind::tuple || kind == ListKind::range;
}

enum class Order { eq, ne, lt, le, gt, ge };

bool holds(Runtime& runtime, Order order, const Value& a, const Value& b) {
  switch (order) {
    case Order::eq:
      return runtime.equal(a, b);
    case Order::ne:
      return !runtime.equal(a, b);
    case Order::lt:
      return runtime.less(a, b, "<");
    case Order::gt:
      return runtime.less(b, a, ">");
    case Order::le:
      return runtime.less(a, b, "<=") || runtime.equal(a, b);
    case Order::ge:
      break;
  }
  return runtime.less(b, a, ">=") || runtime.equal(a, b);
}

template <Order order>
Value compare(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "a comparison test", arguments, {"other"});
  return Value(holds(runtime, order, value, bound.need(0)));
}

Value is_in(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'in'", arguments, {"seq"});
  return Value(runtime.contains(bound.need(0), value));
}

Value divisible(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'divisibleby'", arguments, {"num"});
  return Value(runtime.equal(runtime.binary("%", value, bound.need(0)), Value(Int{0})));
}

template <bool odd>
Value parity(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'odd' or 'even'", arguments, {});
  return Value(runtime.equal(runtime.binary("%", value, Value(Int{2})), Value(Int{odd ? 1 : 0})));
}

Value same_as(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'sameas'", arguments, {"other"});
  const Value& other = bound.need(0);
  if (value.data.index() != other.data.index()) return Value(false);
  if (value.is<List*>()) return Value(value.as<List*>() == other.as<List*>());
  if (value.is<Dict*>()) return Value(value.as<Dict*>() == other.as<Dict*>());
  // Compares other types by value, because a template cannot rely on identity: Python shares objects for short texts and small numbers.
  return Value(runtime.equal(value, other));
}

template <bool upper_case>
Value is_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'upper' or 'lower'", arguments, {});
  const std::string text = runtime.str(value);
  return Value(text == (upper_case ? upper(text) : lower(text)) && upper(text) != lower(text));
}

template <bool filters>
Value is_known(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'filter' or 'test'", arguments, {});
  if (!value.is_text()) {
    if (!value.is<Undefined>() && hash_key(value).empty()) runtime.fail(fmt::format("unhashable type: '{}'", type_name(value)));
    return Value(false);
  }
  return Value(filters ? find_filter(value.text()) != nullptr : find_test(value.text()) != nullptr);
}

Value iterable(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "test 'iterable'", arguments, {});
  return Value(is_iterable(value));
}

constexpr Test kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"string", plain<is_string>},
    {"number", plain<is_number>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"mapping", plain<is_mapping>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"sequence", plain<is_sequence>},
    {"iterable", iterable},
    {"eq", compare<Order::eq>},
    {"equalto", compare<Order::eq>},
    {"==", compare<Order::eq>},
    {"ne", compare<Order::ne>},
    {"!=", compare<Order::ne>},
    {"lt", compare<Order::lt>},
    {"lessthan", compare<Order::lt>},
    {"<", compare<Order::lt>},
    {"le", compare<Order::le>},
    {"<=", compare<Order::le>},
    {"gt", compare<Order::gt>},
    {"greaterthan", compare<Order::gt>},
    {">", compare<Order::gt>},
    {"ge", compare<Order::ge>},
    {">=", compare<Order::ge>},
    {"in", is_in},
    {"divisibleby", divisible},
    {"odd", parity<true>},
    {"even", parity<false>},
    {"sameas", same_as},
    {"upper", is_case<true>},
    {"lower", is_case<false>},
    {"filter", is_known<true>},
    {"test", is_known<false>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace quire::jinja
