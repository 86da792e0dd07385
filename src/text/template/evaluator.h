#pragma once
// Walks the tree of one template for one context. An object serves one render, on one thread. Statements append to a text, and expressions
// return values. Both charge each step to the render's budget, so that a template that never ends fails with an error. Templates come with
// models and are not trusted.
#include <deque>
#include <string>
#include <unordered_map>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace quire::jinja {

// The names that are set in one template body, loop iteration, macro call or block. If a name is not found, the look-up continues in the
// parent scope.
struct Scope {
  const Scope* parent = nullptr;
  std::unordered_map<std::string, Value> names;
};

// The state of the template's object `loop`.
struct Loop {
  // Null after the loop has ended, because a callable may outlive the loop and still refer to this record.
  const std::vector<Value>* elements = nullptr;
  std::size_t index = 0;
  // Recursion depth of a recursive loop; 0 in the outermost call.
  int depth = 0;
  const Stmt* statement = nullptr;  // set if the loop is recursive
  Scope* scope = nullptr;           // scope that contains the loop
  // Arguments of the last call of loop.changed(); valid if `changed_before` is true.
  std::vector<Value> last_changed;
  bool changed_before = false;
};

class Evaluator {
 public:
  // `context` becomes the outermost scope and must be an object. The constructor and run() throw Failure.
  Evaluator(const Program& program, const TemplateOptions& options, const boost::json::value& context);

  std::string run();

 private:
  // How the enclosing loop continues after a body.
  enum class Flow : std::uint8_t { next, break_loop, continue_loop };
  class Level;

  // Statements (evaluator.cpp).
  Flow run_body(const Body& body, Scope& scope, std::string& out);
  Flow run_statement(const Stmt& statement, Scope& scope, std::string& out);
  void run_output(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_if(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_for(const Stmt& statement, Scope& scope, std::string& out);
  void run_loop(const Stmt& statement, const Value& iterable, Scope& scope, int depth, std::string& out);
  // Returns the elements that the loop visits. Computes all of them before the first iteration, because `loop` exposes their number.
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
  // Searches the scopes from the innermost to the outermost, then the globals.
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
  // All scopes and loops of the render, including ended ones, because macros and callables point to them.
  std::deque<Scope> scopes_;
  std::deque<Loop> loops_;
  // Current recursion depth; see Level.
  std::uint32_t depth_ = 0;
};

// During its lifetime, counts one level of recursion and sets the line that errors report.
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
