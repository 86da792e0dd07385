#include "server/models/model_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/name_pattern.h"
#include "base/nearest_name.h"

namespace quire {

namespace {

constexpr std::string_view kLatest = ":latest";
constexpr std::size_t kMaxShownNames = 20;

std::optional<std::size_t> find_exact(std::span<const ModelEntry> entries, std::string_view name) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const auto names = listed_names(entries[i]); std::ranges::find(names, name) != names.end()) return i;
  return std::nullopt;
}

std::optional<std::size_t> find_pattern(std::span<const ModelEntry> entries, std::string_view name) {
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (std::ranges::any_of(entries[i].aliases, [&](const auto& alias) { return is_pattern(alias) && matches_pattern(alias, name); }))
      return i;
  return std::nullopt;
}

// A name is part of lines of text, such as the line in which a process reports its port.
bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

std::string without_controls(std::string name) {
  std::ranges::replace_if(name, is_control, '?');
  return name;
}

}  // namespace

std::vector<std::string> listed_names(const ModelEntry& entry) {
  std::vector<std::string> names{entry.name};
  std::ranges::copy_if(entry.aliases, std::back_inserter(names), [](const std::string& alias) { return !is_pattern(alias); });
  names.insert(names.end(), entry.adapters.begin(), entry.adapters.end());
  return names;
}

Result<std::size_t> find_entry(std::span<const ModelEntry> entries, std::string_view requested, bool is_ollama) {
  if (requested.empty()) return 0;
  std::vector<std::string_view> spellings{requested};
  if (is_ollama && requested.ends_with(kLatest)) spellings.push_back(requested.substr(0, requested.size() - kLatest.size()));
  for (const std::string_view spelling : spellings)
    if (const auto found = find_exact(entries, spelling)) return *found;
  for (const std::string_view spelling : spellings)
    if (const auto found = find_pattern(entries, spelling)) return *found;
  std::vector<std::string> names;
  for (const ModelEntry& entry : entries) names.push_back(entry.name);
  const std::string_view shown = requested.substr(0, 200);
  std::string remedy;
  if (const auto nearest = nearest_name(shown, {names.begin(), names.end()})) remedy = fmt::format("did you mean '{}'? ", *nearest);
  const bool is_cut = names.size() > kMaxShownNames;
  if (is_cut) names.resize(kMaxShownNames);
  return fail(ErrorCode::not_found, "model", fmt::format("'{}' is not served by this server", shown),
              fmt::format("{}use '{}'{}", remedy, fmt::join(names, "', '"), is_cut ? ", or see /v1/models" : ""));
}

Result<void> check_names(std::span<const ModelEntry> entries) {
  std::map<std::string, std::string> owners;
  for (const ModelEntry& entry : entries) {
    std::vector<std::string> names = listed_names(entry);
    std::ranges::copy_if(entry.aliases, std::back_inserter(names), is_pattern);
    for (const std::string& name : names) {
      if (std::ranges::any_of(name, is_control))
        return fail(ErrorCode::invalid_argument, "", fmt::format("the name '{}' contains a control character", without_controls(name)),
                    "rename the file, or set another 'name'");
      if (const auto [owner, is_new] = owners.try_emplace(name, entry.name); !is_new)
        return fail(ErrorCode::invalid_argument, "",
                    owner->second == entry.name
                        ? fmt::format("model '{}' has the name '{}' twice", entry.name, name)
                        : fmt::format("the models '{}' and '{}' both have the name '{}'", owner->second, entry.name, name),
                    "give each model another name");
    }
  }
  return {};
}

}  // namespace quire
