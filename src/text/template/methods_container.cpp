// Implements methods of list, tuple and dict that do not change the container, and the global functions. Runs on the render's thread.
// Methods that would change a container are known by name and rejected, as in jinja2's immutable sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "text/template/builtin.h"
#include "text/template/runtime.h"

namespace quire::jinja {
namespace {

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'index'", arguments, {"value"});
  const auto& elements = self.as<List*>()->elements;
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (runtime.equal(elements[i], bound.need(0))) return Value(Int{static_cast<Int>(i)});
  runtime.fail("list.index(x): x not in list");
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'count'", arguments, {"value"});
  const auto& elements = self.as<List*>()->elements;
  return Value(Int{std::count_if(elements.begin(), elements.end(), [&](const Value& e) { return runtime.equal(e, bound.need(0)); })});
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'copy'", arguments, {});
  return runtime.list(self.as<List*>()->elements);
}

constexpr Method kListMethods[] = {{"index", list_index}, {"count", list_count}, {"copy", list_copy}};

template <ListKind kind>
Value view(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a method of dict", arguments, {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.as<Dict*>()->entries)
    if (kind == ListKind::items)
      out.push_back(runtime.list({key, value}, ListKind::tuple));
    else
      out.push_back(kind == ListKind::keys ? key : value);
  return runtime.list(std::move(out), kind);
}

Value get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) runtime.fail("dict.get() takes no keyword arguments");
  const Bound bound(runtime, "method 'get'", arguments, {"key", "default"});
  const Value& key = bound.need(0);
  if (key.is<Undefined>()) return bound.get(1) != nullptr ? *bound.get(1) : Value(None{});
  runtime.charge_key(key);
  if (hash_key(key).empty()) runtime.fail(fmt::format("unhashable type: '{}'", type_name(key)));
  const Value* found = self.as<Dict*>()->find(key);
  if (found != nullptr) return *found;
  return bound.get(1) != nullptr ? *bound.get(1) : Value(None{});
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'copy'", arguments, {});
  Dict& copy = runtime.new_dict();
  for (const auto& [key, value] : self.as<Dict*>()->entries) runtime.set(copy, key, value);
  return Value(&copy);
}

constexpr Method kDictMethods[] = {
    {"get", get}, {"keys", view<ListKind::keys>}, {"values", view<ListKind::values>}, {"items", view<ListKind::items>}, {"copy", dict_copy},
};

constexpr std::int64_t kMaxRange = 100'000;  // the same limit as in jinja2's sandbox

Value range(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(runtime, "function 'range'", arguments, {"start", "stop", "step"});
  bound.need(0);
  const bool one = bound.get(1) == nullptr;
  const std::int64_t start = one ? 0 : bound.integer(0, 0);
  const std::int64_t end = one ? bound.integer(0, 0) : bound.integer(1, 0);
  const std::int64_t step = bound.integer(2, 1);
  if (step == 0) runtime.fail("range() arg 3 must not be zero");
  std::vector<Value> out;
  for (Int i = start; step > 0 ? i < end : i > end; i += step) {
    if (out.size() == kMaxRange) runtime.fail(fmt::format("range too big: at most {} elements", kMaxRange));
    out.emplace_back(Int{i});
  }
  return runtime.list(std::move(out), ListKind::range);
}

// Implements dict() and namespace(): adds the entries of a mapping or a list of pairs, then the keyword arguments.
Dict& gather(Runtime& runtime, const Arguments& arguments) {
  Dict& dict = runtime.new_dict();
  if (arguments.positional.size() > 1) runtime.fail("dict expected at most 1 argument");
  if (!arguments.positional.empty() && arguments.positional[0].is<Dict*>()) {
    for (const auto& [key, value] : arguments.positional[0].as<Dict*>()->entries) runtime.set(dict, key, value);
  } else if (!arguments.positional.empty()) {
    for (const Value& element : runtime.iterate(arguments.positional[0])) {
      const std::vector<Value> pair = runtime.iterate(element);
      if (pair.size() != 2) runtime.fail("dict(): an element is not a pair");
      runtime.set(dict, pair[0], pair[1]);
    }
  }
  for (const auto& [key, value] : arguments.named) runtime.set(dict, make_text(key), value);
  return dict;
}

Value make_dict(Runtime& runtime, const Value&, const Arguments& arguments) {
  return Value(&gather(runtime, arguments));
}

