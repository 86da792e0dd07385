#pragma once
// Parses tokens to a tree, by jinja2's grammar. Rejects what the evaluator does not support, if this can be seen in the source.
#include <string_view>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace quire::jinja {

// Parses a template. Throws Failure.
Program parse_program(std::string_view source);

// Parses expressions and holds the token stream.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  enum class Conditions : bool { no, yes };

  // Returns the current token. The stream ends with an eof token, which take() returns repeatedly, so callers need no check for the end.
  [[nodiscard]] const Token& current() const { return tokens_[position_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  // Returns whether the current token is this one. If it is, consumes the token.
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect(TokenType type);
  // Throw a Failure with the line of the current token.
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void unsupported(std::string what) const;
  [[noreturn]] void fail_unexpected() const;

  ExprPtr parse_expression();
  // Parses one expression, or a tuple without parentheses, up to the end of the tag or a closing parenthesis.
  ExprPtr parse_tuple(Conditions conditions, bool parenthesized = false);
  // Parses the target of set, for or with.
  ExprPtr parse_target(bool with_namespace);
  // Parses one or more `|filter`, for {% filter %} and {% set x | filter %}. With `inline_start`, there is no "|" before the first filter.
  ExprPtr parse_filters(ExprPtr node, bool inline_start);
  ExprPtr parse_call(ExprPtr callee);
  // Filters and tests that this build does not have. As in jinja2, an unknown name is an error of the template, unless a condition may skip
  // its evaluation. truncate_unknown() removes all entries after the first `count`; the removed ones fail only in a render that evaluates
  // them.
  struct UnknownName {
    int line = 0;
    std::string message;
  };
  std::vector<UnknownName> unknown_names_;
  void truncate_unknown(std::size_t count) { unknown_names_.resize(count); }
  // Names that were read since the current macro's body began. They decide whether the macro accepts varargs, kwargs and caller.
  std::vector<std::string> names_read_;

 private:
  class Nesting;
  // Creates a node at the current line. If the node has children, finish() must be called afterwards.
  ExprPtr make(ExprKind kind, std::string name = {});
  ExprPtr finish(ExprPtr node) const;
  ExprPtr with_child(ExprKind kind, ExprPtr child, std::string name = {});
  // One function per precedence, from the weakest operator to the strongest. Each function calls the next one for its operands.
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
  [[nodiscard]] bool at_tuple_end() const;
  [[nodiscard]] bool at_test_argument() const;
  std::string dotted_name();
  ExprPtr parse_binary(ExprPtr (ExpressionParser::*operand)(), std::initializer_list<std::string_view> ops);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;

 protected:
  // Nesting depth of the enclosing statements.
  int statement_depth_ = 0;
};

}  // namespace quire::jinja
