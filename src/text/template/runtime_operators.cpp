// Implements ==, <, in and arithmetic as Python does, on the render's thread. Comparisons of containers visit all elements, so they charge
// the budget and limit the nesting. If Python raises a TypeError, the operation fails and the error names both types.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/template/runtime.h"
#include "text/template/runtime_nesting.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

bool same_list_kind(const List& a, const List& b) {
  return a.kind == b.kind && a.kind != ListKind::generator && a.kind != ListKind::values;
}

}  // namespace

bool Runtime::equal(const Value& a, const Value& b) {
  const Nesting nesting(*this);
  charge(1);
  if (a.is_int() && b.is_int()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.data.index() != b.data.index()) return false;
  if (a.is_text()) {
    charge(a.text().size() / 64);
    return a.text() == b.text();
  }
  if (a.is<List*>()) {
    const List& left = *a.as<List*>();
    const List& right = *b.as<List*>();
    if (&left == &right) return true;
    if (!same_list_kind(left, right) || left.elements.size() != right.elements.size()) return false;
    for (std::size_t i = 0; i < left.elements.size(); ++i)
      if (!equal(left.elements[i], right.elements[i])) return false;
    return true;
  }
  if (a.is<Dict*>()) {
    const Dict& left = *a.as<Dict*>();
    if (left.entries.size() != b.as<Dict*>()->entries.size()) return false;
    return std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
      charge(left.entries.size() < 10 ? left.entries.size() : 1);
      const Value* other = b.as<Dict*>()->find(entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  if (a.is<Namespace*>()) return a.as<Namespace*>() == b.as<Namespace*>();
  if (a.is<Callable*>()) return a.as<Callable*>() == b.as<Callable*>();
  return true;  // None equals None, and Undefined equals Undefined
}

bool Runtime::less_elements(const List& a, const List& b, std::string_view op) {
  const std::size_t both = std::min(a.elements.size(), b.elements.size());
  for (std::size_t i = 0; i < both; ++i)
    if (!equal(a.elements[i], b.elements[i])) return less(a.elements[i], b.elements[i], op);
  return a.elements.size() < b.elements.size();
}

bool Runtime::less(const Value& a, const Value& b, std::string_view op) {
  const Nesting nesting(*this);
  charge(1);
  require_defined(a);
  require_defined(b);
  if (a.is_int() && b.is_int()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_text() && b.is_text()) {
    charge(a.text().size() / 64);
    return a.text() < b.text();  // UTF-8 bytes sort like code points
  }
  if (a.is<List*>() && b.is<List*>()) {
    const List& left = *a.as<List*>();
    const List& right = *b.as<List*>();
    if (left.kind == right.kind && left.kind <= ListKind::tuple) return less_elements(left, right, op);
  }
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

bool Runtime::contains(const Value& container, const Value& element) {
  charge(1);
  if (container.is<Undefined>()) return false;
  if (container.is_text()) {
    require_defined(element);
    if (!element.is_text()) fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(element)));
    charge(container.text().size() / 64);
    return container.text().find(element.text()) != std::string_view::npos;
  }
  if (container.is<Dict*>()) {
    charge_key(element);
    if (!element.is<Undefined>() && hash_key(element).empty()) fail(fmt::format("unhashable type: '{}'", type_name(element)));
    return container.as<Dict*>()->find(element) != nullptr;
  }
  if (!container.is<List*>()) fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  List& list = *container.as<List*>();
  const auto found = std::find_if(list.elements.begin(), list.elements.end(), [&](const Value& other) { return equal(other, element); });
  const bool is_in = found != list.elements.end();
  if (list.kind == ListKind::generator) list.elements.erase(list.elements.begin(), is_in ? found + 1 : found);
  return is_in;
}

void Runtime::bad_operands(std::string_view op, const Value& a, const Value& b) const {
  require_defined(a);
  require_defined(b);
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

Value Runtime::add(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) {
    charge_text(a.text().size() + b.text().size());
    const bool markup = a.is_markup() || b.is_markup();
    std::string joined(markup && !a.is_markup() ? escape_html(a.text()) : std::string(a.text()));
    joined += markup && !b.is_markup() ? escape_html(b.text()) : std::string(b.text());
    return make_text(std::move(joined), markup);
  }
  if (a.is<List*>() && b.is<List*>()) {
    const List& left = *a.as<List*>();
    const List& right = *b.as<List*>();
    if (left.kind == right.kind && left.kind <= ListKind::tuple) {
      charge(left.elements.size() + right.elements.size());
      std::vector<Value> joined = left.elements;
      joined.insert(joined.end(), right.elements.begin(), right.elements.end());
      return list(std::move(joined), left.kind);
    }
  }
  bad_operands("+", a, b);
}

Value Runtime::repeat(const Value& sequence, Int times) {
  const Int count = times < 0 ? Int{0} : times;
  const Int size = sequence.is_text() ? static_cast<Int>(sequence.text().size()) : static_cast<Int>(sequence.as<List*>()->elements.size());
  if (size > 0 && count > static_cast<Int>(options_.limits.max_output_bytes) / size) fail("a repeated sequence is too long");
  charge(static_cast<std::uint64_t>(size * count) / (sequence.is_text() ? 64 : 1));
  if (sequence.is_text()) {
    charge_text(static_cast<std::uint64_t>(size * count));
    std::string out;
    for (Int i = 0; size > 0 && i < count; ++i) out += sequence.text();
    return make_text(std::move(out), sequence.is_markup());
  }
  std::vector<Value> out;
  const List& elements = *sequence.as<List*>();
  for (Int i = 0; size > 0 && i < count; ++i) out.insert(out.end(), elements.elements.begin(), elements.elements.end());
  return list(std::move(out), elements.kind);
}

Value Runtime::multiply(const Value& a, const Value& b) {
  const auto repeatable = [](const Value& v) { return v.is_text() || (v.is<List*>() && v.as<List*>()->kind <= ListKind::tuple); };
  if (repeatable(a) && b.is_int()) return repeat(a, b.integer());
  if (repeatable(b) && a.is_int()) return repeat(b, a.integer());
  bad_operands("*", a, b);
}

Value Runtime::power(Int base, Int exponent) {
  if (exponent < 0) return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  Int result = 1;
  for (Int i = 0; i < exponent && result != 0 && !(result == 1 && base == 1); ++i) {
    if (base == -1) return Value(Int{exponent % 2 == 0 ? 1 : -1});
    if (__builtin_mul_overflow(result, base, &result)) fail("an integer is too large");
  }
  return Value(result);
}

Value Runtime::integer_binary(std::string_view op, Int a, Int b) {
  Int result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    return power(a, b);
  } else {
    if (b == 0) fail(op == "/" ? "division by zero" : "integer division or modulo by zero");
    if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) return op == "//" ? integer_binary("-", 0, a) : Value(Int{0});
    const Int quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
    result = op == "//" ? quotient : a - quotient * b;
  }
  if (overflow) fail("an integer is too large");
  return Value(result);
}

Value Runtime::real_binary(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    if (a < 0 && std::trunc(b) != b) unsupported("a complex number");
    return Value(std::pow(a, b));
  }
  if (b == 0) fail(op == "/" ? "float division by zero" : "float floor division by zero");
  if (op == "/") return Value(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == "%") return Value(remainder == 0 ? std::copysign(0.0, b) : remainder);
  return Value(std::floor((a - remainder) / b + 0.5));
}

Value Runtime::binary(std::string_view op, const Value& a, const Value& b) {
  charge(1);
  if (a.is_int() && b.is_int()) return integer_binary(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return real_binary(op, a.number(), b.number());
  if (op == "+") return add(a, b);
  if (op == "*") return multiply(a, b);
  if (op == "%" && a.is_text()) {
    if (a.is_markup()) unsupported("'%' on a safe string");
    return text(format_percent(*this, a.text(), b));
  }
  bad_operands(op, a, b);
}

Value Runtime::negate(const Value& value) {
  require_defined(value);
  if (value.is_int()) return integer_binary("-", 0, value.integer());
  if (value.is<double>()) return Value(-value.as<double>());
  fail(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

}  // namespace quire::jinja
