// Parses literals, names, subscripts, calls, filters and tests. Part of the parser (parser.h), called once per template. Records unknown
// filters and tests with their line.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/failure.h"
#include "text/template/parser.h"

namespace quire::jinja {

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  if (token.type == TokenType::name) return parse_name();
  if (token.type == TokenType::text) return parse_text();
  if (token.type == TokenType::integer || token.type == TokenType::real) {
    auto node = make(ExprKind::constant);
    node->value = take().number;
    return node;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  if (!token.is_op("(")) fail_unexpected();
  take();
  ExprPtr node = parse_tuple(Conditions::yes, true);
  expect_op(")");
  return node;
}

ExprPtr ExpressionParser::parse_name() {
  auto node = make(ExprKind::name);
  const std::string& name = take().text;
  node->kind = ExprKind::constant;
  if (name == "true" || name == "True") {
    node->value = Value(true);
  } else if (name == "false" || name == "False") {
    node->value = Value(false);
  } else if (name != "none" && name != "None") {
    node->kind = ExprKind::name;
    node->name = name;
    names_read_.push_back(name);
  }
  return node;
}

ExprPtr ExpressionParser::parse_text() {
  auto node = make(ExprKind::constant);
  std::string text = take().text;
  while (current().type == TokenType::text) text += take().text;
  node->value = make_text(std::move(text));
  return node;
}

ExprPtr ExpressionParser::parse_list() {
  auto node = make(ExprKind::list);
  expect_op("[");
  while (!current().is_op("]")) {
    node->children.push_back(parse_expression());
    if (!skip_op(",")) break;
  }
  expect_op("]");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_dict() {
  auto node = make(ExprKind::dict);
  expect_op("{");
  while (!current().is_op("}")) {
    node->children.push_back(parse_expression());
    expect_op(":");
    node->children.push_back(parse_expression());
    if (!skip_op(",")) break;
  }
  expect_op("}");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  while (true)
    if (current().is_op(".") || current().is_op("["))
      node = parse_subscript(std::move(node));
    else if (current().is_op("("))
      node = parse_call(std::move(node));
    else
      return node;
}

ExprPtr ExpressionParser::parse_filter_chain(ExprPtr node) {
  while (true)
    if (skip_op("|"))
      node = parse_filter(std::move(node));
    else if (current().is_name("is"))
      node = parse_test(std::move(node));
    else if (current().is_op("("))
      node = parse_call(std::move(node));
    else
      return node;
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  if (take().is_op("[")) return parse_bracket(std::move(node));
  if (current().type == TokenType::name) {
    auto attribute = with_child(ExprKind::attribute, std::move(node));
    attribute->name = take().text;
    return finish(std::move(attribute));
  }
  if (current().type != TokenType::integer) fail("expected a name or a number, got " + describe(current()));
  auto item = with_child(ExprKind::item, std::move(node));
  auto index = make(ExprKind::constant);
  index->value = take().number;
  item->children.push_back(std::move(index));
  return finish(std::move(item));
}

ExprPtr ExpressionParser::parse_bracket(ExprPtr node) {
  if (current().is_op(":")) return parse_slice(std::move(node), nullptr);
  if (current().is_op("]")) fail("expected an expression, got ']'");
  ExprPtr key = parse_expression();
  if (current().is_op(":")) return parse_slice(std::move(node), std::move(key));
  if (current().is_op(",")) unsupported("a subscript with several parts");
  expect_op("]");
  auto item = with_child(ExprKind::item, std::move(node));
  item->children.push_back(std::move(key));
  return finish(std::move(item));
}

ExprPtr ExpressionParser::parse_slice(ExprPtr node, ExprPtr start) {
  auto slice = with_child(ExprKind::slice, std::move(node));
  slice->children.push_back(std::move(start));
  for (int part = 0; part < 2; ++part) {
    const bool given = skip_op(":") && !current().is_op(":") && !current().is_op("]");
    slice->children.push_back(given ? parse_expression() : nullptr);
  }
  expect_op("]");
  return finish(std::move(slice));
}

void ExpressionParser::parse_argument(Expr& node) {
  if (skip_op("**")) {
    if (node.double_star) fail("invalid syntax for function call expression");
    node.double_star = parse_expression();
  } else if (skip_op("*")) {
    if (node.star || node.double_star) fail("invalid syntax for function call expression");
    node.star = parse_expression();
  } else if (current().type == TokenType::name && ahead().is_op("=")) {
    if (node.double_star) fail("invalid syntax for function call expression");
    std::string name = take().text;
    take();
    const auto same = [&](const auto& other) { return other.first == name; };
    if (std::any_of(node.named.begin(), node.named.end(), same)) fail("keyword argument repeated: " + name);
    node.named.emplace_back(std::move(name), parse_expression());
  } else {
    if (node.star || node.double_star || !node.named.empty()) fail("invalid syntax for function call expression");
    node.positional.push_back(parse_expression());
  }
}

void ExpressionParser::parse_arguments(Expr& node) {
  expect_op("(");
  while (!current().is_op(")")) {
    parse_argument(node);
    if (!current().is_op(")")) expect_op(",");
  }
  expect_op(")");
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  auto node = with_child(ExprKind::call, std::move(callee));
  parse_arguments(*node);
  return finish(std::move(node));
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr ExpressionParser::parse_filter(ExprPtr node) {
  auto filter = with_child(ExprKind::filter, std::move(node));
  filter->name = dotted_name();
  filter->filter = find_filter(filter->name);
  if (filter->filter == nullptr) unknown_names_.push_back({filter->line, fmt::format("filter '{}' is not supported", filter->name)});
  if (current().is_op("(")) parse_arguments(*filter);
  return finish(std::move(filter));
}

ExprPtr ExpressionParser::parse_filters(ExprPtr node, bool inline_start) {
  if (inline_start) node = parse_filter(std::move(node));
  while (skip_op("|")) node = parse_filter(std::move(node));
  return node;
}

bool ExpressionParser::at_test_argument() const {
  const Token& token = current();
  if (token.type == TokenType::name) return token.text != "else" && token.text != "or" && token.text != "and";
  return token.type == TokenType::text || token.type == TokenType::integer || token.type == TokenType::real || token.is_op("(") ||
         token.is_op("[") || token.is_op("{");
}

ExprPtr ExpressionParser::parse_test(ExprPtr node) {
  take();  // `is`
  const bool negated = skip_name("not");
  auto test = with_child(ExprKind::test, std::move(node));
  test->name = dotted_name();
  test->test = find_test(test->name);
  if (test->test == nullptr) unknown_names_.push_back({test->line, fmt::format("test '{}' is not supported", test->name)});
  if (current().is_op("(")) {
    parse_arguments(*test);
  } else if (at_test_argument()) {
    if (current().is_name("is")) fail("you cannot chain multiple tests with is");
    test->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  return negated ? finish(with_child(ExprKind::unary, std::move(test), "not")) : std::move(test);
}

}  // namespace quire::jinja
