#pragma once
// Walks the tree of one template for one context.
// One object per render, on one thread. Statements write to a text, expressions give values; both charge the render's budget for every
// step, so that a template which runs away ends with an error. Templates come with models and are not trusted.
#include <deque>
#include <string>
#include <unordered_map>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace quire::jinja {

// Names set in a template's body, one loop iteration, one macro call or one block; lookups go outwards.
struct Scope {
  const Scope* parent = nullptr;
  std::unordered_map<std::string, Value> names;
};

// What `loop` stands for.
struct Loop {
  // Null once the loop has ended, which a callable may outlive.
  const std::vector<Value>* elements = nullptr;
  std::size_t index = 0;
  // 0 in the outermost of recursive calls.
  int depth = 0;
  const Stmt* statement = nullptr;  // set if the loop is recursive
  Scope* scope = nullptr;           // where the loop stands
  // loop.changed(): what it was given last, if it was called at all.
  std::vector<Value> last_changed;
  bool changed_before = false;
};

class Evaluator {
 public:
  // `context` becomes the outermost scope; it must be an object. Throws Failure, as run() does.
  Evaluator(const Program& program, const TemplateOptions& options, const boost::json::value& context);

  std::string run();

 private:
  // What a body tells the loop around it.
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };
  class Level;

  // Statements (evaluator.cpp).
  Flow run_body(const Body& body, Scope& scope, std::string& out);
  Flow run_statement(const Stmt& statement, Scope& scope, std::string& out);
  void run_output(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_if(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_for(const Stmt& statement, Scope& scope, std::string& out);
  void run_loop(const Stmt& statement, const Value& iterable, Scope& scope, int depth, std::string& out);
  // What the loop goes through: all is known before its first round, since `loop` tells how many there are.
  std::vector<Value> loop_elements(const Stmt& statement, const Value& iterable, Scope& scope);
  void run_call_block(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_captured(const Stmt& statement, Scope& scope, std::string& captured);
  Value apply_filters(const Expr* filters, const Value& value, Scope& scope);
  void assign(const Expr& target, const Value& value, Scope& scope);
  void append(std::string& out, std::string_view text);
  Scope& new_scope(const Scope* parent);

  // Expressions (evaluator_expression.cpp).
  Value evaluate(const Expr& expr, Scope& scope);
  Value evaluate_kind(const Expr& expr, Scope& scope);
  // From the inside out; then the globals.
  Value look_up(const std::string& name, const Scope& scope);
  Value evaluate_attribute(const Expr& expr, Scope& scope);
  Value evaluate_slice(const Expr& expr, Scope& scope);
  Value evaluate_sequence(const Expr& expr, Scope& scope);
  Value evaluate_dict(const Expr& expr, Scope& scope);
  Value evaluate_concat(const Expr& expr, Scope& scope);
  Value evaluate_compare(const Expr& expr, Scope& scope);
  Value evaluate_logic(const Expr& expr, Scope& scope);
  Value evaluate_condition(const Expr& expr, Scope& scope);
  Value evaluate_unary(const Expr& expr, Scope& scope);
  Value evaluate_filter(const Expr& expr, const Value& input, Scope& scope);
  bool compare(std::string_view op, const Value& a, const Value& b);

  // Calls (evaluator_call.cpp).
  Arguments evaluate_arguments(const Expr& expr, Scope& scope);
  Value evaluate_call(const Expr& expr, Scope& scope);
  Value call(const Value& callee, Arguments arguments, const Expr& expr);
  Value call_macro(const Stmt& macro, Scope& scope, Arguments arguments);
  void bind_macro(const Stmt& macro, Scope& scope, Arguments& arguments);
  void bind_surplus(const Stmt& macro, Scope& scope, Arguments& arguments);
  Value make_macro(const Stmt& statement, Scope& scope);
  Value loop_attribute(Loop& loop, const std::string& name);
  Value loop_method(Loop& loop, const std::string& name, const Arguments& arguments);

  const Program& program_;
  Runtime runtime_;
  // All scopes and loops of the render, also those that have ended: macros and callables refer to them by address.
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
  // How deep the walk recurses; see Level.
  std::uint32_t depth_ = 0;
};

// Recursion of the walk, and the line that errors name.
class Evaluator::Level {
 public:
  Level(Evaluator& evaluator, int line) : evaluator_(evaluator), outer_line_(evaluator.runtime_.line()) {
    evaluator_.runtime_.set_line(line);
    if (++evaluator_.depth_ > evaluator_.runtime_.options().limits.max_depth)
      stop(ErrorCode::too_large, line, "rendering recurses too deeply");
    evaluator_.runtime_.charge(1);
  }
  ~Level() {
    --evaluator_.depth_;
    evaluator_.runtime_.set_line(outer_line_);
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Evaluator& evaluator_;
  int outer_line_;
};

}  // namespace quire::jinja
