// Parses statements to a tree, by recursive descent over jinja2's grammar with limited depth. Called by ChatTemplate::parse() once per
// template. Rejects what the evaluator does not support, with the line, so that renders do not fail in the middle of a conversation.
#include "text/template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "text/template/failure.h"

namespace quire::jinja {
namespace {

using StmtPtr = std::unique_ptr<Stmt>;
using EndNames = std::initializer_list<std::string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program run() {
    Program program;
    program.body = parse_body({}, 0);
    if (!unknown_names_.empty()) stop(ErrorCode::unsupported, unknown_names_.front().line, std::move(unknown_names_.front().message));
    return program;
  }

 private:
  StmtPtr make(StmtKind kind) const {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = current().line;
    return node;
  }

  [[nodiscard]] bool at_end_name(EndNames ends) const {
    return current().type == TokenType::name && std::find(ends.begin(), ends.end(), current().text) != ends.end();
  }

  // Parses statements up to a tag whose name is in `ends`, and leaves the stream at that name. If the template ends first, the error names
  // the last name in `ends` and the line of the opening tag. Without `ends`, parses up to the end of the template.
  Body parse_body(EndNames ends, int open_line) {
    if (++statement_depth_ > kMaxTreeDepth) stop(ErrorCode::too_large, current().line, "the template's tags are nested too deeply");
    Body body;
    while (current().type != TokenType::eof) {
      if (current().type == TokenType::block_begin) {
        take();
        if (at_end_name(ends)) {
          --statement_depth_;
          return body;
        }
        if (StmtPtr statement = parse_statement()) body.push_back(std::move(statement));
        expect(TokenType::block_end);
      } else {
        body.push_back(parse_text_or_output());
      }
    }
    if (ends.size() > 0) fail(fmt::format("unexpected end of template: the tag of line {} has no '{}'", open_line, *(ends.end() - 1)));
    --statement_depth_;
    return body;
  }

  // Parses the body of a tag that has one closing name. Also consumes this name.
  Body parse_block(std::string_view end, int line) {
    expect(TokenType::block_end);
    Body body = parse_body({end}, line);
    take();
    return body;
  }

  StmtPtr parse_text_or_output() {
    if (current().type == TokenType::data) {
      auto node = make(StmtKind::text);
      node->text = take().text;
      return node;
    }
    auto node = make(StmtKind::output);
    expect(TokenType::variable_begin);
    node->expression = parse_tuple(Conditions::yes);
    expect(TokenType::variable_end);
    return node;
  }

  StmtPtr parse_statement() {
    if (current().type != TokenType::name) fail("expected a tag's name, got " + describe(current()));
    const std::string& tag = current().text;
    if (tag == "set") return parse_set();
    if (tag == "if") return parse_if();
    if (tag == "for") return parse_for();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "print") return parse_print();
    if (tag == "generation") return parse_generation();
    if (tag == "block") return parse_named_block();
    if (tag == "break" || tag == "continue") return parse_jump(tag == "break" ? StmtKind::break_loop : StmtKind::continue_loop);
    refuse_tag(tag);
  }

  [[noreturn]] void refuse_tag(const std::string& tag) const {
    if (tag.starts_with("end") || tag == "elif" || tag == "else") fail(fmt::format("unexpected tag '{}'", tag));
    unsupported(fmt::format("tag '{}'", tag));
  }

  StmtPtr parse_set() {
    auto node = make(StmtKind::set);
    take();
    node->target = parse_target(true);
    if (skip_op("=")) {
      node->expression = parse_tuple(Conditions::yes);
      return node;
    }
    node->kind = StmtKind::set_block;
    node->expression = parse_filters(nullptr, false);
    node->body = parse_block("endset", node->line);
    return node;
  }

  // Parses an `if` with its `elif` tags. The tags are parsed in a loop; in the tree, each `elif` is nested in the one before it.
  StmtPtr parse_if() {
    StmtPtr root = make(StmtKind::if_else);
    Stmt* node = root.get();
    const std::size_t num_unknown = unknown_names_.size();
    int arms = 0;
    while (true) {
      take();  // `if` or `elif`
      if (++arms + statement_depth_ > kMaxTreeDepth) stop(ErrorCode::too_large, node->line, "too many elif");
      node->expression = parse_tuple(Conditions::no);
      expect(TokenType::block_end);
      node->body = parse_body({"elif", "else", "endif"}, root->line);
      if (!current().is_name("elif")) break;
      node->other.push_back(make(StmtKind::if_else));
      node = node->other.back().get();
    }
    if (take().text == "else") node->other = parse_block("endif", root->line);
    truncate_unknown(num_unknown);
    return root;
  }

