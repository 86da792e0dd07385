// Owns the values of one render and counts its steps, bytes and depth. Runs on the render's thread. All objects are destroyed with the
// render. Operations behave as in Python. Each operation that a template can repeat charges the budget first.
#include "text/template/runtime.h"

#include <fmt/format.h>

#include "text/template/builtin.h"
#include "text/template/unicode.h"

namespace quire::jinja {

void Runtime::charge(std::uint64_t steps) {
  constexpr std::uint64_t kStepsPerCheckpoint = 4096;  // takes a fraction of a millisecond
  if ((steps_ + steps) / kStepsPerCheckpoint != steps_ / kStepsPerCheckpoint) pass(options_.cancellation);
  steps_ += steps;
  if (steps_ > options_.limits.max_steps)
    stop(ErrorCode::too_large, line_, fmt::format("rendering takes more than {} steps", options_.limits.max_steps));
}

void Runtime::charge_text(std::uint64_t bytes) {
  if (bytes > options_.limits.max_output_bytes)
    stop(ErrorCode::too_large, line_, fmt::format("a text is longer than {} bytes", options_.limits.max_output_bytes));
  allocate(bytes);
  charge(1 + bytes / 64);
}

void Runtime::allocate(std::uint64_t bytes) {
  allocated_bytes_ += bytes;
  if (allocated_bytes_ > options_.limits.max_allocated_bytes)
    stop(ErrorCode::too_large, line_,
         fmt::format("rendering uses more than {} bytes for intermediate values", options_.limits.max_allocated_bytes));
}

void Runtime::charge_key(const Value& key) {
  charge(1 + key_size(key) / 64);
}

Value Runtime::text(std::string content, bool markup) {
  charge_text(content.size());
  return make_text(std::move(content), markup);
}

Value Runtime::list(std::vector<Value> elements, ListKind kind) {
  charge(1 + elements.size());
  allocate(sizeof(List) + elements.size() * sizeof(Value));
  arena_.lists.push_back(kind == ListKind::tuple ? make_tuple(std::move(elements)) : List{.kind = kind, .elements = std::move(elements)});
  return Value(&arena_.lists.back());
}

Dict& Runtime::new_dict() {
  charge(1);
  allocate(sizeof(Dict));
  return arena_.dicts.emplace_back();
}

void Runtime::set(Dict& dict, const Value& key, const Value& value) {
  // Counts an entry and the key's spelling in the index.
  allocate(2 * sizeof(Value) + sizeof(std::string) + key_size(key));
  charge_key(key);
  if (!dict.set(key, value)) fail(fmt::format("unhashable type: '{}'", type_name(key)));
}

Value Runtime::callable(Callable callable) {
  charge(1);
  arena_.callables.push_back(std::move(callable));
  return Value(&arena_.callables.back());
}

Value Runtime::new_namespace() {
  charge(1);
  return Value(&arena_.namespaces.emplace_back());
}

namespace {

std::vector<Value> characters(std::string_view text) {
  std::vector<Value> out;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    next_code_point(text, position);
    out.push_back(make_text(std::string(text.substr(start, position - start))));
  }
  return out;
}

}  // namespace

std::vector<Value> Runtime::iterate(const Value& value) {
  if (value.is<Undefined>()) return {};
  if (value.is_text()) {
    charge(value.text().size());
    return characters(value.text());
  }
  if (value.is<List*>()) {
    List& list = *value.as<List*>();
    charge(list.elements.size());
    return list.kind == ListKind::generator ? std::exchange(list.elements, {}) : list.elements;
  }
  if (!value.is<Dict*>()) fail(fmt::format("'{}' object is not iterable", type_name(value)));
  std::vector<Value> keys;
  charge(value.as<Dict*>()->entries.size());
  for (const auto& [key, element] : value.as<Dict*>()->entries) keys.push_back(key);
  return keys;
}

std::int64_t Runtime::length(const Value& value) {
  if (value.is<Undefined>()) return 0;
  if (value.is_text()) {
    charge(value.text().size() / 64);
    return static_cast<std::int64_t>(count_code_points(value.text()));
  }
  if (value.is<Dict*>()) return static_cast<std::int64_t>(value.as<Dict*>()->entries.size());
  if (!value.is<List*>() || value.as<List*>()->kind == ListKind::generator)
    fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  return static_cast<std::int64_t>(value.as<List*>()->elements.size());
}

void Runtime::require_defined(const Value& value) const {
  if (value.is<Undefined>()) fail(*value.as<Undefined>().why);
}

