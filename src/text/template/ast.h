#pragma once
// The parsed template. Trees are at most kMaxTreeDepth deep, so walking and freeing them needs bounded stack.
// Made by the parser, once per template, and read by all renders of it at once, on any thread: nothing changes it.
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
  unary,             // op: "-", "+", "not"
  binary,            // op: + - * / // % **
  concat,            // children joined by ~
  compare,           // children[0] ops[0] children[1] ops[1] children[2] ...
  logic,             // op: "and", "or"
  condition,         // children: condition, then, else (null without one)
  namespace_target,  // name.ops[0], only as a target of set
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// A node of an expression. Which of its members mean something is said with its kind; the others are empty.
struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  // Of the tree from here down, this node included.
  int depth = 1;
  std::string name;
  std::vector<std::string> ops;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<ExprPtr> positional;
  // Of a call, in the order of the text: name=expression.
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *expression in a call
  ExprPtr double_star;  // **expression in a call
  // Looked up by the parser: a name that is not known is an error of the template, not of one conversation.
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
  call_block,    // expression is the call; the rest is the caller's macro
  filter_block,  // body through the filters of expression
  with,          // targets = values, body
  scope,         // body in a scope of its own ({% generation %})
  break_loop,
  continue_loop,
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null without one
};

// A statement, and those within it. Which of its members mean something is said with its kind.
struct Stmt {
  StmtKind kind = StmtKind::text;
  int line = 0;
  std::string text;  // the text, or the macro's name
  ExprPtr target;
  ExprPtr expression;
  ExprPtr condition;
  Body body;
  Body other;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // with
  bool recursive = false;
  // Macros: what the body reads beyond its parameters. As in jinja2 a call may give more only where it is read.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Program {
  Body body;
};

}  // namespace quire::jinja
