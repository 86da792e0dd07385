// Implements filters that split a sequence into several sequences. Runs on the render's thread, and charges its budget for each element
// that is visited or added to fill a part.
#include <algorithm>
#include <utility>

#include "text/template/builtin.h"
#include "text/template/merge_sort.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::int64_t kMaxParts = 100'000;  // the limit of range()

Value batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'batch'", arguments, {"linecount", "fill_with"});
  bound.need(0);
  const std::int64_t size = bound.integer(0, 1);
  if (size < 1 || size > kMaxParts) runtime.unsupported("filter 'batch' with this line count");
  const bool fills = bound.get(1) != nullptr && !bound.get(1)->is<None>();
  std::vector<Value> lines, line;
  for (Value& element : runtime.iterate(value)) {
    if (static_cast<std::int64_t>(line.size()) == size) lines.push_back(runtime.list(std::exchange(line, {})));
    line.push_back(std::move(element));
  }
  if (line.empty()) return runtime.list(std::move(lines), ListKind::generator);
  if (fills) runtime.charge(static_cast<std::uint64_t>(size));
  if (fills) line.resize(static_cast<std::size_t>(size), *bound.get(1));
  lines.push_back(runtime.list(std::move(line)));
  return runtime.list(std::move(lines), ListKind::generator);
}

Value slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'slice'", arguments, {"slices", "fill_with"});
  bound.need(0);
  const std::int64_t count = bound.integer(0, 1);
  if (count == 0) runtime.fail("integer division or modulo by zero");
  if (count < 0) return runtime.list({}, ListKind::generator);
  if (count > kMaxParts) runtime.unsupported("filter 'slice' with this number of slices");
  const bool fills = bound.get(1) != nullptr && !bound.get(1)->is<None>();
  const std::vector<Value> elements = runtime.iterate(value);
  const std::size_t slices = static_cast<std::size_t>(count), size = elements.size() / slices, longer = elements.size() % slices;
  std::vector<Value> out;
  for (std::size_t i = 0, at = 0; i < slices; ++i) {
    const std::size_t end = at + size + (i < longer ? 1 : 0);
    std::vector<Value> part(elements.begin() + static_cast<std::ptrdiff_t>(at), elements.begin() + static_cast<std::ptrdiff_t>(end));
    if (fills && i >= longer) part.push_back(*bound.get(1));
    out.push_back(runtime.list(std::move(part)));
    at = end;
  }
  return runtime.list(std::move(out), ListKind::generator);
}

Value group_by(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'groupby'", arguments, {"attribute", "default", "case_sensitive"});
  const Value& attribute = bound.need(0);
  const bool is_folded = !bound.flag(2, false);
  struct Keyed {
    Value key, shown, element;
  };
  std::vector<Keyed> keyed;
  for (Value& element : runtime.iterate(value)) {
    Value shown = runtime.path(element, attribute, bound.get(1));
    Value key = is_folded && shown.is_text() ? make_text(lower(shown.text())) : shown;
    keyed.push_back({std::move(key), std::move(shown), std::move(element)});
  }
  merge_sort(keyed, [&](const Keyed& a, const Keyed& b) { return runtime.less(a.key, b.key); });
  std::vector<Value> groups;
  for (std::size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> elements;
    for (end = begin; end < keyed.size() && runtime.equal(keyed[end].key, keyed[begin].key); ++end) elements.push_back(keyed[end].element);
    if (end == begin) ++end;  // NaN is not equal to itself, so its group would be empty
    const Value pair = runtime.list({keyed[begin].shown, runtime.list(std::move(elements))}, ListKind::tuple);
    pair.as<List*>()->is_group = true;
    groups.push_back(pair);
  }
  return runtime.list(std::move(groups));
}

constexpr Filter kGroupingFilters[] = {{"batch", batch}, {"slice", slice}, {"groupby", group_by}};

}  // namespace

std::span<const Filter> grouping_filters() {
  return kGroupingFilters;
}

}  // namespace quire::jinja