Value Runtime::missing(const Value& object, std::string_view name) const {
  if (object.is<None>()) return make_undefined(fmt::format("'None' has no attribute '{}'", name));
  return make_undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

// Looks up an attribute that Python's getattr finds on the type itself, if the sandbox allows it. Sets `found` to whether the attribute
// exists.
Value Runtime::python_attribute(const Value& object, std::string_view name, bool& found) {
  found = true;
  const bool is_private =
      object.is<Namespace*>() ? name.starts_with('_') : name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (is_private || is_mutating_method(object, name))
    return make_undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
  if (object.is<Namespace*>()) {
    const auto& attributes = object.as<Namespace*>()->attributes;
    const auto attribute = attributes.find(std::string(name));
    if (attribute != attributes.end()) return attribute->second;
  } else if (object.is<List*>() && object.as<List*>()->is_group && (name == "grouper" || name == "list")) {
    return object.as<List*>()->elements[name == "list" ? 1 : 0];
  } else if (const Method* method = find_method(object, name)) {
    return callable({CallableKind::method, std::string(name), object, method->function, nullptr, nullptr});
  } else if (is_python_attribute(object, name)) {
    unsupported(fmt::format("attribute '{}' of '{}' objects", name, type_name(object)));
  }
  found = false;
  return Value();
}

Value Runtime::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  bool found = false;
  Value value = python_attribute(object, name, found);
  if (found) return value;
  if (object.is<Dict*>()) {
    if (const Value* element = object.as<Dict*>()->find(name)) return *element;
  }
  return missing(object, name);
}

Value Runtime::own_attribute(const Value& object, std::string_view name) {
  require_defined(object);
  bool found = false;
  Value value = python_attribute(object, name, found);
  return found ? value : missing(object, name);
}

Value Runtime::item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is<Dict*>()) {
    charge_key(key);
    if (const Value* element = object.as<Dict*>()->find(key)) return *element;
  }
  const bool indexable = object.is_text() || (object.is<List*>() && object.as<List*>()->kind <= ListKind::range &&
                                              object.as<List*>()->kind != ListKind::generator);
  if (indexable && key.is_int()) {
    const Int size = length(object);
    const Int index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index >= 0 && index < size) {
      if (object.is<List*>()) return object.as<List*>()->elements[static_cast<std::size_t>(index)];
      const std::size_t start = byte_offset(object.text(), static_cast<std::size_t>(index));
      std::size_t end = start;
      next_code_point(object.text(), end);
      return text(std::string(object.text().substr(start, end - start)), object.is_markup());
    }
  }
  if (key.is_text()) {
    bool found = false;
    Value value = python_attribute(object, key.text(), found);
    if (found) return value;
  }
  std::string buffer;
  return missing(object, key.is_text() ? key.text() : std::string_view(buffer = repr(key)));
}

Value Runtime::path(const Value& object, const Value& path, const Value* fallback) {
  const auto part_of = [&](const Value& whole, const Value& key) {
    Value part = item(whole, key);
    const bool is_replaced = part.is<Undefined>() && fallback != nullptr && !fallback->is<None>();
    return is_replaced ? *fallback : part;
  };
  if (!path.is_text()) return part_of(object, path);
  Value value = object;
  std::string_view rest = path.text();
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos && part.size() < 10;
    value = part_of(value, number ? Value(Int{std::stoll(std::string(part))}) : make_text(std::string(part)));
    if (dot == rest.size()) break;
    rest.remove_prefix(dot + 1);
  }
  return value;
}

namespace {

// Computes one bound of Python's slice.indices().
Int clamp(const Value& given, Int fallback, Int size, bool backward) {
  if (given.is<None>()) return fallback;
  Int index = given.integer();
  if (index < 0) index = index < -size ? Int{-1} - size : index + size;
  const Int low = backward ? -1 : 0;
  const Int high = backward ? size - 1 : size;
  return index < low ? low : index > high ? high : index;
}

}  // namespace

Value Runtime::slice(const Value& object, const Value& start, const Value& stop_at, const Value& step) {
  require_defined(object);
  const bool sliceable = object.is_text() || (object.is<List*>() && (object.as<List*>()->kind <= ListKind::range) &&
                                              object.as<List*>()->kind != ListKind::generator);
  if (!sliceable) fail(fmt::format("'{}' object is not subscriptable", type_name(object)));
  for (const Value* part : {&start, &stop_at, &step}) {
    require_defined(*part);
    if (!part->is<None>() && !part->is_int()) fail("slice indices must be integers or None");
  }
  const Int stride = step.is<None>() ? 1 : step.integer();
  if (stride == 0) fail("slice step cannot be zero");
  const Int size = length(object);
  const bool backward = stride < 0;
  const Int first = clamp(start, backward ? size - 1 : 0, size, backward);
  const Int last = clamp(stop_at, backward ? -1 : size, size, backward);
  if (object.is_text() && stride == 1) {
    const std::size_t from = byte_offset(object.text(), static_cast<std::size_t>(first));
    const std::size_t to = last <= first ? from : from + byte_offset(object.text().substr(from), static_cast<std::size_t>(last - first));
    return text(std::string(object.text().substr(from, to - from)), object.is_markup());
  }
  const std::vector<Value> elements = iterate(object);
  std::vector<Value> picked;
  for (Int i = first; backward ? i > last : i < last; i += stride) {
    picked.push_back(elements[static_cast<std::size_t>(i)]);
    if (stride > size || stride < -size) break;  // prevents an overflow of i
  }
  if (!object.is_text()) return list(std::move(picked), object.as<List*>()->kind);
  std::string joined;
  for (const Value& character : picked) joined += character.text();
  return text(std::move(joined), object.is_markup());
}

Value Runtime::call_function(const Callable& callable, const Arguments& arguments) {
  return callable.function(*this, callable.self, arguments);
}

}  // namespace quire::jinja
