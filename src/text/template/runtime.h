#pragma once
// Owns the objects and the budget of one render, and implements Python's operations on values. All functions may throw Failure. A runtime
// serves one render, on one thread, and destroys its values with itself. Templates come with models and are not trusted, so work that a
// template can repeat is charged before it is done.
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/chat_template.h"
#include "text/template/failure.h"
#include "text/template/value.h"

namespace quire::jinja {

class Runtime {
 public:
  explicit Runtime(const TemplateOptions& options) : options_(options) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const TemplateOptions& options() const { return options_; }

  // Sets the line that errors report.
  void set_line(int line) { line_ = line; }
  [[nodiscard]] int line() const { return line_; }
  [[noreturn]] void fail(std::string message) const { stop(ErrorCode::invalid_argument, line_, std::move(message)); }
  [[noreturn]] void unsupported(const std::string& what) const { stop(ErrorCode::unsupported, line_, what + " is not supported"); }

  // Charges steps before they are executed.
  void charge(std::uint64_t steps);
  // Charges a text of this size, which must also be within the output limit.
  void charge_text(std::uint64_t bytes);

  // Counts memory that is not freed before the end of the render.
  void allocate(std::uint64_t bytes);
  // Charges the hashing of a key.
  void charge_key(const Value& key);

  // Create objects and charge for them.
  Value text(std::string content, bool markup = false);
  Value list(std::vector<Value> elements, ListKind kind = ListKind::list);
  Dict& new_dict();
  void set(Dict& dict, const Value& key, const Value& value);
  Value callable(Callable callable);
  Value new_namespace();

  // Returns the elements that a for loop visits. Empties a generator. Fails if `value` is not iterable.
  std::vector<Value> iterate(const Value& value);
  // Implements len().
  std::int64_t length(const Value& value);

  // Implement str() and repr().
  std::string str(const Value& value);
  std::string repr(const Value& value);
  // Returns the same text as str(), but without copying if `value` is a text. The result may refer to `buffer`.
  std::string_view str_view(const Value& value, std::string& buffer);

  // Implement jinja2's environment.getattr and environment.getitem.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  // Resolves a path like "a.b.0" as map, sort and selectattr do. If `fallback` is neither null nor None, it replaces each missing part.
  Value path(const Value& object, const Value& path, const Value* fallback = nullptr);
  // Implements getattr(), which does not find a dict's keys.
  Value own_attribute(const Value& object, std::string_view name);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);

  bool equal(const Value& a, const Value& b);
  // Returns whether a < b.
  bool less(const Value& a, const Value& b, std::string_view op = "<");
  bool contains(const Value& container, const Value& element);
  Value binary(std::string_view op, const Value& a, const Value& b);
  Value negate(const Value& value);
  // Fails if the value is undefined.
  void require_defined(const Value& value) const;

  // Calls a method or a global function. These calls do not need the evaluator.
  Value call_function(const Callable& callable, const Arguments& arguments);

 private:
  class Nesting;
  void append_repr(std::string& out, const Value& value);
  void append_elements(std::string& out, const std::vector<Value>& elements);
  Value python_attribute(const Value& object, std::string_view name, bool& found);
  // Returns the value of a missing attribute or item: an undefined value, which fails only when it is used.
  Value missing(const Value& object, std::string_view name) const;
  Value add(const Value& a, const Value& b);
  Value multiply(const Value& a, const Value& b);
  Value repeat(const Value& sequence, Int times);
  Value integer_binary(std::string_view op, Int a, Int b);
  Value real_binary(std::string_view op, double a, double b);
  Value power(Int base, Int exponent);
  [[noreturn]] void bad_operands(std::string_view op, const Value& a, const Value& b) const;
  bool less_elements(const List& a, const List& b, std::string_view op);

  TemplateOptions options_;
  Arena arena_;
  int line_ = 0;
  int nesting_ = 0;  // current depth of nested values, in repr, == and <
  // Steps so far, and bytes of all texts and lists that were created, including freed ones. Both only grow, because the limits apply to the
  // whole render.
  std::uint64_t steps_ = 0;
  std::uint64_t allocated_bytes_ = 0;
};

// Implements Python's printf-style operator: `format % argument`.
std::string format_percent(Runtime& runtime, std::string_view format, const Value& argument);
// Implements repr() of a float: the shortest digits that parse to the same number, in Python's layout.
std::string float_repr(double number);
std::string text_repr(std::string_view text);

}  // namespace quire::jinja
