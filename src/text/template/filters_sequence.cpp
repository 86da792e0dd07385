// Implements filters for sequences and mappings. Runs on the render's thread, and charges its budget for each element that is visited. Each
// filter behaves like jinja2's filter with the same name, including the errors.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text/template/builtin.h"
#include "text/template/merge_sort.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

Value length(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'length'", arguments, {});
  return Value(Int{runtime.length(value)});
}

Value attribute_of(Runtime& runtime, const Value& object, const Value* attribute) {
  return attribute == nullptr || attribute->is<None>() ? object : runtime.path(object, *attribute);
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'join'", arguments, {"d", "attribute"});
  const std::string separator = bound.get(0) != nullptr ? runtime.str(*bound.get(0)) : "";
  std::string out;
  std::string buffer;
  bool first = true;
  for (const Value& element : runtime.iterate(value)) {
    if (!std::exchange(first, false)) out += separator;
    const Value part = attribute_of(runtime, element, bound.get(1));
    out += runtime.str_view(part, buffer);
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  }
  return runtime.text(std::move(out));
}

Value to_list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'list'", arguments, {});
  return runtime.list(runtime.iterate(value));
}

Value first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'first'", arguments, {});
  const std::vector<Value> elements = runtime.iterate(value);
  return elements.empty() ? make_undefined("No first item, sequence was empty.") : elements.front();
}

Value last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'last'", arguments, {});
  if (value.is<List*>() && value.as<List*>()->kind == ListKind::generator) runtime.fail("'generator' object is not reversible");
  const std::vector<Value> elements = runtime.iterate(value);
  return elements.empty() ? make_undefined("No last item, sequence was empty.") : elements.back();
}

// Returns the arguments after the first `count`.
Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

std::string_view name_argument(Runtime& runtime, const Arguments& arguments, std::size_t index, std::string_view what) {
  if (index >= arguments.positional.size() || !arguments.positional[index].is_text())
    runtime.fail(fmt::format("{} needs the name of a filter, test or attribute", what));
  return arguments.positional[index].text();
}

Value map_attribute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'map'", arguments, {"attribute", "default"});
  std::vector<Value> out;
  for (const Value& element : runtime.iterate(value)) out.push_back(runtime.path(element, bound.need(0), bound.get(1)));
  return runtime.list(std::move(out), ListKind::generator);
}

Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return runtime.list({}, ListKind::generator);
  if (arguments.positional.empty()) return map_attribute(runtime, value, arguments);
  const std::string_view name = name_argument(runtime, arguments, 0, "filter 'map'");
  const Filter* filter = find_filter(name);
  if (filter == nullptr) runtime.unsupported(fmt::format("filter '{}'", name));
  const Arguments rest = without_first(arguments, 1);
  std::vector<Value> out;
  for (const Value& element : runtime.iterate(value)) out.push_back(filter->function(runtime, element, rest));
  return runtime.list(std::move(out), ListKind::generator);
}

template <bool keep, bool by_attribute>
Value pick(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return runtime.list({}, ListKind::generator);
  const std::string_view what = by_attribute ? "filter 'selectattr'" : "filter 'select'";
  if (by_attribute && arguments.positional.empty()) runtime.fail("missing parameter for attribute name");
  const std::size_t test_at = by_attribute ? 1 : 0;
  const Test* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > test_at) {
    const std::string_view name = name_argument(runtime, arguments, test_at, what);
    test = find_test(name);
    if (test == nullptr) runtime.unsupported(fmt::format("test '{}'", name));
    rest = without_first(arguments, test_at + 1);
  }
  std::vector<Value> out;
  for (const Value& element : runtime.iterate(value)) {
    const Value tested = by_attribute ? runtime.path(element, arguments.positional[0]) : element;
    if (truth(test != nullptr ? test->function(runtime, tested, rest) : tested) == keep) out.push_back(element);
  }
  return runtime.list(std::move(out), ListKind::generator);
}

Value folded(const Value& value, bool case_sensitive) {
  return case_sensitive || !value.is_text() ? value : make_text(lower(value.text()));
}

Value unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'unique'", arguments, {"case_sensitive", "attribute"});
  std::unordered_set<std::string> seen;
  std::vector<Value> out;
  for (const Value& element : runtime.iterate(value)) {
    const Value part = folded(attribute_of(runtime, element, bound.get(1)), bound.flag(0, false));
    runtime.charge_key(part);
    const std::string key = part.is<Undefined>() ? "u" : hash_key(part);
    if (key.empty()) runtime.fail(fmt::format("unhashable type: '{}'", type_name(part)));
    if (seen.insert(key).second) out.push_back(element);
  }
  return runtime.list(std::move(out), ListKind::generator);
}

