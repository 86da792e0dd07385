// Creates, compares and hashes template values. Values are cheap to copy; the arena of one render owns containers.
#include "text/template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::jinja {
namespace {

constexpr std::size_t kMinIndexedEntries = 8;  // a scan of a smaller dict is cheaper than an index
constexpr std::uint64_t kMaxKeyBytes = 64 << 10;
constexpr std::uint32_t kMaxKeyDepth = 64;

const List* tuple_of(const Value& value) {
  return value.is<List*>() && value.as<List*>()->kind == ListKind::tuple ? value.as<List*>() : nullptr;
}

bool same_key(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return a.text() == b.text();
  return hash_key(a) == hash_key(b);
}

std::string tuple_key(const List& tuple) {
  std::string key = "(";
  for (const Value& element : tuple.elements) {
    const std::string part = hash_key(element);
    if (part.empty()) return {};
    key += fmt::format("{}:{}", part.size(), part);
  }
  return key;
}

}  // namespace

Value make_text(std::string text, bool markup) {
  return Value(Text{std::make_shared<const std::string>(std::move(text)), markup});
}

Value make_undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

std::string hash_key(const Value& value) {
  if (value.is_text()) return "s" + std::string(value.text());
  if (value.is_int()) return fmt::format("n{}", value.integer());
  if (value.is<double>()) {
    const double number = value.as<double>();
    if (std::trunc(number) == number && std::abs(number) < 0x1p127) return fmt::format("n{}", static_cast<Int>(number));
    return fmt::format("f{}", number);
  }
  if (value.is<None>()) return "0";
  const List* tuple = tuple_of(value);
  if (tuple == nullptr || tuple->key_bytes > kMaxKeyBytes || tuple->key_depth > kMaxKeyDepth) return {};
  return tuple_key(*tuple);
}

std::uint64_t key_size(const Value& value) {
  constexpr std::uint64_t kNumberBytes = 32;
  if (value.is_text()) return value.text().size() + 1;
  const List* tuple = tuple_of(value);
  return tuple == nullptr ? kNumberBytes : std::min(tuple->key_bytes, kMaxKeyBytes);
}

List make_tuple(std::vector<Value> elements) {
  constexpr std::uint64_t kPrefixBytes = 12;  // bytes for the size of an element and a colon
  List made{.kind = ListKind::tuple, .elements = std::move(elements), .key_bytes = 1, .key_depth = 1};
  for (const Value& element : made.elements) {
    const List* inner = tuple_of(element);
    // Limits the sum, because a tuple may contain another tuple many times.
    made.key_bytes = std::min(made.key_bytes + kPrefixBytes + (inner == nullptr ? key_size(element) : inner->key_bytes), kMaxKeyBytes + 1);
    if (inner != nullptr) made.key_depth = std::max(made.key_depth, inner->key_depth + 1);
  }
  return made;
}

const Value* Dict::find(const Value& key) const {
  if (!index.empty()) {
    const auto found = index.find(hash_key(key));
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  if (!key.is_text() && hash_key(key).empty()) return nullptr;
  for (const auto& [name, value] : entries)
    if (same_key(name, key)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find("s" + std::string(key));
    return found == index.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries)
    if (name.is_text() && name.text() == key) return &value;
  return nullptr;
}

bool Dict::set(const Value& key, const Value& value) {
  const std::string spelling = hash_key(key);
  if (spelling.empty()) return false;
  if (const Value* old = find(key)) {
    *const_cast<Value*>(old) = value;
    return true;
  }
  entries.emplace_back(key, value);
  if (!index.empty())
    index.emplace(spelling, entries.size() - 1);
  else if (entries.size() > kMinIndexedEntries)
    for (std::size_t i = 0; i < entries.size(); ++i) index.emplace(hash_key(entries[i].first), i);
  return true;
}

bool truth(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (value.is<bool>()) return value.as<bool>();
  if (value.is<Int>()) return value.as<Int>() != 0;
  if (value.is<double>()) return value.as<double>() != 0;
  if (value.is_text()) return !value.text().empty();
  if (value.is<List*>()) return value.as<List*>()->kind == ListKind::generator || !value.as<List*>()->elements.empty();
  if (value.is<Dict*>()) return !value.as<Dict*>()->entries.empty();
  return true;
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                                "str",       "list",     "dict", "Namespace", "function"};
  static constexpr std::string_view kLists[] = {"list", "tuple", "generator", "range", "dict_keys", "dict_values", "dict_items"};
  if (value.is<List*>()) return kLists[static_cast<std::size_t>(value.as<List*>()->kind)];
  if (value.is_markup()) return "Markup";
  return kNames[value.data.index()];
}

bool is_iterable(const Value& value) {
  return value.is<Undefined>() || value.is_text() || value.is<List*>() || value.is<Dict*>();
}

}  // namespace quire::jinja
