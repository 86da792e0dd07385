#include "server/models/upstream_path.h"

#include "server/http/query.h"
#include "server/models/model_names.h"

namespace quire {

namespace {

constexpr std::string_view kPrefix = "/upstream/";

}  // namespace

bool is_upstream_path(std::string_view path) {
  return path.starts_with(kPrefix);
}

// The name is the longest one of which all characters stand at the beginning of the path; otherwise the text up to the first slash.
Result<UpstreamTarget> find_upstream(std::span<const ModelEntry> entries, std::string_view target) {
  const std::string_view path = target.substr(kPrefix.size());
  const std::size_t end_of_path = std::min(path.find('?'), path.size());
  std::size_t end = std::min(path.find('/'), end_of_path);
  std::string name = decoded_path(path.substr(0, end)).value_or("");
  std::size_t longest = 0;
  for (const ModelEntry& entry : entries)
    for (const std::string& one : listed_names(entry)) {
      const bool is_it = path.starts_with(one) && (one.size() == end_of_path || path.substr(one.size()).starts_with('/'));
      if (!is_it || one.size() <= longest) continue;
      longest = end = one.size();
      name = one;
    }
  if (name.empty()) return fail(ErrorCode::not_found, "model", "the path names no model", "use /upstream/NAME/PATH");
  const auto model = find_entry(entries, name);
  if (!model) return std::unexpected(model.error());
  return UpstreamTarget{*model, std::string(path.substr(end))};
}

}  // namespace quire