Value make_namespace(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Dict& dict = gather(runtime, arguments);
  Value result = runtime.new_namespace();
  for (const auto& [key, value] : dict.entries)
    if (key.is_text()) result.as<Namespace*>()->attributes[std::string(key.text())] = value;
  return result;
}

Value raise(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(runtime, "function 'raise_exception'", arguments, {"message"});
  stop(ErrorCode::invalid_argument, 0, runtime.str(bound.need(0)));
}

// Returns the format without %z and %Z, because the time has no zone in Python either. Accepts only conversions that have the same meaning
// on all platforms, and no widths, so that the result stays short.
std::string checked_time_format(Runtime& runtime, std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const std::size_t begin = i;
    if (i + 1 < format.size() && format[i + 1] == '-') ++i;
    ++i;
    if (i == format.size() || std::string_view("aAbBcdDeFHIjklmMnpPrRStTuUVwWxXyYZz%").find(format[i]) == std::string_view::npos)
      runtime.unsupported(fmt::format("strftime_now format '{}'", format));
    if (format[i] != 'z' && format[i] != 'Z') out += format.substr(begin, i + 1 - begin);
  }
  return out;
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(runtime, "function 'strftime_now'", arguments, {"format"});
  bound.need(0);
  const std::string format = checked_time_format(runtime, bound.text(0, ""));
  const std::time_t now = runtime.options().now_s.value_or(0);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::string out(format.size() * 32 + 1, '\0');
  if (out.size() > 65536) runtime.fail("strftime_now: the format is too long");
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &parts));
  return runtime.text(std::move(out));
}

// Names of attributes in which cycler() and joiner() store their state. Templates cannot access names that begin with "__".
constexpr const char* kItems = "__items";
constexpr const char* kPlace = "__place";

Value bound_method(Runtime& runtime, std::string_view name, const Value& self, Function function) {
  return runtime.callable({CallableKind::method, std::string(name), self, function, nullptr, nullptr});
}

// Moves the cycler to item `place` modulo the number of items, and returns this item.
Value turn_to(const Value& self, std::size_t place) {
  auto& attributes = self.as<Namespace*>()->attributes;
  const std::vector<Value>& items = attributes.at(kItems).as<List*>()->elements;
  attributes[kPlace] = Value(Int{static_cast<Int>(place % items.size())});
  return attributes["current"] = items[place % items.size()];
}

Value next_of_cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'next' of a cycler", arguments, {});
  const Value now = self.as<Namespace*>()->attributes.at("current");
  turn_to(self, static_cast<std::size_t>(self.as<Namespace*>()->attributes.at(kPlace).integer()) + 1);
  return now;
}

Value reset_cycle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'reset' of a cycler", arguments, {});
  turn_to(self, 0);
  return Value(None{});
}

Value make_cycler(Runtime& runtime, const Value&, const Arguments& arguments) {
  if (!arguments.named.empty()) runtime.fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) runtime.fail("at least one item has to be provided");
  const Value cycle = runtime.new_namespace();
  cycle.as<Namespace*>()->attributes[kItems] = runtime.list(arguments.positional);
  turn_to(cycle, 0);
  cycle.as<Namespace*>()->attributes["next"] = bound_method(runtime, "next", cycle, next_of_cycle);
  cycle.as<Namespace*>()->attributes["reset"] = bound_method(runtime, "reset", cycle, reset_cycle);
  return cycle;
}

// Returns the joiner's separator, or an empty text on the first call.
Value join_next(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a joiner", arguments, {});
  return std::exchange(self.as<Namespace*>()->attributes[kItems], self.as<Namespace*>()->attributes.at("sep"));
}

Value make_joiner(Runtime& runtime, const Value&, const Arguments& arguments) {
  const Bound bound(runtime, "joiner()", arguments, {"sep"});
  const Value self = runtime.new_namespace();
  self.as<Namespace*>()->attributes["sep"] = bound.get(0) != nullptr ? *bound.get(0) : make_text(", ");
  self.as<Namespace*>()->attributes[kItems] = make_text("");
  return bound_method(runtime, "joiner", self, join_next);
}

constexpr Method kGlobals[] = {
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"raise_exception", raise},
    {"strftime_now", strftime_now},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
};

}  // namespace

std::span<const Method> list_methods() {
  return kListMethods;
}

std::span<const Method> dict_methods() {
  return kDictMethods;
}

const Method* find_global(std::string_view name) {
  const auto found = std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const Method& global) { return global.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace quire::jinja
