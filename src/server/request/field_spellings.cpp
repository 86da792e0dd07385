// Handles field names in a body that are not the expected ones: applies aliases and detects typing errors. Declared in request_fields.h.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "server/request/object_reader.h"
#include "server/request/request_fields.h"

namespace quire {

namespace json = boost::json;

namespace {

std::string bare(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Returns the edit distance: the number of inserted, removed or changed letters. Values above `most` are not exact.
std::size_t num_edits(std::string_view a, std::string_view b, std::size_t most) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most) return most + 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)}));
  }
  return row.back();
}

}  // namespace

std::string_view misspelt_field(std::string_view name, std::span<const std::string_view> known, std::size_t shortest) {
  constexpr std::size_t kLong = 10, kLongest = 40;
  if (name.size() > kLongest) return {};
  const std::string words = bare(name);
  for (const std::string_view field : known)
    if (field != name && words.size() > 3 && words == bare(field)) return field;
  const std::size_t most = name.size() >= kLong ? 2 : name.size() >= shortest ? 1 : 0;
  std::string_view best;
  std::size_t least = most + 1;
  for (const std::string_view field : known) {
    if (most == 0 || field.size() < shortest) continue;
    const std::size_t edits = num_edits(name, field, most);
    if (edits >= least) continue;
    best = field;
    least = edits;
  }
  return best;
}

Result<std::vector<AppliedAlias>> apply_aliases(json::object& body, FieldApi api) {
  std::vector<AppliedAlias> taken;
  for (const auto& [key, value] : body)
    if (const RequestField* field = find_request_field(key); field != nullptr && field->use(api) == FieldUse::renamed)
      taken.push_back({field->name, field->other});
  std::erase_if(taken, [&body](const AppliedAlias& each) {
    if (!find_request_field(each.alias)->is_neutral(body.at(each.alias))) return false;
    body.erase(each.alias);
    return true;
  });
  for (const auto& [alias, name] : taken) {
    json::value value = std::move(body.at(alias));
    body.erase(alias);
    json::value& field = body[name];
    if (!field.is_null() && !same_value(field, value))
      return fail(ErrorCode::invalid_argument, std::string(alias), fmt::format("conflicts with {}, which means the same", name),
                  "send only one of them");
    field = std::move(value);
  }
  return taken;
}

Error with_alias_name(std::span<const AppliedAlias> taken, Error error) {
  const auto found = std::ranges::find(taken, std::string_view(error.field), &AppliedAlias::field);
  if (found != taken.end()) error.field = found->alias;
  return error;
}

}  // namespace quire
