#pragma once
// Paths of one model: "/upstream/NAME/metrics" is the path "/metrics" of its server. llama-swap has the same paths.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/models/model_entry.h"

namespace quire {

[[nodiscard]] bool is_upstream_path(std::string_view path);

struct UpstreamTarget {
  std::size_t model = 0;
  std::string rest;  // target of the model's server; does not begin with a slash if the path ends after the name
};

// Names may contain slashes, percent-encoded or not. Errors: no model has the name.
[[nodiscard]] Result<UpstreamTarget> find_upstream(std::span<const ModelEntry> entries, std::string_view target);

}  // namespace quire
