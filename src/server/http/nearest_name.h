#pragma once
// What may have been meant by a name that nobody knows.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// The name with the fewest edits from `name`, if that is few enough to be a slip.
[[nodiscard]] std::optional<std::string_view> nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace quire
