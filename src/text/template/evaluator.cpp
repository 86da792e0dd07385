// Runs the statements of a template. See evaluator.h. Scopes are stored in the evaluator and not on the stack, because a macro may outlive
// the block that created it.
#include "text/template/evaluator.h"

#include <fmt/format.h>

#include "text/template/json_values.h"

namespace quire::jinja {

Evaluator::Evaluator(const Program& program, const TemplateOptions& options, const boost::json::value& context)
    : program_(program), runtime_(options) {
  if (!context.is_object()) stop(ErrorCode::invalid_argument, 0, "the context must be an object");
  Scope& outermost = new_scope(nullptr);
  for (const auto& [name, value] : context.get_object()) outermost.names[std::string(name)] = from_json(runtime_, value);
}

std::string Evaluator::run() {
  std::string out;
  run_body(program_.body, new_scope(&scopes_.front()), out);
  return out;
}

Scope& Evaluator::new_scope(const Scope* parent) {
  runtime_.charge(1);
  return scopes_.emplace_back(Scope{parent, {}});
}

void Evaluator::append(std::string& out, std::string_view text) {
  if (out.size() + text.size() > runtime_.options().limits.max_output_bytes) runtime_.charge_text(out.size() + text.size());
  runtime_.charge(text.size() / 64);
  out += text;
}

Evaluator::Flow Evaluator::run_body(const Body& body, Scope& scope, std::string& out) {
  for (const auto& statement : body) {
    const Level level(*this, statement->line);
    const Flow flow = run_statement(*statement, scope, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::run_statement(const Stmt& statement, Scope& scope, std::string& out) {
  switch (statement.kind) {
    case StmtKind::text:
      append(out, statement.text);
      break;
    case StmtKind::output:
      run_output(statement, scope, out);
      break;
    case StmtKind::set:
      assign(*statement.target, evaluate(*statement.expression, scope), scope);
      break;
    case StmtKind::if_else:
      return run_if(statement, scope, out);
    case StmtKind::for_loop:
      return run_for(statement, scope, out);
    case StmtKind::macro:
      scope.names[statement.text] = make_macro(statement, scope);
      break;
    case StmtKind::call_block:
      run_call_block(statement, scope, out);
      break;
    case StmtKind::break_loop:
      return Flow::break_loop;
    case StmtKind::continue_loop:
      return Flow::continue_loop;
    case StmtKind::scope:
      return run_body(statement.body, new_scope(&scope), out);
    case StmtKind::set_block: {
      std::string captured;
      const Flow flow = run_captured(statement, scope, captured);
      if (flow != Flow::next) return flow;
      const Value text = runtime_.text(std::move(captured));
      assign(*statement.target, apply_filters(statement.expression.get(), text, scope), scope);
      break;
    }
    case StmtKind::filter_block: {
      std::string captured;
      const Flow flow = run_captured(statement, scope, captured);
      if (flow != Flow::next) return flow;
      const Value filtered = apply_filters(statement.expression.get(), runtime_.text(std::move(captured)), scope);
      if (!filtered.is_text()) runtime_.fail(fmt::format("a filter block writes a string, not {}", type_name(filtered)));
      append(out, filtered.text());
      break;
    }
    case StmtKind::block:
      return run_body(statement.body, new_scope(statement.recursive ? &scope : &scopes_[1]), out);
    case StmtKind::with: {
      Scope& inner = new_scope(&scope);
      for (const auto& [target, expression] : statement.assignments) assign(*target, evaluate(*expression, scope), inner);
      return run_body(statement.body, inner, out);
    }
  }
  return Flow::next;
}

void Evaluator::run_output(const Stmt& statement, Scope& scope, std::string& out) {
  std::string buffer;
  const Value value = evaluate(*statement.expression, scope);
  append(out, runtime_.str_view(value, buffer));
}

Evaluator::Flow Evaluator::run_captured(const Stmt& statement, Scope& scope, std::string& captured) {
  return run_body(statement.body, new_scope(&scope), captured);
}

Value Evaluator::apply_filters(const Expr* filters, const Value& value, Scope& scope) {
  if (filters == nullptr) return value;
  const Level level(*this, filters->line);
  return evaluate_filter(*filters, apply_filters(filters->children[0].get(), value, scope), scope);
}

Evaluator::Flow Evaluator::run_if(const Stmt& statement, Scope& scope, std::string& out) {
  const bool holds = truth(evaluate(*statement.expression, scope));
  return run_body(holds ? statement.body : statement.other, scope, out);
}

Evaluator::Flow Evaluator::run_for(const Stmt& statement, Scope& scope, std::string& out) {
  const Value iterable = evaluate(*statement.expression, scope);
  run_loop(statement, iterable, scope, 0, out);
  return Flow::next;
}

std::vector<Value> Evaluator::loop_elements(const Stmt& statement, const Value& iterable, Scope& scope) {
  std::vector<Value> elements = runtime_.iterate(iterable);
  if (!statement.condition) return elements;
  std::vector<Value> kept;
  Scope& inner = new_scope(&scope);
  for (Value& element : elements) {
    assign(*statement.target, element, inner);
    if (truth(evaluate(*statement.condition, inner))) kept.push_back(std::move(element));
  }
  return kept;
}

void Evaluator::run_loop(const Stmt& statement, const Value& iterable, Scope& scope, int depth, std::string& out) {
  const std::vector<Value> elements = loop_elements(statement, iterable, scope);
  // A callable may outlive the loop and still point to its record, so the record must not point into this stack frame after the loop.
  Loop& loop = loops_.emplace_back();
  loop.elements = &elements;
  loop.depth = depth;
  loop.statement = statement.recursive ? &statement : nullptr;
  loop.scope = &scope;
  const Value handle = runtime_.callable({CallableKind::loop, "loop", Value(), nullptr, &loop, nullptr});
  for (std::size_t i = 0; i < elements.size(); ++i) {
    loop.index = i;
    Scope& inner = new_scope(&scope);
    inner.names["loop"] = handle;
    assign(*statement.target, elements[i], inner);
    if (run_body(statement.body, inner, out) == Flow::break_loop) break;
  }
  loop.elements = nullptr;
  if (elements.empty()) run_body(statement.other, new_scope(&scope), out);
}

void Evaluator::run_call_block(const Stmt& statement, Scope& scope, std::string& out) {
  const Expr& expression = *statement.expression;
  const Value callee = evaluate(*expression.children[0], scope);
  Arguments arguments = evaluate_arguments(expression, scope);
  arguments.named.emplace_back("caller", make_macro(statement, scope));
  std::string buffer;
  const Value result = call(callee, std::move(arguments), expression);
  append(out, runtime_.str_view(result, buffer));
}

void Evaluator::assign(const Expr& target, const Value& value, Scope& scope) {
  if (target.kind == ExprKind::name) {
    scope.names[target.name] = value;
    return;
  }
  if (target.kind == ExprKind::namespace_target) {
    const Value object = look_up(target.name, scope);
    if (!object.is<Namespace*>()) runtime_.fail("cannot assign attribute on non-namespace object");
    object.as<Namespace*>()->attributes[target.ops[0]] = value;
    return;
  }
  const std::vector<Value> parts = runtime_.iterate(value);
  if (parts.size() != target.children.size())
    runtime_.fail(fmt::format("cannot unpack {} values into {} names", parts.size(), target.children.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.children[i], parts[i], scope);
}

}  // namespace quire::jinja
