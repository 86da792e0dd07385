#pragma once
// Suggests a known name that is similar to an unknown name.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// Returns the known name with the smallest edit distance from `name`. Returns nullopt if the distance is too large for a typing error.
[[nodiscard]] std::optional<std::string_view> nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace quire
