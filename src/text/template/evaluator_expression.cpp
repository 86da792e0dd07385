// Evaluates the expressions of a template as jinja2 compiles them to Python. See evaluator.h. For operations that differ between Python and
// C++ (division, comparison of different types, truth of values), uses the functions of the runtime, never C++ operators.
#include <fmt/format.h>

#include "text/template/evaluator.h"

namespace quire::jinja {

Value Evaluator::evaluate(const Expr& expr, Scope& scope) {
  if (expr.kind == ExprKind::constant) return expr.value;
  const Level level(*this, expr.line);
  return evaluate_kind(expr, scope);
}

Value Evaluator::evaluate_kind(const Expr& expr, Scope& scope) {
  switch (expr.kind) {
    case ExprKind::constant:
      return expr.value;
    case ExprKind::name:
      return look_up(expr.name, scope);
    case ExprKind::attribute:
      return evaluate_attribute(expr, scope);
    case ExprKind::item: {
      const Value object = evaluate(*expr.children[0], scope);
      return runtime_.item(object, evaluate(*expr.children[1], scope));
    }
    case ExprKind::slice:
      return evaluate_slice(expr, scope);
    case ExprKind::call:
      return evaluate_call(expr, scope);
    case ExprKind::filter:
      return evaluate_filter(expr, evaluate(*expr.children[0], scope), scope);
    case ExprKind::test: {
      const Value value = evaluate(*expr.children[0], scope);
      if (expr.test == nullptr) runtime_.unsupported(fmt::format("test '{}'", expr.name));
      return expr.test->function(runtime_, value, evaluate_arguments(expr, scope));
    }
    case ExprKind::list:
    case ExprKind::tuple:
      return evaluate_sequence(expr, scope);
    case ExprKind::dict:
      return evaluate_dict(expr, scope);
    case ExprKind::unary:
      return evaluate_unary(expr, scope);
    case ExprKind::binary: {
      const Value left = evaluate(*expr.children[0], scope);
      return runtime_.binary(expr.name, left, evaluate(*expr.children[1], scope));
    }
    case ExprKind::concat:
      return evaluate_concat(expr, scope);
    case ExprKind::compare:
      return evaluate_compare(expr, scope);
    case ExprKind::logic:
      return evaluate_logic(expr, scope);
    case ExprKind::condition:
      return evaluate_condition(expr, scope);
    case ExprKind::namespace_target:
      break;
  }
  runtime_.fail("the target of an assignment is not an expression");
}

Value Evaluator::look_up(const std::string& name, const Scope& scope) {
  std::uint64_t hops = 0;
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) return found->second;
    ++hops;
  }
  runtime_.charge(hops);
  const Method* global = find_global(name);
  if (global == nullptr || (name == "strftime_now" && !runtime_.options().now_s))
    return make_undefined(fmt::format("'{}' is undefined", name));
  return runtime_.callable({CallableKind::global, name, Value(), global->function, nullptr, nullptr});
}

Value Evaluator::evaluate_attribute(const Expr& expr, Scope& scope) {
  const Value object = evaluate(*expr.children[0], scope);
  if (!object.is<Callable*>()) return runtime_.attribute(object, expr.name);
  const Callable& callable = *object.as<Callable*>();
  if (callable.kind == CallableKind::macro && expr.name == "name") return make_text(callable.name);
  if (callable.kind != CallableKind::loop) return runtime_.attribute(object, expr.name);
  return loop_attribute(*static_cast<Loop*>(const_cast<void*>(callable.code)), expr.name);
}

Value Evaluator::evaluate_slice(const Expr& expr, Scope& scope) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i)
    if (expr.children[i]) parts[i] = evaluate(*expr.children[i], scope);
  return runtime_.slice(parts[0], parts[1], parts[2], parts[3]);
}

Value Evaluator::evaluate_sequence(const Expr& expr, Scope& scope) {
  std::vector<Value> elements;
  elements.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) elements.push_back(evaluate(*child, scope));
  return runtime_.list(std::move(elements), expr.kind == ExprKind::list ? ListKind::list : ListKind::tuple);
}

Value Evaluator::evaluate_dict(const Expr& expr, Scope& scope) {
  Dict& dict = runtime_.new_dict();
  for (std::size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i], scope);
    runtime_.set(dict, key, evaluate(*expr.children[i + 1], scope));
  }
  return Value(&dict);
}

Value Evaluator::evaluate_concat(const Expr& expr, Scope& scope) {
  std::string out;
  std::string buffer;
  for (const ExprPtr& child : expr.children) {
    const Value part = evaluate(*child, scope);
    append(out, runtime_.str_view(part, buffer));
  }
  return runtime_.text(std::move(out));
}

bool Evaluator::compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return runtime_.equal(a, b);
  if (op == "!=") return !runtime_.equal(a, b);
  if (op == "in") return runtime_.contains(b, a);
  if (op == "not in") return !runtime_.contains(b, a);
  if (op == "<") return runtime_.less(a, b, op);
  if (op == ">") return runtime_.less(b, a, op);
  if (op == "<=") return runtime_.less(a, b, op) || runtime_.equal(a, b);
  return runtime_.less(b, a, op) || runtime_.equal(a, b);
}

// Evaluates a < b < c. Evaluates each operand once, and stops at the first comparison that is false.
Value Evaluator::evaluate_compare(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.children[0], scope);
  for (std::size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1], scope);
    if (!compare(expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::evaluate_logic(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.children[0], scope);
  if (truth(left) == (expr.name == "or")) return left;
  return evaluate(*expr.children[1], scope);
}

Value Evaluator::evaluate_condition(const Expr& expr, Scope& scope) {
  if (truth(evaluate(*expr.children[0], scope))) return evaluate(*expr.children[1], scope);
  if (expr.children[2]) return evaluate(*expr.children[2], scope);
  return make_undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Evaluator::evaluate_unary(const Expr& expr, Scope& scope) {
  const Value value = evaluate(*expr.children[0], scope);
  if (expr.name == "not") return Value(!truth(value));
  if (expr.name == "-") return runtime_.negate(value);
  runtime_.require_defined(value);
  if (!value.is_number()) runtime_.fail(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
  return value.is_int() ? Value(value.integer()) : value;
}

Value Evaluator::evaluate_filter(const Expr& expr, const Value& input, Scope& scope) {
  if (expr.filter == nullptr) runtime_.unsupported(fmt::format("filter '{}'", expr.name));
  return expr.filter->function(runtime_, input, evaluate_arguments(expr, scope));
}

}  // namespace quire::jinja
