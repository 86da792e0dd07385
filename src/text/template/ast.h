#pragma once
// The tree of a parsed template. Trees are at most kMaxTreeDepth deep, so walking and freeing them needs bounded stack. The parser creates
// a tree once per template. The tree never changes, so all renders read it, concurrently on any threads.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/builtin.h"
#include "text/template/value.h"

namespace quire::jinja {

inline constexpr int kMaxTreeDepth = 200;

enum class ExprKind : std::uint8_t {
  constant,          // value
  name,              // name
  attribute,         // children[0].name
  item,              // children[0][children[1]]
  slice,             // children[0][children[1]:children[2]:children[3]], absent ones null
  call,              // children[0](arguments)
  filter,            // children[0]|name(arguments); children[0] is null at the head of a filter block
  test,              // children[0] is name(arguments)
  list,              // children
  tuple,             // children
  dict,              // children: key, value, key, value
  unary,             // name: "-", "+", "not"
  binary,            // name: + - * / // % **
  concat,            // children joined by ~
  compare,           // children[0] ops[0] children[1] ops[1] children[2] ...
  logic,             // name: "and", "or"
  condition,         // children: condition, then, else (null if there is no else)
  namespace_target,  // name.ops[0], only as a target of set
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// A node of an expression. The comment on its kind lists the members that the kind uses; the other members are empty.
struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  // Height of the subtree, including this node.
  int depth = 1;
  std::string name;
  std::vector<std::string> ops;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<ExprPtr> positional;
  // Keyword arguments (name=expression) of a call, in source order.
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *expression in a call
  ExprPtr double_star;  // **expression in a call
  // Set by the parser. Null if this build does not have the filter or test; evaluating the node then fails.
  const Filter* filter = nullptr;
  const Test* test = nullptr;
};

enum class StmtKind : std::uint8_t {
  text,          // text
  output,        // expression
  set,           // target = expression
  set_block,     // target = body, through the filters of `expression` if there are any
  if_else,       // expression, body, other
  for_loop,      // target in expression if condition, body, other
  macro,         // name(parameters), body
  call_block,    // expression is the call; the other members are the caller's macro
  filter_block,  // body through the filters of expression
  with,          // targets = values, body
  scope,         // body in a separate scope ({% generation %})
  block,         // body in a scope inside the template's scope or, if `recursive`, inside the enclosing scope
  break_loop,
  continue_loop,
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null if there is no default value
};

// A statement and its nested statements. The comment on its kind lists the members that the kind uses.
struct Stmt {
  StmtKind kind = StmtKind::text;
  int line = 0;
  std::string text;  // the text, or the name of the macro
  ExprPtr target;
  ExprPtr expression;
  ExprPtr condition;
  Body body;
  Body other;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // with: targets and their values
  bool recursive = false;
  // Macros: whether the body reads varargs, kwargs or caller. As in jinja2, a call may pass extra arguments only if the body reads them.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Program {
  Body body;
};

}  // namespace quire::jinja
