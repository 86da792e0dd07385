#pragma once
// The Python values that templates use. A Value is cheap to copy. Lists, dicts, namespaces and callables belong to the Arena of one render
// and are destroyed with it, so reference cycles cannot leak.
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace quire::jinja {

// Wide enough for every 64-bit JSON number. Unlike in Python, overflow is an error.
__extension__ using Int = __int128;

struct Undefined {
  std::shared_ptr<const std::string> why;  // the error of operations on the value
};

struct None {};

struct Text {
  std::shared_ptr<const std::string> text;
  bool markup = false;  // markupsafe.Markup: `+` escapes the other operand
};

struct List;
struct Dict;
struct Namespace;
struct Callable;

// Contains numbers by value, shares the immutable bytes of texts, and points to objects in the Arena.
struct Value {
  std::variant<Undefined, None, bool, Int, double, Text, List*, Dict*, Namespace*, Callable*> data;

  Value() : data(None{}) {}
  template <class T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, Value>)
  explicit Value(T&& value) : data(std::forward<T>(value)) {}

  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(data);
  }
  template <class T>
  [[nodiscard]] const T& as() const {
    return std::get<T>(data);
  }
  [[nodiscard]] bool is_text() const { return is<Text>(); }
  [[nodiscard]] std::string_view text() const { return *as<Text>().text; }
  [[nodiscard]] bool is_markup() const { return is_text() && as<Text>().markup; }
  // Returns whether the value is an integer. As in Python, a bool is one.
  [[nodiscard]] bool is_int() const { return is<Int>() || is<bool>(); }
  [[nodiscard]] Int integer() const { return is<bool>() ? Int{as<bool>() ? 1 : 0} : as<Int>(); }
  [[nodiscard]] bool is_number() const { return is_int() || is<double>(); }
  [[nodiscard]] double number() const { return is<double>() ? as<double>() : static_cast<double>(integer()); }
};

Value make_text(std::string text, bool markup = false);
Value make_undefined(std::string why);

// Kinds of iterables. Reading a generator empties it. The views of a dict (keys, values, items) have a length but no index.
enum class ListKind : std::uint8_t { list, tuple, generator, range, keys, values, items };

struct List {
  ListKind kind = ListKind::list;
  std::vector<Value> elements;
  // Size in bytes of a tuple's spelling as a key, and depth of nested tuples (see hash_key).
  std::uint64_t key_bytes = 0;
  std::uint32_t key_depth = 0;
  bool is_group = false;  // a pair of groupby, whose elements can also be read as the attributes grouper and list
};

List make_tuple(std::vector<Value> elements);

// Keeps the order of insertion. A key is a text, a number, None, or a tuple of keys.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, std::size_t> index;  // by hash_key(); empty as long as the dict is small

  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  // Sets an entry. Returns false if the key cannot be hashed.
  bool set(const Value& key, const Value& value);
};

// The object that namespace() returns. A template can set attributes only of namespaces, also inside loops.
struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

class Runtime;
struct Arguments;
struct MacroCode;

enum class CallableKind : std::uint8_t { method, global, macro, loop };

// The target of a call. `self` is the object to which a method is bound. Only the evaluator uses `code` and `scope`.
struct Callable {
  CallableKind kind = CallableKind::method;
  std::string name;
  Value self;
  Value (*function)(Runtime& runtime, const Value& self, const Arguments& arguments) = nullptr;
  const void* code = nullptr;  // macro: its Stmt; loop: its Loop
  void* scope = nullptr;       // macro: the scope of its definition
};

// The evaluated arguments of a call, before they are bound to parameters.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Owns the objects of one render. The addresses of objects are stable.
struct Arena {
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Namespace> namespaces;
  std::deque<Callable> callables;
};

bool truth(const Value& value);
// Returns the type's name as in jinja2's messages: "str", "list", "dict", "NoneType".
std::string_view type_name(const Value& value);
// Returns whether `in`, `for` and list() accept the value.
bool is_iterable(const Value& value);
// Returns a key's canonical spelling (1, 1.0 and True are the same key), or an empty text if the key cannot be hashed. A tuple cannot be
// hashed if its spelling is longer than 64 KiB or its depth is more than 64, because hashing tuples is recursive.
std::string hash_key(const Value& value);
// Returns an upper bound of the length of hash_key()'s result.
std::uint64_t key_size(const Value& value);

}  // namespace quire::jinja
