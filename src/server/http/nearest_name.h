#pragma once
// Suggests a known name for an unknown one.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// Returns the name with the fewest edits from `name`, if they are few enough for a typing error.
[[nodiscard]] std::optional<std::string_view> nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace quire
