// Parses operators, from `x if y else z` to unary minus. Part of the parser (parser.h), called once per template. The precedence is
// jinja2's, which differs from Python's in places. The depth is limited, because templates are not trusted.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/failure.h"
#include "text/template/parser.h"

namespace quire::jinja {

// Limits the parser's recursion, which brackets and unary operators cause.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxTreeDepth) stop(ErrorCode::too_large, parser_.current().line, "the expression is nested too deeply");
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  ExpressionParser& parser_;
};

const Token& ExpressionParser::take() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("expected '{}', got {}", op, describe(current())));
}

std::string ExpressionParser::expect_name() {
  if (current().type != TokenType::name) fail("expected a name, got " + describe(current()));
  return take().text;
}

void ExpressionParser::expect(TokenType type) {
  if (current().type != type) fail(fmt::format("expected {}, got {}", describe(Token{type, 0, {}, Value()}), describe(current())));
  take();
}

void ExpressionParser::fail(std::string message) const {
  stop(ErrorCode::invalid_argument, current().line, std::move(message));
}

void ExpressionParser::unsupported(std::string what) const {
  stop(ErrorCode::unsupported, current().line, std::move(what) + " is not supported");
}

void ExpressionParser::fail_unexpected() const {
  fail("unexpected " + describe(current()));
}

ExprPtr ExpressionParser::make(ExprKind kind, std::string name) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = current().line;
  node->name = std::move(name);
  return node;
}

ExprPtr ExpressionParser::with_child(ExprKind kind, ExprPtr child, std::string name) {
  auto node = make(kind, std::move(name));
  node->children.push_back(std::move(child));
  return node;
}

// Computes the depth of `node` from its children and checks it. Long chains (a + b + c ...) are deep on the left.
ExprPtr ExpressionParser::finish(ExprPtr node) const {
  int depth = 0;
  const auto see = [&](const ExprPtr& part) { depth = part ? std::max(depth, part->depth) : depth; };
  std::for_each(node->children.begin(), node->children.end(), see);
  std::for_each(node->positional.begin(), node->positional.end(), see);
  for (const auto& [name, part] : node->named) see(part);
  see(node->star);
  see(node->double_star);
  node->depth = depth + 1;
  if (node->depth > kMaxTreeDepth) stop(ErrorCode::too_large, node->line, "the expression is nested too deeply");
  return node;
}

ExprPtr ExpressionParser::parse_expression() {
  return parse_condition();
}

ExprPtr ExpressionParser::parse_condition() {
  const Nesting nesting(*this);
  const std::size_t num_unknown = unknown_names_.size();
  ExprPtr node = parse_or();
  while (skip_name("if")) {
    auto condition = with_child(ExprKind::condition, parse_or());
    condition->children.push_back(std::move(node));
    condition->children.push_back(skip_name("else") ? parse_condition() : nullptr);
    node = finish(std::move(condition));
    truncate_unknown(num_unknown);
  }
  return node;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    auto node = with_child(ExprKind::logic, std::move(left), "or");
    node->children.push_back(parse_and());
    left = finish(std::move(node));
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    auto node = with_child(ExprKind::logic, std::move(left), "and");
    node->children.push_back(parse_not());
    left = finish(std::move(node));
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!skip_name("not")) return parse_compare();
  const Nesting nesting(*this);
  return finish(with_child(ExprKind::unary, parse_not(), "not"));
}

bool ExpressionParser::parse_comparison(ExprPtr& node) {
  std::string op;
  if (current().type == TokenType::op) {
    static constexpr std::array<std::string_view, 6> kOps = {"==", "!=", "<", "<=", ">", ">="};
    if (std::find(kOps.begin(), kOps.end(), current().text) == kOps.end()) return false;
    op = take().text;
  } else if (skip_name("in")) {
    op = "in";
  } else if (current().is_name("not") && ahead().is_name("in")) {
    take();
    take();
    op = "not in";
  } else {
    return false;
  }
  const bool open = node->kind == ExprKind::compare && !node->value.is<bool>();
  if (!open) node = with_child(ExprKind::compare, std::move(node));
  node->ops.push_back(std::move(op));
  node->children.push_back(parse_sum());
  return true;
}

ExprPtr ExpressionParser::parse_compare() {
  ExprPtr node = parse_sum();
  if (!parse_comparison(node)) return node;
  while (parse_comparison(node)) {
  }
  node->value = Value(true);  // marks the end of the chain: a comparison in parentheses is not part of the outer chain
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_binary(ExprPtr (ExpressionParser::*operand)(), std::initializer_list<std::string_view> ops) {
  ExprPtr left = (this->*operand)();
  while (current().type == TokenType::op && std::find(ops.begin(), ops.end(), current().text) != ops.end()) {
    const std::string op = take().text;
    auto node = with_child(ExprKind::binary, std::move(left), op);
    node->children.push_back((this->*operand)());
    left = finish(std::move(node));
  }
  return left;
}

ExprPtr ExpressionParser::parse_sum() {
  return parse_binary(&ExpressionParser::parse_concat, {"+", "-"});
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr first = parse_product();
  if (!current().is_op("~")) return first;
  auto node = with_child(ExprKind::concat, std::move(first));
  while (skip_op("~")) node->children.push_back(parse_product());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_product() {
  return parse_binary(&ExpressionParser::parse_power, {"*", "/", "//", "%"});
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (skip_op("**")) {
    auto node = with_child(ExprKind::binary, std::move(left), "**");
    node->children.push_back(parse_unary(true));
    left = finish(std::move(node));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExprPtr node;
  if (current().is_op("-") || current().is_op("+")) {
    const std::string op = take().text;
    node = finish(with_child(ExprKind::unary, parse_unary(false), op));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filter_chain(std::move(node)) : std::move(node);
}

bool ExpressionParser::at_tuple_end() const {
  const TokenType type = current().type;
  return type == TokenType::variable_end || type == TokenType::block_end || current().is_op(")");
}

ExprPtr ExpressionParser::parse_tuple(Conditions conditions, bool parenthesized) {
  auto tuple = make(ExprKind::tuple);
  bool is_tuple = false;
  while (!at_tuple_end()) {
    tuple->children.push_back(conditions == Conditions::yes ? parse_expression() : parse_or());
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return finish(std::move(tuple));
  if (!tuple->children.empty()) return std::move(tuple->children.front());
  if (!parenthesized) fail("expected an expression, got " + describe(current()));
  return finish(std::move(tuple));
}

ExprPtr ExpressionParser::parse_target_name(bool with_namespace) {
  const Nesting nesting(*this);
  if (skip_op("(")) {
    ExprPtr inner = parse_target(false);
    expect_op(")");
    return inner;
  }
  static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), current().text) != kConstants.end()) fail("cannot assign to " + current().text);
  auto node = make(ExprKind::name, expect_name());
  if (with_namespace && skip_op(".")) {
    node->kind = ExprKind::namespace_target;
    node->ops.push_back(expect_name());
  }
  return node;
}

ExprPtr ExpressionParser::parse_target(bool with_namespace) {
  ExprPtr first = parse_target_name(with_namespace);
  if (!current().is_op(",")) return first;
  auto tuple = with_child(ExprKind::tuple, std::move(first));
  while (skip_op(",")) {
    if (at_tuple_end()) break;
    tuple->children.push_back(parse_target_name(with_namespace));
  }
  return finish(std::move(tuple));
}

}  // namespace quire::jinja