  StmtPtr parse_for() {
    auto node = make(StmtKind::for_loop);
    take();
    node->target = parse_target(false);
    refuse_loop_name(*node->target);
    if (!skip_name("in")) fail("expected 'in', got " + describe(current()));
    node->expression = parse_tuple(Conditions::no);
    if (skip_name("if")) node->condition = parse_expression();
    node->recursive = skip_name("recursive");
    expect(TokenType::block_end);
    ++loop_depth_;
    node->body = parse_body({"else", "endfor"}, node->line);
    --loop_depth_;
    if (take().text == "else") node->other = parse_block("endfor", node->line);
    return node;
  }

  void refuse_loop_name(const Expr& target) const {
    if (target.kind == ExprKind::name && target.name == "loop") fail("can't assign to special loop variable in for-loop");
    for (const ExprPtr& child : target.children) refuse_loop_name(*child);
  }

  void parse_parameters(Stmt& node) {
    expect_op("(");
    while (!current().is_op(")")) {
      if (!node.parameters.empty()) expect_op(",");
      Parameter parameter;
      parameter.name = expect_name();
      if (skip_op("="))
        parameter.fallback = parse_expression();
      else if (!node.parameters.empty() && node.parameters.back().fallback)
        fail("non-default argument follows default argument");
      const auto same = [&](const Parameter& other) { return other.name == parameter.name; };
      if (std::any_of(node.parameters.begin(), node.parameters.end(), same)) fail("duplicate argument '" + parameter.name + "'");
      node.parameters.push_back(std::move(parameter));
    }
    expect_op(")");
  }

  // Parses a macro's body. `break` and `continue` in the body cannot refer to loops outside it. The special names that the body reads
  // decide which extra arguments the macro accepts.
  void parse_macro_body(Stmt& node, std::string_view end) {
    std::vector<std::string> outside;
    std::swap(outside, names_read_);
    const int loops = std::exchange(loop_depth_, 0);
    node.body = parse_block(end, node.line);
    loop_depth_ = loops;
    const auto reads = [&](std::string_view name) { return std::find(names_read_.begin(), names_read_.end(), name) != names_read_.end(); };
    node.uses_varargs = reads("varargs");
    node.uses_kwargs = reads("kwargs");
    node.uses_caller = reads("caller");
    names_read_.insert(names_read_.end(), outside.begin(), outside.end());
  }

  StmtPtr parse_macro() {
    auto node = make(StmtKind::macro);
    take();
    node->text = expect_name();
    parse_parameters(*node);
    parse_macro_body(*node, "endmacro");
    return node;
  }

  StmtPtr parse_call_block() {
    auto node = make(StmtKind::call_block);
    take();
    node->text = "caller";
    if (current().is_op("(")) parse_parameters(*node);
    node->expression = parse_expression();
    if (node->expression->kind != ExprKind::call) fail("expected call");
    parse_macro_body(*node, "endcall");
    return node;
  }

  StmtPtr parse_filter_block() {
    auto node = make(StmtKind::filter_block);
    take();
    node->expression = parse_filters(nullptr, true);
    node->body = parse_block("endfilter", node->line);
    return node;
  }

  StmtPtr parse_with() {
    auto node = make(StmtKind::with);
    take();
    while (current().type != TokenType::block_end) {
      if (!node->assignments.empty()) expect_op(",");
      ExprPtr target = parse_target(false);
      expect_op("=");
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    node->body = parse_block("endwith", node->line);
    return node;
  }

  // Parses {% print a %}, which writes a.
  StmtPtr parse_print() {
    auto node = make(StmtKind::output);
    take();
    node->expression = parse_expression();
    if (current().is_op(",")) unsupported("tag 'print' with several values");
    return node;
  }

  StmtPtr parse_generation() {
    auto node = make(StmtKind::scope);
    take();
    const int loops = std::exchange(loop_depth_, 0);
    node->body = parse_block("endgeneration", node->line);
    loop_depth_ = loops;
    return node;
  }

  // Parses {% block name %}. A chat template has no child templates, so a block only writes its body. The body sees only the names in the
  // template's scope, unless the block is `scoped`.
  StmtPtr parse_named_block() {
    auto node = make(StmtKind::block);
    take();
    node->text = expect_name();
    node->recursive = skip_name("scoped");
    if (skip_name("required")) unsupported("a required block");
    if (!block_names_.insert(node->text).second) fail(fmt::format("block '{}' defined twice", node->text));
    const int loops = std::exchange(loop_depth_, 0);
    node->body = parse_block("endblock", node->line);
    skip_name(node->text);
    loop_depth_ = loops;
    return node;
  }

  StmtPtr parse_jump(StmtKind kind) {
    if (loop_depth_ == 0) fail(fmt::format("'{}' outside loop", current().text));
    auto node = make(kind);
    take();
    return node;
  }

  int loop_depth_ = 0;
  std::set<std::string> block_names_;
};

}  // namespace

Program parse_program(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace quire::jinja
