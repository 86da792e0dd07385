#pragma once
// Parses tokens to a tree, by jinja2's grammar. It rejects what the evaluator does not support, if the source shows it.
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

  // The stream ends with an eof token. take() returns it again and again, so looking ahead needs no check.
  [[nodiscard]] const Token& current() const { return tokens_[position_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  // Takes the current token and returns true if it is this one.
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
  // Parses one expression, or a tuple without parentheses. The end of the tag or a closing parenthesis ends it.
  ExprPtr parse_tuple(Conditions conditions, bool parenthesized = false);
  // Parses the target of set, for or with.
  ExprPtr parse_target(bool with_namespace);
  // Parses one or more `|filter`, for {% filter %} and {% set x | filter %}. With `inline_start` the first `|` is omitted.
  ExprPtr parse_filters(ExprPtr node, bool inline_start);
  ExprPtr parse_call(ExprPtr callee);
  // Filters and tests that this build does not have. As in jinja2, an unknown one is an error of the template unless a condition may skip
  // its evaluation. truncate_unknown() keeps the first `count` entries; the dropped ones fail only in a render that evaluates them.
  struct UnknownName {
    int line = 0;
    std::string message;
  };
  std::vector<UnknownName> unknown_names_;
  void truncate_unknown(std::size_t count) { unknown_names_.resize(count); }
  // Names read since the current macro body began; they decide whether it takes varargs, kwargs and caller.
  std::vector<std::string> names_read_;

 private:
  class Nesting;
  // Creates a node at the current line. If the node has parts, finish() must follow.
  ExprPtr make(ExprKind kind, std::string name = {});
  ExprPtr finish(ExprPtr node) const;
  ExprPtr with_child(ExprKind kind, ExprPtr child, std::string name = {});
  // One function per precedence, from the weakest operator to the strongest. Each calls the next one for its operands.
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
