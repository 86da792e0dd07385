#pragma once
// Tokens to a tree. The grammar is jinja2's; what the evaluator cannot do is refused here where the text shows it.
#include <string_view>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace quire::jinja {

// Throws Failure.
Program parse_program(std::string_view source);

// Expressions, and the token stream under them.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  enum class Conditions : bool { no, yes };

  // The stream ends with an eof token, which take() gives for ever: so looking at the next token needs no check.
  [[nodiscard]] const Token& current() const { return tokens_[position_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  // True, and the token is taken, if it is this one.
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect(TokenType type);
  // At the line of the current token.
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void unsupported(std::string what) const;
  [[noreturn]] void fail_unexpected() const;

  ExprPtr parse_expression();
  // One expression, or a tuple without parentheses. An `in` or the end of the tag ends it.
  ExprPtr parse_tuple(Conditions conditions, bool parenthesized = false);
  // The target of set, for and with.
  ExprPtr parse_target(bool with_namespace);
  // One or more `|filter`, for {% filter %} and {% set x | filter %}; the first `|` is optional if `inline_start`.
  ExprPtr parse_filters(ExprPtr node, bool inline_start);
  ExprPtr parse_call(ExprPtr callee);
  // Names read since the last mark, for varargs, kwargs and caller.
  std::vector<std::string> names_read_;

 private:
  class Nesting;
  // A node at the current line; finish() follows where it has parts.
  ExprPtr make(ExprKind kind, std::string name = {});
  ExprPtr finish(ExprPtr node) const;
  ExprPtr with_child(ExprKind kind, ExprPtr child, std::string name = {});
  // From the weakest operator to the strongest; each calls the next for its operands.
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_text();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_bracket(ExprPtr node);
  ExprPtr parse_slice(ExprPtr node, ExprPtr start);
  ExprPtr parse_filter(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  ExprPtr parse_target_name(bool with_namespace);
  bool parse_comparison(ExprPtr& node);
  void parse_arguments(Expr& node);
  void parse_argument(Expr& node);
  void check_callee(const Expr& callee) const;
  [[nodiscard]] bool at_tuple_end() const;
  [[nodiscard]] bool at_test_argument() const;
  std::string dotted_name();
  ExprPtr parse_binary(ExprPtr (ExpressionParser::*operand)(), std::initializer_list<std::string_view> ops);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;

 protected:
  // How deep the statements around are.
  int statement_depth_ = 0;
};

}  // namespace quire::jinja
