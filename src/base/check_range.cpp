#include "base/check_range.h"

#include <fmt/format.h>

namespace quire {

Result<void> check_range(const char* field, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::invalid_argument, field, fmt::format("{} is out of range", value),
              fmt::format("use a value from {} to {}", low, high));
}

}  // namespace quire