// Sorts by key as Python does: equal elements keep their order, even with `reverse`.
std::vector<Value> sorted(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  const auto before = [&](const auto& a, const auto& b) {
    return reverse ? runtime.less(b.first, a.first) : runtime.less(a.first, b.first);
  };
  merge_sort(keyed, before);
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, element] : keyed) out.push_back(std::move(element));
  return out;
}

// Returns the sort key of an element. If `attribute` names several attributes ("a,b"), the key is a list.
Value sort_key(Runtime& runtime, const Value& element, const Value* attribute, bool case_sensitive) {
  const bool is_several = attribute != nullptr && attribute->is_text() && attribute->text().find(',') != std::string_view::npos;
  if (!is_several) return folded(attribute_of(runtime, element, attribute), case_sensitive);
  std::vector<Value> keys;
  std::string_view rest = attribute->text();
  for (std::size_t comma = 0; comma != std::string_view::npos; rest.remove_prefix(std::min(comma, rest.size() - 1) + 1)) {
    comma = rest.find(',');
    keys.push_back(folded(runtime.path(element, make_text(std::string(rest.substr(0, comma)))), case_sensitive));
    if (comma == std::string_view::npos) break;
  }
  return runtime.list(std::move(keys));
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'sort'", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& element : runtime.iterate(value))
    keyed.emplace_back(sort_key(runtime, element, bound.get(2), bound.flag(1, false)), element);
  return runtime.list(sorted(runtime, std::move(keyed), bound.flag(0, false)));
}

Value pair_of(Runtime& runtime, const std::pair<Value, Value>& entry) {
  return runtime.list({entry.first, entry.second}, ListKind::tuple);
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'dictsort'", arguments, {"case_sensitive", "by", "reverse"});
  runtime.require_defined(value);
  const std::string_view by = bound.text(1, "key");
  if (by != "key" && by != "value") runtime.fail("You can only sort by either \"key\" or \"value\"");
  if (!value.is<Dict*>()) runtime.fail(fmt::format("'{} object' has no attribute 'items'", type_name(value)));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& entry : value.as<Dict*>()->entries)
    keyed.emplace_back(folded(by == "key" ? entry.first : entry.second, bound.flag(0, false)), pair_of(runtime, entry));
  return runtime.list(sorted(runtime, std::move(keyed), bound.flag(2, false)));
}

Value items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'items'", arguments, {});
  std::vector<Value> out;
  if (!value.is<Undefined>()) {
    if (!value.is<Dict*>()) runtime.fail("Can only get item pairs from a mapping.");
    for (const auto& entry : value.as<Dict*>()->entries) out.push_back(pair_of(runtime, entry));
  }
  return runtime.list(std::move(out), ListKind::generator);
}

Value sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'sum'", arguments, {"attribute", "start"});
  Value total = bound.get(1) != nullptr ? *bound.get(1) : Value(Int{0});
  if (total.is_text()) runtime.fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& element : runtime.iterate(value)) total = runtime.binary("+", total, attribute_of(runtime, element, bound.get(0)));
  return total;
}

template <bool smallest>
Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, smallest ? "filter 'min'" : "filter 'max'", arguments, {"case_sensitive", "attribute"});
  Value best = make_undefined("No aggregated item, sequence was empty.");
  Value best_key;
  bool is_first = true;
  for (const Value& element : runtime.iterate(value)) {
    const Value key = folded(attribute_of(runtime, element, bound.get(1)), bound.flag(0, false));
    const bool better = std::exchange(is_first, false) || (smallest ? runtime.less(key, best_key) : runtime.less(best_key, key));
    if (!better) continue;
    best = element;
    best_key = key;
  }
  return best;
}

Value reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'reverse'", arguments, {});
  std::vector<Value> elements = runtime.iterate(value);
  std::reverse(elements.begin(), elements.end());
  const bool is_generator = value.is<List*>() && value.as<List*>()->kind == ListKind::generator;
  if (!value.is_text()) return runtime.list(std::move(elements), is_generator ? ListKind::list : ListKind::generator);
  std::string out;
  for (const Value& element : elements) out += element.text();
  return runtime.text(std::move(out), value.is_markup());
}

Value attr(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'attr'", arguments, {"name"});
  bound.need(0);
  return runtime.own_attribute(value, bound.text(0, ""));
}

constexpr Filter kSequenceFilters[] = {
    {"length", length},
    {"count", length},
    {"join", join},
    {"list", to_list},
    {"first", first},
    {"last", last},
    {"map", map},
    {"select", pick<true, false>},
    {"reject", pick<false, false>},
    {"selectattr", pick<true, true>},
    {"rejectattr", pick<false, true>},
    {"unique", unique},
    {"sort", sort},
    {"dictsort", dictsort},
    {"items", items},
    {"sum", sum},
    {"min", extreme<true>},
    {"max", extreme<false>},
    {"reverse", reverse},
    {"attr", attr},
};

}  // namespace

std::span<const Filter> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace quire::jinja
