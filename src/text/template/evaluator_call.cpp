// Calls methods, global functions and macros, and implements the loop object. Part of the evaluator (evaluator.h), on the render's thread.
// Binds arguments by Python's rules. The depth limit stops a macro that calls itself.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/evaluator.h"

namespace quire::jinja {

Arguments Evaluator::evaluate_arguments(const Expr& expr, Scope& scope) {
  Arguments arguments;
  for (const ExprPtr& argument : expr.positional) arguments.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : expr.named) arguments.named.emplace_back(name, evaluate(*argument, scope));
  if (expr.star)
    for (Value& element : runtime_.iterate(evaluate(*expr.star, scope))) arguments.positional.push_back(std::move(element));
  if (!expr.double_star) return arguments;
  const Value mapping = evaluate(*expr.double_star, scope);
  if (!mapping.is<Dict*>()) runtime_.fail("argument after ** must be a mapping");
  for (const auto& [key, value] : mapping.as<Dict*>()->entries) {
    if (!key.is_text()) runtime_.fail("keywords must be strings");
    const auto same = [&](const auto& named) { return named.first == key.text(); };
    if (std::any_of(arguments.named.begin(), arguments.named.end(), same)) runtime_.fail("a keyword argument is given twice");
    arguments.named.emplace_back(std::string(key.text()), value);
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expr& expr, Scope& scope) {
  const Expr& head = *expr.children[0];
  // `loop.cycle` and `loop.changed` are supported only as calls, not as values.
  if (head.kind == ExprKind::attribute && (head.name == "cycle" || head.name == "changed")) {
    const Value object = evaluate(*head.children[0], scope);
    if (object.is<Callable*>() && object.as<Callable*>()->kind == CallableKind::loop) {
      Loop& loop = *static_cast<Loop*>(const_cast<void*>(object.as<Callable*>()->code));
      return loop_method(loop, head.name, evaluate_arguments(expr, scope));
    }
  }
  const Value callee = evaluate(head, scope);
  return call(callee, evaluate_arguments(expr, scope), expr);
}

Value Evaluator::call(const Value& callee, Arguments arguments, const Expr& expr) {
  const Level level(*this, expr.line);
  runtime_.require_defined(callee);
  if (!callee.is<Callable*>()) runtime_.fail(fmt::format("'{}' object is not callable", type_name(callee)));
  const Callable& callable = *callee.as<Callable*>();
  if (callable.function != nullptr) return runtime_.call_function(callable, arguments);
  if (callable.kind == CallableKind::macro)
    return call_macro(*static_cast<const Stmt*>(callable.code), *static_cast<Scope*>(callable.scope), std::move(arguments));
  Loop& loop = *static_cast<Loop*>(const_cast<void*>(callable.code));
  if (loop.statement == nullptr) runtime_.fail("the loop must have the 'recursive' marker to be called recursively");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) runtime_.fail("a recursive loop is called with one iterable");
  std::string out;
  run_loop(*loop.statement, arguments.positional[0], *loop.scope, loop.depth + 1, out);
  return runtime_.text(std::move(out));
}

Value Evaluator::make_macro(const Stmt& statement, Scope& scope) {
  return runtime_.callable({CallableKind::macro, statement.text, Value(), nullptr, &statement, &scope});
}

Value Evaluator::call_macro(const Stmt& macro, Scope& scope, Arguments arguments) {
  Scope& inner = new_scope(&scope);
  bind_macro(macro, inner, arguments);
  std::string out;
  run_body(macro.body, inner, out);
  return runtime_.text(std::move(out));
}

void Evaluator::bind_macro(const Stmt& macro, Scope& scope, Arguments& arguments) {
  auto& named = arguments.named;
  std::vector<const Parameter*> absent;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto given = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == parameter.name; });
    if (i < arguments.positional.size()) {
      // A parameter that is given by position and by name stays in `named`. bind_surplus() rejects it, unless the macro reads kwargs.
      scope.names[parameter.name] = arguments.positional[i];
    } else if (given != named.end()) {
      scope.names[parameter.name] = given->second;
      named.erase(given);
    } else {
      scope.names[parameter.name] = make_undefined(fmt::format("parameter '{}' was not provided", parameter.name));
      absent.push_back(&parameter);
    }
  }
  // A default value can refer to all parameters of the macro. A parameter hides an outer name even in its own default value.
  for (const Parameter* parameter : absent)
    if (parameter->fallback) scope.names[parameter->name] = evaluate(*parameter->fallback, scope);
  bind_surplus(macro, scope, arguments);
}

void Evaluator::bind_surplus(const Stmt& macro, Scope& scope, Arguments& arguments) {
  auto& named = arguments.named;
  if (macro.uses_caller) {
    const auto caller = std::find_if(named.begin(), named.end(), [](const auto& entry) { return entry.first == "caller"; });
    scope.names["caller"] = caller == named.end() ? make_undefined("No caller defined") : caller->second;
    if (caller != named.end()) named.erase(caller);
  }
  const std::size_t taken = std::min(macro.parameters.size(), arguments.positional.size());
  if (macro.uses_kwargs) {
    Dict& rest = runtime_.new_dict();
    for (const auto& [name, value] : named) runtime_.set(rest, make_text(name), value);
    scope.names["kwargs"] = Value(&rest);
  } else if (!named.empty()) {
    runtime_.fail(fmt::format("macro '{}' takes no keyword argument '{}'", macro.text, named.front().first));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken), arguments.positional.end());
    scope.names["varargs"] = runtime_.list(std::move(rest), ListKind::tuple);
  } else if (arguments.positional.size() > taken) {
    runtime_.fail(fmt::format("macro '{}' takes not more than {} argument(s)", macro.text, macro.parameters.size()));
  }
}

Value Evaluator::loop_attribute(Loop& loop, const std::string& name) {
  if (loop.elements == nullptr) runtime_.unsupported("'loop' after its loop has ended");
  const auto integer = [](std::size_t number) { return Value(Int{static_cast<Int>(number)}); };
  const std::size_t size = loop.elements->size();
  if (name == "index") return integer(loop.index + 1);
  if (name == "index0") return integer(loop.index);
  if (name == "revindex") return integer(size - loop.index);
  if (name == "revindex0") return integer(size - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == size);
  if (name == "length") return integer(size);
  if (name == "depth") return integer(static_cast<std::size_t>(loop.depth) + 1);
  if (name == "depth0") return integer(static_cast<std::size_t>(loop.depth));
  if (name == "previtem") return loop.index == 0 ? make_undefined("there is no previous item") : (*loop.elements)[loop.index - 1];
  if (name == "nextitem") return loop.index + 1 == size ? make_undefined("there is no next item") : (*loop.elements)[loop.index + 1];
  if (name == "cycle" || name == "changed") runtime_.unsupported(fmt::format("'loop.{}' without a call", name));
  return make_undefined(fmt::format("'LoopContext object' has no attribute '{}'", name));
}

Value Evaluator::loop_method(Loop& loop, const std::string& name, const Arguments& arguments) {
  if (!arguments.named.empty()) runtime_.fail(fmt::format("loop.{} takes no keyword arguments", name));
  if (name == "cycle") {
    if (arguments.positional.empty()) runtime_.fail("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  const auto& before = loop.last_changed;
  const bool same = loop.changed_before && before.size() == arguments.positional.size() &&
                    std::equal(before.begin(), before.end(), arguments.positional.begin(),
                               [&](const Value& a, const Value& b) { return runtime_.equal(a, b); });
  loop.changed_before = true;
  loop.last_changed = arguments.positional;
  return Value(!same);
}

}  // namespace quire::jinja
